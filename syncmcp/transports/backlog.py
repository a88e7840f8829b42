"""How much may wait for a server that is slow to take it, or takes nothing."""

from __future__ import annotations

import threading

from syncmcp.errors import LimitExceeded

MAX_FRAMES = 10_000
"""How many answers and notifications of the library may wait for one server."""

MAX_BYTES = 64 * 1024 * 1024
"""The size of those, in bytes, the overhead of each frame included."""

FRAME_OVERHEAD = 1024
"""What a queued frame takes in memory beside its body, in bytes: objects, a job, table entries."""


class Backlog:
    """Counts frames that have not left yet, and refuses those that would be too many.

    A frame is admitted by `Outgoing.enter` when it is queued, and released by `Outgoing.leave`,
    which the transport calls once the frame was sent or dropped.

    Args:
        max_bytes: The bound in bytes, the overhead of each frame included.
        max_frames: The bound in frames; `None` for no other bound than `max_bytes`.
        bound: What errors say of the bound.
    """

    def __init__(self, max_bytes: int, max_frames: int | None, bound: str) -> None:
        self._max_bytes = max_bytes
        self._max_frames = max_frames
        self._bound = bound
        # Guards the two sums. Reentrant: a signal handler or a finalizer may send.
        self._lock = threading.RLock()
        self._frames = 0
        self._bytes = 0

    def facts(self) -> dict[str, int]:
        """How many frames are waiting and what they take; see `Dump`."""
        with self._lock:
            return {"owed": self._frames, "owed bytes": self._bytes}

    def admit(self, size: int) -> None:
        """Count a frame of `size` bytes until it is released. A single one may have any size.

        Raises:
            LimitExceeded: Too much is waiting already; the frame is not counted.
        """
        cost = size + FRAME_OVERHEAD
        with self._lock:
            full = self._max_frames is not None and self._frames >= self._max_frames
            if self._frames and (full or self._bytes + cost > self._max_bytes):
                raise LimitExceeded(
                    f"the server does not take what is sent to it: {self._frames} messages wait,"
                    f" and take {self._bytes} bytes (the bound is {self._bound})",
                    delivery="not_sent",
                )
            self._frames += 1
            self._bytes += cost

    def release(self, size: int) -> None:
        """Stop counting a frame of `size` bytes, which was admitted."""
        with self._lock:
            self._frames -= 1
            self._bytes -= size + FRAME_OVERHEAD
