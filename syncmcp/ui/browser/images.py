"""Pictures in messages: shown only if their bytes are what they claim to be."""

from __future__ import annotations

import base64
import binascii
from typing import Final

# The longest picture to show, in characters of base64 (2 MiB of bytes).
_LONGEST: Final = 4 * 2**21 // 3

_SIGNATURES: Final = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF87a"),
    ("image/gif", 0, b"GIF89a"),
    ("image/webp", 8, b"WEBP"),
)


def data_url(data: str) -> str | None:
    """Return a `data:` URL of a raster picture given in base64; `None` if it is not to be shown.

    What the sender says of the type does not count, only the first bytes. Drawings (SVG) are
    documents of their own and never shown.
    """
    if len(data) > _LONGEST:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    for kind, offset, signature in _SIGNATURES:
        if content.startswith(signature, offset) and (offset == 0 or content.startswith(b"RIFF")):
            return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return None
