"""Pages in files, which a browser is started with."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def file_of(url: str) -> Path:
    """The file of a `file:` URL."""
    assert url.startswith("file:///")
    return Path(url2pathname(urlsplit(url).path))


def address_behind(url: str) -> str:
    """The address to which the file of a `file:` URL leads by itself."""
    (address,) = re.findall(
        r'http-equiv="refresh" content="0; url=([^"]+)"', file_of(url).read_text()
    )
    return html.unescape(address)
