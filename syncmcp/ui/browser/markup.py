"""A little of Markdown as HTML, for text that nobody vouches for.

Headings, lists, quotes, code, bold and italics look as they are meant; everything else, HTML,
links and pictures included, stands there as it was written. Takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from syncmcp.ui.text import visible

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6} (.*)")
_ITEM = re.compile(r" {0,8}[-*+] (.*)")
_QUOTE = re.compile(r" {0,3}> ?(.*)")
# No alternative can run past the next mark of its kind, so that no text is slow to look through.
_SPAN = re.compile(r"`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*")
# In the order of the groups of `_SPAN`.
_SPANS = (Markup("<code>{}</code>"), Markup("<strong>{}</strong>"), Markup("<em>{}</em>"))


def markdown(text: str) -> Markup:
    """Return `text` as safe HTML; what would be obeyed or hidden is written out."""
    return Markup("\n").join(_blocks(visible(text, lines=True).split("\n")))


def _blocks(lines: list[str]) -> Iterator[Markup]:
    block: list[str] = []
    kind = ""
    fence = ""
    for line in lines:
        if fence:
            block.append(line)
            if line.strip() == fence:
                yield _block("pre", block)
                block, kind, fence = [], "", ""
            continue
        found, content = _kind(line)
        if block and (found != kind or found in ("h", "pre")):
            yield _block(kind, block)
            block = []
        kind = found
        if match := _FENCE.match(line):
            fence = match[1]
        if found:
            block.append(content)
    if block:
        yield _block(kind, block)


def _kind(line: str) -> tuple[str, str]:
    """The kind of block that a line belongs to, and the line as it is shown there."""
    if _FENCE.match(line):
        return "pre", line  # with what follows the mark: nothing is hidden from who reads this
    if match := _HEADING.match(line):
        return "h", match[1]
    if match := _ITEM.match(line):
        return "ul", match[1]
    if match := _QUOTE.match(line):
        return "blockquote", match[1]
    return ("p", line) if line.strip() else ("", "")


def _block(kind: str, lines: list[str]) -> Markup:
    if kind == "pre":
        return Markup("<pre><code>{}</code></pre>").format("\n".join(lines))
    if kind == "h":
        # Not a heading of the page: those are ours.
        return Markup('<p class="heading">{}</p>').format(_spans(lines[0]))
    if kind == "ul":
        items = Markup("").join(Markup("<li>{}</li>").format(_spans(line)) for line in lines)
        return Markup("<ul>{}</ul>").format(items)
    text = Markup("<br>\n").join(_spans(line) for line in lines)
    if kind == "blockquote":
        return Markup("<blockquote>{}</blockquote>").format(text)
    return Markup("<p>{}</p>").format(text)


def _spans(line: str) -> Markup:
    parts: list[Markup] = []
    end = 0
    for match in _SPAN.finditer(line):
        parts.append(escape(line[end : match.start()]))
        number = match.lastindex or 1
        parts.append(_SPANS[number - 1].format(match[number]))
        end = match.end()
    parts.append(escape(line[end:]))
    return Markup("").join(parts)
