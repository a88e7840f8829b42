"""Counts the words, the long sentences and the private words of the pages.

The pages are README.md, CHANGELOG.md and all of ``docs/``. Comments, targets of links, and
directives for Sphinx are not counted, since no reader sees them. A word is text between blanks with
a letter or a digit. Code, and text that a program writes into a page, has words but no sentences.
Within a sentence, a piece of code is one word.

``python -m tests.contract.page_words [NAME ...]`` prints the figures of the pages, ``--long`` the
long sentences, ``--private`` the sentences with private words.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

LONG: Final = 30
"""A sentence with more words than this is long."""

PRIVATE: Final = {
    # A clause without a noun does not name the actor: "what has no answer", "who asks".
    "what": r"\b[Ww]hat (?:has|is|are|was|were|does|do|cannot|can|may|must|comes?|goes|stands?|"
    r"waits?|lives?|runs?|belongs?|differs?|fits?|gets?|it|they|one|somebody|there)\b",
    "who": r"\b(?:[Ww]hoever|Who (?:has|is|may|sends|asks|takes|wants))\b",
    "where": r"\b[Ww]here (?:there (?:is|are)|one|none|nothing|nobody|it (?:is|has|does))\b",
    "none": r"\b(?:is|are|has|have|was) none\b|\bthere (?:is|are|was) none\b|\bor none\b",
    "so many": r"\b[Ss]o (?:many|much|few|long)\b",
    # Words for which the field has other, established terms.
    "kept": r"\b(?:kept|keeps on|keep kept)\b",
    "told": r"\b(?:tells?|told|is said|are said|says what)\b",
    "heard": r"\b(?:heard?|hears|heard of)\b",
    "anew": r"\banew\b",
    "taken": r"\b(?:taken (?:in|apart|for|along)|takes? (?:in|back|over))\b",
    "asked": r"\bask(?:s|ed)? (?:back|on|anew)\b",
    "give up": r"\b(?:g[ia]ven? up|give[sn]? away|lets? go|let in)\b",
    "held": r"\b(?:held|holds) (?:against|up|back|open)\b",
    "on the way": r"\b(?:on (?:its|their|the) way|under way|find out|found out)\b",
    "beside": r"\bbeside\b",
    "but for": r"\bbut for\b|\ball the same\b|\bfor want of\b|\bthereby\b|\bso that\b",
    "kin": r"\band (?:its|their) kin\b|\band the like\b",
    "by itself": r"\b(?:by (?:itself|themselves|hand)|of (?:its|their|your|our) own|alone)\b",
    "stand": r"\bstands? (?:still|in for|before|below|apart)\b",
    "at one time": r"\bat one time\b|\bfor ever\b|\bwithout end\b|\bmeanwhile\b",
    "notice": r"\bnotices?\b",
    "question": r"\bpast (?:its|the) limit\b",
    "era": r"\beras?\b",
    "words": r"\b(?:in words|its word|his word|their word)\b",
    "somebody": r"\b(?:[Ss]omebody|[Nn]obody|[Ee]verybody)\b",
    "house": r"\b(?:desk|lane|seat|nap|passage|course|shelf|heir|lend(?:s|ing)?|lent|owed?|owes)\b",
}
"""Patterns of words that readers have to decode. A few uses are right; most are not."""

_MADE: Final = {  # text that a program writes
    "docs/requirements.md": r"^\|.*\n(?:\|.*\n)*",
    "docs/peers.md": r"^\|.*\n(?:\|.*\n)*|^\* [^:\n]+: .*\n",
    "docs/performance.md": r"<!-- results: begin -->(?:.*\n)*?<!-- results: end -->",
    "docs/beyond-one-machine.md": r"<!-- results: begin -->(?:.*\n)*?<!-- results: end -->",
    "docs/command-line.md": r"<!-- help of (?:.*\n)*?<!-- end -->",
}
_FENCE: Final = re.compile(
    r"^(?P<fence> *`{3,})[^\n]*\n(?P<code>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE
)
_DIRECTIVE: Final = re.compile(
    r"^(?P<fence>`{3,})\{(?!glossary)[^\n]*\n.*?^(?P=fence)$", re.DOTALL | re.MULTILINE
)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_ROW: Final = re.compile(r"^\|(.*)\|$", re.MULTILINE)
_WORD: Final = re.compile(r"\S*[^\W_]\S*")
# The end of a sentence before the next one; not a full stop as in "e.g." or "1.2".
_END: Final = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`])|\n{2,}")


class Page(NamedTuple):
    """The figures of one page."""

    name: str
    words: int
    long: list[str]
    private: list[tuple[str, str]]
    """The private words, each with its sentence."""


def words(text: str) -> int:
    """Return the number of words of a text."""
    return len(_WORD.findall(text))


def read(name: str, text: str) -> Page:
    """Count one page."""
    count = 0

    def cut(match: re.Match[str]) -> str:
        nonlocal count
        count += words(_COMMENT.sub("", match[0]))
        return "\n\n"

    if name in _MADE:
        text = re.sub(_MADE[name], cut, text, flags=re.MULTILINE)
    text = _FENCE.sub(cut, _DIRECTIVE.sub("", _COMMENT.sub("", text)))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]+`", "`code`", text)
    count += words(text)
    # A sentence ends with its cell of a table, or its item of a list.
    text = _ROW.sub(lambda row: row[1].replace("|", "\n\n") + "\n\n", text)
    text = re.sub(r"\n(?= *(?:[-*]|\d+\.) )", "\n\n", text)
    said = [" ".join(each.split()) for each in _END.split(text) if words(each)]
    private = [
        (found[0], each)
        for each in said
        for pattern in PRIVATE.values()
        for found in re.finditer(pattern, each)
    ]
    listed = {each for each in said if not words(each.replace("`code`", ""))}
    long = [each for each in said if words(each) > LONG and each not in listed]
    return Page(name, count, long, private)


def pages() -> list[Page]:
    """Count all pages."""
    return [read(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in PAGES]


def main() -> None:
    """Print the figures, or the sentences to improve."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.page_words")
    parser.add_argument("--long", action="store_true", help="the long sentences")
    parser.add_argument("--private", action="store_true", help="the private words")
    parser.add_argument("name", nargs="*", help="only these pages")
    options = parser.parse_args()
    for page in pages():
        if options.name and Path(page.name).stem not in options.name:
            continue
        if not (options.long or options.private):
            print(f"{page.words:6} {len(page.long):5} {len(page.private):5}  {page.name}")
        for each in page.long if options.long else ():
            print(f"{page.name}: {words(each)}: {each}")
        for word, each in page.private if options.private else ():
            print(f"{page.name}: {word}: {each}")


if __name__ == "__main__":
    main()
