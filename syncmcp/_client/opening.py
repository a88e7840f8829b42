"""Opening a connection: targets, what is remembered of commands, the negotiation carried out."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

from syncmcp._base.text import redact
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.capabilities import every_capability
from syncmcp._protocol.negotiate import (
    ClientHello,
    Fail,
    Late,
    Legacy,
    Negotiated,
    Outcome,
    ProbeTimedOut,
    Restart,
    SendNotification,
    SendRequest,
    ServerExited,
    UseLegacySse,
    negotiate,
    rejoin,
    verdict,
)
from syncmcp._protocol.request_table import own_id
from syncmcp._protocol.revisions import STATEFUL, STATELESS
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    SessionLost,
    UsageError,
)
from syncmcp.transports.base import HasServerStream, OfChild, Resumable, TransportSource

if TYPE_CHECKING:
    from syncmcp._connection.connection import Connection
    from syncmcp._protocol.revisions import Dialect
    from syncmcp.servers_file.entry import ServerEntry
    from syncmcp.transports.base import InProcessServer, Transport


# What is remembered of commands that were run as servers: which of them need no probe.


# Of so many commands, and for so long, in seconds.
_MOST = 256
_KEPT_SECONDS = 3600.0

# In the place of a revision: some stateful one.
_STATEFUL = ""


class RevisionMemory:
    """The commands whose servers were probed in vain, and the revisions that they speak.

    A server that refuses the probe is not among them: that costs one short answer, and asking it
    each time is how an upgraded one is found. One that dies of the probe, or does not answer it, or
    is slow to refuse it, costs seconds.
    """

    def __init__(self) -> None:
        # Guards the table: by command, the revision, and until when it counts.
        self._lock = threading.RLock()
        self._found: dict[int, tuple[str, float]] = {}

    def find(self, command: Stdio) -> str | None:
        """The revision that its server speaks, if it is remembered; `""` for some older one."""
        key = _key(command)
        with self._lock:
            revision, until = self._found.get(key, (None, 0.0))
        return revision if monotonic() < until else None

    def learn(self, command: Stdio, dialect: Dialect | None, *, in_vain: bool) -> None:
        """Its server speaks this, and a probe did (not) help to find out; `None`: some old one."""
        key = _key(command)
        revision = _STATEFUL if dialect is None else dialect.revision
        with self._lock:
            before, _ = self._found.get(key, (None, 0.0))
            if (dialect is None or dialect.stateful) and (in_vain or before == _STATEFUL):
                self._found.pop(key, None)
                self._found[key] = revision, monotonic() + _KEPT_SECONDS
                if len(self._found) > _MOST:  # the oldest makes room
                    del self._found[next(iter(self._found))]
            elif before != revision:
                self._found.pop(key, None)

    def forget(self, command: Stdio) -> None:
        """What was remembered may be wrong."""
        with self._lock:
            self._found.pop(_key(command), None)


def _key(command: Stdio) -> int:
    """Everything that decides which server it runs, as a number: there are secrets among it."""
    from syncmcp.transports._process import environment, locate, search_path

    env = environment(command.env, command.inherit_env, os.environ)
    program, place = command.command, command.cwd
    try:
        program = locate(program, search_path(env))
        place = os.path.abspath(place or "")
        program = os.path.join(place, program)  # a relative one is relative to that directory
    except (OSError, ValueError):
        pass  # whoever starts it will hear of that
    return hash((program, command.args, place, frozenset(env.items())))


eras = RevisionMemory()


if hasattr(os, "register_at_fork"):
    # The lock may have been held by another thread of the parent at that moment.
    os.register_at_fork(after_in_child=eras.__init__)  # type: ignore[misc]


_log = logging.getLogger("syncmcp.tools")

# What a connection that turned out useless gets for its end, in seconds.
_DISCARD_SECONDS = 1.0

# How long the answer to the request for the server's own stream is waited for, in seconds. It comes
# at once; but some servers send it with the first event.
_LISTEN_SECONDS = 0.5

# After so many seconds without an answer, a server is probed once more. There are servers that the
# probe breaks and that neither say so nor end before they have read another line (the official SDK
# for Python, 1.2 to 1.8). Others answer twice: the probe is the one message that is harmless before
# it is known what a server speaks. Stderr tells nothing: it may hold anything, and theirs is empty.
_AGAIN_SECONDS = 1.0

# A write to a server that is ending may fail before its end is noticed; that takes no longer.
_END_SECONDS = 0.2


class TransportChoice(NamedTuple):
    """Over which transport a server is reached, where there is an older one (HTTP+SSE).

    Attributes:
        older: Whether it is the older one. A server there knows nothing but the handshake.
        fixed: Whether the other one is never tried.
    """

    older: bool
    fixed: bool


class _Probe:
    """The probe on one connection. It may be sent twice, and be answered when it was given up.

    Attributes:
        refused: Whether a server that is being initialized as an older one has proved to be one, by
            its answer to the probe.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Guards what the reader needs to know: the ids that it was sent with, an answer that came
        # late, whether most such answers count no more, and what ends the request under way.
        self._lock = threading.RLock()
        self._ids: set[int | None] = set()
        self._late: Any = None
        self._silent = False
        self._token: CancelToken | None = None
        self._repeated = False
        self._over = 0.0
        self.refused = False
        connection.agreed.on_late_response = self._heard

    def ask(self, ask: SendRequest, options: ResolvedOptions, limit: Deadline) -> Any:
        """Send it, and wait for its answer.

        Raises:
            RequestTimeout: It has none by `limit`.
            McpError: Whatever else became of it.
        """
        try:
            result = self._exchange(ask, options, limit)
        except McpError as error:
            late = self._end(silent=isinstance(error, RequestTimeout))
            if late is None:
                raise
            return late
        self._end(silent=False)
        return result

    def _exchange(self, ask: SendRequest, options: ResolvedOptions, limit: Deadline) -> Any:
        # Over HTTP it would be cut off by its twin.
        once = self._connection.transport.blocking
        first = limit if once else limit.sooner(_AGAIN_SECONDS)
        try:
            return self._send(ask, options, first)
        except RequestTimeout:
            if first is limit:
                raise
        _log.debug("[%s] has not answered the probe yet: again", self._connection.label)
        self._repeated = True
        return self._send(ask, options.with_cancel(self.token()), limit)

    def _send(self, ask: SendRequest, options: ResolvedOptions, limit: Deadline) -> Any:
        with self._lock:
            self._ids.add(self._connection.next_id)
        request = self._connection.request
        return request(ask.method, ask.params, options, limit, dialect=ask.dialect)

    def _end(self, *, silent: bool) -> Any:
        """Nobody waits for it any more; return an answer that came until now."""
        with self._lock:
            self._over = monotonic()
            late, self._late = self._late, None
            self._silent = silent and late is None
            if not self._silent:
                self._ids.clear()  # the answer to its twin says nothing new
            return late

    def token(self) -> CancelToken:
        """What ends a request as soon as an answer to the probe comes that counts."""
        token = CancelToken()
        with self._lock:
            self._token = token
            answered = self._late is not None
        if answered:
            token.cancel()
        return token

    @property
    def costly(self) -> bool:
        """Whether it has held up, for more than a moment, what came after it until now.

        Whoever is slow to answer it is so twice. A server that was slow to start is not.
        """
        return self._repeated and monotonic() - self._over > _AGAIN_SECONDS

    @property
    def late(self) -> Any:
        """The answer that came though the probe was given up, if it counts."""
        return self._late

    def _heard(self, id: object, answer: Any) -> None:
        """An answer came that nobody waits for. Runs on the reader."""
        with self._lock:
            if own_id(id) not in self._ids or self._late is not None:
                return
            if self._silent and isinstance(verdict(answer), Legacy):
                self.refused = True
                return  # it is being initialized as it is
            self._late, token = answer, self._token
        if token is not None:
            token.cancel("the probe was answered")


def open_connection(
    connect: Callable[[bool], Connection],
    way: TransportChoice,
    mode: str,
    hello: ClientHello,
    known: str | None,
    deadline: Deadline,
    probe_timeout: float,
    command: Stdio | None = None,
) -> tuple[Connection, Negotiated, TransportChoice]:
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
        command: What is started, if the server is a child process.

    Returns:
        The connection, what was agreed on, and the way that led there.

    Raises:
        ConnectFailed: The server cannot be reached or started, or ended before it was ready.
        RequestTimeout: `deadline` passed.
        McpError: What else the negotiation ended with.
    """
    remembered = None if command is None or mode != "auto" else eras.find(command)
    if known is None and remembered is not None:
        # Offered the newest, a server that was upgraded shows by another answer that it was.
        known = STATEFUL[0]
    in_vain: Outcome = None  # what came of a probe that was of no use
    probe: _Probe | None = None
    steps: Generator[Any, Outcome, Negotiated] | None = None
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
        probe = _Probe(connection)
        while True:
            outcome: Outcome = None
            if isinstance(effect, SendRequest):
                outcome = _ask(connection, effect, deadline, probe_timeout, probe)
                if effect.probe and isinstance(outcome, (ProbeTimedOut, ServerExited)):
                    in_vain = outcome
            elif isinstance(effect, SendNotification):
                connection.notify(effect.method, None, deadline)
            elif isinstance(effect, Restart):
                connection = _again(connection, connect, way, deadline)
                connection.open(deadline)
                probe = _Probe(connection)
            elif isinstance(effect, UseLegacySse):
                way = way._replace(older=True)
                connection = _again(connection, connect, way, deadline)
                outcome = _try(connection, deadline.sooner(probe_timeout))
            effect = steps.send(outcome)
    except StopIteration as stop:
        negotiated: Negotiated = stop.value
        capabilities = negotiated.result.get("capabilities")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        _adopt(connection, negotiated.dialect, capabilities, hello, deadline)
        if command is not None and mode == "auto":
            useless = in_vain is not None or (probe is not None and probe.costly)
            eras.learn(command, negotiated.dialect, in_vain=useless)
        return connection, negotiated, way
    except BaseException as error:
        connection.close(deadline.sooner(_DISCARD_SECONDS))
        if command is not None and remembered is not None:
            eras.forget(command)
        elif command is not None and probe is not None and probe.refused:
            eras.learn(command, None, in_vain=True)
        if isinstance(error, ConnectionLost) and not isinstance(error, SessionLost):
            if isinstance(connection.transport, OfChild):  # it has said all that it will say
                error.stderr_tail = connection.transport.stderr_tail()
            raise ConnectFailed(
                f"lost before it was ready: {error.message}", **error.__dict__
            ) from error
        if isinstance(error, RequestTimeout):
            assumed = command is not None and mode == "auto" and known in STATEFUL
            raise _too_late(error, connection, deadline, in_vain, assumed=assumed) from error
        raise
    finally:
        if steps is not None:
            steps.close()  # not by the collector, which swallows a Ctrl-C


def _adopt(
    connection: Connection,
    dialect: Dialect,
    capabilities: dict[str, Any],
    hello: ClientHello,
    deadline: Deadline,
) -> None:
    if connection.transport.blocking:  # that is HTTP; nothing else has headers
        dialect.repeat_arguments(partial(_left_out, connection.label))
    connection.adopt(dialect, capabilities, hello.offer)
    if any(hello.offer) and isinstance(connection.transport, HasServerStream):
        # What a server asks there before the stream is open is lost, and it waits for ever.
        connection.transport.wait_listening(deadline.sooner(_LISTEN_SECONDS))


def _left_out(label: str, tool: str, reason: str) -> None:
    _log.warning("[%s] the tool %r is left out: %s", label, redact(tool), redact(reason))


def _again(
    connection: Connection,
    connect: Callable[[bool], Connection],
    way: TransportChoice,
    deadline: Deadline,
) -> Connection:
    connection.close(deadline.sooner(_DISCARD_SECONDS))
    return connect(way.older)


def _rejoin(
    connection: Connection, mode: str, hello: ClientHello, deadline: Deadline
) -> Dialect | None:
    """The dialect of the session that was given, if the server still knows it."""
    steps = rejoin(mode, hello)
    try:
        effect = next(steps)
        while True:
            assert isinstance(effect, SendRequest)
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


def _too_late(
    error: RequestTimeout,
    connection: Connection,
    deadline: Deadline,
    in_vain: Outcome,
    *,
    assumed: bool,
) -> RequestTimeout:
    text = f"the server was not ready within {deadline.seconds or 0.0:g} s (option open_timeout)"
    if isinstance(in_vain, ServerExited):
        text += "; it had to be started twice, for it ended when it was probed (mode='legacy' does"
        text += " not probe)"
    elif isinstance(in_vain, ProbeTimedOut):
        text += "; it was probed first and was slow to answer that, if it did (mode='legacy' does"
        text += " not probe)"
    elif assumed:
        text += "; it was not probed, for an older server was there before: the next opening does"
    hint = connection.transport.describe()
    late = RequestTimeout(f"{text}; {hint}" if hint else text)
    late.__dict__.update({**error.__dict__, "kind": "open", "seconds": deadline.seconds})
    return late


def _ask(
    connection: Connection,
    ask: SendRequest,
    deadline: Deadline,
    probe_timeout: float,
    probe: _Probe | None = None,
) -> Outcome:
    connection.agreed.current_dialect = ask.dialect
    options = ResolvedOptions(None, None)
    if ask.in_session:
        options.headers = ask.dialect.session_headers()
    try:
        if ask.probe and probe is not None:
            result = probe.ask(ask, options, _patience(connection, deadline, probe_timeout))
        else:
            if ask.probed and probe is not None:
                options.cancel = probe.token()
            result = connection.request(
                ask.method, ask.params, options, deadline, dialect=ask.dialect
            )
    except RequestTimeout:
        if ask.probe and not deadline.expired:
            return ProbeTimedOut()
        raise
    except RequestCancelled:
        if ask.probed and probe is not None and probe.late is not None:
            return Late(probe.late)
        raise
    except ConnectionLost as error:
        # The transport itself is over: a child process that ended. It can be started again.
        return ServerExited(error) if _is_over(connection) else error
    except McpError as error:
        return error
    if not isinstance(result, (dict, McpError)):
        return ProtocolError(
            "the result is not an object", server=connection.label, method=ask.method
        )
    return result


def _patience(connection: Connection, deadline: Deadline, probe_timeout: float) -> Deadline:
    """Until when a probe is waited for."""
    left = deadline.remaining()
    if left is not None and not connection.transport.blocking:
        # The rest is for the handshake. It takes nothing from a slow server: its answer counts
        # while the handshake has none. Over HTTP it would, for there a request that is given up is
        # cut off.
        probe_timeout = min(probe_timeout, left / 2)
    return deadline.sooner(probe_timeout)


def _is_over(connection: Connection) -> bool:
    if connection.close_error is not None:
        return True
    return not connection.transport.blocking and connection.wait_closed(_END_SECONDS)


# What the kinds of targets mean: a name, a transport, a way to begin.


Target: TypeAlias = Union[Stdio, Http, "InProcessServer", TransportSource]


def settled(
    target: str | Target | ServerEntry, name: str | None
) -> tuple[Target, str | None, float | None]:
    """What a program gave as target: what that is, what it is called, and its own time limit.

    Raises:
        UsageError: It is none, or the entry of a file that cannot be used.
        NotApproved: It is an entry that needs approval and did not get it.
    """
    if isinstance(target, str):
        return Http(target), name, None
    if isinstance(target, (Stdio, Http, TransportSource)):
        return target, name, None
    from syncmcp.servers_file.entry import ServerEntry, resolve_entry

    if isinstance(target, ServerEntry):
        return resolve_entry(target, name)
    if not hasattr(target, "connect"):
        raise UsageError(f"{target!r} is no URL, Stdio, Http or server")
    return target, name, None


def label_of(target: Target) -> str:
    """What logs and errors call it."""
    return target.label if isinstance(target, (Stdio, Http, TransportSource)) else target.name


def behind(target: Target) -> Stdio | Http | InProcessServer | None:
    """The server itself, whatever stands in front of it; `None` if there is none."""
    return target.behind if isinstance(target, TransportSource) else target


def first_way(target: Target, mode: str) -> TransportChoice:
    """Which transport to begin with.

    Raises:
        UsageError: The older one is wanted with a revision that is not spoken over it.
    """
    server = behind(target)
    if not isinstance(server, Http):
        return TransportChoice(older=False, fixed=True)
    older = server.transport == "sse"
    if older and mode in STATELESS:
        raise UsageError(f"revision {mode} is not spoken over HTTP+SSE (transport='sse')")
    return TransportChoice(older, fixed=server.transport != "auto")


def transport_to(target: Target, *, older: bool, rejoin: bool, max_in_flight: int) -> Transport:
    """A transport that has not been opened.

    Args:
        target: Where to.
        older: Over HTTP+SSE.
        rejoin: In the session that the target names, if it does.
        max_in_flight: How many requests may run at once.
    """
    if isinstance(target, TransportSource):
        if target.behind is None:
            return target.transport(None)
        inner = transport_to(target.behind, older=older, rejoin=rejoin, max_in_flight=max_in_flight)
        return target.transport(inner)
    if isinstance(target, Stdio):
        from syncmcp.transports.stdio import StdioTransport

        return StdioTransport(target)
    if isinstance(target, Http) and older:
        from syncmcp.transports.sse import SseTransport

        return SseTransport(target, max_in_flight=max_in_flight)
    if isinstance(target, Http):
        from syncmcp.transports.http import HttpTransport

        return HttpTransport(target, max_in_flight, rejoin=rejoin)
    from syncmcp.transports.memory import MemoryTransport

    return MemoryTransport(target)
