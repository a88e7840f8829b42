"""Stores of tokens and client registrations: in memory, in a file, in the system's keyring.

A store maps strings to JSON objects. A key names an issuer, or a resource (its URL, with a digest
of the query) and a client. Keys are not secret; most values are secret.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, runtime_checkable

from syncmcp._base.checks import kind_of
from syncmcp._base.text import redact
from syncmcp._concurrency.fair_lock import FairLock
from syncmcp._concurrency.files import KeyLocks, SharedJson, UnusableFile, state_directory
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import wait
from syncmcp.errors import AuthError, UsageError


@runtime_checkable
class TokenStore(Protocol):
    """Maps keys to JSON objects, and has an exclusive lock for each key.

    Every method may be called from any thread, and from any process that shares the store.
    """

    def load(self, key: str) -> dict[str, Any] | None:
        """Return the value that any process saved last under `key`; `None` if it does not exist.

        Raises:
            AuthError: The store cannot be read.
        """

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` atomically; `None` deletes the entry.

        The method must complete even if the HTTP exchange on this thread is aborted: the
        authorization server no longer accepts the token that the new one replaces.

        Raises:
            AuthError: The store cannot be written.
        """

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Return a context manager that holds the exclusive lock of `key`.

        The lock is not reentrant. `load` and `save` ignore the lock. When the process that holds
        the lock ends, in whatever way, the lock is released.

        Args:
            key: The key to lock.
            deadline: The time until which to wait for the lock. The wait also ends when the HTTP
                exchange on this thread is aborted.

        Raises:
            RequestTimeout: The lock was not free by `deadline`.
            AuthError: The store cannot be locked.
        """
        ...


class MemoryStore:
    """Stores tokens in memory, until this process ends."""

    def __init__(self) -> None:
        # JSON text, so that changing a saved or loaded object does not change the stored one.
        self._texts: dict[str, str] = {}
        self._key_locks: dict[str, FairLock] = {}

    def load(self, key: str) -> dict[str, Any] | None:
        """Return the value saved under `key`; `None` if it does not exist."""
        text = self._texts.get(key)
        value: dict[str, Any] | None = None if text is None else json.loads(text)
        return value

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes the entry."""
        if value is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = json.dumps(dict(value))

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Return a context manager that locks `key` against the other threads.

        Raises:
            RequestTimeout: The lock was not free by `deadline`.
        """
        return self._key_locks.setdefault(key, FairLock()).take(deadline, wait)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._texts)} entries>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a store in memory stays in its process: use a FileStore to share one")


# In bytes: a longer file is not accepted as a token store. A longer entry is not saved, so that one
# server cannot use the space of the others.
_LONGEST: Final = 16 * 1024 * 1024
_LONGEST_ENTRY: Final = 1024 * 1024


@contextmanager
def _as_auth_errors() -> Iterator[None]:
    """Turn `UnusableFile` errors within the context into `AuthError`; nothing was sent."""
    try:
        yield
    except UnusableFile as error:
        raise _unusable(str(error)) from error


@contextmanager
def _lock(locks: KeyLocks, key: str, deadline: Deadline) -> Iterator[None]:
    with _as_auth_errors(), locks.take(key, deadline, wait):
        yield


def _unusable(message: str) -> AuthError:
    return AuthError(message, delivery="not_sent")


class FileStore:
    """Stores tokens in one JSON file, which threads and processes may share.

    ::

        from syncmcp.auth import FileStore, OAuth

        login = OAuth(store=FileStore("~/.config/example/tokens.json"))

    The file is created with mode 0600, and its directory, if it does not exist, with 0700. Each
    change replaces the whole file atomically, so that neither a crash nor a full disk leaves half a
    file. A file that other users could read, or that is not a token store, is refused and left as
    it is. The lock files are in a directory next to the file, whose name ends with ``.locks``.
    Windows has no such modes: there the directory's permissions decide.

    The lock of a key is exclusive on one computer. On a network file system, exclusion depends on
    the file system.

    Args:
        path: The file; ``~`` stands for the home directory. The constructor resolves symbolic
            links.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise UsageError(f"path must be a str or a path, not {kind_of(path)}")
        self._file = SharedJson(Path(path).expanduser(), "syncmcp-tokens", "entries", _LONGEST)

    @property
    def path(self) -> Path:
        """The file, with symbolic links resolved."""
        return self._file.path

    def load(self, key: str) -> dict[str, Any] | None:
        """Return the value that any process saved last under `key`; `None` if it does not exist.

        Raises:
            AuthError: The file cannot be read, belongs to another user, can be read by another
                user, or is not a token store.
        """
        with _as_auth_errors():
            return self._file.read().get(key)

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes the entry.

        When the method returns, the change is on the disk.

        Raises:
            AuthError: The value has more than 1 MiB as JSON, or the file cannot be read (see
                `load`) or written, or is locked for too long. The file is then unchanged.
        """
        if value is not None and len(json.dumps(dict(value))) > _LONGEST_ENTRY:
            raise _unusable(f"the entry to store is longer than {_LONGEST_ENTRY:,} bytes")
        with _as_auth_errors(), self._file.change() as entries:
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = dict(value)

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Return a context manager that locks `key` of this file, across threads and processes.

        Raises:
            RequestTimeout: The lock was not free by `deadline`.
            AuthError: The lock file cannot be used.
        """
        return _lock(self._file.locks, key, deadline)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.path),)


# Each key is a separate keyring service with this one user name. If a service had several user
# names, Windows would move entries at each change, and a reader might find none.
_USER: Final = "tokens"

# Windows stores at most 2,560 bytes, two for each character (CRED_MAX_CREDENTIAL_BLOB_SIZE).
_LONGEST_ON_WINDOWS: Final = 1_200

# The only member of an entry whose value is split into several secrets.
_PARTS_MEMBER: Final = "syncmcp in parts"


class Keyring(Protocol):
    """The functions used of the package `keyring` or of one of its backends."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """Return a secret; `None` if it does not exist."""

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """Store a secret."""

    def delete_password(self, service: str, username: str, /) -> None:
        """Delete a secret."""


class KeyringStore:
    """Stores each entry as a secret of the user's keyring, shared by the user's processes.

    The keyring of the desktop is Keychain, Secret Service, KWallet or Credential Locker. The class
    needs the extra ``keyring``: ``pip install "syncmcp-client[keyring]"``. The keyring may ask the
    person to unlock it, and calls block until the person has done so. Windows stores short secrets
    only; there a long entry is split into several secrets.

    A keyring has no locks, so the locks are files in the user's state directory
    (``~/.local/state/syncmcp``, or the system's equivalent).

    Args:
        service: The prefix of the entries' names.
        backend: The keyring; by default the one that the package `keyring` chooses.

    Raises:
        UsageError: The package `keyring` is not installed, and no `backend` was passed.
    """

    _max_length: ClassVar[int | None] = _LONGEST_ON_WINDOWS if sys.platform == "win32" else None

    def __init__(self, service: str = "syncmcp", *, backend: Keyring | None = None) -> None:
        if backend is None:
            try:
                import keyring
            except ImportError as error:
                raise UsageError(
                    "storing tokens in a keyring needs a package: install syncmcp-client[keyring]"
                ) from error
            backend = keyring.get_keyring()
        self._service = service
        self._keyring: Keyring = backend
        self._locks = KeyLocks(state_directory() / f"{_file_name(service)}.locks")

    def load(self, key: str) -> dict[str, Any] | None:
        """Return the value that any process saved last under `key`; `None` if it does not exist.

        Raises:
            AuthError: The keyring cannot be read, or the entry was not written by this class.
        """
        name = self._name(key)
        value, before = self._entry(name), None
        while value is not None and (parts := _Parts.in_entry(value)) is not None:
            texts = [self._read(one) for one in parts.names(name)]
            if None not in texts:
                return self._value(name, "".join(filter(None, texts)))
            if parts == before:
                raise self._foreign(name)
            # Another process may have replaced the parts in the meantime: read the entry again.
            value, before = self._entry(name), parts
        return value

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes the entry.

        Raises:
            AuthError: The keyring cannot be written, or the present entry was not written by this
                class.
        """
        name = self._name(key)
        known = self._entry(name)
        if value is not None:
            text = json.dumps(dict(value))
            if self._max_length is not None and len(text) > self._max_length:
                text = self._write_parts(name, text, self._max_length)
            # Readers see the whole old value before this write, and the whole new one after it.
            self._write(name, text)
        elif known is not None:
            self._delete(name)
        old = None if known is None else _Parts.in_entry(known)
        for one in () if old is None else old.names(name):
            self._delete(one)

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Return a context manager that locks `key`, across the user's threads and processes.

        Raises:
            RequestTimeout: The lock was not free by `deadline`.
            AuthError: The lock file cannot be used.
        """
        return _lock(self._locks, key, deadline)

    def _name(self, key: str) -> str:
        return f"{self._service} {key}"

    def _entry(self, name: str) -> dict[str, Any] | None:
        text = self._read(name)
        return None if text is None else self._value(name, text)

    def _value(self, name: str, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self._foreign(name)
        return value

    def _foreign(self, name: str) -> AuthError:
        return _unusable(
            f"the keyring entry {name!r} contains no tokens of syncmcp; it was not changed"
        )

    def _write_parts(self, name: str, text: str, longest: int) -> str:
        """Write a long text as several secrets with new names; return the entry that names them."""
        pieces = [text[start : start + longest] for start in range(0, len(text), longest)]
        parts = _Parts(secrets.token_hex(8), len(pieces))
        written: list[str] = []
        try:
            for one, piece in zip(parts.names(name), pieces, strict=True):
                self._write(one, piece)
                written.append(one)
        except AuthError:
            for one in written:
                self._delete(one)
            raise
        return json.dumps({_PARTS_MEMBER: parts})

    def _read(self, name: str) -> str | None:
        text: str | None = self._call("read", lambda: self._keyring.get_password(name, _USER))
        return text

    def _write(self, name: str, text: str) -> None:
        self._call("changed", lambda: self._keyring.set_password(name, _USER, text), text)

    def _delete(self, name: str) -> None:
        self._call("changed", lambda: self._keyring.delete_password(name, _USER))

    def _call(self, what: str, call: Callable[[], Any], secret: str = "") -> Any:
        try:
            return call()
        except Exception as error:  # each backend has exceptions of its own
            text = redact(str(error), [secret])
            raise _unusable(
                f"the keyring cannot be {what}: {type(error).__name__}: {text}"
            ) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service!r})"


class _Parts(NamedTuple):
    """The names of the secrets that hold one long value.

    `mark` is random: it distinguishes these parts from those of an earlier value.
    """

    mark: str
    size: int

    @classmethod
    def in_entry(cls, value: Mapping[str, Any]) -> _Parts | None:
        """The parts that an entry names; `None` if the entry is the value itself."""
        if _PARTS_MEMBER not in value:
            return None
        match value[_PARTS_MEMBER]:
            case [str(mark), int(size)]:
                return cls(mark, size)
            case _:
                return cls("", 0)  # damaged: no parts can be read

    def names(self, name: str) -> list[str]:
        """The names of the parts, in order."""
        return [f"{name} part {self.mark}.{number}" for number in range(self.size)]


def _file_name(service: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in service)
