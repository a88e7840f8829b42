"""A private file that redirects a browser, to keep the address out of command lines.

Every user of a computer can read the arguments of all processes, for example of a browser that is
started with an address.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from html import escape
from pathlib import Path

from syncmcp._concurrency.files import (
    make_private_directory,
    only_user_writes,
    state_directory,
    write_atomically,
)

__all__ = ["PrivatePage", "page_to"]

_PAGE_TO = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>{title}</title>
<meta http-equiv="refresh" content="0; url={url}"></head>
<body><a href="{url}">{title}</a></body>
</html>
"""


class PrivatePage:
    """An HTML file of mode 0600 in a folder of its own of mode 0700; removed at exit at the latest.

    Browsers in a sandbox (snap, flatpak) read neither hidden folders nor ``/tmp``. So on Linux the
    folder is in the downloads folder, if it exists and only the user can change it. Otherwise it is
    in the state directory. Windows has no modes: there, the permissions of that directory apply.
    `url` is the ``file:`` URL to open. Raises `OSError` if the file cannot be written.
    """

    def __init__(self, name: str, html: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="syncmcp-", dir=_place()))  # with mode 0700
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        file = folder / name
        write_atomically(file, html.encode())
        self.url = file.as_uri()

    def remove(self) -> None:
        """Remove the file and its folder; idempotent."""
        self._remove()


def page_to(url: str, title: str) -> str:
    """Return the HTML of a page that redirects to a web address without a script, or by a link."""
    return _PAGE_TO.format(url=escape(url), title=escape(title))


def _place() -> Path:
    if sys.platform == "linux":
        from platformdirs import user_downloads_path

        downloads = user_downloads_path()
        if downloads.is_dir() and only_user_writes(downloads):
            return downloads
    place = state_directory()
    make_private_directory(place)
    return place
