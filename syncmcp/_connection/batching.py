"""Batches: requests that share one frame (2025-03-26, basic, "Batching").

Each of them is a request like any other, with an id, a deadline and an outcome of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol import jsonrpc
from syncmcp.transports.base import Outgoing

if TYPE_CHECKING:
    from syncmcp._connection.pending_request import PendingRequest

# "initialize" must not be part of a batch (2025-03-26, basic/lifecycle).
ALONE = "initialize"


class BatchFrames:
    """The batches that one connection has sent; its lock guards `requests`."""

    def __init__(
        self, lock: threading.RLock, requests: jsonrpc.RequestTable[PendingRequest]
    ) -> None:
        self._lock = lock
        self._requests = requests
        self._sent: list[Outgoing] = []

    def bundle(self, requests: Sequence[Outgoing]) -> Outgoing | None:
        """Return one frame with the requests that are still open; `None` if all have ended."""
        with self._lock:
            outs = [out for out in requests if self._requests.get(out.id) is not None]
            if len(outs) < 2:
                return outs[0] if outs else None
            carrier = Outgoing(
                jsonrpc.encode_batch([out.body for out in outs]),
                None,
                None,
                tuple(id for out in outs for id in out.ids),
                outs[0].headers,
                LatestDeadline([out.deadline for out in outs]),
            )
            for out in outs:
                out.batch = carrier
            self._sent = [frame for frame in self._sent if any(map(self._requests.get, frame.ids))]
            self._sent.append(carrier)
        return carrier

    def frame_of_error(self) -> Outgoing | None:
        """Return the frame that an error without an id is about, if no HTTP stream shows that.

        A server that cannot parse a frame cannot name its requests. The frame is the probe, if no
        other request is open, or else the only batch without any response. It is never
        `initialize`: the error may be about the probe before it.
        """
        with self._lock:
            only = self._requests.sole_call()
            if only is not None and only.method == "server/discover":
                return only.out
            whole = [frame for frame in self._sent if all(map(self._requests.get, frame.ids))]
        return whole[0] if len(whole) == 1 else None


class LatestDeadline(Deadline):
    """Expires with the last of several deadlines; holding it holds all of them."""

    __slots__ = ("_all",)

    def __init__(self, deadlines: Sequence[Deadline]) -> None:
        super().__init__(None)
        self._all = deadlines
        ends = [deadline.at for deadline in deadlines if deadline.at is not None]
        if len(ends) == len(deadlines):
            self.at = max(ends)
            self.seconds = max(deadline.seconds or 0.0 for deadline in deadlines)

    def hold(self, patience: float | None = None) -> None:
        """See `Deadline`."""
        super().hold(patience)
        for deadline in self._all:
            deadline.hold(patience)

    def release(self) -> None:
        """See `Deadline`."""
        super().release()
        for deadline in self._all:
            deadline.release()
