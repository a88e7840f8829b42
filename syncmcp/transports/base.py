"""The interface between a connection and its transport.

A transport moves frames: one JSON-RPC message each, as bytes. Request tables, handlers and models
are the connection's. A transport is opened once, used from any thread, and closed once; a new
connection gets a new transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from syncmcp._base.text import logger, redact
from syncmcp._concurrency.budget import Budget
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._protocol.jsonrpc import MAX_VALUES
from syncmcp.config import Http, Stdio
from syncmcp.errors import ConnectionLost, Delivery, McpError, forked_error

_log = logger("syncmcp.transports")


@dataclass(eq=False, slots=True)
class Outgoing:
    """One outgoing frame.

    Attributes:
        body: The encoded message, without a line end.
        method: The method of a request or notification; `None` for a response.
        id: The id of a request, else `None`.
        ids: The ids of all requests in the frame: `id` alone, or those of a batch; empty if the
            frame contains no request.
        headers: HTTP headers that the dialect and the call add; other transports ignore them.
        deadline: The deadline of the call; the transport ends the exchange no later than that.
        status: The HTTP status of an error response, set before its body is received; else 0.
        state: Private to the transport: how far the frame has been sent.
        backlog: What counts the frame while it is waiting; `None` if nothing does.
        batch: The batch frame that contains this frame, if it is sent in one.
        created_at: When the frame was made, by `time.monotonic()`.
        submitted: Whether the frame was passed to the transport.
    """

    body: bytes
    method: str | None
    id: int | None
    ids: tuple[int, ...]
    headers: Mapping[str, str]
    deadline: Deadline
    status: int = 0
    state: Any = None
    backlog: Budget | None = None
    batch: Outgoing | None = None
    created_at: float = field(default_factory=monotonic)
    submitted: bool = False

    def enter(self, backlog: Budget) -> None:
        """Have `backlog` count the frame until it leaves, or refuse it by `LimitExceeded`."""
        backlog.admit(len(self.body))
        self.backlog = backlog

    def leave(self) -> None:
        """The frame was sent or dropped: it is waiting no longer. Idempotent, from any thread."""
        backlog, self.backlog = self.backlog, None
        if backlog is not None:
            backlog.give(len(self.body))


class Receiver(Protocol):
    """The callbacks of a connection for its transport. Each may be called on any thread.

    None of them blocks, runs user code or raises.
    """

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """Receive one frame.

        Args:
            frame: The bytes of one message (or, in one old revision, of a batch).
            out: The frame that `frame` was received for, if it came in the HTTP response to one.

        Returns:
            Whether all requests in `out` are settled, so that the rest of the response need not be
            read.

        Raises:
            LimitExceeded: The frame has too many values or messages, and none was handled. The
                transport treats it like one that is too long.
        """
        ...

    def alive(self, out: Outgoing | None) -> None:
        """Bytes were received on the stream of `out`, perhaps only a comment: it is not idle.

        `None` stands for a stream that all requests share.
        """

    def settled(self, out: Outgoing) -> bool:
        """Whether all requests in `out` are settled."""
        ...

    def messages_missed(self) -> None:
        """Messages outside of requests may be missing: their stream was interrupted, or is late.

        From now on they are received again.
        """

    def server_stream_ended(self, *, opened: bool) -> None:
        """The stream for messages outside of requests has ended; requests can still be sent.

        Args:
            opened: Whether the server had opened such a stream. It is not reopened: the server may
                be gone.
        """

    def failed(self, out: Outgoing, error: McpError) -> None:
        """The exchange of `out` ended without a response to each request in it."""

    def lost(self, error: McpError) -> None:
        """The connection is lost; nothing more will be received."""


class Transport(ABC):
    """Moves frames to and from one server. What is not abstract here is overridden where needed."""

    label: str
    """The server's name in errors and thread names: its command or URL, secrets removed."""

    blocking: bool
    """Whether `send` of a request blocks, mostly until the exchange has ended.

    `True` for HTTP, where an exchange runs on the caller's thread; `False` where `send` only
    writes. With HTTP+SSE, `send` blocks for the POST, and a reader thread receives the response.
    """

    ordered: bool
    """Whether the server receives posted frames in the order of the `post` calls."""

    max_values: int = MAX_VALUES
    """How many values a received frame may have: fewer where its length has a lower bound."""

    @abstractmethod
    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Prepare for sending: start the server or connect to it, where the transport needs that.

        Raises:
            ConnectFailed: The server cannot be reached or started.
            RequestTimeout: `deadline` passed first.
        """

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:  # noqa: B027
        """Apply what was negotiated.

        Args:
            headers: HTTP headers to add to every message from now on.
            stateful: Whether there is a session.
        """

    @abstractmethod
    def send(self, out: Outgoing) -> None:
        """Send a request, notification or response.

        A failure of a request's exchange is reported to `Receiver.failed`, not raised. Returns by
        `out.deadline`, or as soon as `cancel` is called.

        Raises:
            TransportError: The frame could not be sent, and the connection was not open.
        """

    @abstractmethod
    def post(self, out: Outgoing) -> None:
        """Send a notification or response without ever blocking, from any thread.

        Calls `out.leave` once the frame was sent or dropped, unless this method raises.
        """

    @abstractmethod
    def cancel(self, out: Outgoing) -> Delivery:
        """The outcome of `out` is no longer wanted: abort its exchange.

        Never blocks. Idempotent.

        Returns:
            ``"not_sent"`` if no byte of the frame was sent, and none will be; else ``"unknown"``.
        """

    def describe(self) -> str:
        """A hint at the server's state, for the error of a request without a response.

        Called on any thread. Secrets are removed. Empty if there is nothing to say.
        """
        return ""

    def skipped(self, frame: bytes) -> None:  # noqa: B027
        """A received frame held no valid message, or one without a request that it answers."""

    def stderr_tail(self) -> str:
        """The last lines that a child process wrote to its stderr, secrets removed."""
        return ""

    @property
    def session_id(self) -> str | None:
        """The id of the session; `None` if there is none."""
        return None

    @property
    def last_event_id(self) -> str | None:
        """The id of the last event on the stream for messages outside of requests, if any."""
        return None

    def wait_listening(self, deadline: Deadline) -> None:  # noqa: B027
        """Wait until the server has accepted or refused that stream, but not beyond `deadline`."""

    @abstractmethod
    def close(self, deadline: Deadline) -> None:
        """End the connection and free all resources by `deadline`. Idempotent."""


class ForkedTransport(Transport):
    """In a forked child, in the place of a transport of the parent: refuses frames, ends nothing.

    The child shares the parent's descriptors: what it wrote would come in the middle of frames and
    responses of the parent, and to shut down a socket would end the parent's exchange.
    """

    def __init__(self, parents: Transport) -> None:
        self.label = parents.label
        self.blocking, self.ordered = parents.blocking, parents.ordered
        # Kept: a child process that is collected warns that it is still running.
        self._parents = parents

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        raise forked_error(self.label)

    def send(self, out: Outgoing) -> None:
        raise forked_error(self.label, out.method)

    post = send

    def cancel(self, out: Outgoing) -> Delivery:
        return "unknown"

    def close(self, deadline: Deadline) -> None:
        """Do nothing: the parent goes on."""

    @property
    def session_id(self) -> str | None:
        return self._parents.session_id

    @property
    def last_event_id(self) -> str | None:
        return self._parents.last_event_id


@runtime_checkable
class TransportSource(Protocol):
    """A target that makes its own transport: a recording of a session, or a replay of one."""

    @property
    def label(self) -> str:
        """Its name in errors and logs, secrets removed."""
        ...

    @property
    def behind(self) -> Stdio | Http | InProcessServer | None:
        """The real server behind this target; `None` if there is none."""

    def transport(self, inner: Transport | None) -> Transport:
        """Make an unopened transport; `inner` is one to the server `behind`, if there is one."""
        ...


def reader_failed(label: str, error: Exception) -> ConnectionLost:
    """The error of a connection whose reader thread raised an unexpected exception.

    The exception is logged with its traceback, which the errors of the calls do not show.
    """
    _log.error("[%s] the reader failed", label, exc_info=error)
    lost = ConnectionLost(
        f"the reader failed: {type(error).__name__}: {redact(str(error))}", server=label
    )
    lost.__cause__ = error
    return lost


class ServerSession(Protocol):
    """One connection to an in-process server."""

    def receive(self, frame: bytes) -> None:
        """Receive one frame from the client."""

    def close(self) -> None:
        """End the connection."""


class InProcessServer(Protocol):
    """A server in the same process as its client."""

    @property
    def name(self) -> str:
        """The server's name in errors."""
        ...

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> ServerSession:
        """Start a session.

        Args:
            deliver: Called with each frame for the client.
            on_close: Called when the session has ended, whichever side ended it.
        """
        ...
