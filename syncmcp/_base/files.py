"""Files that nobody but their owner may touch, locks on open files, files of one JSON object."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from syncmcp.errors import AuthError

if TYPE_CHECKING:
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


# A lock on an open file, which threads and processes share.
#
# The system releases it when the file is closed, or its process ends, however it ends.


if sys.platform == "win32":
    import errno
    import msvcrt

    # Windows keeps others from reading what is locked: so it is a byte that no file of ours has.
    _PLACE = 0x7FFF_FFFE

    # Somebody else has it.
    _TAKEN = (errno.EACCES, errno.EDEADLK)

    def take(descriptor: int) -> bool:
        """Lock an open file, if nobody else has; returns at once.

        Args:
            descriptor: Of a file that is open for writing. Its position stays.

        Returns:
            Whether it is locked now.

        Raises:
            OSError: It cannot be locked at all.
        """
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
        return True

else:
    import fcntl

    def take(descriptor: int) -> bool:
        """Lock an open file, if nobody else has; returns at once.

        Args:
            descriptor: Of a file that is open for writing. Its position stays.

        Returns:
            Whether it is locked now.

        Raises:
            OSError: It cannot be locked at all.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# A file that holds one JSON object, read up to a size.


def read_object(
    file: BinaryIO, longest: int, parse: Callable[[str], Any] = json.loads
) -> dict[str, Any]:
    """The JSON object that a file holds, in UTF-8.

    Args:
        file: The file, open for reading.
        longest: The most bytes that it may have.
        parse: Makes a value of its text, and raises `ValueError` if it is none.

    Raises:
        ValueError: It holds something else; the text says what, as "is no UTF-8".
        OSError: It cannot be read.
    """
    data = file.read(longest + 1)
    if len(data) > longest:
        raise ValueError(f"is longer than {longest:,} bytes")
    try:
        content = parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError("is no UTF-8") from error
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("is no JSON: it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - of the value of a file
    return content
