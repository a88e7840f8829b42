"""Files and directories that nobody but their owner may touch."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

from syncmcp.errors import AuthError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["check_owner", "reason", "unusable"]


def check_owner(path: Path, status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Check that a file or directory is ours and closed to everybody else.

    Windows has no modes: there, the permissions of the directory decide.

    Args:
        path: What it is called, for the error.
        status: What the system says of the very thing that will be used.
        is_kind: `stat.S_ISREG` or `stat.S_ISDIR`.

    Raises:
        AuthError: It is not, or it is of another kind; the message says what to do.
    """
    if not is_kind(status.st_mode):
        wanted = "directory" if is_kind is stat.S_ISDIR else "regular file"
        raise unusable(f"{path} is no {wanted}")
    if sys.platform != "win32":
        if status.st_uid != os.geteuid():
            raise unusable(
                f"{path} belongs to another user (id {status.st_uid}): name a path of your own"
            )
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise unusable(
                f"{path} is open to other users (mode {mode:04o}), and so may be the tokens: "
                f"chmod {mode & 0o700:o} it, and consider signing in anew"
            )


def unusable(message: str) -> AuthError:
    """A store that cannot be used; nothing was sent."""
    return AuthError(message, delivery="not_sent")


def reason(error: OSError) -> str:
    """What the system says went wrong, without the path."""
    return error.strerror or type(error).__name__
