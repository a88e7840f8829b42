"""Where tokens and registrations are kept: what a store has to do, and one that forgets.

A store maps strings to JSON objects. A key names an issuer, a resource and a client, and is no
secret; most of what it leads to is one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from syncmcp._base.files import check_owner, read_object, reason, unusable
from syncmcp._concurrency.file_lock import FairLock, KeyLocks
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import wait

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from syncmcp.errors import AuthError

__all__ = ["FileStore", "MemoryStore", "TokenStore"]


@runtime_checkable
class TokenStore(Protocol):
    """Keeps JSON objects under keys, and lets one at a time work on each.

    Every method may be called by any thread, and where processes share a store, by any of them.
    """

    def load(self, key: str) -> dict[str, Any] | None:
        """Return what was saved last under `key`, by whomever; `None` if nothing was.

        Raises:
            AuthError: The store cannot be read.
        """
        ...

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value`, whole or not at all; `None` deletes what is there.

        A cut of the HTTP exchange on this thread does not keep it from that: the server has
        already forgotten the token that this one replaces.

        Raises:
            AuthError: The store cannot be written.
        """
        ...

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep all others that lock `key` out for the length of a `with`; it cannot be nested.

        It says nothing to `load` and `save`: those never wait for it. It ends with the process
        that holds it, however that ends.

        Args:
            key: What is worked on.
            deadline: Until when to wait. The wait also ends when the HTTP exchange on this thread
                is cut.

        Raises:
            RequestTimeout: The others took until `deadline`.
            AuthError: The store cannot be locked.
        """
        ...


class MemoryStore:
    """Keeps everything until the program ends, for this program alone."""

    def __init__(self) -> None:
        # As text, so that nobody changes what is kept by changing what was given or taken.
        self._texts: dict[str, str] = {}
        self._turns: dict[str, FairLock] = {}

    def load(self, key: str) -> dict[str, Any] | None:
        """Return what was saved under `key`."""
        text = self._texts.get(key)
        value: dict[str, Any] | None = None if text is None else json.loads(text)
        return value

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes."""
        if value is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = json.dumps(dict(value))

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep the other threads that lock `key` out.

        Raises:
            RequestTimeout: They took until `deadline`.
        """
        return self._turns.setdefault(key, FairLock()).take(deadline, wait)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._texts)} entries>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a store in memory stays in its process: use a FileStore to share one")


# Tokens in a file that its owner alone can read, shared by all processes that name it.


_FORMAT: Final = "syncmcp-tokens"
_VERSION: Final = 1

# A longer file, in bytes, is something else.
_LONGEST: Final = 16 * 1024 * 1024

# To change the file takes milliseconds; a process that was stopped meanwhile must not stop us.
_SAVE_SECONDS: Final = 10.0

_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL

# On Windows, a file that somebody has open cannot be replaced.
_READERS_BLOCK: Final = sys.platform == "win32"


class FileStore:
    """Keeps everything in one JSON file, which threads and processes may share.

    The file is made with mode 0600, and its directory, if it is missing, with 0700. Each change
    replaces the file as a whole, so that neither a crash nor a full disk leaves half of it. A
    file that others could read, or that is not a store, is refused and left as it is. Next to it
    is a directory of lock files, whose name ends with ``.locks``. Windows has no such modes: there
    the directory's permissions decide.

    The lock of a key is exclusive on one computer. Whether it is on a network file system depends
    on that.

    Args:
        path: The file; ``~`` stands for the home directory. A symbolic link is followed, once.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(os.path.realpath(Path(path).expanduser()))
        self._locks = KeyLocks(self._path.with_name(self._path.name + ".locks"))

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def load(self, key: str) -> dict[str, Any] | None:
        """Return what was saved last under `key`, by whatever process; `None` if nothing was.

        Raises:
            AuthError: The file cannot be read, belongs to somebody else, can be read by somebody
                else, or is no store.
        """
        with self._changing() if _READERS_BLOCK else nullcontext():
            return self._read().get(key)

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes. It is on the disk when this returns.

        Raises:
            AuthError: As with `load`, or the file cannot be written. It is as it was then.
        """
        with self._changing():
            entries = self._read()
            if value is not None:
                entries[key] = dict(value)
            elif entries.pop(key, None) is None:
                return
            self._write(entries)

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep all threads and processes out that lock the same key of the same file.

        Raises:
            RequestTimeout: They took until `deadline`.
            AuthError: The lock file cannot be used.
        """
        return self._locks.take(key, deadline, wait)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        # Not the wait that can be cut: what is saved replaces what no longer works.
        with self._locks.take(None, Deadline(_SAVE_SECONDS)):
            yield

    def _read(self) -> dict[str, Any]:
        try:
            descriptor = os.open(self._path, _READ)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._failed("cannot be read", error) from error
        try:
            check_owner(self._path, os.fstat(descriptor), stat.S_ISREG)
            with open(descriptor, "rb", closefd=False) as file:
                content = read_object(file, _LONGEST)
        except OSError as error:
            raise self._failed("cannot be read", error) from error
        except ValueError:
            content = {}  # which is none of ours
        finally:
            os.close(descriptor)
        return self._entries(content)

    def _entries(self, content: dict[str, Any]) -> dict[str, Any]:
        entries = content.get("entries")
        if (
            content.get("format") != _FORMAT
            or not isinstance(entries, dict)
            or not all(isinstance(entry, dict) for entry in entries.values())
        ):
            raise unusable(
                f"{self._path} holds no tokens of ours, or is damaged; it was left as it is. Name "
                "another file, or move this one away and sign in again"
            )
        if content.get("version") != _VERSION:
            raise unusable(f"{self._path} was written by another version of this library")
        return entries

    def _write(self, entries: Mapping[str, Any]) -> None:
        content = {"format": _FORMAT, "version": _VERSION, "entries": entries}
        data = json.dumps(content, indent=1).encode()
        # One name is enough: nobody else writes now. One that a killed process left is in the way.
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.unlink(missing_ok=True)
            try:
                with open(os.open(new, _CREATE, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(new, self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    new.unlink()
                raise
            _sync_directory(self._path.parent)
        except OSError as error:
            raise self._failed("cannot be written", error) from error

    def _failed(self, what: str, error: OSError) -> AuthError:
        return unusable(f"{self._path} {what}: {reason(error)}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self._path),)


def _sync_directory(directory: Path) -> None:
    """Have the new name of a file survive a loss of power, where that takes more than its data."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # the file system has nothing to sync there
                raise
        finally:
            os.close(descriptor)
