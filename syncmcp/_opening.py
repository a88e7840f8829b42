"""Opening a connection: carries out what the negotiation asks for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from syncmcp._options import Options
from syncmcp._protocol.gates import every_capability
from syncmcp._protocol.negotiate import (
    Ask,
    Died,
    Fail,
    Hello,
    Negotiated,
    Older,
    Outcome,
    Restart,
    Silent,
    Tell,
    negotiate,
    rejoin,
    verdict,
)
from syncmcp._redaction import redact
from syncmcp._threads import Deadline
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    ProtocolError,
    RequestTimeout,
    SessionLost,
)
from syncmcp.transports.base import Listening, OfChild, Resumable

if TYPE_CHECKING:
    from syncmcp._connection import Connection
    from syncmcp._protocol.dialect import Dialect

_log = logging.getLogger("syncmcp.tools")

# What a connection that turned out useless gets for its end, in seconds.
_DISCARD_SECONDS = 1.0

# How long the answer to the request for the server's own stream is waited for, in seconds. It comes
# at once; but some servers send it with the first event.
_LISTEN_SECONDS = 0.5


class Way(NamedTuple):
    """Over which transport a server is reached, where there is an older one (HTTP+SSE).

    Attributes:
        older: Whether it is the older one. A server there knows nothing but the handshake.
        fixed: Whether the other one is never tried.
    """

    older: bool
    fixed: bool


def open_connection(
    connect: Callable[[bool], Connection],
    way: Way,
    mode: str,
    hello: Hello,
    known: str | None,
    deadline: Deadline,
    probe_timeout: float,
) -> tuple[Connection, Negotiated, Way]:
    """Make a connection with `connect` and agree on a revision with the server.

    Args:
        connect: Makes a connection that has not been opened, over the older transport if told so;
            asked again when the server has to be started afresh.
        way: Where to begin.
        mode: See `negotiate`.
        hello: How the client presents itself.
        known: The revision this server spoke before, if it is known.
        deadline: When to give up.
        probe_timeout: How long, in seconds, a probe's silence is waited for.

    Returns:
        The connection, what was agreed on, and the way that led there.

    Raises:
        ConnectFailed: The server cannot be reached or started, or ended before it was ready.
        RequestTimeout: `deadline` passed.
        McpError: What else the negotiation ended with.
    """
    connection = connect(way.older)
    try:
        try:
            connection.open(deadline)
        except (HttpError, ProtocolError) as error:
            if way.fixed or not way.older or isinstance(verdict(error), Fail):
                raise
            # The server was an older one, and is that no more.
            way, known = way._replace(older=False), None
            connection = _again(connection, connect, way, deadline)
            connection.open(deadline)
        transport = connection.transport
        if isinstance(transport, Resumable) and transport.session_id is not None:
            dialect = _rejoin(connection, mode, hello, deadline)
            if dialect is not None:
                _adopt(connection, dialect, every_capability(dialect), hello, deadline)
                return connection, Negotiated(dialect, {}), way
        if way.older and mode == "auto":
            mode = "legacy"
        steps = negotiate(mode, hello, known, older=not (way.older or way.fixed))
        effect = next(steps)
        while True:
            outcome: Outcome = None
            if isinstance(effect, Ask):
                outcome = _ask(connection, effect, deadline, probe_timeout)
            elif isinstance(effect, Tell):
                connection.notify(effect.method, None, deadline)
            elif isinstance(effect, Restart):
                connection = _again(connection, connect, way, deadline)
                connection.open(deadline)
            elif isinstance(effect, Older):
                way = way._replace(older=True)
                connection = _again(connection, connect, way, deadline)
                outcome = _try(connection, deadline.sooner(probe_timeout))
            effect = steps.send(outcome)
    except StopIteration as stop:
        negotiated: Negotiated = stop.value
        capabilities = negotiated.result.get("capabilities")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        _adopt(connection, negotiated.dialect, capabilities, hello, deadline)
        return connection, negotiated, way
    except BaseException as error:
        connection.close(deadline.sooner(_DISCARD_SECONDS))
        if isinstance(error, ConnectionLost) and not isinstance(error, SessionLost):
            if isinstance(connection.transport, OfChild):  # it has said all that it will say
                error.stderr_tail = connection.transport.stderr_tail()
            raise ConnectFailed(
                f"lost before it was ready: {error.message}", **error.__dict__
            ) from error
        if isinstance(error, RequestTimeout):
            raise _too_late(error, connection, deadline) from error
        raise


def _adopt(
    connection: Connection,
    dialect: Dialect,
    capabilities: dict[str, Any],
    hello: Hello,
    deadline: Deadline,
) -> None:
    if connection.transport.blocking:  # that is HTTP; nothing else has headers
        dialect.repeat_arguments(partial(_left_out, connection.label))
    connection.adopt(dialect, capabilities, hello.offer)
    if any(hello.offer) and isinstance(connection.transport, Listening):
        # What a server asks there before the stream is open is lost, and it waits for ever.
        connection.transport.wait_listening(deadline.sooner(_LISTEN_SECONDS))


def _left_out(label: str, tool: str, reason: str) -> None:
    _log.warning("[%s] the tool %r is left out: %s", label, redact(tool), redact(reason))


def _again(
    connection: Connection, connect: Callable[[bool], Connection], way: Way, deadline: Deadline
) -> Connection:
    connection.close(deadline.sooner(_DISCARD_SECONDS))
    return connect(way.older)


def _rejoin(connection: Connection, mode: str, hello: Hello, deadline: Deadline) -> Dialect | None:
    """The dialect of the session that was given, if the server still knows it."""
    steps = rejoin(mode, hello)
    try:
        effect = next(steps)
        while True:
            assert isinstance(effect, Ask)
            effect = steps.send(_ask(connection, effect, deadline, 0.0))
    except StopIteration as stop:
        dialect: Dialect | None = stop.value
        return dialect


def _try(connection: Connection, deadline: Deadline) -> McpError | None:
    """Open it, and return what went wrong: that is one answer, too."""
    try:
        connection.open(deadline)
    except ClosedError:
        raise
    except McpError as error:
        return error
    return None


def _too_late(error: RequestTimeout, connection: Connection, deadline: Deadline) -> RequestTimeout:
    text = f"the server was not ready within {deadline.seconds or 0.0:g} s (option open_timeout)"
    hint = connection.transport.describe()
    late = RequestTimeout(f"{text}; {hint}" if hint else text)
    late.__dict__.update({**error.__dict__, "kind": "open", "seconds": deadline.seconds})
    return late


def _ask(connection: Connection, ask: Ask, deadline: Deadline, probe_timeout: float) -> Outcome:
    limit = deadline.sooner(probe_timeout) if ask.probe else deadline
    connection.agreed.spoken = ask.dialect
    options = Options(None, None)
    if ask.in_session:
        options.headers = ask.dialect.session_headers()
    try:
        result = connection.request(ask.method, ask.params, options, limit, dialect=ask.dialect)
    except RequestTimeout:
        if ask.probe and not deadline.expired:
            return Silent()
        raise
    except ConnectionLost as error:
        # The transport itself is over: a child process that ended. It can be started again.
        return Died(error) if connection.dead is not None else error
    except McpError as error:
        return error
    if not isinstance(result, dict):
        return ProtocolError(
            "the result is not an object", server=connection.label, method=ask.method
        )
    return result
