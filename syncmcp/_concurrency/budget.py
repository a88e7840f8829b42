"""How much of what a server sent may wait in memory."""

from __future__ import annotations

import threading

MAX_BYTES = 64 * 1024 * 1024
"""What may wait for the callbacks of one client, and again for its handlers, in bytes."""

ITEM_OVERHEAD = 1024
"""What each item takes beside its contents, in bytes: objects, a place in a queue."""


class Budget:
    """Counts what waits, by its size in memory; may be shared by several queues.

    The bound is `MAX_BYTES`. A single item may have any size.
    """

    def __init__(self) -> None:
        # Guards the sum. Reentrant: a finalizer may run anything.
        self._lock = threading.RLock()
        self._used = 0

    @property
    def used(self) -> int:
        """The size of what waits, in bytes."""
        return self._used

    def fits(self, size: int) -> bool:
        """Whether an item of `size` bytes may be taken now."""
        return not self._used or self._used + size + ITEM_OVERHEAD <= MAX_BYTES

    def take(self, size: int) -> None:
        """Count an item of `size` bytes until `give` is called."""
        with self._lock:
            self._used += size + ITEM_OVERHEAD

    def take_if_fits(self, size: int) -> bool:
        """Count an item of `size` bytes if it fits; return whether it does."""
        with self._lock:
            fits = self.fits(size)
            if fits:
                self.take(size)
        return fits

    def give(self, size: int) -> None:
        """Stop counting an item of `size` bytes."""
        with self._lock:
            self._used -= size + ITEM_OVERHEAD
