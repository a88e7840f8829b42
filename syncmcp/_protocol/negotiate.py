"""Finding out which revision a server speaks: probe, verdict, handshake.

`negotiate` is a generator. It yields what to do and is sent what came of it; it knows no transport
and no clock. (Spec: 2026-07-28 versioning, "Backward Compatibility With Initialization-Based
Versions"; 2025-11-25 lifecycle.)
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

# Statuses with which a server refuses a POST to the address of a stream (2026-07-28
# basic/transports/streamable-http, "HTTP+SSE transport").
_REFUSED_POST = frozenset((400, 404, 405))

# Statuses that say something about the moment or the caller, nothing about the server's era.
_NO_VERDICT = frozenset((401, 403, 408, 425, 429))


class ClientHello(NamedTuple):
    """How a client presents itself."""

    client_info: dict[str, Any] | None
    offer: OfferedCapabilities
    extensions: Mapping[str, Any] = NO_EXTENSIONS

    def dialect(self, revision: str) -> Dialect:
        """The dialect of `revision`, which says this."""
        return dialect_for(revision, self.client_info, self.extensions)


class SendRequest(NamedTuple):
    """Send this request in this dialect; come back with an `Outcome`."""

    dialect: Dialect
    method: str
    params: dict[str, Any] | None
    probe: bool
    """A probe has a time limit of its own, and its silence is an answer."""

    in_session: bool = False
    """Whether the handshake lies behind it."""

    after_probe: bool = False
    """Whether a probe lies behind it, the answer to which may still come, and end it (`Late`)."""


class SendNotification(NamedTuple):
    """Send this notification in this dialect."""

    dialect: Dialect
    method: str


class Restart(NamedTuple):
    """Give up this connection and make a fresh one to the same server."""


class UseLegacySse(NamedTuple):
    """Give up this connection for one over the older transport; come back with what failed."""


NegotiationEffect = SendRequest | SendNotification | Restart | UseLegacySse


class ProbeTimedOut(NamedTuple):
    """No answer to a probe within its time limit."""


class ServerExited(NamedTuple):
    """The server ended instead of answering, and can be started again."""

    error: McpError


class LateProbeAnswer(NamedTuple):
    """Instead of the answer to `initialize`: one to the probe before it, given up by then.

    It proves that the server is a stateless one; nothing else comes so late and still counts.
    """

    answer: dict[str, Any] | McpError


EffectOutcome = dict[str, Any] | McpError | ProbeTimedOut | ServerExited | LateProbeAnswer | None
"""A result, an error, or one of the special cases; nothing for what just went well."""


class Negotiated(NamedTuple):
    """What both sides agreed on."""

    dialect: Dialect
    result: dict[str, Any]
    """The result of `initialize` or `server/discover`, as it came."""


class StatelessServer(NamedTuple):
    """The server speaks this stateless revision, and said so with this result."""

    revision: str
    result: dict[str, Any]


class RetryWithRevision(NamedTuple):
    """The server speaks this stateless revision: ask again in it."""

    revision: str


class StatefulServer(NamedTuple):
    """Start with `initialize`, offering this revision."""

    revision: str


class NegotiationFailure(NamedTuple):
    """Nothing can come of this."""

    error: McpError


ProbeVerdict = StatelessServer | RetryWithRevision | StatefulServer | NegotiationFailure


def interpret_probe(outcome: EffectOutcome) -> ProbeVerdict:
    """What the outcome of a `server/discover` probe says about the server.

    The fallback hangs on no particular error code: everything that no modern server would say
    means an older one. An outage is never a verdict.
    """
    if isinstance(outcome, dict):
        return _read_versions(outcome.get("supportedVersions"), outcome)
    if isinstance(outcome, UnsupportedVersion):
        data = outcome.data if isinstance(outcome.data, dict) else {}
        return _read_versions(data.get("supported"), None)
    if isinstance(outcome, (AuthError, HeaderMismatch, MissingCapability)):
        return NegotiationFailure(outcome)
    if isinstance(outcome, HttpError):
        era = outcome.status < 300 or (400 <= outcome.status < 500)
        if not era or outcome.status in _NO_VERDICT:
            return NegotiationFailure(outcome)
    elif isinstance(outcome, McpError) and not isinstance(outcome, (ServerError, ProtocolError)):
        return NegotiationFailure(outcome)
    return StatefulServer(STATEFUL[0])


def _read_versions(offered: object, result: dict[str, Any] | None) -> ProbeVerdict:
    if not isinstance(offered, list) or not all(isinstance(item, str) for item in offered):
        return StatefulServer(STATEFUL[0])
    modern = newest_common(offered, STATELESS)
    if modern is not None:
        return RetryWithRevision(modern) if result is None else StatelessServer(modern, result)
    legacy = newest_common(offered, STATEFUL)
    if legacy is not None:
        return StatefulServer(legacy)
    return NegotiationFailure(
        ProtocolError(f"no common revision: the server speaks {offered}, we {list(REVISIONS)}")
    )


def negotiate(
    mode: str, hello: ClientHello, known: str | None = None, *, sse_fallback: bool = False
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    """Agree on a revision with a server, over the transport it was made for.

    Args:
        mode: ``"auto"`` probes and falls back; ``"legacy"`` goes straight to `initialize`; a
            revision is the only one accepted.
        hello: How we present ourselves.
        known: The revision this server spoke before; it spares the probe, and if the assumption
            fails the whole way is gone.
        sse_fallback: Whether there is an older transport to fall back to.

    Raises:
        UsageError: There is no such mode.
        McpError: Nothing could be agreed on; whatever went wrong last.
    """
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
            text = f"{error.message}; nor is it an older server (GET for HTTP+SSE: {why})"
            raise type(error)(text, **error.__dict__) from failure
    return (yield from _negotiate("legacy" if mode == "auto" else mode, hello, None))


def rejoin(
    mode: str, hello: ClientHello
) -> Generator[NegotiationEffect, EffectOutcome, Dialect | None]:
    """Go on with a session that another client has begun; return its dialect.

    Returns `None` if there is no such session (any more). Nothing in the protocol tells what was
    agreed on: the revision is that of `mode`, else the newest that has sessions.

    Raises:
        McpError: It cannot be found out.
    """
    if mode in STATELESS:
        return None
    dialect = hello.dialect(mode if mode in STATEFUL else STATEFUL[0])
    outcome = yield SendRequest(dialect, "ping", None, probe=False, in_session=True)
    if isinstance(outcome, dict):
        return dialect
    if not isinstance(outcome, SessionLost) and isinstance(
        interpret_probe(outcome), NegotiationFailure
    ):
        raise _as_error(outcome)
    return None


def _may_be_sse_server(error: HttpError | ServerError) -> bool:
    """Whether a server could have refused `initialize` so because it wants it elsewhere."""
    if error.method != "initialize" or error.status not in _REFUSED_POST:
        return False
    return not isinstance(
        error, (AuthError, UnsupportedVersion, HeaderMismatch, MissingCapability, MethodNotFound)
    )


def _negotiate(
    mode: str, hello: ClientHello, known: str | None
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    if mode not in MODES:
        raise UsageError(f"mode is one of {', '.join(map(repr, MODES))}, not {mode!r}")
    if mode == "legacy":
        return (yield from _handshake(hello, STATEFUL[0]))
    if mode in STATEFUL:
        return (yield from _handshake(hello, mode, required=mode))
    if mode in STATELESS:
        return (yield from _discover(hello, mode))
    if known in STATEFUL:
        try:
            return (yield from _handshake(hello, known, from_memory=True))
        except _ExitedDuringHandshake:
            pass  # a modern server may have taken its place
        except (ServerError, ProtocolError, HttpError) as error:
            if isinstance(interpret_probe(error), NegotiationFailure) and not isinstance(
                error, ServerError
            ):
                raise  # an outage, or a matter of credentials
        yield Restart()
    return (yield from _probe(hello))


class _ExitedDuringHandshake(Exception):
    """A server that was taken for one with a handshake ended at it."""


def _probe(hello: ClientHello) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    dialect = hello.dialect(STATELESS[0])
    outcome = yield SendRequest(dialect, "server/discover", None, probe=True)
    found = interpret_probe(outcome)
    if not isinstance(found, StatefulServer):
        return (yield from _stateless(hello, found))
    if isinstance(outcome, ServerExited):
        yield Restart()
        return (yield from _handshake(hello, found.revision))
    return (yield from _handshake(hello, found.revision, after_probe=True))


def _stateless(
    hello: ClientHello, found: StatelessServer | RetryWithRevision | NegotiationFailure
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    if isinstance(found, NegotiationFailure):
        raise found.error
    if isinstance(found, RetryWithRevision):
        return (yield from _discover(hello, found.revision))
    return Negotiated(hello.dialect(found.revision), found.result)


def _discover(
    hello: ClientHello, revision: str
) -> Generator[NegotiationEffect, EffectOutcome, Negotiated]:
    """Ask in a stateless revision that is settled; there is no way back to `initialize`."""
    dialect = hello.dialect(revision)
    outcome = yield SendRequest(dialect, "server/discover", None, probe=False)
    if not isinstance(outcome, dict):
        raise _as_error(outcome)
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
        found = interpret_probe(outcome.answer)
        assert not isinstance(found, StatefulServer)  # that would have changed nothing
        return (yield from _stateless(hello, found))
    if isinstance(outcome, ServerExited) and after_probe:
        # Some servers do not answer the probe, and die of the message after it.
        yield Restart()
        return (yield from _handshake(hello, offer))
    if isinstance(outcome, ServerExited) and from_memory:
        raise _ExitedDuringHandshake
    if isinstance(outcome, UnsupportedVersion) and after_probe:
        # The server took the probe for the start: this refusal of `initialize` proves that it is a
        # modern one after all, though it has not answered the probe.
        data = outcome.data if isinstance(outcome.data, dict) else {}
        modern = newest_common(data.get("supported"), STATELESS)
        if modern is not None:
            return (yield from _discover(hello, modern))
    if not isinstance(outcome, dict):
        raise _as_error(outcome)
    chosen: Any = outcome.get("protocolVersion")
    accepted = STATEFUL if required is None else (required,)
    if chosen not in accepted:
        raise ProtocolError(
            f"the server answered initialize with revision {chosen!r}, we speak {list(accepted)}",
            method="initialize",
        )
    dialect = hello.dialect(chosen)
    yield SendNotification(dialect, "notifications/initialized")
    return Negotiated(dialect, outcome)


def _as_error(outcome: EffectOutcome) -> McpError:
    error = outcome.error if isinstance(outcome, ServerExited) else outcome
    assert isinstance(error, McpError)  # silence answers nothing but a probe
    return error
