"""Values for the HTTP headers that repeat parts of a message (2026-07-28, "Value Encoding")."""

from __future__ import annotations

import base64
import re

from syncmcp.errors import UsageError

_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?|")


def encode_value(text: str) -> str:
    """Return `text` as a header value that no intermediary can misread.

    Plain if it is printable ASCII without blanks at its ends and does not look encoded itself;
    otherwise Base64 of its UTF-8 bytes between two markers. A line break can therefore never reach
    the HTTP layer.

    Raises:
        UsageError: `text` has half of a surrogate pair, which UTF-8 cannot express.
    """
    if _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        encoded = base64.b64encode(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"{text!r} cannot be sent: {error}") from error
    return f"=?base64?{encoded.decode()}?="
