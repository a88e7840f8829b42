"""Reads the `file:` pages with which the library starts a browser; they hide the real address."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def file_of(url: str) -> Path:
    """Return the path of a `file:` URL."""
    assert url.startswith("file:///")
    return Path(url2pathname(urlsplit(url).path))


def address_behind(url: str) -> str:
    """Return the address to which the page at a `file:` URL redirects."""
    (address,) = re.findall(
        r'http-equiv="refresh" content="0; url=([^"]+)"', file_of(url).read_text()
    )
    return html.unescape(address)
