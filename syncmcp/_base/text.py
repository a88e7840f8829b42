"""The one function that keeps secrets out of messages, logs, reprs and pickles.

Everything in this package that turns foreign text (a URL, a response body, a line of a server's
stderr) into something a person may read passes it through `redact` first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"

# Shorter values (an option like "1" or "debug") are no secrets, and masking them would shred text.
_SHORTEST_SECRET = 6

# A value in quotes, at any depth of escaping, up to the quote that ends it, if it is not cut off.
_QUOTED = (
    r"(?:(\\+\")(?:[^\"\\\r\n]|\\+[^\"\\\r\n])*"
    r"|(\")(?:[^\"\\\r\n]|\\.)*|(')(?:[^'\\\r\n]|\\.)*)"
)
# Names are tried only where a word starts: from every place in it, long words would take for ever.
_WORD = r"(?<![\w-])(?!progress_?token)[\w-]*"
_TELLING = (
    r"(?:token|secret|passw(?:or)?d|passphrase|(?:api|access|private|secret)[_-]?key|assertion"
    r"|code_?verifier|session[_-]?id|last-event-id|request_?state|cursor)"
)
# Between name and value: of a header, a member, an assignment, or a pair in a tuple.
_IS = r"(?:\\*[\"']?[ \t]*[:=]|[\"'],)[ \t]*(?:b(?=[\"']))?"
_VALUE_MASKED = r"\1\2\3\4" + MASK

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # user:password@ in a URL; the last @ ends it
    (re.compile(r"(?<=://)[^/\s?#\"]+@"), MASK + "@"),
    # the values of a URL's query or fragment, or all of it if it is one long word
    (re.compile(r"(?<=[?&#])([^=&?#\s\"'<>]+)=(?:[^&\s#\"'<>]|'(?=\w))+"), r"\1=" + MASK),
    (re.compile(r"(?<=[\w/]\?)[\w.~%+-]{16,}(?![\w.~%+=-])"), MASK),
    # an Authorization value wherever it stands, but neither a challenge nor talk about one
    (
        re.compile(
            r"((?:\b(?:Bearer|DPoP)\s+){1,3})(?!\w+=[\"'\\])"
            r"(?!(?:auth(?:entication|orization)?|tokens?|credentials?|scheme|Bearer|DPoP)\b"
            r"(?![~+/=-]|\.\w))[\w.~+/=:-]{6,}",
            re.IGNORECASE,
        ),
        r"\1" + MASK,
    ),
    # Base64 of anything has a capital, a digit or padding after its first character
    (
        re.compile(r"\b((?i:Basic)\s+)(?=[\w.~+/:-]+[A-Z\d=])[\w.~+/:-]{6,}=*"),
        r"\1" + MASK,
    ),
    (re.compile(r"\b(Digest\s+)username\b[^\r\n]*", re.IGNORECASE), r"\1" + MASK),
    # headers whose value may hold anything up to the end of its line
    (
        re.compile(rf"({_WORD}(?:authorization|cookie){_IS})(?:{_QUOTED}|[^\r\n]+)", re.IGNORECASE),
        _VALUE_MASKED,
    ),
    # what a name says is a secret: headers, members, form fields, variables, options of a command
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
    """Whether `name`, of a header or a member, says that what it stands for is a secret."""
    return _NAMES_A_SECRET.search(name) is not None


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with everything that may be a secret replaced by ``***``.

    Args:
        text: What is about to be shown, logged or kept.
        secrets: Values known to be secret here (environment values, header values, a session id);
            each, and each line of it, is masked wherever it occurs if it has six characters or
            more.
    """
    known = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
