"""Opening a connection: targets, remembered revisions, and carrying out the negotiation."""

from __future__ import annotations

import copy
import logging
import os
import re
import threading
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

from syncmcp import types
from syncmcp._base.checks import kind_of
from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.jsonrpc import own_id
from syncmcp._protocol.negotiate import (
    ClientHello,
    EffectOutcome,
    LateProbeAnswer,
    Negotiated,
    ProbeTimedOut,
    Restart,
    SendNotification,
    SendRequest,
    ServerExited,
    UseLegacySse,
    interpret_probe,
    negotiate,
)
from syncmcp._protocol.revisions import STATEFUL, STATELESS, every_capability
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
from syncmcp.transports.base import InProcessServer, Transport, TransportSource

if TYPE_CHECKING:
    from syncmcp._connection.client_services import ClientServices
    from syncmcp.servers_file.entry import ServerEntry


# The limits of `RevisionMemory`: the number of commands, and the age of an entry in seconds.
_MAX_REMEMBERED = 256
_REMEMBER_SECONDS = 3600.0

# The value for an unknown stateful revision.
_STATEFUL = ""


class RevisionMemory:
    """The commands whose servers cannot handle the probe, and the revisions of these servers.

    A server that rejects the probe quickly is not remembered: the probe costs one short response,
    and detects an upgraded server. The probe costs seconds if the server exits, does not respond,
    or rejects the probe slowly.
    """

    def __init__(self) -> None:
        # Guards the table: by command, the revision and its expiry.
        self._lock = threading.RLock()
        self._found: dict[int, tuple[str, float]] = {}

    def find(self, command: Stdio) -> str | None:
        """The remembered revision of a command; `""` for an unknown older one, else `None`."""
        key = _key(command)
        with self._lock:
            revision, until = self._found.get(key, (None, 0.0))
        return revision if monotonic() < until else None

    def learn(self, command: Stdio, dialect: Dialect | None, *, failed_probe: bool) -> None:
        """Remember a revision after a failed probe; `dialect` is `None` for an unknown old one."""
        key = _key(command)
        revision = _STATEFUL if dialect is None else dialect.revision
        with self._lock:
            before, _ = self._found.get(key, (None, 0.0))
            if (dialect is None or dialect.stateful) and (failed_probe or before == _STATEFUL):
                self._found.pop(key, None)
                self._found[key] = revision, monotonic() + _REMEMBER_SECONDS
                if len(self._found) > _MAX_REMEMBERED:  # evict the oldest entry
                    del self._found[next(iter(self._found))]
            elif before != revision:
                self._found.pop(key, None)

    def forget(self, command: Stdio) -> None:
        with self._lock:
            self._found.pop(_key(command), None)


@delaying_forks()
def _key(command: Stdio) -> int:
    """A hash of everything that decides which server a command runs; that includes secrets.

    Files are not looked at: a network file system that does not respond would block the caller.
    """
    from syncmcp.transports._process import environment

    env = environment(command.env, command.inherit_env, os.environ)
    try:
        here = os.getcwd()  # relative paths are relative to it
    except OSError:  # removed
        here = ""
    return hash((command.command, command.args, here, command.cwd, frozenset(env.items())))


revision_memory = RevisionMemory()


if hasattr(os, "register_at_fork"):
    # Another thread of the parent may have held the lock at the fork.
    os.register_at_fork(after_in_child=revision_memory.__init__)  # type: ignore[misc]


_log = logger("syncmcp.tools")

# The timeout for closing a connection that could not be used, in seconds.
_DISCARD_SECONDS = 1.0

# How long to wait for the response to the request for the server's stream, in seconds. Most servers
# respond at once, but some only with the first event.
_LISTEN_SECONDS = 0.5

# After this many seconds without a response, the probe is sent once more. Some servers break at the
# probe, but neither report that nor exit before they have read another line (the official SDK for
# Python, 1.2 to 1.8). Other servers respond twice, which is harmless: the probe is the one message
# that can be sent before the revision is known. Stderr does not help: such servers write nothing.
_REPROBE_SECONDS = 1.0

# A write to an exiting server may fail before its exit is noticed, which takes no longer than this.
_EXIT_NOTICE_SECONDS = 0.2

# Errors on stderr that the server's code or command causes, and not its environment variables
# (unless the program has a PYTHONPATH that the server did not get).
_OWN_FAULT = re.compile(r"\b(?:Import|Name|Syntax)Error\b|No module named|can't open file")


class TransportChoice(NamedTuple):
    """The HTTP transport of a server: Streamable HTTP, or the older HTTP+SSE."""

    older: bool  # HTTP+SSE, whose servers know the handshake only, not the probe
    fixed: bool  # the other transport is never tried


class _Probe:
    """The probe on one connection. It may be sent twice, and get its response after its timeout."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Guards the attributes that the reader thread uses: the ids of the probe, a late response,
        # whether the probe timed out, and the token that cancels the request in flight.
        self._lock = threading.RLock()
        self._ids: set[int | None] = set()
        self.late_answer: Any = None
        self._timed_out = False
        self._cancel_token: CancelToken | None = None
        self._sent_twice = False
        self._ended_at = 0.0
        # Whether a late response proved that the server is older, during its `initialize`.
        self.refused = False
        connection.agreed.on_late_response = self._on_late_answer

    def send(self, ask: SendRequest, options: ResolvedOptions, limit: Deadline) -> Any:
        try:
            result = self._send_with_repeat(ask, options, limit)
        except McpError as error:
            late = self._stop_waiting(timed_out=isinstance(error, RequestTimeout))
            if late is None:
                raise
            error.__traceback__ = None
            return late
        self._stop_waiting(timed_out=False)
        return result

    def _send_with_repeat(self, ask: SendRequest, options: ResolvedOptions, limit: Deadline) -> Any:
        # Over HTTP sending it again would abort the first exchange.
        once = self._connection.transport.blocking
        first = limit if once else limit.sooner(_REPROBE_SECONDS)
        try:
            return self._send(ask, options, first)
        except RequestTimeout as error:
            if first is limit:
                raise
            error.__traceback__ = None
        _log.debug(
            "[%s] has not answered the probe yet: the client sends it again", self._connection.label
        )
        self._sent_twice = True
        return self._send(ask, options.but(cancel=self.cancel_token()), limit)

    def _send(self, ask: SendRequest, options: ResolvedOptions, limit: Deadline) -> Any:
        with self._lock:
            self._ids.add(self._connection.next_id)
        request = self._connection.request
        return request(ask.method, ask.params, options, limit, dialect=ask.dialect)

    def _stop_waiting(self, *, timed_out: bool) -> Any:
        """Stop waiting for the response; return a response that arrived late, if any."""
        with self._lock:
            self._ended_at = monotonic()
            late, self.late_answer = self.late_answer, None
            self._timed_out = timed_out and late is None
            if not self._timed_out:
                self._ids.clear()  # a second response has no new information
            return late

    def cancel_token(self) -> CancelToken:
        """A token that cancels a request as soon as a late response to the probe arrives."""
        token = CancelToken()
        with self._lock:
            self._cancel_token = token
            answered = self.late_answer is not None
        if answered:
            token.cancel()
        return token

    @property
    def slow(self) -> bool:
        """True if the server responded slowly to both probes; not if it was slow to start."""
        return self._sent_twice and monotonic() - self._ended_at > _REPROBE_SECONDS

    def _on_late_answer(self, id: object, answer: Any) -> None:
        """A response without an open request arrived. Runs on the reader thread."""
        with self._lock:
            if own_id(id) not in self._ids or self.late_answer is not None:
                return
            found = interpret_probe(answer)
            if self._timed_out and not isinstance(found, McpError) and found.stateful:
                self.refused = True
                return  # it is being initialized as an older server already
            self.late_answer, token = answer, self._cancel_token
        if token is not None:
            token.cancel("the probe was answered")


def open_connection(
    connect: Callable[[bool], Connection],
    choice: TransportChoice,
    mode: str,
    hello: ClientHello,
    known_revision: str | None,
    deadline: Deadline,
    probe_timeout: float,
    command: Stdio | None = None,
    option: str = "open_timeout",
) -> tuple[Connection, Negotiated, TransportChoice]:
    """Make a connection with `connect` and agree on a revision with the server.

    `connect` makes an unopened connection, over the older transport if its argument is true; it is
    called again when the server has to be restarted. `known_revision` is the last one of this
    server. `option` is the name of the option that has set the deadline, for the error.

    Returns the connection, the result of the handshake, and the transport that reached the server.
    """
    remembered = None if command is None or mode != "auto" else revision_memory.find(command)
    if known_revision is None and remembered is not None:
        # `initialize` with the newest older revision: an upgraded server returns another one.
        known_revision = STATEFUL[0]
    failed_probe: EffectOutcome = None  # the outcome of a probe that did not help
    probe: _Probe | None = None
    steps: Generator[Any, EffectOutcome, Negotiated] | None = None
    connection = connect(choice.older)
    try:
        try:
            connection.open(deadline)
        except (HttpError, ProtocolError) as error:
            if choice.fixed or not choice.older or isinstance(interpret_probe(error), McpError):
                raise
            # The server was upgraded from HTTP+SSE.
            choice, known_revision = choice._replace(older=False), None
            connection = _reconnect(connection, connect, choice, deadline)
            connection.open(deadline)
        with delaying_forks():
            types.load()  # now, while a child process starts, and not in the first call
        resume = connection.transport.session_id is not None
        if choice.older and mode == "auto":
            mode = "legacy"
        sse_fallback = not (choice.older or choice.fixed)
        steps = negotiate(mode, hello, known_revision, sse_fallback=sse_fallback, resume=resume)
        effect = next(steps)
        probe = _Probe(connection)
        while True:
            outcome: EffectOutcome = None
            if isinstance(effect, SendRequest):
                outcome = _perform_request(connection, effect, deadline, probe_timeout, probe)
                if effect.probe and isinstance(outcome, (ProbeTimedOut, ServerExited)):
                    failed_probe = outcome
            elif isinstance(effect, SendNotification):
                connection.notify(effect.method, None, deadline)
            elif isinstance(effect, Restart):
                connection = _reconnect(connection, connect, choice, deadline)
                connection.open(deadline)
                probe = _Probe(connection)
            elif isinstance(effect, UseLegacySse):
                choice = choice._replace(older=True)
                connection = _reconnect(connection, connect, choice, deadline)
                try:
                    connection.open(deadline.sooner(probe_timeout))
                except ClosedError:
                    raise
                except McpError as failure:
                    outcome = failure
            effect = steps.send(outcome)
    except StopIteration as stop:
        negotiated: Negotiated = stop.value
        _adopt(connection, negotiated, hello, deadline)
        if command is not None and mode == "auto":
            useless = failed_probe is not None or (probe is not None and probe.slow)
            revision_memory.learn(command, negotiated.dialect, failed_probe=useless)
        return connection, negotiated, choice
    except BaseException as error:
        if isinstance(error, McpError):
            error.server = error.server or connection.label
        connection.close(deadline.sooner(_DISCARD_SECONDS))
        if command is not None and remembered is not None:
            revision_memory.forget(command)
        elif command is not None and probe is not None and probe.refused:
            revision_memory.learn(command, None, failed_probe=True)
        if isinstance(error, ConnectionLost) and not isinstance(error, SessionLost):
            # The stderr is complete, because the process has ended.
            error.stderr_tail = connection.transport.stderr_tail() or error.stderr_tail
            text = f"connection lost before the server was ready: {error.message}"
            if command is not None:
                known, error.hint = _variables_hint(command, error)
                text += known
            elif connection.label.startswith("http://"):  # a TLS server may close the connection
                text += " (should the URL begin with https://?)"
            raise ConnectFailed(text, **error.__dict__) from error
        if isinstance(error, RequestTimeout) and error.kind != "login":
            assumed = command is not None and mode == "auto" and known_revision in STATEFUL
            raise _open_timeout(
                error, connection, deadline, option, failed_probe, assumed=assumed
            ) from error
        raise
    finally:
        if steps is not None:
            steps.close()  # the garbage collector would swallow a Ctrl-C here


def _adopt(
    connection: Connection, negotiated: Negotiated, hello: ClientHello, deadline: Deadline
) -> None:
    dialect = negotiated.dialect
    capabilities = negotiated.result.get("capabilities")
    if negotiated.resumed:  # the server sent them to another client
        capabilities = every_capability(dialect)
    elif not isinstance(capabilities, dict):
        capabilities = {}
    if connection.transport.blocking:  # HTTP, the only transport with headers
        dialect.mirror_arguments(partial(_log_omitted_tool, connection.services))
    connection.adopt(dialect, capabilities, hello.offer)
    if any(hello.offer):
        # Questions of the server before the stream is open would be lost, and never answered.
        connection.transport.wait_listening(deadline.sooner(_LISTEN_SECONDS))


def _log_omitted_tool(services: ClientServices, tool: str, reason: str) -> None:
    services.note(_log, logging.WARNING, "[%s] the tool %r is left out: %s", tool, reason)


def _reconnect(
    connection: Connection,
    connect: Callable[[bool], Connection],
    choice: TransportChoice,
    deadline: Deadline,
) -> Connection:
    connection.close(deadline.sooner(_DISCARD_SECONDS))
    return connect(choice.older)


def _variables_hint(command: Stdio, error: ConnectionLost) -> tuple[str, str | None]:
    """Return a text and a hint about the variables of a server that ended before it was ready."""
    last_words = error.stderr_tail
    if error.exit_code == 0 and not last_words:
        return "", "the program ended without an error: does the command start an MCP server?"
    with delaying_forks():
        from syncmcp.transports._process import environment

    given = environment(command.env, command.inherit_env, os.environ)
    path_is_given = "PYTHONPATH" in given or "PYTHONPATH" not in os.environ
    if _OWN_FAULT.search(last_words) and path_is_given:
        return "", None
    words = frozenset(re.findall(r"\w{3,}", last_words))
    wanted = sorted(words & (os.environ.keys() - given.keys()))
    if wanted:
        # The server chose these words: the text must not read like advice.
        names = ", ".join(wanted[:3])
        text = f"; its stderr names {names}, which the server did not get"
        return text, "pass with env= the variables that the server may have"
    if command.inherit_env == "all":
        return "", None
    names = ", ".join(sorted(given)) or "none"
    others = "pass others with env= or inherit_env='all'"
    return "", f"the server got the variables {names}; {others}"


def _open_timeout(
    error: RequestTimeout,
    connection: Connection,
    deadline: Deadline,
    option: str,
    failed_probe: EffectOutcome,
    *,
    assumed: bool,
) -> RequestTimeout:
    text = f"the server was not ready within {deadline.seconds or 0.0:g} s (option {option})"
    if isinstance(failed_probe, ServerExited):
        text += "; it exited on the probe (server/discover), so the client started it again"
        text += " (mode='legacy' skips the probe)"
    elif isinstance(failed_probe, ProbeTimedOut):
        text += "; it did not answer the probe (server/discover) either (mode='legacy' skips the"
        text += " probe)"
    elif assumed:
        text += "; the client sent no probe, because the server had an older revision before."
        text += " The next open() sends it"
    said = connection.transport.describe()
    late = RequestTimeout(f"{text}; {said}" if said else text)
    late.__dict__.update({**error.__dict__, "kind": "open", "seconds": deadline.seconds})
    if re.match(r"\d+ lines? on its stdout", said):
        late.hint = "is the program an MCP server? Its stdout may contain only messages"
    return late


def _perform_request(
    connection: Connection,
    ask: SendRequest,
    deadline: Deadline,
    probe_timeout: float,
    probe: _Probe,
) -> EffectOutcome:
    connection.agreed.current_dialect = ask.dialect
    options = ResolvedOptions(None, None)
    if ask.in_session:
        options.headers = ask.dialect.session_headers()
    try:
        if ask.probe:
            result = probe.send(ask, options, _probe_deadline(connection, deadline, probe_timeout))
        else:
            if ask.after_probe:
                options.cancel = probe.cancel_token()
            result = connection.request(
                ask.method, ask.params, options, deadline, dialect=ask.dialect
            )
    except McpError as error:
        outcome = _outcome_of(error, connection, ask, deadline, probe)
        if outcome is None:
            raise
        # A stored error must not keep the frames in its traceback alive.
        error.__traceback__ = None
        return outcome
    if not isinstance(result, (dict, McpError)):
        return ProtocolError(
            "the result is not an object", server=connection.label, method=ask.method
        )
    return result


def _outcome_of(
    error: McpError,
    connection: Connection,
    ask: SendRequest,
    deadline: Deadline,
    probe: _Probe,
) -> EffectOutcome | None:
    """Return the outcome of a failed request for the negotiation; `None` to end the opening."""
    if isinstance(error, RequestTimeout):
        # After a login timeout, another request would ask the person again.
        goes_on = ask.probe and not deadline.expired and error.kind != "login"
        return ProbeTimedOut() if goes_on else None
    if isinstance(error, RequestCancelled):
        late = probe.late_answer if ask.after_probe else None
        return None if late is None else LateProbeAnswer(late)
    if isinstance(error, ConnectionLost):
        ended = connection.close_error is not None or (
            not connection.transport.blocking and connection.wait_closed(_EXIT_NOTICE_SECONDS)
        )
        return ServerExited(error) if ended else error
    return error


def _probe_deadline(connection: Connection, deadline: Deadline, probe_timeout: float) -> Deadline:
    left = deadline.remaining()
    if left is not None and not connection.transport.blocking:
        # The other half is for the handshake. A late response to the probe still counts until the
        # handshake has ended. Over HTTP it would be lost: a timeout aborts its exchange there.
        probe_timeout = min(probe_timeout, left / 2)
    return deadline.sooner(probe_timeout)


# Targets: their labels and transports.


Target: TypeAlias = Union[Stdio, Http, "InProcessServer", TransportSource]


def resolve_target(
    target: str | Target | ServerEntry, name: str | None
) -> tuple[Target, str | None, float | None]:
    """Resolve the `target` and `name` of a client to a target, a name and a timeout in seconds.

    `NotApproved` if the entry of a servers file needs approval and did not get it.
    """
    if isinstance(target, str):
        return Http(target), name, None
    if isinstance(target, Http):
        return _copied(target), name, None
    if isinstance(target, (Stdio, TransportSource)):
        return target, name, None
    with delaying_forks():
        from syncmcp.servers_file.entry import ServerEntry, resolve_entry

    if isinstance(target, ServerEntry):
        return resolve_entry(target, name)
    # A module and a class may have a function of this name, too.
    serves = hasattr(target, "connect") and isinstance(getattr(target, "name", None), str)
    if not serves or isinstance(target, (type, ModuleType)):
        given = f"{kind_of(target)}{_target_hint(target)}"
        raise UsageError(f"the target must be a URL, Stdio, Http or server, not {given}")
    return target, name, None


def _target_hint(given: object) -> str:
    """What to write for a value that is not a target."""
    if isinstance(getattr(given, "url", None), str):
        return "; write its url"
    if callable(getattr(given, "call_tool", None)):
        return "; it is a client already: call open(), or use it in a with block"
    if isinstance(given, (list, tuple)):
        return "; for a command, write Stdio(*words)"
    if isinstance(given, os.PathLike):
        return (
            "; for a script, write Stdio('python', path),"
            " for a servers file servers_file.read(path)"
        )
    if isinstance(given, Mapping):
        if hasattr(given, "guarded"):  # a file that was read already
            return "; connect one of its servers, servers[NAME], or pass all to a ClientGroup"
        return (
            "; for a command, write Stdio(...), for a servers file syncmcp.servers_file.read(path)"
        )
    if isinstance(given, type) and hasattr(given, "connect"):
        return f"; create an instance, {given.__name__}(...)"
    if isinstance(given, FunctionType):
        return f"; if it makes a server, call it: {given.__name__}()"
    if callable(getattr(given, "run", None)) and hasattr(given, "tool"):  # another SDK's server
        return "; run it as a program, Stdio('python', 'server.py'), or serve it at a URL"
    return ""


def _copied(target: Http) -> Http:
    """Return a copy that the program cannot change: decisions by its credentials stay valid."""
    target = copy.copy(target)
    if target.headers is not None and not callable(target.headers):
        target.headers = dict(target.headers)
    return target


def label_of(target: Target) -> str:
    """The name of a target in logs and errors."""
    return target.label if isinstance(target, (Stdio, Http, TransportSource)) else target.name


def underlying_target(target: Target) -> Stdio | Http | InProcessServer | None:
    """The target behind a `TransportSource`; `None` if there is none."""
    return target.behind if isinstance(target, TransportSource) else target


def initial_transport(target: Target, mode: str) -> TransportChoice:
    """The transport to begin with; a `UsageError` if it does not have the revision `mode`."""
    server = underlying_target(target)
    if not isinstance(server, Http):
        return TransportChoice(older=False, fixed=True)
    older = server.transport == "sse"
    if mode in STATELESS and (older or server.session_id is not None):
        what = "HTTP+SSE (transport='sse')" if older else "a session (session_id=)"
        raise UsageError(f"{what} is not possible with revision {mode}")
    return TransportChoice(older, fixed=server.transport != "auto")


@delaying_forks()
def make_transport(target: Target, *, older: bool, rejoin: bool, max_in_flight: int) -> Transport:
    """Make an unopened transport: `older` for HTTP+SSE, `rejoin` to resume the named session."""
    if isinstance(target, TransportSource):
        if target.behind is None:
            return target.transport(None)
        inner = make_transport(
            target.behind, older=older, rejoin=rejoin, max_in_flight=max_in_flight
        )
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
