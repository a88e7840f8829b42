"""What a connection and its transport promise each other.

A transport moves frames (one JSON-RPC message each, as bytes). It knows nothing of ids, waiters,
handlers or models. It is opened once, used from any thread, closed once; a new connection gets a
new transport.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from syncmcp._base.text import redact
from syncmcp._concurrency.timing import monotonic
from syncmcp.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from syncmcp._concurrency.timing import Deadline
    from syncmcp._http.exchange import Identity
    from syncmcp.config import Http, Stdio
    from syncmcp.errors import Delivery, McpError

_log = logging.getLogger("syncmcp.transports")


class Outgoing:
    """One frame on its way out.

    Attributes:
        body: The encoded message, without a line end.
        method: The method of a request or notification; `None` for a response.
        id: The id of a request, else `None`.
        ids: The ids of the requests in it: `id` alone, or those of a batch; empty without any.
        headers: What the dialect and the call want as HTTP headers; ignored elsewhere.
        deadline: When the call gives up; a transport ends by itself no later than this.
        status: The HTTP status that a refusal came with, set before its body is received; else 0.
        identity: As whom it was sent, set before the answer is received; `None` on transports where
            requests have no credentials.
        state: The transport's own note about this frame; nobody else touches it.
        carrier: The frame in which it leaves together with others, if it does.
        lingers: For how many seconds its exchange goes on though nobody waits for it, where the
            answer has to be known all the same; mostly 0. Read by transports whose exchanges end.
        since: When it was made.
        handed_over: Whether it was handed to the transport.
    """

    __slots__ = (
        "body", "carrier", "deadline", "handed_over", "headers", "id", "identity", "ids", "lingers",
        "method", "since", "state", "status",
    )  # fmt: skip

    def __init__(
        self,
        body: bytes,
        method: str | None,
        id: int | None,
        headers: Mapping[str, str],
        deadline: Deadline,
        ids: tuple[int, ...] = (),
    ) -> None:
        self.body = body
        self.method = method
        self.id = id
        self.ids = ids if id is None else (id,)
        self.headers = headers
        self.deadline = deadline
        self.status = 0
        self.identity: Identity | None = None
        self.state: Any = None
        self.carrier: Outgoing | None = None
        self.lingers = 0.0
        self.since = monotonic()
        self.handed_over = False


class Receiver(Protocol):
    """The connection, as its transport sees it. Every method may be called on any thread.

    None of them blocks, runs user code or raises.
    """

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """Take one frame in.

        Args:
            frame: The bytes of one message (or, in one old revision, of a batch).
            out: The frame of ours on whose own stream it came, if there is such a stream.

        Returns:
            Whether all of `out` is settled, so that nothing more needs to be read for it.
        """
        ...

    def alive(self, out: Outgoing | None) -> None:
        """Something came on the stream of `out` (a comment, say): it is not idle.

        `None` stands for a stream that all requests share.
        """
        ...

    def settled(self, out: Outgoing) -> bool:
        """Whether nobody waits for any request in `out` any more."""
        ...

    def silent(self, *, heard: bool) -> None:
        """Nothing will come any more that belongs to no request; otherwise all is well.

        Args:
            heard: Whether the server had a stream for that. It has ended for good, perhaps because
                the server is gone.
        """
        ...

    def failed(self, out: Outgoing, error: McpError) -> None:
        """The exchange of `out` ended without an answer to each request in it."""
        ...

    def lost(self, error: McpError) -> None:
        """The connection is over; nothing will come any more."""
        ...


class Transport(Protocol):
    """Moves frames to and from one server."""

    label: str
    """What errors and thread names call the server: its command or URL, secrets removed."""

    blocking: bool
    """Whether `send` of a request blocks, mostly until the exchange is over.

    `True` for HTTP, where an exchange needs a thread and had best use the caller's; `False` where
    `send` only writes. Where there is a reader thread, that brings the answer.
    """

    ordered: bool
    """Whether the server gets what was posted in that order."""

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Get ready to send.

        Raises:
            ConnectFailed: The server cannot be reached or started.
            RequestTimeout: `deadline` passed first.
        """
        ...

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """Learn what was negotiated: headers for every message, and whether there is a session."""
        ...

    def send(self, out: Outgoing) -> None:
        """Send a request, notification or response.

        A failure of a request's exchange is told to `Receiver.failed`, not raised. Ends by
        `out.deadline`, or as soon as `withdraw` is called.

        Raises:
            TransportError: The frame could not be sent, and the connection was not open.
        """
        ...

    def post(self, out: Outgoing) -> None:
        """Send a notification or response without ever blocking, from any thread."""
        ...

    def withdraw(self, out: Outgoing) -> Delivery:
        """Nobody waits for the request `out` any more: stop its exchange, unless it lingers.

        Never blocks. Returns ``"not_sent"`` if nothing of the frame has left, and then nothing of
        it ever will; ``"unknown"`` otherwise.
        """
        ...

    def describe(self) -> str:
        """What else is worth telling about the server's state when it did not answer.

        Any thread may ask; secrets are removed. Empty when there is nothing to tell.
        """
        ...

    def close(self, deadline: Deadline) -> None:
        """End it and free everything by `deadline`; harmless when closed before."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A transport whose sessions have ids."""

    @property
    def session_id(self) -> str | None:
        """The session, if there is one."""
        ...

    @property
    def last_event_id(self) -> str | None:
        """The newest event on the stream that belongs to no request."""
        ...


@runtime_checkable
class OfChild(Protocol):
    """A transport to a child process."""

    def stderr_tail(self) -> str:
        """The last lines that the server wrote to its stderr, secrets removed."""
        ...


@runtime_checkable
class HasServerStream(Protocol):
    """A transport with a stream for what the server sends outside of requests."""

    def wait_listening(self, deadline: Deadline) -> None:
        """Wait until the server has answered the request for that stream, whatever it said.

        Ends by `deadline`.
        """
        ...


@runtime_checkable
class TransportSource(Protocol):
    """A target that has a hand in its transport: a recording of a session, or a replay of one."""

    @property
    def label(self) -> str:
        """What errors and logs call it, secrets removed."""
        ...

    @property
    def behind(self) -> Stdio | Http | InProcessServer | None:
        """The server that it stands in front of; `None` if there is none."""
        ...

    def transport(self, inner: Transport | None) -> Transport:
        """Make a transport that has not been opened.

        Args:
            inner: One to what is `behind`, not opened either; `None` if nothing is.
        """
        ...


def reader_failed(label: str, error: Exception) -> ConnectionLost:
    """The end of the connection when its reader fails in a way that nobody expected.

    It is logged with its traceback: an error that ends calls must not be all there is to see.
    """
    _log.error("[%s] the reader failed", label, exc_info=error)
    lost = ConnectionLost(
        f"the reader failed: {type(error).__name__}: {redact(str(error))}", server=label
    )
    lost.__cause__ = error
    return lost


class ServerSession(Protocol):
    """One connection of an in-process server."""

    def receive(self, frame: bytes) -> None:
        """Take one frame from the client."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class InProcessServer(Protocol):
    """A server that can be connected to without leaving the process."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> ServerSession:
        """Start a session.

        Args:
            deliver: Given each frame for the client.
            on_close: Called when the session has ended, whoever ended it.
        """
        ...
