"""Safe use of files: private files, non-blocking locks on open files, bounded JSON files."""

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
    """Check that a file or directory belongs to the user and is closed to other users.

    Windows has no modes: there, the permissions of the directory decide, and are not checked.

    Args:
        path: Its path, for the error message.
        status: The result of `os.stat` or `os.fstat` for the object that will be used.
        is_kind: `stat.S_ISREG` or `stat.S_ISDIR`.

    Raises:
        AuthError: It belongs to or is open to other users, or is of another kind; the message
            says what to do.
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
    """Return the error of a file or store that cannot be used; nothing was sent."""
    return AuthError(message, delivery="not_sent")


def reason(error: OSError) -> str:
    """Return the system's description of the error, without the path."""
    return error.strerror or type(error).__name__


if sys.platform == "win32":
    import errno
    import msvcrt

    # On Windows, other processes cannot read a locked range: so a byte beyond the file is locked.
    _LOCKED_BYTE = 0x7FFF_FFFE

    # The error codes of a lock that another process holds.
    _LOCKED_ERRORS = (errno.EACCES, errno.EDEADLK)

    def try_lock(descriptor: int) -> bool:
        """Lock an open file unless it is locked already. Never blocks.

        The system releases the lock when the file is closed, or its process ends, however it ends.

        Args:
            descriptor: The descriptor of a file open for writing. Its position stays.

        Returns:
            True if the file is locked now, `False` if it was locked already.

        Raises:
            OSError: The file cannot be locked at all.
        """
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in _LOCKED_ERRORS:
                return False
            raise
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
        return True

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Lock an open file unless it is locked already. Never blocks.

        The system releases the lock when the file is closed, or its process ends, however it ends.

        Args:
            descriptor: The descriptor of a file open for writing. Its position stays.

        Returns:
            True if the file is locked now, `False` if it was locked already.

        Raises:
            OSError: The file cannot be locked at all.
        """
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def read_object(
    file: BinaryIO, longest: int, parse: Callable[[str], Any] = json.loads
) -> dict[str, Any]:
    """Read a file that holds one JSON object, in UTF-8.

    Args:
        file: The file, open for reading.
        longest: The most bytes that the file may have.
        parse: Parses the text, and raises `ValueError` if it is invalid.

    Raises:
        ValueError: The file holds something else; the message says what, as "is no UTF-8".
        OSError: The file cannot be read.
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
