"""Redaction: keeps secrets out of messages, logs, reprs and pickles.

The library passes all foreign text (a URL, a response body, a line of a server's stderr) through
`redact` before a person may read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"

# Shorter values (like "1" or "debug") are no secrets, and masking them would make text unreadable.
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
    # values with a telling name: headers, JSON members, form fields, variables, command options
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
    """True if `name`, of a header or a JSON member, tells that its value is a secret."""
    return _NAMES_A_SECRET.search(name) is not None


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with everything that may be a secret replaced by ``***``.

    Args:
        text: Text that is about to be shown, logged or stored.
        secrets: Values known to be secret (environment values, header values, a session id). Each
            value, and each line of it, is masked wherever it occurs, unless it is shorter than six
            characters.
    """
    known = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
