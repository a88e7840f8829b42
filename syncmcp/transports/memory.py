"""The transport to a server in the same process, for tests: one queue for each direction."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from syncmcp._base.text import logger
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import ConnectionLost, Delivery, LimitExceeded
from syncmcp.transports.base import (
    InProcessServer,
    Outgoing,
    Receiver,
    ServerSession,
    Transport,
    reader_failed,
)

_log = logger("syncmcp.memory")


class MemoryTransport(Transport):
    """The transport to an `InProcessServer`. Each direction has a queue and a thread."""

    blocking = False
    ordered = True

    def __init__(self, server: InProcessServer) -> None:
        self._server = server
        self.label = server.name
        self._session: ServerSession | None = None
        self._inbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._outbox: SimpleQueue[Outgoing | None] = SimpleQueue()
        # Guards the states of frames: cancelled while queued, or sent.
        self._lock = threading.RLock()
        self._closed = False
        self._threads: list[threading.Thread] = []

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        # `None`, queued after the last frame, marks the end of the session.
        self._session = self._server.connect(self._inbox.put, lambda: self._inbox.put(None))
        for role, target in (("read", self._read), ("write", self._write)):
            thread = threading.Thread(
                target=target,
                args=(receiver,),
                name=f"syncmcp-{role}[{self.label}]",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)

    def send(self, out: Outgoing) -> None:
        if self._closed:
            raise ConnectionLost("the connection was closed", delivery="not_sent")
        self._outbox.put(out)

    post = send

    def cancel(self, out: Outgoing) -> Delivery:
        with self._lock:
            if out.state is None:
                out.state = "cancelled"
            return "not_sent" if out.state == "cancelled" else "unknown"

    def close(self, deadline: Deadline) -> None:
        self._closed = True
        self._outbox.put(None)
        self._inbox.put(None)
        session, self._session = self._session, None
        if session is not None:
            session.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(deadline.remaining())

    def _read(self, receiver: Receiver) -> None:
        try:
            while (frame := self._inbox.get()) is not None:
                receiver.receive(frame)
        except LimitExceeded as error:  # a message with too many values or parts
            receiver.lost(error)
            return
        except Exception as error:  # unreported, all requests would wait for their timeouts
            receiver.lost(reader_failed(self.label, error))
            return
        if not self._closed:
            receiver.lost(ConnectionLost("the in-process server ended the session"))

    def _write(self, receiver: Receiver) -> None:
        session = self._session
        while (out := self._outbox.get()) is not None and session is not None:
            with self._lock:
                if out.state == "cancelled":
                    continue
                out.state = "sent"
            try:
                session.receive(out.body)
                out.leave()
            except Exception as error:
                _log.exception("[%s] the in-process server failed", self.label)
                lost = ConnectionLost(f"the in-process server failed: {error!r}")
                lost.__cause__ = error
                receiver.lost(lost)
                return
