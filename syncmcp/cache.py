"""Stores for results that a server allows its clients to cache (2026-07-28, "Caching").

A client has a `MemoryCache` of its own, unless the program passes a store as ``Client(cache=...)``.
Clients with the same store share the results that servers mark as public. A private result is used
only by the client that requested the result. It is stored only if that client certainly makes all
its requests for the same user.

::

    from syncmcp.cache import MemoryCache

    store = MemoryCache(max_bytes=1_000_000)
    with syncmcp.connect(url, cache=store) as client:
        client.list_tools()
        client.list_tools()  # from the store, as long as the server allows
        client.list_tools(cache="refresh")  # from the server, into the store
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
    """A cached result.

    The times are values of `time.monotonic()`, which are meaningless in another process.

    Attributes:
        body: The result, as JSON. It may contain private data of the user.
        asked: The time of the request. All pages of a list that were fetched one after another have
            the time of the first page.
        expires: The time until which the result may be used.
    """

    body: bytes = field(repr=False)
    asked: float
    expires: float


@runtime_checkable
class CacheStore(Protocol):
    """A store of cached results, within one process.

    Any thread may call both methods, and several threads may do so at the same time. The methods
    should not block for long. Keys are digests, which reveal nothing. A store may evict any result
    at any time. Exceptions of a method are logged, and the request is sent as if nothing were
    cached.
    """

    def get(self, key: str) -> CachedResult | None:
        """Return the newest result under `key`, expired or not; `None` if there is no result."""
        ...

    def put(self, key: str, result: CachedResult) -> None:
        """Store `result` under `key`, unless the result there was requested later (`asked`).

        Several threads may store results of the same request. A store that ignores `asked` may
        bring back the result that a call with ``cache="refresh"`` has just replaced.
        """
        ...


class MemoryCache:
    """A cache in memory that evicts the least recently used results. Any thread may use it.

    Args:
        max_entries: The maximum number of results.
        max_bytes: The maximum number of bytes of all results together. A single larger result is
            not stored.

    Raises:
        UsageError: A limit is not a whole number of at least 1.
    """

    def __init__(self, max_entries: int = 1024, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._max_entries = whole_number(max_entries, "max_entries")
        self._max_bytes = whole_number(max_bytes, "max_bytes")
        # Guards the attributes below.
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
            before = self._entries.get(key)
            if before is not None:
                if before.asked > result.asked:
                    return
                del self._entries[key]
                self._size -= len(before.body)
            if len(result.body) > self._max_bytes:
                return
            self._entries[key] = result
            self._size += len(result.body)
            while len(self._entries) > self._max_entries or self._size > self._max_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._size -= len(oldest.body)

    def clear(self) -> None:
        """Discard all results."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<MemoryCache of {len(self._entries)} results, {self._size} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is empty: the results belong to this process and its users.
        return type(self), (self._max_entries, self._max_bytes)
