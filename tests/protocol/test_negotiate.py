"""The steps of a negotiation, without a connection: requests, outcomes and agreements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.negotiate import (
    MODES,
    ClientHello,
    EffectOutcome,
    LateProbeAnswer,
    Negotiated,
    NegotiationEffect,
    ProbeTimedOut,
    Restart,
    SendNotification,
    SendRequest,
    ServerExited,
    UseLegacySse,
    negotiate,
)
from syncmcp._protocol.revisions import REVISIONS, STATEFUL, session_capabilities
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HeaderMismatch,
    HttpError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    LimitExceeded,
    McpError,
    MethodNotFound,
    MissingCapability,
    ParseError,
    ProtocolError,
    ResourceNotFound,
    ServerError,
    SessionLost,
    TokenRefused,
    TransportError,
    UnsupportedVersion,
    UsageError,
)

HELLO = ClientHello({"name": "tests", "version": "1"}, OfferedCapabilities(roots=True))
NEWEST, OLD = "2026-07-28", "2024-11-05"
OFFERS = st.builds(OfferedCapabilities, *[st.booleans()] * len(OfferedCapabilities._fields))
DISCOVER = "server/discover 2026-07-28"
PROBE = f"{DISCOVER}, as a probe"
INITIALIZE = "initialize 2025-11-25"
INITIALIZED = "notifications/initialized"
RESTART = "restart"
OLDER_TRANSPORT = "the older transport"


def initialized(revision: Any = "2025-11-25") -> dict[str, Any]:
    return {"protocolVersion": revision, "capabilities": {}, "serverInfo": {"name": "s"}}


def agrees(
    said: Sequence[str], revision: str, *outcomes: EffectOutcome, **options: Any
) -> Negotiated:
    """Run a negotiation that must send `said` and agree on `revision`."""
    played = Played(*outcomes, **options)
    negotiated = played.run()
    assert negotiated.dialect.revision == revision
    assert played.said == list(said)
    return negotiated


def refuses(
    said: Sequence[str], outcome: EffectOutcome, *words: object, **options: Any
) -> McpError:
    """Run a negotiation that must send `said`, and raise an error that contains `words`."""
    played = Played(outcome, **options)
    error = played.fail()
    assert type(error) is ProtocolError
    assert [word for word in words if str(word) not in str(error)] == []
    assert played.said == list(said)
    return error


def gives_up(said: Sequence[str], *outcomes: EffectOutcome, **options: Any) -> McpError:
    """Run a negotiation that must send `said`, and raise the last outcome."""
    played = Played(*outcomes, **options)
    last = outcomes[-1]
    error = played.fail()
    assert error is (last.error if isinstance(last, ServerExited) else last)
    assert played.said == list(said)
    return error


class Played:
    """A negotiation whose requests get these outcomes, in this order."""

    def __init__(
        self,
        *outcomes: EffectOutcome,
        mode: str = "auto",
        hello: ClientHello = HELLO,
        **options: Any,
    ) -> None:
        self.effects: list[NegotiationEffect] = []
        self._outcomes = list(outcomes)
        self._steps = negotiate(mode, hello, **options)

    @property
    def said(self) -> list[str]:
        return [in_words(effect) for effect in self.effects]

    def run(self) -> Negotiated:
        outcome: EffectOutcome = None
        while True:
            try:
                effect = self._steps.send(outcome)
            except StopIteration as stop:
                assert not self._outcomes, "not every answer was asked for"
                return stop.value  # type: ignore[no-any-return]
            self.effects.append(effect)
            answered = isinstance(effect, SendRequest | UseLegacySse)
            outcome = self._outcomes.pop(0) if answered else None

    def fail(self) -> McpError:
        with pytest.raises(McpError) as caught:
            self.run()
        assert not self._outcomes, "not every answer was asked for"
        return caught.value


def in_words(effect: NegotiationEffect) -> str:
    if isinstance(effect, SendRequest):
        words = f"{effect.method} {effect.dialect.revision}"
        return f"{words}, as a probe" if effect.probe else words
    if isinstance(effect, UseLegacySse):
        return OLDER_TRANSPORT
    return effect.method if isinstance(effect, SendNotification) else RESTART


def discovered(*versions: Any) -> dict[str, Any]:
    return {"resultType": "complete", "supportedVersions": list(versions), "capabilities": {}}


def unsupported(data: Any) -> UnsupportedVersion:
    return UnsupportedVersion("not this revision", data=data)


def died() -> ServerExited:
    return ServerExited(ConnectionLost("the server ended", exit_code=1, stderr_tail="Traceback"))


NO_DISCOVERIES: list[Any] = [
    *({}, {"tools": []}, {"supportedVersions": None}, {"supportedVersions": NEWEST}),
    *({"supportedVersions": {NEWEST: {}}}, {"supportedVersions": [NEWEST, 5]}),
    *({"supportedVersions": [None]}, {"protocolVersion": "2025-06-18"}),
]


NO_SUPPORTED_LISTS: list[Any] = [
    *(None, {}, [], "2025-11-25", {"supported": None}, {"supported": NEWEST}, {"supported": [5]}),
    {"supported": ["2025-06-18", "2025-11-25"], "requested": NEWEST},
]


OLD_SERVER_REFUSALS: list[EffectOutcome] = [
    *(MethodNotFound("Method not found"), InvalidParams("Invalid request parameters")),
    *(InvalidRequest("Server not initialized"), ParseError("what?"), InternalError("oops")),
    ResourceNotFound("not found"),
    # Codes of a draft: a header that differs, a missing capability, an unsupported version.
    *(ServerError("of a draft", code=code) for code in (-32001, -32003, -32004)),
    *(ServerError("no", code=code) for code in (0, -1, -32000, -32019, -32023, -32042, 404)),
    # No response, and a malformed response.
    *(ProbeTimedOut(), ProtocolError("malformed answer")),
    HttpError("text", status=400, body="Bad Request"),
    HttpError("json", status=400, body='{"detail":1}'),
    HttpError("no", status=404, body="Invalid session ID"),
    *(HttpError("accepted", status=202), HttpError("a page", status=200, body="<html>")),
    *(HttpError("no", status=status) for status in (400, 405, 406, 415, 422)),
    *NO_DISCOVERIES,
    *map(unsupported, NO_SUPPORTED_LISTS),
]


@pytest.mark.requirement("VER-11", "VER-13", "VER-14", "VER-15", "RPC-18")
@pytest.mark.pitfall("18")
@pytest.mark.parametrize("refusal", OLD_SERVER_REFUSALS)
def test_whatever_no_stateless_server_would_say_leads_to_initialize(refusal: EffectOutcome) -> None:
    agrees([PROBE, INITIALIZE, INITIALIZED], "2025-11-25", refusal, initialized())


@given(st.integers(-40_000, 1000).filter(lambda code: code not in (-32020, -32021, -32022)))
def test_no_other_error_code_decides_anything(code: int) -> None:
    refusal = ServerError.from_wire(code, "no")
    agrees([PROBE, INITIALIZE, INITIALIZED], "2025-11-25", refusal, initialized())


@pytest.mark.requirement("VER-13")
def test_the_newest_revision_that_a_server_lists_is_spoken() -> None:
    for listed in ([NEWEST], [OLD, NEWEST, "2025-11-25"], ["2099-01-01", NEWEST]):
        result = discovered(*listed)
        assert agrees([PROBE], NEWEST, result).result is result
    for listed, newest in (
        (["2025-06-18"], "2025-06-18"),
        ([OLD, "2025-03-26"], "2025-03-26"),
        (["2099-01-01", "2025-11-25", OLD], "2025-11-25"),
    ):
        said = [PROBE, f"initialize {newest}", INITIALIZED]
        agrees(said, newest, discovered(*listed), initialized(newest))


def test_a_server_that_shares_nothing_is_given_up_and_both_lists_are_shown() -> None:
    for listed in ([], ["2099-01-01"], ["1999-01-01", "draft"]):
        for outcome in (discovered(*listed), unsupported({"supported": listed})):
            refuses([PROBE], outcome, listed, list(REVISIONS))


@pytest.mark.requirement("VER-11", "VER-12")
def test_a_refused_revision_is_asked_for_again_when_the_server_names_a_shared_stateless_one() -> (
    None
):
    result, refusal = discovered(NEWEST), unsupported({"supported": ["2025-11-25", NEWEST]})
    assert agrees([PROBE, DISCOVER], NEWEST, refusal, result).result is result
    # The client asks again only once, and does not send `initialize`.
    lost = (HttpError("no", status=404), ConnectionLost("gone"), died())
    for second in (unsupported({"supported": [NEWEST]}), MethodNotFound("no such method"), *lost):
        assert gives_up([PROBE, DISCOVER], refusal, second).hint is None  # no mode was chosen


OUTAGES: list[McpError] = [
    *(
        HttpError("", status=status)
        for status in (301, 307, 408, 425, 429, 500, 501, 502, 503, 504)
    ),
    *(AuthError("who are you?", status=401), AuthError("from another issuer")),
    *(TokenRefused("no such code", status=400), AuthError("not you", status=403)),
    *(ConnectFailed("refused"), ConnectionLost("reset"), TransportError("TLS")),
    *(LimitExceeded("a limit of ours"), ClosedError("closed by another thread")),
    # Errors that only a stateless server sends are no reason for `initialize` either.
    *(HeaderMismatch("Mcp-Method differs"), MissingCapability("sampling")),
]


@pytest.mark.requirement("VER-07", "VER-15")
@pytest.mark.parametrize("error", OUTAGES)
def test_an_outage_says_nothing_about_the_era(error: McpError) -> None:
    gives_up([PROBE], error)


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-14")
def test_a_server_that_dies_of_the_probe_or_after_it_is_started_again_for_initialize() -> None:
    again = [RESTART, INITIALIZE, INITIALIZED]
    agrees([PROBE, *again], OLD, died(), initialized(OLD))
    agrees([PROBE, INITIALIZE, *again], OLD, ProbeTimedOut(), died(), initialized(OLD))


def test_a_server_that_dies_of_everything_is_given_up_after_one_restart() -> None:
    error = gives_up([PROBE, RESTART, INITIALIZE], died(), died())
    assert "exit code 1" in str(error)
    assert "Traceback" in str(error)
    gives_up([PROBE, INITIALIZE, RESTART, INITIALIZE], ProbeTimedOut(), died(), died())
    gives_up([INITIALIZE], died(), mode="legacy")
    gives_up(["initialize 2025-03-26"], died(), mode="2025-03-26")


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-11", "VER-12")
def test_a_stateless_server_that_answered_the_probe_too_late_is_recognised() -> None:
    result = discovered("2025-11-25", NEWEST)
    silence, refusal = ProbeTimedOut(), unsupported({"supported": [NEWEST]})
    late, refused = LateProbeAnswer(result), LateProbeAnswer(refusal)
    asked, again = [PROBE, INITIALIZE], [PROBE, INITIALIZE, DISCOVER]
    assert agrees(asked, NEWEST, silence, late).result is result
    assert agrees(again, NEWEST, silence, refused, result).result is result
    assert agrees(again, NEWEST, silence, refusal, result).result is result
    missing = MissingCapability("sampling")
    assert Played(silence, LateProbeAnswer(missing)).fail() is missing
    for data in (None, "text", {}, {"supported": ["2099-01-01"]}, {"supported": ["2024-11-05"]}):
        gives_up(asked, silence, unsupported(data))
    # A restarted server got no probe that it could answer late.
    gives_up([*asked, RESTART, INITIALIZE], silence, died(), refusal)
    played = Played(silence, died(), initialized())
    played.run()
    requests = [effect for effect in played.effects if isinstance(effect, SendRequest)]
    assert [effect.after_probe for effect in requests] == [False, True, False]


@pytest.mark.requirement("VER-01", "VER-02", "VER-03", "VER-04")
def test_the_handshake_offers_our_newest_stateful_revision_and_says_who_we_are() -> None:
    result = initialized()
    played = Played(result, mode="legacy")
    negotiated = played.run()
    ask, tell = played.effects
    assert isinstance(ask, SendRequest)
    assert isinstance(tell, SendNotification)
    assert not ask.probe
    assert ask.params == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {"listChanged": True}},
        "clientInfo": {"name": "tests", "version": "1"},
    }
    assert played.said == [INITIALIZE, INITIALIZED]
    assert tell.dialect is negotiated.dialect
    assert negotiated.result is result


@pytest.mark.requirement("VER-02", "ROOT-01", "SAMP-01", "ELI-01")
@pytest.mark.parametrize("revision", STATEFUL)
@given(offer=OFFERS)
def test_the_handshake_declares_what_is_offered_and_the_offered_revision_has(
    revision: str, offer: OfferedCapabilities
) -> None:
    played = Played(initialized(revision), mode=revision, hello=ClientHello(None, offer))
    played.run()
    (ask, _) = played.effects
    assert isinstance(ask, SendRequest)
    assert ask.params
    assert ask.params["capabilities"] == session_capabilities(revision, offer)
    # The handshake requires a name, so a client without one sends a default.
    assert ask.params["clientInfo"] == {"name": "syncmcp", "version": "0"}


@pytest.mark.requirement("VER-06")
@pytest.mark.parametrize("revision", STATEFUL)
def test_what_the_server_picks_among_our_revisions_is_spoken_from_then_on(revision: str) -> None:
    played = Played(initialized(revision), mode="legacy")
    assert played.run().dialect.revision == revision
    told = [effect for effect in played.effects if isinstance(effect, SendNotification)]
    assert [effect.dialect.revision for effect in told] == [revision]


@pytest.mark.requirement("VER-05")
def test_a_revision_that_we_do_not_speak_ends_it_before_anything_else_is_sent() -> None:
    chosen: Any
    for chosen in ("1999-01-01", "2099-01-01", NEWEST, "", None, 5, ["2025-11-25"], {}):
        shown = (f"with revision {chosen!r}, not with {' or '.join(STATEFUL)}",)
        error = refuses([INITIALIZE], initialized(chosen), *shown, mode="legacy")
        assert error.method == "initialize"
    refuses([INITIALIZE], {}, mode="legacy")


@pytest.mark.requirement("VER-01", "VER-07", "VER-21")
def test_a_refused_handshake_shows_what_the_server_said() -> None:
    for error in (
        InvalidParams("Unsupported protocol version", data={"supported": ["2026-07-28"]}),
        MethodNotFound("this server speaks 2026-07-28 only: see the manual"),
        HttpError("no", status=400, body="this server speaks 2026-07-28 only"),
        *(ConnectionLost("gone"), AuthError("who are you?", status=401)),
        unsupported({"supported": [NEWEST]}),
    ):
        assert error.message in str(gives_up([INITIALIZE], error, mode="legacy"))


@pytest.mark.parametrize("mode", ["", "AUTO", "modern", "2025-01-01"])
def test_a_mode_that_does_not_exist_is_refused_before_anything_is_sent(mode: str) -> None:
    assert list(MODES) == ["auto", "legacy", *REVISIONS]
    played = Played(mode=mode)
    error = played.fail()
    assert isinstance(error, UsageError)
    assert repr(mode) in str(error)
    assert "'auto'" in str(error)
    assert played.said == []


@pytest.mark.requirement("VER-02")
@pytest.mark.parametrize("revision", STATEFUL)
def test_a_pinned_stateful_revision_is_offered_and_the_only_one_accepted(revision: str) -> None:
    ask = f"initialize {revision}"
    agrees([ask, INITIALIZED], revision, initialized(revision), mode=revision)
    for other in set(REVISIONS) - {revision}:
        refuses([ask], initialized(other), repr(other), revision, mode=revision)


def test_a_pinned_stateless_revision_is_asked_for_without_a_probe_and_nothing_else_is() -> None:
    result = discovered(NEWEST)
    assert agrees([DISCOVER], NEWEST, result, mode=NEWEST).result is result
    hint = f"the server may not speak {NEWEST}: mode='auto' tries older revisions, too"
    for refusal, said in (
        (MethodNotFound("what?"), hint),
        (unsupported({"supported": ["2025-11-25"]}), hint),
        (HttpError("no", status=400), hint),
        (HttpError("moved", status=300), None),
        (HttpError("not now", status=503), None),
        (ConnectionLost("gone"), None),
        (died(), hint),
    ):
        assert gives_up([DISCOVER], refusal, mode=NEWEST).hint == said
    refuses([DISCOVER], {}, mode=NEWEST)
    for listed in (["2025-11-25"], [], ["2099-01-01"]):
        refuses([DISCOVER], discovered(*listed), listed, NEWEST, mode=NEWEST)


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize("revision", STATEFUL)
def test_a_server_known_as_stateful_is_not_probed_again(revision: str) -> None:
    handshake = f"initialize {revision}"
    agrees([handshake, INITIALIZED], revision, initialized(revision), known=revision)
    refusals = (HttpError("no", status=status) for status in (401, 503))
    for outage in (*refusals, ConnectFailed("refused"), ConnectionLost("reset")):
        gives_up([handshake], outage, known=revision)


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize(
    "surprise",
    [
        *(unsupported({"supported": [NEWEST]}), MethodNotFound("initialize?")),
        *(HttpError("no", status=404), initialized("1999-01-01"), died()),
    ],
    ids=["unsupported version", "no such method", "404", "another revision", "died"],
)
def test_a_server_that_is_no_longer_what_it_was_goes_the_whole_way_once(
    surprise: EffectOutcome,
) -> None:
    way = ["initialize 2025-06-18", RESTART, PROBE]
    agrees(way, NEWEST, surprise, discovered(NEWEST), known="2025-06-18")
    refusal = MethodNotFound("no")
    gives_up([*way, INITIALIZE], surprise, ProbeTimedOut(), refusal, known="2025-06-18")


def test_what_is_known_changes_nothing_for_a_pinned_mode_or_the_newest_revision() -> None:
    agrees([PROBE], NEWEST, discovered(NEWEST), known=NEWEST)
    agrees([DISCOVER], NEWEST, discovered(NEWEST), mode=NEWEST, known="2025-06-18")
    agrees([INITIALIZE, INITIALIZED], "2025-11-25", initialized(), mode="legacy", known=OLD)


@pytest.mark.requirement("VER-19")
@pytest.mark.parametrize("name", ["official", "evil", "", None])
def test_what_a_server_calls_itself_decides_nothing(name: str | None) -> None:
    info = {"serverInfo": {"name": name, "version": name}}
    result = {**initialized(), **info}
    meta = {"_meta": {"io.modelcontextprotocol/serverInfo": info["serverInfo"]}}
    agrees([PROBE, INITIALIZE, INITIALIZED], "2025-11-25", MethodNotFound("no"), result)
    agrees([PROBE], NEWEST, {**discovered(NEWEST), **info, **meta})


@given(
    st.lists(
        st.sampled_from(
            [
                *(ProbeTimedOut(), died(), MethodNotFound("no")),
                *(unsupported({"supported": [NEWEST]}), unsupported({"supported": ["2025-06-18"]})),
                *(HttpError("no", status=404), HttpError("no", status=503), discovered(NEWEST)),
                *(discovered("2025-06-18"), initialized(), initialized("1999-01-01"), {}),
            ]
        ),
        min_size=8,
        max_size=8,
    ),
    st.sampled_from(MODES),
    st.sampled_from([None, *REVISIONS]),
)
def test_every_negotiation_ends_after_a_few_questions_with_an_agreement_or_an_error(
    outcomes: list[EffectOutcome], mode: str, known: str | None
) -> None:
    steps = negotiate(mode, HELLO, known)
    asked = restarts = 0
    outcome: Any = None
    last = failure = None
    try:
        while True:
            effect = steps.send(outcome)
            outcome = None
            restarts += isinstance(effect, Restart)
            if isinstance(effect, SendRequest):
                outcome = last = outcomes[asked]
                if isinstance(outcome, ProbeTimedOut) and not effect.probe:
                    outcome = last = MethodNotFound("only a probe has a limit of its own")
                asked += 1
    except StopIteration as stop:
        negotiated: Negotiated = stop.value
        accepted = {"auto": REVISIONS, "legacy": STATEFUL}.get(mode, (mode,))
        assert negotiated.dialect.revision in accepted
        assert negotiated.result is last
    except McpError as error:
        failure = error
    # A negotiation fails with the last error, or because the last outcome cannot be used.
    said = last.error if isinstance(last, ServerExited) else last
    if failure is not None and failure is not said:
        assert isinstance(failure, ProtocolError)
        assert isinstance(last, (dict, McpError))
    # If the known revision is wrong, the complete negotiation follows.
    in_vain = mode == "auto" and known is not None
    assert 1 <= asked <= 5 + in_vain
    assert restarts <= 2 + in_vain


def refused(status: int, kind: type[ServerError] | type[HttpError] = HttpError) -> McpError:
    error = kind("refused", status=status)
    error.method = "initialize"
    return error


@pytest.mark.requirement("HTL-16")
@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("mode", ["legacy", OLD])
def test_a_server_that_refuses_the_post_is_tried_over_the_older_transport(
    mode: str, status: int
) -> None:
    ask = INITIALIZE if mode == "legacy" else f"initialize {OLD}"
    said = [ask, OLDER_TRANSPORT, ask, INITIALIZED]
    outcomes = [refused(status), None, initialized(OLD)]
    agrees(said, OLD, *outcomes, mode=mode, sse_fallback=True)
    if mode == "legacy":  # the older transport needs no second probe
        agrees([PROBE, *said], OLD, refused(404), *outcomes, sse_fallback=True)


@pytest.mark.requirement("HTL-16", "SSE-03")
def test_any_other_refusal_is_the_end() -> None:
    for error in (
        *map(refused, (406, 415, 500, 501)),
        *(refused(status, AuthError) for status in (401, 403)),
        *(refused(400, kind) for kind in (HeaderMismatch, MissingCapability, UnsupportedVersion)),
        refused(404, MethodNotFound),
        refused(0, ServerError),
        HttpError("not of initialize", status=404),
    ):
        gives_up([INITIALIZE], error, mode="legacy", sse_fallback=True)
    gives_up([INITIALIZE], refused(404), mode="legacy")  # without the fallback
    # The caller gets the error of a sign-in that fails on the older transport.
    answers = refused(404), AuthError("no", status=401)
    gives_up([INITIALIZE, OLDER_TRANSPORT], *answers, mode="legacy", sse_fallback=True)


@pytest.mark.requirement("HTL-16")
def test_when_both_ways_fail_the_first_error_names_both() -> None:
    for failure, told in (
        (HttpError("the server answered Not Found", status=404), "HTTP 404"),
        (HttpError("no stream of events", status=200), "no stream of events"),
        (ConnectFailed("nobody is there"), "nobody is there"),
    ):
        played = Played(refused(405, InvalidRequest), failure, mode="legacy", sse_fallback=True)
        error = played.fail()
        assert played.said == [INITIALIZE, OLDER_TRANSPORT]
        assert type(error) is InvalidRequest
        assert error.status == 405
        assert (
            error.message == f"refused; the server is not an HTTP+SSE server either (GET: {told})"
        )
        assert error.__cause__ is failure


@pytest.mark.requirement("M-34")
@pytest.mark.parametrize(
    ("mode", "revision"),
    [("auto", "2025-11-25"), ("legacy", "2025-11-25"), ("2025-03-26", "2025-03-26")],
)
def test_a_session_that_answers_is_gone_on_with(mode: str, revision: str) -> None:
    ping = f"ping {revision}"
    assert agrees([ping], revision, {}, mode=mode, resume=True).resumed
    gives_up([ping], ConnectFailed("nobody is there"), mode=mode, resume=True)


@pytest.mark.requirement("M-34")
@pytest.mark.parametrize("gone", [SessionLost("gone"), MethodNotFound("no ping")])
def test_where_a_session_is_gone_another_one_begins(gone: McpError) -> None:
    said = ["ping 2025-11-25", INITIALIZE, INITIALIZED]
    assert not agrees(said, OLD, gone, initialized(OLD), mode="legacy", resume=True).resumed
    # A revision without sessions cannot resume one.
    answer = {"supportedVersions": [NEWEST]}
    assert not agrees([DISCOVER], NEWEST, answer, mode=NEWEST, resume=True).resumed
