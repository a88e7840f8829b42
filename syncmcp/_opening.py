"""Opening a connection: carries out what the negotiation asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from syncmcp._options import Options
from syncmcp._protocol.negotiate import (
    Ask,
    Died,
    Hello,
    Negotiated,
    Outcome,
    Restart,
    Silent,
    Tell,
    negotiate,
)
from syncmcp._threads import Deadline
from syncmcp.errors import (
    ConnectFailed,
    ConnectionLost,
    McpError,
    ProtocolError,
    RequestTimeout,
    SessionLost,
)

if TYPE_CHECKING:
    from syncmcp._connection import Connection

# What a connection that turned out useless gets for its end, in seconds.
_DISCARD_SECONDS = 1.0


def open_connection(
    connect: Callable[[], Connection],
    mode: str,
    hello: Hello,
    known: str | None,
    deadline: Deadline,
    probe_timeout: float,
) -> tuple[Connection, Negotiated]:
    """Make a connection with `connect` and agree on a revision with the server.

    Args:
        connect: Makes a connection that has not been opened; asked again when the server has to
            be started afresh.
        mode: See `negotiate`.
        hello: How the client presents itself.
        known: The revision this server spoke before, if it is known.
        deadline: When to give up.
        probe_timeout: How long, in seconds, a probe's silence is waited for.

    Raises:
        ConnectFailed: The server cannot be reached or started, or ended before it was ready.
        RequestTimeout: `deadline` passed.
        McpError: What else the negotiation ended with.
    """
    connection = connect()
    try:
        connection.open(deadline)
        steps = negotiate(mode, hello, known)
        effect = next(steps)
        while True:
            outcome: Outcome = None
            if isinstance(effect, Ask):
                outcome = _ask(connection, effect, deadline, probe_timeout)
            elif isinstance(effect, Tell):
                connection.notify(effect.method, None, deadline)
            elif isinstance(effect, Restart):
                connection.close(deadline.sooner(_DISCARD_SECONDS))
                connection = connect()
                connection.open(deadline)
            effect = steps.send(outcome)
    except StopIteration as stop:
        negotiated: Negotiated = stop.value
        capabilities = negotiated.result.get("capabilities")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        connection.adopt(negotiated.dialect, capabilities, hello.offer)
        return connection, negotiated
    except BaseException as error:
        connection.close(deadline.sooner(_DISCARD_SECONDS))
        if isinstance(error, ConnectionLost) and not isinstance(error, SessionLost):
            raise ConnectFailed(
                f"lost before it was ready: {error.message}", **error.__dict__
            ) from error
        if isinstance(error, RequestTimeout):
            raise _too_late(error, connection, deadline) from error
        raise


def _too_late(error: RequestTimeout, connection: Connection, deadline: Deadline) -> RequestTimeout:
    text = f"the server was not ready within {deadline.seconds or 0.0:g} s (option open_timeout)"
    hint = connection.transport.describe()
    late = RequestTimeout(f"{text}; {hint}" if hint else text)
    late.__dict__.update({**error.__dict__, "kind": "open", "seconds": deadline.seconds})
    return late


def _ask(connection: Connection, ask: Ask, deadline: Deadline, probe_timeout: float) -> Outcome:
    limit = deadline.sooner(probe_timeout) if ask.probe else deadline
    connection.speak(ask.dialect)
    try:
        result = connection.request(
            ask.method, ask.params, Options(None, None), limit, dialect=ask.dialect
        )
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
