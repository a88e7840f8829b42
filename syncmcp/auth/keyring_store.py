"""Tokens in the keyring of the desktop: Keychain, Secret Service, KWallet, Credential Locker.

Needs the extra ``keyring``: ``pip install "syncmcp-client[keyring]"``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from syncmcp._redaction import redact
from syncmcp.auth._key_locks import KeyLocks
from syncmcp.auth._private import unusable
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from syncmcp._threads import Deadline

__all__ = ["Keyring", "KeyringStore"]

# Each key is a service of its own with one user: where a service has several, Windows moves
# entries about at each change, and a reader may find none.
_USER: Final = "tokens"


class Keyring(Protocol):
    """What is used of `keyring` or one of its backends."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """Return a secret, or `None`."""

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """Keep a secret."""

    def delete_password(self, service: str, username: str, /) -> None:
        """Forget a secret."""


class KeyringStore:
    """Keeps each entry as one secret of the user's keyring, shared by the user's processes.

    The keyring may ask the person to unlock it, and takes as long as the person does. Windows
    takes secrets of up to about 1,200 characters; longer tokens need a `FileStore` there.

    A keyring has no locks, so they are files in the user's state directory
    (``~/.local/state/syncmcp``, or what the system has for it).

    Args:
        service: What the names of the entries begin with.
        backend: The keyring; by default the one that `keyring` chooses.

    Raises:
        UsageError: `keyring` is not installed.
    """

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
        text = self._ask("read", lambda: self._keyring.get_password(self._name(key), _USER))
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise unusable(
                f"the entry {self._name(key)!r} of the keyring holds no tokens of ours; it was "
                "left as it is"
            )
        return value

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Save `value` under `key`; `None` deletes.

        Raises:
            AuthError: The keyring cannot be written, or what is there is not ours.
        """
        name = self._name(key)
        known = self.load(key)
        if value is not None:
            text = json.dumps(dict(value))
            self._ask("changed", lambda: self._keyring.set_password(name, _USER, text), text)
        elif known is not None:
            self._ask("changed", lambda: self._keyring.delete_password(name, _USER))

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep all threads and processes of the user out that lock the same key.

        Raises:
            RequestTimeout: They took until `deadline`.
            AuthError: The lock file cannot be used.
        """
        return self._locks.take(key, deadline)

    def _name(self, key: str) -> str:
        return f"{self._service} {key}"

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
