"""Results that a server lets its clients keep for a while (2026-07-28, "Caching").

A client has a `MemoryCache` of its own, unless it is given a store by ``Client(cache=...)``.
Clients that are given the same one share what servers call public; what is private stays with the
client, and with the credentials, that asked for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from syncmcp._base.checks import whole_number

__all__ = ["CacheStore", "CachedResult", "MemoryCache"]


@dataclass(frozen=True)
class CachedResult:
    """A result that is kept.

    The times are those of `time.monotonic()`, and mean nothing to another process.

    Attributes:
        body: The result, as JSON. It may hold anything that the server told this user.
        asked: When it was asked for; all pages of a list that were fetched one after another have
            the time of the first.
        expires: Until when it may be used.
    """

    body: bytes = field(repr=False)
    asked: float
    expires: float


@runtime_checkable
class CacheStore(Protocol):
    """Where results are kept, within one process.

    Both methods may be called by any thread, several at once, and should not block for long. Keys
    are digests and tell nothing. A store may lose whatever it likes, whenever it likes. What a
    method raises is logged, and the request is made as if nothing were kept.
    """

    def get(self, key: str) -> CachedResult | None:
        """Return what was put last under `key`, expired or not; `None` if nothing is there."""
        ...

    def put(self, key: str, result: CachedResult) -> None:
        """Keep `result`, in the place of what was there."""
        ...


class MemoryCache:
    """Keeps what was used last, in memory.

    Args:
        max_entries: How many results are kept.
        max_bytes: How large they may be together, in bytes. A larger one is not kept.

    Raises:
        UsageError: A bound is no whole number of at least 1.
    """

    def __init__(self, max_entries: int = 1024, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._max_entries = whole_number(max_entries, "max_entries")
        self._max_bytes = whole_number(max_bytes, "max_bytes")
        # Guards what follows; held for changes only.
        self._lock = threading.RLock()
        self._entries: OrderedDict[str, CachedResult] = OrderedDict()
        self._size = 0

    def get(self, key: str) -> CachedResult | None:
        """See `CacheStore`."""
        with self._lock:
            result = self._entries.get(key)
            if result is not None:
                self._entries.move_to_end(key)
            return result

    def put(self, key: str, result: CachedResult) -> None:
        """See `CacheStore`."""
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                self._size -= len(before.body)
            if len(result.body) > self._max_bytes:
                return
            self._entries[key] = result
            self._size += len(result.body)
            while len(self._entries) > self._max_entries or self._size > self._max_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._size -= len(oldest.body)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<MemoryCache of {len(self._entries)} results, {self._size} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        # An empty one: what is in it belongs to this process and its users.
        return type(self), (self._max_entries, self._max_bytes)
