"""Where tokens and registrations are kept: what a store has to do, and one that forgets.

A store maps strings to JSON objects. A key names an issuer, a resource and a client, and is no
secret; most of what it leads to is one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from syncmcp._concurrency.turns import Turns
from syncmcp._http.exchange import wait

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from syncmcp._concurrency.timing import Deadline

__all__ = ["MemoryStore", "TokenStore"]


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
        self._turns: dict[str, Turns] = {}

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
        return self._turns.setdefault(key, Turns()).take(deadline, wait)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._texts)} entries>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a store in memory stays in its process: use a FileStore to share one")
