"""Negotiation of the revision: a probe of the server, or a handshake.

`negotiate` is a generator. It yields effects and is resumed with their outcomes; it uses no
transport and no clock. (Spec: 2026-07-28 versioning, "Backward Compatibility With
Initialization-Based Versions"; 2025-11-25 lifecycle.)
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.revisions import (
    NO_EXTENSIONS,
    REVISIONS,
    STATEFUL,
    STATELESS,
    dialect_for,
    newest_common,
    session_capabilities,
)
from syncmcp.errors import (
    AuthError,
    HeaderMismatch,
    HttpError,
    McpError,
    MethodNotFound,
    MissingCapability,
    ProtocolError,
    ServerError,
    SessionLost,
    UnsupportedVersion,
    UsageError,
)

MODES: tuple[str, ...] = ("auto", "legacy", *REVISIONS)


def check_mode(mode: str) -> None:
    """Raise `UsageError` if there is no such mode."""
    if mode not in MODES:
        raise UsageError(f"mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}")


# HTTP statuses of a POST to a server that has the HTTP+SSE transport at this URL (2026-07-28
# basic/transports/streamable-http, "HTTP+SSE transport").
_REFUSED_POST = frozenset((400, 404, 405))

# HTTP statuses that depend on the moment or the caller, not on the server's revisions.
_NO_VERDICT = frozenset((401, 403, 408, 425, 429))


class ClientHello(NamedTuple):
    """What a client says about itself during the negotiation."""

    client_info: dict[str, Any] | None
    offer: OfferedCapabilities
    extensions: Mapping[str, Any] = NO_EXTENSIONS

    def dialect(self, revision: str) -> Dialect:
        """Return the dialect of `revision` for this client."""
        return dialect_for(revision, self.client_info, self.extensions)


class SendRequest(NamedTuple):
    """Send a request in `dialect`; the outcome is its result, an error, or a special case."""

    dialect: Dialect
    method: str
    params: dict[str, Any] | None
    probe: bool  # a probe has a time limit of its own (`ProbeTimedOut`)
    in_session: bool = False  # the handshake was made before
    # Sent after a probe, whose late answer may end this request (`LateProbeAnswer`).
    after_probe: bool = False


class SendNotification(NamedTuple):
    """Send a notification in `dialect`."""

    dialect: Dialect
    method: str


class Restart(NamedTuple):
    """Replace the connection by a new one to the same server."""


class UseLegacySse(NamedTuple):
    """Replace the connection by one over HTTP+SSE; the outcome is an error if that fails."""


NegotiationEffect = SendRequest | SendNotification | Restart | UseLegacySse


class ProbeTimedOut(NamedTuple):
    """The outcome of a probe that was not answered within its time limit."""


class ServerExited(NamedTuple):
    """The outcome of a request if the server process exits; it can be started again."""

    error: McpError


class LateProbeAnswer(NamedTuple):
    """The outcome of `initialize` if the earlier probe is answered first, after its time limit.

    Only an answer that proves a stateless server has this effect.
    """

    answer: dict[str, Any] | McpError


EffectOutcome = dict[str, Any] | McpError | ProbeTimedOut | ServerExited | LateProbeAnswer | None
"""A result, an error, or a special case; `None` for the success of an effect without a result."""


class Negotiated(NamedTuple):
    """The outcome of a successful negotiation."""

    dialect: Dialect
    result: dict[str, Any]  # of `initialize` or `server/discover`, not validated; empty if resumed
    resumed: bool = False  # the session is one that another client started


class Spoken(NamedTuple):
    """The newest common revision, according to the outcome of a probe."""

    revision: str
    result: dict[str, Any] | None = None  # of the probe, unless the server answered with an error

    @property
    def stateful(self) -> bool:
        """True if the client must send `initialize`."""
        return self.revision in STATEFUL


def interpret_probe(outcome: EffectOutcome) -> Spoken | McpError:
    """Determine the revision from the outcome of a `server/discover` probe, or return an error.

    The error says that no revision is common, or it is one that does not depend on the revision.
    The fallback to `initialize` does not depend on particular error codes: every answer that a
    stateless server would not give means a stateful one. An outage proves neither.
    """
    if isinstance(outcome, dict):
        return _read_versions(outcome.get("supportedVersions"), outcome)
    if isinstance(outcome, UnsupportedVersion):
        data = outcome.data if isinstance(outcome.data, dict) else {}
        return _read_versions(data.get("supported"), None)
    if isinstance(outcome, (AuthError, HeaderMismatch, MissingCapability)):
        return outcome
    if isinstance(outcome, HttpError):
        era = outcome.status < 300 or (400 <= outcome.status < 500)
        if not era or outcome.status in _NO_VERDICT:
            return outcome
    elif isinstance(outcome, McpError) and not isinstance(outcome, (ServerError, ProtocolError)):
        return outcome
    return Spoken(STATEFUL[0])


def _read_versions(offered: object, result: dict[str, Any] | None) -> Spoken | McpError:
    if not isinstance(offered, list) or not all(isinstance(item, str) for item in offered):
        return Spoken(STATEFUL[0])
    common = newest_common(offered, REVISIONS)
    if common is not None:
        return Spoken(common, result)
    return ProtocolError(
        f"no common revision: the server speaks {offered}, this client {list(REVISIONS)}"
    )


def negotiate(
    mode: str,
    hello: ClientHello,
    known: str | None = None,
    *,
    sse_fallback: bool = False,
    resume: bool = False,
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    """Agree on a revision with a server.

    Args:
        mode: ``"auto"`` probes and falls back to a handshake; ``"legacy"`` starts with the
            handshake; a revision is the only one accepted.
        hello: What the client says about itself.
        known: The revision that the server spoke before. If it is stateful, the probe is skipped;
            should the handshake fail, the negotiation starts again with the probe.
        sse_fallback: Whether the effect `UseLegacySse` is available.
        resume: Whether to resume a session that another client started, if the server still has
            it. The client cannot ask for the revision of a session: it assumes the one in `mode`,
            else the newest stateful one.
    """
    if resume and mode not in STATELESS:
        dialect = hello.dialect(mode if mode in STATEFUL else STATEFUL[0])
        outcome = yield SendRequest(dialect, "ping", None, probe=False, in_session=True)
        if isinstance(outcome, dict):
            return Negotiated(dialect, {}, resumed=True)
        if not isinstance(outcome, SessionLost) and isinstance(interpret_probe(outcome), McpError):
            raise _as_error(outcome)
    try:
        return (yield from _negotiate(mode, hello, known))
    except (HttpError, ServerError) as error:
        if not (sse_fallback and _may_be_sse_server(error)):
            raise
        failure = yield UseLegacySse()
        if isinstance(failure, AuthError):
            raise failure from error
        if isinstance(failure, McpError):
            why = failure.message
            if isinstance(failure, HttpError) and failure.status >= 300:
                why = f"HTTP {failure.status}"
            text = f"{error.message}; the server is not an HTTP+SSE server either (GET: {why})"
            raise type(error)(text, **error.__dict__) from failure
    return (yield from _negotiate("legacy" if mode == "auto" else mode, hello, None))


def _may_be_sse_server(error: HttpError | ServerError) -> bool:
    """Return True if a server with only HTTP+SSE could answer `initialize` with this error."""
    if error.method != "initialize" or error.status not in _REFUSED_POST:
        return False
    return not isinstance(
        error, (AuthError, UnsupportedVersion, HeaderMismatch, MissingCapability, MethodNotFound)
    )


def _negotiate(
    mode: str, hello: ClientHello, known: str | None
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    check_mode(mode)
    if mode == "legacy":
        return (yield from _handshake(hello, STATEFUL[0]))
    if mode in STATEFUL:
        return (yield from _handshake(hello, mode, required=mode))
    if mode in STATELESS:
        return (yield from _discover(hello, mode, pinned=True))
    if known in STATEFUL:
        try:
            return (yield from _handshake(hello, known, from_memory=True))
        except _ExitedDuringHandshake:
            pass  # a stateless server may have replaced the known one
        except (ServerError, ProtocolError, HttpError) as error:
            if not isinstance(error, ServerError) and isinstance(interpret_probe(error), McpError):
                raise  # an outage, or missing credentials
        yield Restart()
    return (yield from _probe(hello))


class _ExitedDuringHandshake(Exception):
    """A server that was known as a stateful one exited at `initialize`."""


def _probe(hello: ClientHello) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    dialect = hello.dialect(STATELESS[0])
    outcome = yield SendRequest(dialect, "server/discover", None, probe=True)
    found = interpret_probe(outcome)
    if isinstance(found, McpError) or not found.stateful:
        return (yield from _stateless(hello, found))
    if isinstance(outcome, ServerExited):
        yield Restart()
        return (yield from _handshake(hello, found.revision))
    return (yield from _handshake(hello, found.revision, after_probe=True))


def _stateless(
    hello: ClientHello, found: Spoken | McpError
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    if isinstance(found, McpError):
        raise found
    if found.result is None:
        return (yield from _discover(hello, found.revision))
    return Negotiated(hello.dialect(found.revision), found.result)


def _discover(
    hello: ClientHello, revision: str, *, pinned: bool = False
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    """Send `server/discover` in the one possible revision, without a fallback to `initialize`."""
    dialect = hello.dialect(revision)
    outcome = yield SendRequest(dialect, "server/discover", None, probe=False)
    if not isinstance(outcome, dict):
        error = _as_error(outcome)
        if pinned and error.hint is None and isinstance(interpret_probe(outcome), Spoken):
            error.hint = (
                f"the server may not speak {revision}: mode='auto' tries older revisions, too"
            )
        raise error
    offered = outcome.get("supportedVersions")
    if not isinstance(offered, list) or revision not in offered:
        raise ProtocolError(f"the server speaks {offered}, not {revision}")
    return Negotiated(dialect, outcome)


def _handshake(
    hello: ClientHello,
    offer: str,
    *,
    required: str | None = None,
    after_probe: bool = False,
    from_memory: bool = False,
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    offered = hello.dialect(offer)
    params = {
        "protocolVersion": offer,
        "capabilities": session_capabilities(offer, hello.offer, hello.extensions),
        "clientInfo": hello.client_info or {"name": "syncmcp", "version": "0"},
    }
    outcome = yield SendRequest(offered, "initialize", params, probe=False, after_probe=after_probe)
    if isinstance(outcome, LateProbeAnswer):
        # The answer of a stateful server to the probe does not end `initialize`.
        return (yield from _stateless(hello, interpret_probe(outcome.answer)))
    if isinstance(outcome, ServerExited) and after_probe:
        # Some servers do not answer the probe, and exit at the message after it.
        yield Restart()
        return (yield from _handshake(hello, offer))
    if isinstance(outcome, ServerExited) and from_memory:
        raise _ExitedDuringHandshake
    if isinstance(outcome, UnsupportedVersion) and after_probe:
        # The server is stateless, although it did not answer the probe: for this server, the probe
        # started the connection, so it refuses `initialize` afterwards.
        data = outcome.data if isinstance(outcome.data, dict) else {}
        stateless = newest_common(data.get("supported"), STATELESS)
        if stateless is not None:
            return (yield from _discover(hello, stateless))
    if not isinstance(outcome, dict):
        raise _as_error(outcome)
    chosen: Any = outcome.get("protocolVersion")
    accepted = STATEFUL if required is None else (required,)
    if chosen not in accepted:
        raise ProtocolError(
            f"the server answered initialize with revision {chosen!r}, not with"
            f" {' or '.join(accepted)}",
            method="initialize",
        )
    dialect = hello.dialect(chosen)
    yield SendNotification(dialect, "notifications/initialized")
    return Negotiated(dialect, outcome)


def _as_error(outcome: EffectOutcome) -> McpError:
    error = outcome.error if isinstance(outcome, ServerExited) else outcome
    assert isinstance(error, McpError)  # the other outcomes occur for probes only
    return error
