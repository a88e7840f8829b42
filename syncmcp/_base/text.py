"""Makes foreign text safe to show: masks secrets, makes hidden and control characters visible.

Before a person may read foreign text (a URL, a response body, a line of a server's stderr), the
library passes it through `redact`. Text for a screen also passes through `visible`.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

MASK = "***"

# Shorter values (like "1" or "debug") are not secrets, and masking them would make text unreadable.
_SHORTEST_SECRET = 6

# A value in quotes, at any depth of escaping, up to its closing quote, or to the end of the text.
_QUOTED = (
    r"(?:(\\+\")(?:[^\"\\\r\n]|\\+[^\"\\\r\n])*"
    r"|(\")(?:[^\"\\\r\n]|\\.)*|(')(?:[^'\\\r\n]|\\.)*)"
)
# Names are matched from the start of a word only: otherwise long words take quadratic time.
_WORD = r"(?<![\w-])(?!progress_?token)[\w-]*"
_TELLING = (
    r"(?:token|secret|passw(?:or)?d|passphrase|(?:api|access|private|secret)[_-]?key|assertion"
    r"|code_?verifier|session[_-]?id|last-event-id|request_?state|cursor)"
)
# The separator of name and value: of a header, a JSON member, an assignment, or a pair in a tuple.
_IS = r"(?:\\*[\"']?[ \t]*[:=]|[\"'],)[ \t]*(?:b(?=[\"']))?"
_VALUE_MASKED = r"\1\2\3\4" + MASK

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # user:password@ in a URL; the last @ ends it
    (re.compile(r"(?<=://)[^/\s?#\"]+@"), MASK + "@"),
    # the values in a URL's query or fragment, or the whole query if it is one long word
    (re.compile(r"(?<=[?&#])([^=&?#\s\"'<>]+)=(?:[^&\s#\"'<>]|'(?=\w))+"), r"\1=" + MASK),
    (re.compile(r"(?<=[\w/]\?)[\w.~%+-]{16,}(?![\w.~%+=-])"), MASK),
    # an Authorization value anywhere, but not a challenge, and not prose that mentions a scheme
    (
        re.compile(
            r"((?:\b(?:Bearer|DPoP)\s+){1,3})(?!\w+=[\"'\\])"
            r"(?!(?:auth(?:entication|orization)?|tokens?|credentials?|scheme|Bearer|DPoP)\b"
            r"(?![~+/=-]|\.\w))[\w.~+/=:-]{6,}",
            re.IGNORECASE,
        ),
        r"\1" + MASK,
    ),
    # Basic credentials: base64, which has a capital, a digit or padding after its first character
    (
        re.compile(r"\b((?i:Basic)\s+)(?=[\w.~+/:-]+[A-Z\d=])[\w.~+/:-]{6,}=*"),
        r"\1" + MASK,
    ),
    (re.compile(r"\b(Digest\s+)username\b[^\r\n]*", re.IGNORECASE), r"\1" + MASK),
    # headers whose whole value, up to the end of the line, is secret
    (
        re.compile(rf"({_WORD}(?:authorization|cookie){_IS})(?:{_QUOTED}|[^\r\n]+)", re.IGNORECASE),
        _VALUE_MASKED,
    ),
    # values whose name implies a secret: headers, JSON members, fields, variables, command options
    (
        re.compile(rf"({_WORD}{_TELLING}{_IS})(?:{_QUOTED}|[^\s,;&}}\"']+)", re.IGNORECASE),
        _VALUE_MASKED,
    ),
    (
        re.compile(
            rf"((?<![\w-])--?[\w-]*{_TELLING}[ \t]+)(?!-)(?:{_QUOTED}|[^\s\"']+)", re.IGNORECASE
        ),
        _VALUE_MASKED,
    ),
)

_NAMES_A_SECRET = re.compile(rf"{_WORD}(?:authorization|cookie|{_TELLING})", re.IGNORECASE)


def names_a_secret(name: str) -> bool:
    """Return True if `name`, of a header or a JSON member, implies that its value is secret."""
    return _NAMES_A_SECRET.search(name) is not None


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with everything that may be a secret replaced by ``***``.

    `secrets` are values known to be secret (environment values, header values, a session id). Each,
    and each line of it, is masked wherever it occurs, unless it is shorter than six characters.
    """
    known = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


MOST_QUOTED = 16 * 1024
"""The most characters of a foreign text that an error quotes, before secrets are removed."""


def quote(text: str, redact: Callable[[str], str] = redact) -> str:
    """Return foreign text for an error, without secrets; of a long text only the beginning.

    The text is cut before `redact`, whose patterns take time for each character. It is cut between
    two words, because `redact` might not recognize a part of a secret.
    """
    if len(text) <= MOST_QUOTED:
        return redact(text)
    words = text[:MOST_QUOTED].rsplit(None, 1)
    kept = words[0] if words else ""
    return f"{redact(kept)}… ({len(text) - len(kept):,} more characters)"


# The most characters that the library itself writes around a quoted foreign text.
_OWN_WORDS = 2 * 1024


def bounded(message: str) -> str:
    """Return the message of an error; of a very long one, which quotes others, the beginning.

    It is cut between two words, as in `quote`: a secret of one word is not cut.
    """
    if len(message) <= MOST_QUOTED + _OWN_WORDS:
        return message
    kept = message[:MOST_QUOTED].rpartition(" ")[0]
    return f"{kept}… ({len(message) - len(kept):,} more characters)"


def whole(text: str, limit: int) -> str:
    """Return a short text of a server in quotes; for a longer one, a remark that it is too long.

    It is not cut: secrets are found by their whole values, so a part of a secret would remain.
    """
    return repr(text) if len(text) <= limit else "(too long to be shown)"


def cut(text: str, limit: int = 60) -> str:
    """Return a short text of a server; of a longer one the beginning, up to a space.

    No word is cut: secrets are masked later, and found by their whole values.
    """
    return text if len(text) <= limit else f"{text[:limit].rpartition(' ')[0]}..."


def redact_url(url: str) -> str:
    """Do what `redact` does, for a text that should be one URL but may be invalid.

    User and password end at the last ``@``. A password may contain an unencoded ``/``, ``?`` or
    ``#``, at which a parser would end the authority.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    userinfo, at, place = rest.rpartition("@")
    if at and (mark or ":" in userinfo):
        url = f"{scheme}{mark}{MASK}@{place}"
    return redact(url)


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
    after the fourth on one letter. `lines` keeps newlines and tabs (CR LF counts as a newline); no
    other character that is left moves the cursor.
    """
    if text.isascii() and text.isprintable():
        return text
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


def several_lines(text: str) -> str:
    """Do what `visible` does, for several lines within a message, a traceback or a log.

    Each line after the first is marked, so that no line looks like a separate message.
    """
    return visible(text, lines=True).replace("\n", "\n  | ")


def shorten(text: str, limit: int) -> str:
    """Cut a text to its first `limit` characters, and say how many were left out.

    For a text that may be huge, call this before `visible`, which examines every character.
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


_tracebacks = logging.Formatter()


def make_visible(record: logging.LogRecord) -> bool:
    """Make the control and hidden characters of a log record visible; a filter for loggers.

    Other records are not changed: programs may group them by their message without arguments.
    """
    text = record.getMessage()
    shown = visible(text)
    if shown != text:
        record.msg, record.args = shown, ()
    if record.exc_info and record.exc_info[1] is not None and _may_forge(record.exc_info[1]):
        record.exc_text = several_lines(_tracebacks.formatException(record.exc_info))
    return True


def _may_forge(error: BaseException) -> bool:
    """Return whether the text of an exception, or of a cause, is not one visible line."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        text = str(one)
        if visible(text) != text:
            return True
        one = one.__cause__ or one.__context__
    return False


def logger(name: str) -> logging.Logger:
    """Return a logger of the library. No text of a server can forge a line of its log.

    A filter makes each message one line without control characters. So code that logs a name or an
    error of a server need not check it. The filter sees only the records of this logger, not the
    records of its children.
    """
    found = logging.getLogger(name)
    found.addFilter(make_visible)
    return found


# The parent of all these loggers, for programs that list the existing loggers.
logger("syncmcp")


def reason(error: Exception) -> str:
    """Return why a file, an address or a text cannot be used, without Python's error codes."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"see line {error.lineno}, column {error.colno}"
    return getattr(error, "strerror", None) or str(error)


MOST_PROBLEMS = 100
"""The most problems of one value that pydantic is asked to list: each takes a kilobyte."""

_LONGEST_PLACE = 200


def first_problem(error: Any) -> str:
    """Return the first problem of a `ValidationError`, without the input, which may be secret."""
    if (number := error.error_count()) > MOST_PROBLEMS:
        return f"{number:,} problems"
    problem = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, problem["loc"]))  # with keys that the server chose
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{cut(place, _LONGEST_PLACE)}: {reason}"


WORD = re.compile(r"[\x21-\x7e]+")
"""One word of visible ASCII characters, such as a token or an id in a header."""


def counted(number: int, things: str) -> str:
    """Return a number with its noun, such as "2 calls"; the plural ends with an s."""
    return f"{number} {things.removesuffix('s') if number == 1 else things}"
