"""User interfaces for questions of servers, and text of servers and models made safe to show.

Text of a server or a model may be deceptive: an escape sequence can move the cursor over text of
the program, characters can be hidden, the writing direction can be overridden. Every user
interface passes such text through `visible` before it shows it.
"""

from __future__ import annotations

import unicodedata

__all__ = ["shorten", "visible"]


_CONTROL_PICTURES = 0x2400
_DELETE = 0x7F
_DELETE_PICTURE = "\u2421"

# Characters that are invisible although their category is neither control nor format.
_BLANK = frozenset(
    "\u034f"  # combining grapheme joiner
    "\u115f\u1160\u3164\uffa0"  # Hangul fillers
    "\u17b4\u17b5"  # Khmer inherent vowels
    "\u2800"  # Braille blank
)
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
# More combining marks than this on one letter occur in no language, and overlap other lines.
_MOST_MARKS = 4


def visible(text: str, *, lines: bool = False) -> str:
    """Replace every control or hidden character of `text` with a visible notation.

    C0 controls become their pictures (ESC becomes `␛`), all others their code point
    (`<U+202E>`): C1 controls, writing direction, zero width, private and unassigned characters,
    unpaired surrogates, tags, line separators, variation selectors, fillers, and combining marks
    after the fourth on one letter.

    Args:
        text: Any text, usually of a server or a model.
        lines: Keep newlines and tabs (CR LF counts as a newline); otherwise they are replaced, too.

    Returns:
        Text in which no character moves the cursor, except newlines and tabs if `lines`.
    """
    if lines:
        text = text.replace("\r\n", "\n")
    shown: list[str] = []
    marks = 0
    for character in text:
        if character.isascii() and character.isprintable():
            marks = 0
            shown.append(character)
            continue
        if lines and character in "\n\t":
            marks = 0
            shown.append(character)
            continue
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        hidden = marks > _MOST_MARKS or _is_hidden(character)
        shown.append(_written_out(character) if hidden else character)
    return "".join(shown)


def shorten(text: str, limit: int) -> str:
    """Cut `text` to at most `limit` characters and say how many were left out.

    For a text that may be huge, call this before `visible`, which examines every character.

    Args:
        text: Any text.
        limit: The most characters of `text` to keep, at least 0.

    Returns:
        `text` itself, or its beginning followed by a note such as `… (12,000 more characters)`.
    """
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    characters = "character" if left_out == 1 else "characters"
    return f"{text[:limit]}… ({left_out:,} more {characters})"


def _is_hidden(character: str) -> bool:
    if unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _BLANK:
        return True
    code = ord(character)
    return 0xFE00 <= code <= 0xFE0E or 0x180B <= code <= 0x180F or 0xE0000 <= code <= 0xE0FFF


def _written_out(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == _DELETE:
        return _DELETE_PICTURE
    return f"<U+{code:04X}>"
