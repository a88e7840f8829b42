"""Tokens in the keyring of the desktop: Keychain, Secret Service, KWallet, Credential Locker.

Needs the extra ``keyring``: ``pip install "syncmcp-client[keyring]"``.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from syncmcp._base.files import unusable
from syncmcp._base.text import redact
from syncmcp._concurrency.file_lock import KeyLocks
from syncmcp._http.exchange import wait
from syncmcp.errors import AuthError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from syncmcp._concurrency.timing import Deadline

__all__ = ["Keyring", "KeyringStore"]

# Each key is a service of its own with one user: where a service has several, Windows moves
# entries about at each change, and a reader may find none.
_USER: Final = "tokens"

# Windows takes 2,560 bytes, and two for each character (CRED_MAX_CREDENTIAL_BLOB_SIZE).
_LONGEST_ON_WINDOWS: Final = 1_200

# The one member of an entry whose value is in parts.
_IN_PARTS: Final = "syncmcp in parts"


class Keyring(Protocol):
    """What is used of `keyring` or one of its backends."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """Return a secret, or `None`."""

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """Keep a secret."""

    def delete_password(self, service: str, username: str, /) -> None:
        """Forget a secret."""


class KeyringStore:
    """Keeps each entry as a secret of the user's keyring, shared by the user's processes.

    The keyring may ask the person to unlock it, and takes as long as the person does. Windows
    takes short secrets only; there a long entry is several of them.

    A keyring has no locks, so they are files in the user's state directory
    (``~/.local/state/syncmcp``, or what the system has for it).

    Args:
        service: What the names of the entries begin with.
        backend: The keyring; by default the one that `keyring` chooses.

    Raises:
        UsageError: `keyring` is not installed.
    """

    _longest: ClassVar[int | None] = _LONGEST_ON_WINDOWS if sys.platform == "win32" else None

    def __init__(self, service: str = "syncmcp", *, backend: Keyring | None = None) -> None:
        if backend is None:
            try:
                import keyring
            except ImportError as error:
                raise UsageError(
                    "tokens in a keyring need a package: install syncmcp-client[keyring]"
                ) from error
            backend = keyring.get_keyring()
        self._service = service
        self._keyring: Keyring = backend
        self._locks = KeyLocks(_state_directory() / f"{_file_name(service)}.locks")

    def load(self, key: str) -> dict[str, Any] | None:
        """Return what was saved last under `key`, by whatever process; `None` if nothing was.

        Raises:
            AuthError: The keyring cannot be read, or the entry is not ours.
        """
        name = self._name(key)
        value, before = self._entry(name), None
        while value is not None and (parts := _Parts.of(value)) is not None:
            texts = [self._read(one) for one in parts.names(name)]
            if None not in texts:
                return self._value(name, "".join(filter(None, texts)))
            if parts == before:
                raise self._foreign(name)
            # They may have been replaced in the meantime.
            value, before = self._entry(name), parts
        return value

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes.

        Raises:
            AuthError: The keyring cannot be written, or what is there is not ours.
        """
        name = self._name(key)
        known = self._entry(name)
        if value is not None:
            text = json.dumps(dict(value))
            if self._longest is not None and len(text) > self._longest:
                text = self._write_parts(name, text, self._longest)
            # From here on it is the new value that is read, whole.
            self._write(name, text)
        elif known is not None:
            self._delete(name)
        old = None if known is None else _Parts.of(known)
        for one in () if old is None else old.names(name):
            self._delete(one)

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep all threads and processes of the user out that lock the same key.

        Raises:
            RequestTimeout: They took until `deadline`.
            AuthError: The lock file cannot be used.
        """
        return self._locks.take(key, deadline, wait)

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
        return unusable(
            f"the entry {name!r} of the keyring holds no tokens of ours; it was left as it is"
        )

    def _write_parts(self, name: str, text: str, longest: int) -> str:
        """Write a long text beside what is there; return the entry that leads to it."""
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
        return json.dumps({_IN_PARTS: parts})

    def _read(self, name: str) -> str | None:
        text: str | None = self._ask("read", lambda: self._keyring.get_password(name, _USER))
        return text

    def _write(self, name: str, text: str) -> None:
        self._ask("changed", lambda: self._keyring.set_password(name, _USER, text), text)

    def _delete(self, name: str) -> None:
        self._ask("changed", lambda: self._keyring.delete_password(name, _USER))

    def _ask(self, what: str, call: Callable[[], Any], secret: str = "") -> Any:
        try:
            return call()
        except Exception as error:  # backends raise what their systems do
            text = redact(str(error), [secret])
            raise unusable(
                f"the keyring cannot be {what}: {type(error).__name__}: {text}"
            ) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service!r})"


class _Parts(NamedTuple):
    """Where a value is that one secret cannot hold.

    Attributes:
        mark: Tells these parts from those of an earlier value.
        size: How many there are.
    """

    mark: str
    size: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> _Parts | None:
        """Read an entry; `None`: it is the value itself."""
        if _IN_PARTS not in value:
            return None
        match value[_IN_PARTS]:
            case [str(mark), int(size)]:
                return cls(mark, size)
            case _:
                return cls("", 0)  # it is damaged, and has none

    def names(self, name: str) -> list[str]:
        """The names of the entries that hold them, in order."""
        return [f"{name} part {self.mark}.{number}" for number in range(self.size)]


def _state_directory() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        # A relative one is invalid (XDG Base Directory Specification).
        given = os.environ.get("XDG_STATE_HOME", "")
        base = given if given.startswith("/") else Path.home() / ".local" / "state"
    return Path(base) / "syncmcp"


def _file_name(service: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in service)
