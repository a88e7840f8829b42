"""A file that leads a browser to the pages, so that their link is in no command line.

Every user of a computer can read the arguments of every process, and so those of a browser that is
started with an address.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from html import escape
from pathlib import Path

from syncmcp._concurrency.files import (
    make_private_directory,
    state_directory,
    write_atomically,
)

# The token is in the body of a request: it stays out of the history of the browser.
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Questions to you</title></head>
<body>
<form method="post" action="{address}">
<input type="hidden" name="token" value="{token}">
<button>Go to the questions</button>
</form>
<script>document.forms[0].submit();</script>
</body>
</html>
"""


class LinkFile:
    """An HTML file of mode 0600 in a folder of its own of mode 0700; removed at exit at the latest.

    Browsers in a sandbox (snap, flatpak) read neither hidden folders nor ``/tmp``. So on Linux the
    folder is in the user's folder of downloads, if there is one; elsewhere it is in the user's
    state directory. Windows has no modes: there, the permissions of that directory count.

    Args:
        address: Where the token is posted to.
        token: The token of the link.

    Attributes:
        url: The ``file:`` URL to open.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, address: str, token: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="syncmcp-", dir=_place()))  # with mode 0700
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        file = folder / "questions.html"
        page = _PAGE.format(address=escape(address), token=escape(token))
        write_atomically(file, page.encode())
        self.url = file.as_uri()

    def remove(self) -> None:
        """Remove the file and its folder; idempotent."""
        self._remove()


def _place() -> Path:
    if sys.platform == "linux":
        from platformdirs import user_downloads_path

        downloads = user_downloads_path()
        if _is_own(downloads):
            return downloads
    place = state_directory()
    make_private_directory(place)
    return place


def _is_own(folder: Path) -> bool:
    """Whether a folder is the user's, and only the user can replace what is in it."""
    if sys.platform == "win32" or not folder.is_dir():
        return False
    status = folder.stat()
    others = 0o002 if _is_alone_in(status.st_gid) else 0o022
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _is_alone_in(number: int) -> bool:
    """Whether a group is the user's own: it has the user's name, and no other member is listed."""
    if sys.platform == "win32":
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return (
        user.pw_gid == number
        and group.gr_name == user.pw_name
        and not ({*group.gr_mem} - {user.pw_name})
    )
