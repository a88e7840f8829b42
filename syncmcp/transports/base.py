"""The interface between a connection and its transport.

A transport sends and receives frames: the bytes of one JSON-RPC message, or of a batch. The
connection has the request table, the handlers and the models. A transport is opened once, and may
be used from any thread. A new connection gets a new transport.
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
        id: The id of a request, or `None`.
        ids: The ids of all requests in the frame: `id` alone, or those of a batch; empty if the
            frame contains no request.
        headers: HTTP headers that the dialect and the call add; other transports ignore them.
        deadline: The deadline of the call; an HTTP exchange is aborted soon after it.
        status: The HTTP status of an error response, set before `Receiver.receive` gets its body;
            otherwise 0.
        state: Private to the transport: how far the frame has been sent.
        backlog: The budget that counts the frame while it waits to be sent, if any.
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
        """Count the frame in `backlog` until `leave`; raise `LimitExceeded` if it does not fit."""
        backlog.admit(len(self.body))
        self.backlog = backlog

    def leave(self) -> None:
        """Stop counting the frame, which was sent or discarded.

        The method is idempotent, and may be called from any thread.
        """
        backlog, self.backlog = self.backlog, None
        if backlog is not None:
            backlog.give(len(self.body))


class Receiver(Protocol):
    """The callbacks of a connection for its transport.

    Each may be called on any thread.

    No callback blocks, runs user code or raises.
    """

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """Receive one frame.

        Args:
            frame: The bytes of one message (or, in one old revision, of a batch).
            out: The frame whose HTTP response, or resumed stream, contained `frame`, if any.

        Returns:
            Whether all requests in `out` are settled, so that the rest of the response need not be
            read.

        Raises:
            LimitExceeded: The frame has too many values or messages, and no message was handled.
                The transport treats the frame like one that is too long.
        """
        ...

    def alive(self, out: Outgoing | None) -> None:
        """Restart the idle timeout of `out`: its stream received bytes, perhaps only a comment.

        `None` stands for all requests, which share a stream.
        """

    def settled(self, out: Outgoing) -> bool:
        """Whether all requests in `out` are settled."""
        ...

    def messages_missed(self) -> None:
        """Report that messages outside of requests may be missing.

        The stream of these messages was interrupted, or opened late. It is open now.
        """

    def server_stream_ended(self, *, opened: bool) -> None:
        """Report that the stream for messages outside of requests ended and is not reopened.

        Args:
            opened: Whether the server had opened such a stream. Requests can still be sent in
                either case.
        """

    def failed(self, out: Outgoing, error: McpError) -> None:
        """Report that the exchange of `out` ended without a response to each request in it."""

    def lost(self, error: McpError) -> None:
        """Report that the connection is lost: nothing more will be received."""


class Transport(ABC):
    """Sends frames to one server and receives its frames.

    Methods with a body here are optional.
    """

    label: str
    """The server's name in errors and thread names: its command or URL, secrets removed."""

    blocking: bool
    """Whether `send` of a request blocks, mostly until the exchange has ended.

    It is `True` for HTTP, where an exchange runs on the caller's thread, and `False` where `send`
    only writes. With HTTP+SSE, `send` blocks for the POST, and a reader thread receives the
    response.
    """

    ordered: bool
    """Whether the server receives posted frames in the order of the `post` calls."""

    max_values: int = MAX_VALUES
    """The most JSON values of a received frame; fewer if the limit of its length is low."""

    @abstractmethod
    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Prepare for sending: start the server or connect to it, if the transport needs that.

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

        A failure of a request's exchange is reported to `Receiver.failed`, not raised. The method
        returns by `out.deadline`, or as soon as `cancel` is called.

        Raises:
            McpError: The frame could not be sent, and `Receiver.failed` was not called.
        """

    @abstractmethod
    def post(self, out: Outgoing) -> None:
        """Send a notification or response without ever blocking, from any thread.

        The transport calls `out.leave` once the frame was sent or discarded, unless this method
        raises.
        """

    @abstractmethod
    def cancel(self, out: Outgoing) -> Delivery:
        """Abort the exchange of `out`, whose outcome is not needed any more.

        The method never blocks, and is idempotent.

        Returns:
            ``"not_sent"`` if no byte of the frame was sent or will be sent; otherwise
            ``"unknown"``.
        """

    def describe(self) -> str:
        """Return a hint at the server's state, for the error of a request without a response.

        The method may be called on any thread. Secrets are removed. The hint is empty if the
        transport has none.
        """
        return ""

    def skipped(self, frame: bytes) -> None:  # noqa: B027
        """Record a received frame with an invalid message that answers no request in flight."""

    def stderr_tail(self) -> str:
        """Return the last lines that a child process wrote to its stderr, secrets removed."""
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
        """Wait, up to `deadline`, until the server accepts or refuses the listening stream."""

    @abstractmethod
    def close(self, deadline: Deadline) -> None:
        """End the connection and free all resources by `deadline`.

        The method is idempotent.
        """


class ForkedTransport(Transport):
    """Replaces a transport of the parent in a forked child: it sends nothing and closes nothing.

    The child shares the parent's descriptors. Bytes of the child would garble frames and responses
    of the parent, and shutting down a socket would end the parent's exchange.
    """

    def __init__(self, parents: Transport) -> None:
        self.label = parents.label
        self.blocking, self.ordered = parents.blocking, parents.ordered
        # Referenced here, because a collected `Popen` warns that its process is still running.
        self._parents = parents

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        raise forked_error(self.label)

    def send(self, out: Outgoing) -> None:
        raise forked_error(self.label, out.method)

    post = send

    def cancel(self, out: Outgoing) -> Delivery:
        return "unknown"

    def close(self, deadline: Deadline) -> None:
        """Do nothing: the parent still uses the connection."""

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
        """The name of the target in errors and logs, secrets removed."""
        ...

    @property
    def behind(self) -> Stdio | Http | InProcessServer | None:
        """The real server behind this target; `None` for a target without a server."""

    def transport(self, inner: Transport | None) -> Transport:
        """Make an unopened transport; `inner` is the transport to the server `behind`, if any."""
        ...


def reader_failed(label: str, error: Exception) -> ConnectionLost:
    """Return the error of a connection whose reader thread raised an unexpected exception.

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
