"""Batches: requests that share one frame (2025-03-26, basic, "Batching").

Each of them is a request like any other, with an id, a deadline and an outcome of its own. They
meet here before they are sent, and again if their frame failed and all of them are retried.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol import jsonrpc
from syncmcp.transports.base import Outgoing, Transport


class BatchSender(Protocol):
    """The connection, as batches see it."""

    @property
    def transport(self) -> Transport:
        """What carries the frame."""
        ...

    def send_batch(self, outs: Sequence[Outgoing]) -> None:
        """Send the requests that are still open in one frame."""
        ...


class OpenRequest(Protocol):
    """One of the connection's open requests."""

    method: str
    out: Outgoing | None


class OpenRequests(Protocol):
    """The connection's open requests."""

    def get(self, id: object) -> OpenRequest | None:
        """The open request with this id."""
        ...

    def sole_call(self) -> OpenRequest | None:
        """The open request, if there is exactly one."""
        ...


class _Joined(NamedTuple):
    out: Outgoing
    headers: dict[str, str]


class BatchAssembler:
    """Collects requests that may share a frame, and sends it once none of them is missing.

    It delays no request that cannot share the frame: one that is queued, whose revision has no
    batches, that has other headers or another connection than the rest is sent alone.

    Args:
        size: How many requests are expected.
        pool: Where a frame is sent whose exchange needs a thread.
    """

    def __init__(self, size: int, pool: DaemonPool) -> None:
        self._pool = pool
        # Guards everything below; held for changes only.
        self._lock = threading.RLock()
        self._missing = set(range(size))
        self._joined: dict[int, _Joined] = {}
        self._sender: BatchSender | None = None

    def join(
        self, index: int, sender: BatchSender, out: Outgoing, headers: Mapping[str, str]
    ) -> bool:
        """Add `out`, which may be sent now, to the batch; `False` if it has to be sent alone.

        Args:
            index: Its position in the frame.
            sender: Its connection.
            out: The request.
            headers: The HTTP headers that its caller gave.
        """
        own = _Joined(out, dict(headers))
        with self._lock:
            if index not in self._missing:
                return False
            self._missing.remove(index)
            if not self._joined:
                self._sender = sender
            first = next(iter(self._joined.values()), own)
            fits = sender is self._sender and own.headers == first.headers
            if fits:
                self._joined[index] = own
        self._send_if_complete()
        return fits

    def discard(self, index: int) -> None:
        """Do not wait for this request. Never blocks."""
        with self._lock:
            self._missing.discard(index)
        self._send_if_complete()

    def expect_retry(self, index: int) -> None:
        """Wait for this request again: it joins once more, or is discarded."""
        with self._lock:
            self._joined.pop(index, None)
            self._missing.add(index)

    def _send_if_complete(self) -> None:
        with self._lock:
            sender = self._sender
            if self._missing or not self._joined or sender is None:
                return
            outs = [self._joined[index].out for index in sorted(self._joined)]
            self._joined.clear()
            self._sender = None
        send = partial(sender.send_batch, outs)
        if sender.transport.blocking:
            # Not queued: the threads that the queue waits for may be waiting for this frame.
            self._pool.run(send, at_once=True)
        else:
            send()


class BatchSlot:
    """The position of one request in a batch."""

    __slots__ = ("_assembler", "_index")

    def __init__(self, assembler: BatchAssembler, index: int) -> None:
        self._assembler = assembler
        self._index = index

    def join(self, sender: BatchSender, out: Outgoing, headers: Mapping[str, str]) -> bool:
        """See `BatchAssembler.join`."""
        return self._assembler.join(self._index, sender, out, headers)

    def discard(self) -> None:
        """See `BatchAssembler.discard`."""
        self._assembler.discard(self._index)

    def expect_retry(self) -> None:
        """See `BatchAssembler.expect_retry`."""
        self._assembler.expect_retry(self._index)


class BatchFrames:
    """The batches that one connection has sent.

    Args:
        lock: The connection's.
        requests: The open requests, which `lock` guards.
    """

    def __init__(self, lock: threading.RLock, requests: OpenRequests) -> None:
        self._lock = lock
        self._requests = requests
        self._sent: list[Outgoing] = []

    def bundle(self, requests: Sequence[Outgoing]) -> Outgoing | None:
        """Return one frame of the requests that are still open; `None` if none is."""
        with self._lock:
            outs = [out for out in requests if self._requests.get(out.id) is not None]
            if len(outs) < 2:
                return outs[0] if outs else None
            carrier = Outgoing(
                jsonrpc.encode_batch([out.body for out in outs]),
                None,
                None,
                outs[0].headers,
                LatestDeadline([out.deadline for out in outs]),
                tuple(id for out in outs for id in out.ids),
            )
            for out in outs:
                out.batch = carrier
            self._sent = [frame for frame in self._sent if any(map(self._requests.get, frame.ids))]
            self._sent.append(carrier)
        return carrier

    def frame_of_error(self) -> Outgoing | None:
        """The frame that an error without a request id and without a stream of its own refers to.

        A server that cannot read a frame cannot name a request in it. It must be the only batch of
        which no request is answered; or the probe, while no other request is open. Not
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
