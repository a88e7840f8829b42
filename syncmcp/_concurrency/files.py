"""Files that are private, replaced atomically, and shared by threads and processes.

A lock belongs to an open file: the system releases it when the process that holds it ends. So the
existence of a lock file locks nothing, and lock files are never removed. Of the threads of a
process that wait for a `FileLock`, only one has a file open.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from syncmcp._base.text import reason
from syncmcp._concurrency.fair_lock import FairLock, Wait, lock_timeout
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import RequestTimeout

__all__ = [
    "FileLock",
    "KeyLocks",
    "SharedJson",
    "UnusableFile",
    "make_private_directory",
    "only_user_writes",
    "open_private",
    "read_object",
    "state_directory",
    "try_lock",
    "write_atomically",
]


class UnusableFile(Exception):
    """A private file or its lock cannot be used; each caller raises another error instead.

    `problem` is the problem of `path`, such as "cannot be written: disk full"; `str()` has both.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path
        self.problem = problem

    @classmethod
    def of(cls, path: Path, problem: str, error: OSError) -> UnusableFile:
        """Return the error of a failed call to the system, with its reason."""
        return cls(path, f"{problem}: {error.strerror or type(error).__name__}")


def state_directory() -> Path:
    r"""Return the user's directory for the state of programs; it may not exist yet.

    ``$XDG_STATE_HOME/syncmcp`` or ``~/.local/state/syncmcp``; on macOS without that variable
    ``~/Library/Application Support/syncmcp``, on Windows ``%LOCALAPPDATA%\syncmcp``. A relative
    ``XDG_STATE_HOME`` is ignored, as the XDG Base Directory Specification demands.
    """
    from platformdirs import user_state_path

    return user_state_path("syncmcp", appauthor=False)


# -- private files --------------------------------------------------------------------------------

# Without O_BINARY, Windows changes line ends, also in files that are opened with "wb".
_BINARY: Final = getattr(os, "O_BINARY", 0)
# Without O_NONBLOCK, opening a named pipe waits for a writer.
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents; `path` itself with mode 0700 if it is new."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_private(path: Path) -> BinaryIO:
    """Open a private file for reading: the user owns it, and other users have no access.

    Windows has no modes: there, the permissions of the directory decide, and are not checked.

    Raises:
        UnusableFile: It belongs to another user, is open to other users, or is not a regular file.
        OSError: It cannot be opened.
    """
    descriptor = os.open(path, _READ)
    try:
        _check_private(path, os.fstat(descriptor), stat.S_ISREG)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_private(path: Path, status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Check the owner and mode of a file or directory; `status` is that of the opened object."""
    if not is_kind(status.st_mode):
        wanted = "directory" if is_kind is stat.S_ISDIR else "regular file"
        raise UnusableFile(path, f"is not a {wanted}")
    if sys.platform != "win32":
        if status.st_uid != os.geteuid():
            raise UnusableFile(
                path, f"belongs to another user (id {status.st_uid}): name a path of your own"
            )
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise UnusableFile(
                path,
                f"is open to other users (mode {mode:04o}), who may have read or changed it: check"
                f" it, then chmod {mode & 0o700:o} it, or move it away to start over",
            )


def only_user_writes(path: Path) -> bool:
    """Return whether the user owns a file or folder, and no other user can change it.

    Always true on Windows, which has no modes.

    Raises:
        OSError: It does not exist, or is not accessible.
    """
    if sys.platform == "win32":
        return True
    status = path.stat()
    others = 0o002 if _is_alone_in(status.st_gid) else 0o022
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _is_alone_in(number: int) -> bool:
    """Return whether a group is private: it has the user's name, and lists no other member."""
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


def write_atomically(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o600,
    overwrite: bool = True,
    keep_mode: bool = False,
    temporary: Path | None = None,
) -> None:
    """Write a file under a temporary name in its directory, sync it, and rename it.

    After a crash or an error, either the old or the new file exists.

    Args:
        path: The file. A symbolic link itself is replaced, not its target.
        data: The content of the file.
        mode: Its mode, less the umask.
        overwrite: Replace an existing file.
        keep_mode: Give the file the permissions of the file, or of the target of the symbolic link,
            that it replaces. No effect on Windows.
        temporary: The temporary name, for callers that hold a lock: a file that a killed process
            left there is replaced. By default a random name.

    Raises:
        FileExistsError: The file exists, and `overwrite` is false.
        OSError: The file cannot be written.
    """
    if temporary is None:
        temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    else:
        temporary.unlink(missing_ok=True)
    kept = _permissions(path) if keep_mode and overwrite else None
    try:
        with open(os.open(temporary, _CREATE, mode if kept is None else kept), "wb") as file:
            if kept is not None:
                temporary.chmod(kept)  # the umask is for new files
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temporary, path)
        else:
            _rename_unless_exists(temporary, path, mode)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _permissions(path: Path) -> int | None:
    """Return the permission bits of a file; `None` if it does not exist, or on Windows."""
    if sys.platform == "win32":
        return None
    try:
        return path.stat().st_mode & 0o777
    except OSError:  # a new file, or a link without a target: there are no permissions to keep
        return None


def _rename_unless_exists(temporary: Path, path: Path, mode: int) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
    except OSError:  # a file system without hard links: create the target, then replace it
        os.close(os.open(path, _CREATE, mode))
        try:
            os.replace(temporary, path)
        except BaseException:
            path.unlink()
            raise


def _sync_directory(directory: Path) -> None:
    """Make a renamed file survive a loss of power, where the system needs a sync for that."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: the file system cannot sync directories
                raise
        finally:
            os.close(descriptor)


# -- locks ----------------------------------------------------------------------------------------

# On Windows, other processes cannot read a locked range: so a byte beyond the file is locked.
_LOCKED_BYTE: Final = 0x7FFF_FFFE


def try_lock(descriptor: int) -> bool:
    """Lock a file open for writing, or return `False` if it is locked already. Never blocks.

    The system releases the lock when the file is closed, or its process ends, however it ends.
    Raises `OSError` if the file cannot be locked at all.
    """
    if sys.platform == "win32":
        import msvcrt

        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):  # another process holds the lock
                return False
            raise
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)
    else:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


# Seconds between two attempts. The lock is polled, because a blocking wait for it has no timeout on
# any system.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05

_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class FileLock:
    """A lock between the threads of all processes that use the same file.

    Waiting processes poll the lock, so a process that releases it and acquires it again at once
    would win against them. A second lock file next to it, the gate, prevents that: only the process
    that holds the gate may wait for the lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gate = path.with_name(path.name + ".gate")
        self._fair_lock = FairLock()

    @contextmanager
    def take(self, deadline: Deadline, wait: Wait = threading.Event.wait) -> Iterator[None]:
        """Acquire the lock for the length of a `with`.

        Args:
            deadline: Until when to wait.
            wait: Waits for other threads, and between two attempts; may raise.

        Raises:
            RequestTimeout: The deadline passed.
            OSError: The file cannot be opened or locked.
        """
        with self._fair_lock.take(deadline, wait), ExitStack() as held:
            with _LockedFile(self._gate, deadline, wait):
                held.enter_context(_LockedFile(self._path, deadline, wait))
            yield


class _LockedFile:
    """A file that is open and locked for the length of a `with`."""

    def __init__(self, path: Path, deadline: Deadline, wait: Wait) -> None:
        self._path = path
        self._deadline = deadline
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self._descriptor = os.open(self._path, _LOCK_FLAGS, 0o600)
        _locked_files.add(self)
        try:
            self._lock(self._descriptor)
        except BaseException:
            self.close()
            raise

    def _lock(self, descriptor: int) -> None:
        pause = _FIRST_PAUSE
        while not try_lock(descriptor):
            if self._deadline.expired:
                raise lock_timeout(self._deadline)
            left = self._deadline.remaining()
            self._wait(threading.Event(), pause if left is None else min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. That releases the lock unless a forked process has the file open, too."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_locked_files: weakref.WeakSet[_LockedFile] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The locks belong to the parent. Without this, they would stay locked until the child ends.
    for locked in list(_locked_files):
        locked.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class KeyLocks:
    """A directory of lock files, private to the user: one for each key, made when first needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks: dict[str, FileLock] = {}

    @contextmanager
    def take(
        self, key: str | None, deadline: Deadline, wait: Wait = threading.Event.wait
    ) -> Iterator[None]:
        """Acquire the lock of `key`, or the common lock (`None`), for the length of a `with`.

        Raises:
            RequestTimeout: The deadline passed.
            UnusableFile: The lock file cannot be used.
        """
        name = "all" if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]
        lock = self._locks.setdefault(name, FileLock(self._directory / f"{name}.lock"))
        with ExitStack() as held:
            try:
                make_private_directory(self._directory.parent)
                make_private_directory(self._directory)
                _check_private(self._directory, self._directory.stat(), stat.S_ISDIR)
                held.enter_context(lock.take(deadline, wait))
            except RequestTimeout:
                raise
            except OSError as error:
                raise UnusableFile.of(self._directory, "cannot be used for locks", error) from error
            yield


# -- files of JSON --------------------------------------------------------------------------------

_VERSION: Final = 1

# Seconds to wait for another process. A change takes milliseconds, but a process may be suspended.
_LOCK_SECONDS: Final = 10.0

# On Windows, a file that another process has open cannot be replaced.
_READERS_BLOCK: Final = sys.platform == "win32"


class SharedJson:
    """JSON objects by their keys in one private file, shared by threads and processes.

    `FileStore` describes such a file. A symbolic link is resolved once, by the constructor.

    Args:
        path: The file.
        kind: The value of the member ``format`` of the file, such as ``syncmcp-tokens``.
        member: The member of the file that holds the objects.
        longest: The most bytes that the file may have.

    Attributes:
        locks: The locks of the keys, in a directory next to the file, with the suffix ``.locks``.
            Reading and changing the file needs no lock of a key, but may acquire the common lock.
    """

    def __init__(self, path: Path, kind: str, member: str, longest: int) -> None:
        self.path = Path(os.path.realpath(path))
        self.locks = KeyLocks(self.path.with_name(self.path.name + ".locks"))
        self._kind = kind
        self._member = member
        self._longest = longest

    def read(self) -> dict[str, Any]:
        """Return the objects in the file; empty if the file does not exist.

        Raises:
            UnusableFile: The file cannot be read, is not private, or has another format.
        """
        with self._locked() if _READERS_BLOCK and self.path.exists() else nullcontext():
            return self._read()

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield the objects, to be changed within the context; then write them, if they differ.

        The change is on the disk afterwards. An exception within the context changes nothing.
        Raises `UnusableFile` as `read` does, or if the file cannot be written, or is locked for too
        long.
        """
        with self._locked():
            before = self._read()
            objects = dict(before)
            yield objects
            if objects != before:
                self._write(objects)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # An abort of the HTTP exchange on this thread does not end the wait: a new token must be
        # saved, since the old one no longer works.
        with ExitStack() as held:
            try:
                held.enter_context(self.locks.take(None, Deadline(_LOCK_SECONDS)))
            except RequestTimeout as error:
                raise UnusableFile(self.path, "is locked by another process") from error
            yield

    def _read(self) -> dict[str, Any]:
        try:
            with open_private(self.path) as file:
                content = read_object(file, self._longest)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UnusableFile.of(self.path, "cannot be read", error) from error
        except ValueError:
            content = {}  # refused below, without this error, which contains the file's text
        objects = content.get(self._member)
        if (
            content.get("format") != self._kind
            or not isinstance(objects, dict)
            or not all(isinstance(value, dict) for value in objects.values())
        ):
            raise UnusableFile(
                self.path,
                f"is not a file of the format {self._kind!r}, or is damaged; it was not changed:"
                " name another file, or move it away to start over",
            )
        if content.get("version") != _VERSION:
            raise UnusableFile(self.path, "was written by another version of this library")
        return objects

    def _write(self, objects: dict[str, Any]) -> None:
        content = {"format": self._kind, "version": _VERSION, self._member: objects}
        data = json.dumps(content, indent=1).encode()
        if len(data) > self._longest:  # the next `read` would refuse the file
            raise UnusableFile(self.path, f"would be longer than {self._longest:,} bytes")
        try:
            # The lock is held, so one name is enough.
            temporary = self.path.with_name(self.path.name + ".new")
            write_atomically(self.path, data, temporary=temporary)
            _sync_directory(self.path.parent)
        except OSError as error:
            raise UnusableFile.of(self.path, "cannot be written", error) from error


def read_object(
    file: BinaryIO, longest: int, parse: Callable[[str], Any] = json.loads
) -> dict[str, Any]:
    """Read a file of at most `longest` bytes that holds one JSON object, in UTF-8.

    `parse` raises `ValueError` if a text is invalid.

    Raises:
        ValueError: The file has other content; the message is the problem, as "is not UTF-8".
        OSError: The file cannot be read.
    """
    data = file.read(longest + 1)
    if len(data) > longest:
        raise ValueError(f"is longer than {longest:,} bytes")
    try:
        content = parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {reason(error)}") from error
    except RecursionError as error:
        raise ValueError("is not JSON: it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - no argument has a wrong type
    return content
