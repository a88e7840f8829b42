"""Counts the words of the pages, their long sentences, and their private words.

README.md, CHANGELOG.md and all of ``docs/`` count whole, in four parts:

* prose: headings, paragraphs and lists; of a link its text counts and not its target;
* tables that people write;
* code: fenced blocks of code and output;
* made: what a program writes into a page, which are the rows of the requirements, the tables of
  peers and benchmarks, and the help of commands.

Comments and directives for Sphinx do not count, since no reader sees them. A word stands between
blanks and has a letter or a digit. Within a sentence a piece of code is one word.

``python -m tests.contract.page_words`` prints the figures of each page, ``--long`` the long
sentences, ``--private`` the sentences with private words; both take names of pages.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))

LONG: Final = 30
"""A sentence of more words than this is long."""

PRIVATE: Final = {
    # A clause without a noun hides who or what is meant: "what has no answer", "who asks".
    "what": r"\b[Ww]hat (?:has|is|are|was|were|does|do|cannot|can|may|must|comes?|goes|stands?|"
    r"waits?|lives?|runs?|belongs?|differs?|fits?|gets?|it|they|one|somebody|there)\b",
    "who": r"\b(?:[Ww]hoever|Who (?:has|is|may|sends|asks|takes|wants))\b",
    "where": r"\b[Ww]here (?:there (?:is|are)|one|none|nothing|nobody|it (?:is|has|does))\b",
    "none": r"\b(?:is|are|has|have|was) none\b|\bthere (?:is|are|was) none\b|\bor none\b",
    "so many": r"\b[Ss]o (?:many|much|few|long)\b",
    # Words of the project that the field calls by other names.
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
"""Patterns of the project's old private language. A few are right in places; most are not."""

_MADE: Final = {
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
    r"^(?P<fence>`{3,})\{[^\n]*\n.*?^(?P=fence)$", re.DOTALL | re.MULTILINE
)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_WORD: Final = re.compile(r"\S*[^\W_]\S*")
# A full stop, or the like, before the next sentence; neither in "e.g." nor in "1.2".
_END: Final = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`])|\n{2,}")


@dataclass
class Page:
    """The figures of one page."""

    name: str
    prose: int = 0
    tables: int = 0
    code: int = 0
    made: int = 0
    sentences: list[str] = field(default_factory=list)

    @property
    def words(self) -> int:
        """All words."""
        return self.prose + self.tables + self.code + self.made

    @property
    def long(self) -> list[str]:
        """The sentences that are too long."""
        said = [
            each for each in self.sentences if words(each.replace("`code`", ""))
        ]  # no mere list
        return [each for each in said if words(each) > LONG]

    @property
    def private(self) -> list[tuple[str, str]]:
        """The private words, each with its sentence."""
        return [
            (match[0], each)
            for each in self.sentences
            for pattern in PRIVATE.values()
            for match in re.finditer(pattern, each)
        ]


def words(text: str) -> int:
    """How many words a text has."""
    return len(_WORD.findall(text))


def read(name: str, text: str) -> Page:
    """Count one page."""
    page = Page(name)

    def cut(pattern: str | re.Pattern[str], text: str, flags: int = 0) -> tuple[str, int]:
        found = 0

        def count(match: re.Match[str]) -> str:
            nonlocal found
            found += words(_COMMENT.sub("", match[0]))
            return "\n\n"

        return re.sub(pattern, count, text, flags=flags), found

    if name in _MADE:
        text, page.made = cut(_MADE[name], text, re.MULTILINE)
    text, page.code = cut(_FENCE, _DIRECTIVE.sub("", _COMMENT.sub("", text)))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`\n]+`", "`code`", text)
    cells = "\n\n".join(
        cell for row in re.findall(r"^\|(.*)\|$", text, re.MULTILINE) for cell in row.split("|")
    )
    text, page.tables = cut(r"^\|.*\|$", text, re.MULTILINE)
    page.prose = words(text)
    # Each item of a list, and each cell, ends a sentence.
    text = re.sub(r"\n(?= *(?:[-*]|\d+\.) )", "\n\n", f"{text}\n\n{cells}")
    page.sentences = [" ".join(each.split()) for each in _END.split(text) if words(each)]
    return page


def pages() -> list[Page]:
    """All of them."""
    return [read(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in PAGES]


def main() -> None:
    """Print the figures, or what is to be mended."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract.page_words")
    parser.add_argument("--long", action="store_true", help="the long sentences")
    parser.add_argument("--private", action="store_true", help="the private words")
    parser.add_argument("name", nargs="*", help="only these pages")
    options = parser.parse_args()
    found = [each for each in pages() if not options.name or Path(each.name).stem in options.name]
    if not (options.long or options.private):
        for page in sorted(found, key=lambda each: -each.words):
            parts = f"{page.prose:6} {page.tables:6} {page.code:6} {page.made:6}"
            print(f"{page.words:6} {parts} {len(page.long):5} {len(page.private):5}  {page.name}")
        total = [
            sum(getattr(each, part) for each in found)
            for part in ("words", "prose", "tables", "code", "made")
        ]
        print(
            *total, sum(len(each.long) for each in found), sum(len(each.private) for each in found)
        )
    for page in found:
        for each in page.long if options.long else ():
            print(f"{page.name}: {words(each)}: {each}")
        for word, each in page.private if options.private else ():
            print(f"{page.name}: {word}: {each}")


if __name__ == "__main__":
    main()
