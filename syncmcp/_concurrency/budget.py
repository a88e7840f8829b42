"""Limits on the memory of queued messages: from a server, and for a server that does not read."""

from __future__ import annotations

import threading

from syncmcp.errors import LimitExceeded

MAX_BYTES = 64 * 1024 * 1024
"""The most bytes that are queued for the callbacks of one client. The same limit applies to its
handlers, and to the library's answers and notifications to one server that does not read."""

MAX_OWED = 10_000
"""The most answers and notifications of the library that are queued for one server."""

ITEM_OVERHEAD = 1024
"""The bytes of each item in addition to its contents: objects, a place in a queue."""


class Budget:
    """Counts queued items and their size in memory, for one or more queues. Thread-safe.

    If there is no other item, an item may have any size.

    Args:
        max_bytes: The limit in bytes, including the overhead of each item; `None`: `MAX_BYTES`.
        max_items: The limit in items; `None` for any number.
        bound: The description of the limit in errors.

    Attributes:
        items: The number of items.
        used: The size of all items, in bytes.
    """

    def __init__(
        self, max_bytes: int | None = None, max_items: int | None = None, bound: str = ""
    ) -> None:
        self._max_bytes = MAX_BYTES if max_bytes is None else max_bytes
        self._max_items = max_items
        self._bound = bound
        # Guards the two sums. Reentrant: a signal handler or a finalizer may use this object, too.
        self._lock = threading.RLock()
        self.items = 0
        self.used = 0

    def fits(self, size: int) -> bool:
        """Return whether an item of `size` bytes may be added now."""
        if self._max_items is not None and self.items >= self._max_items:
            return False
        return not self.items or self.used + size + ITEM_OVERHEAD <= self._max_bytes

    def take(self, size: int) -> None:
        """Count an item of `size` bytes until `give` is called."""
        with self._lock:
            self.items += 1
            self.used += size + ITEM_OVERHEAD

    def take_if_fits(self, size: int) -> bool:
        """Count an item of `size` bytes if it fits; return whether it does."""
        with self._lock:
            fits = self.fits(size)
            if fits:
                self.take(size)
        return fits

    def admit(self, size: int) -> None:
        """Count an item of `size` bytes that is to be sent to the server.

        Raises:
            LimitExceeded: It does not fit.
        """
        if not self.take_if_fits(size):
            raise LimitExceeded(
                f"the server does not read its messages: {self.items} are waiting, with"
                f" {self.used} bytes (the limit is {self._bound})",
                delivery="not_sent",
            )

    def give(self, size: int) -> None:
        """Stop counting an item of `size` bytes."""
        with self._lock:
            self.items -= 1
            self.used -= size + ITEM_OVERHEAD
