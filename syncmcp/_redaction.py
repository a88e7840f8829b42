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

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # user:password@ in a URL
    (re.compile(r"(?<=://)[^/\s@?#\"']+@"), MASK + "@"),
    # the values of a URL's query, and its fragment
    (re.compile(r"(?<=[?&])([\w.~%+-]+)=([^&\s#\"'<>]+)"), r"\1=" + MASK),
    # an Authorization value wherever it stands
    (re.compile(r"\b(Bearer|Basic|DPoP|Digest)\s+[\w.~+/=:-]{6,}", re.IGNORECASE), r"\1 " + MASK),
    # header lines
    (
        re.compile(
            r"\b((?:proxy-)?authorization|(?:set-)?cookie|mcp-session-id|last-event-id|x-api-key)"
            r"(\"?\s*[:=]\s*\"?)([^\r\n\",}]+)",
            re.IGNORECASE,
        ),
        r"\1\2" + MASK,
    ),
    # members of a JSON object or a form whose name says that the value is a secret
    (
        re.compile(
            r"([\"']?\b(?:[\w-]*(?:access_?token|refresh_?token|id_?token|token|secret|password"
            r"|passwd|api[_-]?key|private_?key|assertion|code_?verifier)"
            r"|requestState|request_state|nextCursor|cursor)[\"']?\s*[:=]\s*)"
            r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;&}\"']+)",
            re.IGNORECASE,
        ),
        r"\1" + MASK,
    ),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with everything that may be a secret replaced by ``***``.

    Args:
        text: What is about to be shown, logged or kept.
        secrets: Values known to be secret here (environment values, header values, a session id);
            each is masked wherever it occurs if it has six characters or more.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
