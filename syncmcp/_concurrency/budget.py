"""How much may wait in memory: of what a server sent, and for a server that takes nothing."""

from __future__ import annotations

import threading

from syncmcp.errors import LimitExceeded

MAX_BYTES = 64 * 1024 * 1024
"""What may wait for the callbacks of one client, again for its handlers, and again for one server
that does not take the library's answers and notifications; in bytes."""

MAX_OWED = 10_000
"""How many answers and notifications of the library may wait for one server."""

ITEM_OVERHEAD = 1024
"""What each item takes beside its contents, in bytes: objects, a place in a queue."""


class Budget:
    """Counts what waits, by its size in memory; may be shared by several queues. Thread-safe.

    A single item may have any size.

    Args:
        max_bytes: The bound in bytes, the overhead of each item included; `None`: `MAX_BYTES`.
        max_items: The bound in items; `None` for any number.
        bound: What errors say of the bound.

    Attributes:
        items: How many items wait.
        used: What they take, in bytes.
    """

    def __init__(
        self, max_bytes: int | None = None, max_items: int | None = None, bound: str = ""
    ) -> None:
        self._max_bytes = MAX_BYTES if max_bytes is None else max_bytes
        self._max_items = max_items
        self._bound = bound
        # Guards the two sums. Reentrant: a signal handler or a finalizer may run anything.
        self._lock = threading.RLock()
        self.items = 0
        self.used = 0

    def fits(self, size: int) -> bool:
        """Whether an item of `size` bytes may be taken now."""
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
        """Count an item of `size` bytes that is to be sent to the server, if it fits.

        Raises:
            LimitExceeded: It does not.
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
