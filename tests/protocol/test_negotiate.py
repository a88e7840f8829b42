"""Negotiation, driven by hand: what is asked, what comes of it, what both sides agree on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
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
    negotiate,
)
from syncmcp._protocol.revisions import REVISIONS, STATEFUL
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
    TokenRefused,
    TransportError,
    UnsupportedVersion,
    UsageError,
)

EVERYTHING = OfferedCapabilities(*(True,) * len(OfferedCapabilities._fields))

HELLO = ClientHello({"name": "tests", "version": "1"}, OfferedCapabilities(roots=True))
NEWEST = "2026-07-28"

PROBE = "server/discover 2026-07-28, as a probe"
DISCOVER = "server/discover 2026-07-28"
INITIALIZE = "initialize 2025-11-25"
INITIALIZED = "notifications/initialized"
RESTART = "restart"


def discovered(*versions: Any) -> dict[str, Any]:
    return {"resultType": "complete", "supportedVersions": list(versions), "capabilities": {}}


def initialized(revision: Any = "2025-11-25") -> dict[str, Any]:
    return {"protocolVersion": revision, "capabilities": {}, "serverInfo": {"name": "s"}}


def unsupported(data: Any) -> UnsupportedVersion:
    return UnsupportedVersion("not this revision", data=data)


def died() -> ServerExited:
    return ServerExited(ConnectionLost("the server ended", exit_code=1, stderr_tail="Traceback"))


class Played:
    """A negotiation whose questions get these answers, in this order."""

    def __init__(
        self,
        *outcomes: EffectOutcome,
        mode: str = "auto",
        known: str | None = None,
        hello: ClientHello = HELLO,
    ) -> None:
        self.effects: list[NegotiationEffect] = []
        self.said: list[str] = []
        self._outcomes = list(outcomes)
        self._steps = negotiate(mode, hello, known)

    def run(self) -> Negotiated:
        outcome: EffectOutcome = None
        while True:
            try:
                effect = self._steps.send(outcome)
            except StopIteration as stop:
                assert not self._outcomes, "not every answer was asked for"
                negotiated: Negotiated = stop.value
                return negotiated
            self.effects.append(effect)
            self.said.append(in_words(effect))
            outcome = self._outcomes.pop(0) if isinstance(effect, SendRequest) else None

    def fail(self) -> McpError:
        with pytest.raises(McpError) as caught:
            self.run()
        assert not self._outcomes, "not every answer was asked for"
        return caught.value


def in_words(effect: NegotiationEffect) -> str:
    if isinstance(effect, SendRequest):
        words = f"{effect.method} {effect.dialect.revision}"
        return f"{words}, as a probe" if effect.probe else words
    return effect.method if isinstance(effect, SendNotification) else "restart"


# -- the probe and its verdict ---------------------------------------------------------------

OLD_SERVER_REFUSALS = [
    pytest.param(MethodNotFound("Method not found"), id="-32601"),
    pytest.param(InvalidParams("Invalid request parameters"), id="-32602"),
    pytest.param(InvalidRequest("Server not initialized"), id="-32600"),
    pytest.param(ParseError("what?"), id="-32700"),
    pytest.param(InternalError("oops"), id="-32603"),
    pytest.param(ResourceNotFound("not found"), id="-32002"),
    pytest.param(ServerError("no", code=0), id="code 0"),
    pytest.param(ServerError("no", code=-1), id="code -1"),
    pytest.param(ServerError("Bad Request", code=-32000), id="-32000"),
    pytest.param(ServerError("session", code=-32001), id="-32001, a draft's header mismatch"),
    pytest.param(ServerError("caps", code=-32003), id="-32003, a draft's missing capability"),
    pytest.param(ServerError("version", code=-32004), id="-32004, a draft's unsupported version"),
    pytest.param(ServerError("no", code=-32019), id="-32019"),
    pytest.param(ServerError("no", code=-32023), id="-32023, undefined"),
    pytest.param(ServerError("url", code=-32042), id="-32042"),
    pytest.param(ServerError("no", code=404), id="code 404"),
    pytest.param(ProbeTimedOut(), id="silence"),
    pytest.param(ProtocolError("malformed answer"), id="an answer that is no answer"),
    pytest.param(HttpError("empty", status=400), id="400 empty"),
    pytest.param(HttpError("text", status=400, body="Bad Request"), id="400 plain text"),
    pytest.param(HttpError("json", status=400, body='{"detail":1}'), id="400 foreign JSON"),
    pytest.param(HttpError("no", status=404, body="Invalid session ID"), id="404 text"),
    pytest.param(HttpError("no", status=405), id="405"),
    pytest.param(HttpError("no", status=406), id="406"),
    pytest.param(HttpError("no", status=415), id="415"),
    pytest.param(HttpError("no", status=422), id="422"),
    pytest.param(HttpError("accepted", status=202), id="202 to a request"),
    pytest.param(HttpError("a page", status=200, body="<html>"), id="200 of the wrong kind"),
]


@pytest.mark.requirement("VER-13", "VER-14", "VER-15", "RPC-18")
@pytest.mark.pitfall("18")
@pytest.mark.parametrize("refusal", OLD_SERVER_REFUSALS)
def test_whatever_no_stateless_server_would_say_leads_to_initialize(refusal: EffectOutcome) -> None:
    played = Played(refusal, initialized("2025-06-18"))
    assert played.run().dialect.revision == "2025-06-18"
    assert played.said == [PROBE, INITIALIZE, INITIALIZED]


@pytest.mark.requirement("VER-13")
@pytest.mark.parametrize(
    "offered",
    [
        ["2026-07-28"],
        ["2024-11-05", "2026-07-28", "2025-11-25"],
        ["2099-01-01", "2026-07-28"],
    ],
)
def test_a_server_that_lists_the_stateless_revision_is_spoken_to_in_it(offered: list[str]) -> None:
    result = discovered(*offered)
    played = Played(result)
    negotiated = played.run()
    assert negotiated.dialect.revision == NEWEST
    assert negotiated.result is result
    assert played.said == [PROBE]


@pytest.mark.parametrize(
    ("offered", "newest"),
    [
        (["2025-06-18"], "2025-06-18"),
        (["2024-11-05", "2025-03-26"], "2025-03-26"),
        (["2099-01-01", "2025-11-25", "2024-11-05"], "2025-11-25"),
    ],
)
def test_a_server_that_lists_stateful_revisions_only_is_offered_the_newest_of_them(
    offered: list[str], newest: str
) -> None:
    played = Played(discovered(*offered), initialized(newest))
    assert played.run().dialect.revision == newest
    assert played.said == [PROBE, f"initialize {newest}", INITIALIZED]


@pytest.mark.parametrize("offered", [[], ["2099-01-01"], ["1999-01-01", "draft"]])
def test_a_server_that_shares_nothing_is_given_up_and_both_lists_are_shown(
    offered: list[str],
) -> None:
    for outcome in (discovered(*offered), unsupported({"supported": offered})):
        played = Played(outcome)
        error = played.fail()
        assert type(error) is ProtocolError
        assert str(offered) in str(error)
        assert str(list(REVISIONS)) in str(error)
        assert played.said == [PROBE]


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"tools": []},
        {"supportedVersions": None},
        {"supportedVersions": NEWEST},
        {"supportedVersions": {NEWEST: {}}},
        {"supportedVersions": [NEWEST, 5]},
        {"supportedVersions": [None]},
        {"protocolVersion": "2025-06-18"},
    ],
    ids=repr,
)
@pytest.mark.requirement("VER-14")
def test_a_result_that_is_no_discovery_leads_to_initialize(result: dict[str, Any]) -> None:
    played = Played(result, initialized())
    assert played.run().dialect.revision == "2025-11-25"
    assert played.said == [PROBE, INITIALIZE, INITIALIZED]


@pytest.mark.requirement("VER-11", "VER-12")
def test_a_refused_revision_is_asked_for_again_when_the_server_names_a_shared_stateless_one() -> (
    None
):
    result = discovered(NEWEST)
    played = Played(unsupported({"supported": ["2025-11-25", NEWEST]}), result)
    negotiated = played.run()
    assert negotiated.dialect.revision == NEWEST
    assert negotiated.result is result
    assert played.said == [PROBE, DISCOVER]


@pytest.mark.requirement("VER-11", "VER-12")
@pytest.mark.parametrize(
    "second",
    [
        unsupported({"supported": [NEWEST]}),
        MethodNotFound("no such method"),
        HttpError("no", status=404),
        ConnectionLost("gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_is_asked_for_again_only_once_and_never_by_initialize(second: McpError) -> None:
    played = Played(unsupported({"supported": [NEWEST]}), second)
    assert played.fail() is second
    assert played.said == [PROBE, DISCOVER]


@pytest.mark.requirement("VER-11")
def test_a_refused_revision_leads_to_initialize_when_only_stateful_ones_are_shared() -> None:
    played = Played(
        unsupported({"supported": ["2025-06-18", "2025-11-25"], "requested": NEWEST}),
        initialized(),
    )
    assert played.run().dialect.revision == "2025-11-25"
    assert played.said == [PROBE, INITIALIZE, INITIALIZED]


@pytest.mark.parametrize(
    "data",
    [None, {}, [], "2025-11-25", {"supported": None}, {"supported": NEWEST}, {"supported": [5]}],
    ids=repr,
)
def test_a_refused_revision_without_a_usable_list_leads_to_initialize(data: Any) -> None:
    played = Played(unsupported(data), initialized())
    assert played.run().dialect.revision == "2025-11-25"
    assert played.said == [PROBE, INITIALIZE, INITIALIZED]


@pytest.mark.requirement("VER-15")
@pytest.mark.parametrize(
    "error",
    [
        HeaderMismatch("Mcp-Method differs"),
        MissingCapability("sampling", data={"requiredCapabilities": {"sampling": {}}}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_only_a_stateless_server_knows_is_raised_without_falling_back(
    error: McpError,
) -> None:
    played = Played(error)
    assert played.fail() is error
    assert played.said == [PROBE]


@pytest.mark.requirement("VER-07")
@pytest.mark.parametrize(
    "error",
    [
        *(
            pytest.param(HttpError("not now", status=status), id=str(status))
            for status in (301, 307, 408, 425, 429, 500, 501, 502, 503, 504)
        ),
        pytest.param(AuthError("who are you?", status=401), id="401"),
        pytest.param(AuthError("from another issuer"), id="a login that failed"),
        pytest.param(TokenRefused("no such code", status=400), id="a refused code"),
        pytest.param(AuthError("not you", status=403), id="403"),
        pytest.param(ConnectFailed("refused"), id="refused"),
        pytest.param(ConnectionLost("reset"), id="reset"),
        pytest.param(TransportError("TLS"), id="TLS"),
        pytest.param(LimitExceeded("too long"), id="a limit of ours"),
        pytest.param(ClosedError("closed"), id="closed by another thread"),
    ],
)
def test_an_outage_says_nothing_about_the_era(error: McpError) -> None:
    played = Played(error)
    assert played.fail() is error
    assert played.said == [PROBE]


@given(st.integers(-40_000, 1000).filter(lambda code: code not in (-32020, -32021, -32022)))
def test_no_other_error_code_decides_anything(code: int) -> None:
    played = Played(ServerError.from_wire(code, "no"), initialized())
    assert played.run().dialect.revision == "2025-11-25"


# -- servers that end ------------------------------------------------------------------------


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-14")
def test_a_server_that_dies_of_the_probe_is_started_again_for_initialize() -> None:
    played = Played(died(), initialized("2024-11-05"))
    assert played.run().dialect.revision == "2024-11-05"
    assert played.said == [PROBE, RESTART, INITIALIZE, INITIALIZED]


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-14")
def test_a_server_that_ignores_the_probe_and_dies_of_initialize_is_started_again() -> None:
    played = Played(ProbeTimedOut(), died(), initialized("2024-11-05"))
    assert played.run().dialect.revision == "2024-11-05"
    assert played.said == [PROBE, INITIALIZE, RESTART, INITIALIZE, INITIALIZED]


@pytest.mark.parametrize("first", [died(), ProbeTimedOut()], ids=["died", "silent"])
def test_a_server_that_dies_of_everything_is_given_up_after_one_restart(
    first: EffectOutcome,
) -> None:
    last = died()
    outcomes = (first, last) if isinstance(first, ServerExited) else (first, died(), last)
    played = Played(*outcomes)
    error = played.fail()
    assert error is last.error
    assert "exit code 1" in str(error)
    assert "Traceback" in str(error)
    assert played.said.count(RESTART) == 1


def test_a_server_that_dies_after_it_named_its_revision_is_given_up() -> None:
    last = died()
    played = Played(unsupported({"supported": [NEWEST]}), last)
    assert played.fail() is last.error
    assert played.said == [PROBE, DISCOVER]


# -- a probe that is answered too late -------------------------------------------------------


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-11", "VER-12")
def test_a_stateless_server_that_answered_the_probe_too_late_is_recognised_by_its_refusal() -> None:
    result = discovered(NEWEST)
    played = Played(ProbeTimedOut(), unsupported({"supported": [NEWEST]}), result)
    negotiated = played.run()
    assert negotiated.dialect.revision == NEWEST
    assert negotiated.result is result
    assert played.said == [PROBE, INITIALIZE, DISCOVER]


@pytest.mark.parametrize(
    "data",
    [None, "text", {}, {"supported": ["2099-01-01"]}, {"supported": ["2024-11-05"]}],
    ids=repr,
)
def test_a_refusal_that_names_no_stateless_revision_of_ours_is_raised(data: Any) -> None:
    refusal = unsupported(data)
    played = Played(ProbeTimedOut(), refusal)
    assert played.fail() is refusal
    assert played.said == [PROBE, INITIALIZE]


@pytest.mark.requirement("VER-11", "VER-12")
def test_an_answer_to_the_probe_that_comes_instead_of_the_handshake_counts() -> None:
    result = discovered("2025-11-25", NEWEST)
    played = Played(ProbeTimedOut(), LateProbeAnswer(result))
    negotiated = played.run()
    assert negotiated.dialect.revision == NEWEST
    assert negotiated.result is result
    assert played.said == [PROBE, INITIALIZE]

    played = Played(ProbeTimedOut(), LateProbeAnswer(unsupported({"supported": [NEWEST]})), result)
    assert played.run().result is result
    assert played.said == [PROBE, INITIALIZE, DISCOVER]

    refusal = MissingCapability("sampling")
    assert Played(ProbeTimedOut(), LateProbeAnswer(refusal)).fail() is refusal


def test_only_a_handshake_after_a_probe_waits_for_that_too() -> None:
    played = Played(ProbeTimedOut(), died(), initialized())
    played.run()
    asked = [effect for effect in played.effects if isinstance(effect, SendRequest)]
    assert [effect.after_probe for effect in asked] == [False, True, False]


def test_a_fresh_server_has_no_probe_left_to_answer_too_late() -> None:
    refusal = unsupported({"supported": [NEWEST]})
    played = Played(ProbeTimedOut(), died(), refusal)
    assert played.fail() is refusal
    assert played.said == [PROBE, INITIALIZE, RESTART, INITIALIZE]


# -- the handshake ---------------------------------------------------------------------------


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


def test_a_nameless_client_still_has_a_name_where_one_is_demanded() -> None:
    played = Played(initialized(), mode="legacy", hello=ClientHello(None, NO_OFFER))
    played.run()
    (ask, _) = played.effects
    assert isinstance(ask, SendRequest)
    assert ask.params is not None
    assert set(ask.params["clientInfo"]) == {"name", "version"}


BEFORE_MODES: dict[str, Any] = {"roots": {"listChanged": True}, "sampling": {}}
WITH_MODES: dict[str, Any] = {
    "roots": {"listChanged": True},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
}
# What is declared, by revision, if nothing, elicitation alone or everything is offered.
DECLARED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "2025-11-25": ({}, {"elicitation": {"form": {}, "url": {}}}, WITH_MODES),
    "2025-06-18": ({}, {"elicitation": {}}, {**BEFORE_MODES, "elicitation": {}}),
    "2025-03-26": ({}, {}, BEFORE_MODES),
    "2024-11-05": ({}, {}, BEFORE_MODES),
}


@pytest.mark.requirement("VER-02", "ROOT-01", "SAMP-01", "ELI-01")
@pytest.mark.parametrize("revision", DECLARED)
@pytest.mark.parametrize(
    ("number", "offer"),
    list(enumerate([NO_OFFER, OfferedCapabilities(form=True, url=True), EVERYTHING])),
)
def test_the_handshake_declares_what_is_offered_and_the_offered_revision_has(
    revision: str, number: int, offer: OfferedCapabilities
) -> None:
    played = Played(initialized(revision), mode=revision, hello=ClientHello(None, offer))
    played.run()
    (ask, _) = played.effects
    assert isinstance(ask, SendRequest)
    assert ask.params is not None
    assert ask.params["capabilities"] == DECLARED[revision][number]


@pytest.mark.requirement("VER-06")
@pytest.mark.parametrize("revision", STATEFUL)
def test_what_the_server_picks_among_our_revisions_is_spoken_from_then_on(revision: str) -> None:
    played = Played(initialized(revision), mode="legacy")
    assert played.run().dialect.revision == revision
    assert [
        effect.dialect.revision for effect in played.effects if isinstance(effect, SendNotification)
    ] == [revision]


@pytest.mark.requirement("VER-05")
@pytest.mark.parametrize(
    "chosen", ["1999-01-01", "2099-01-01", NEWEST, "", None, 5, ["2025-11-25"], {}], ids=repr
)
def test_a_revision_that_we_do_not_speak_ends_it_before_anything_else_is_sent(chosen: Any) -> None:
    played = Played(initialized(chosen), mode="legacy")
    error = played.fail()
    assert type(error) is ProtocolError
    assert error.method == "initialize"
    assert repr(chosen) in str(error)
    assert str(list(STATEFUL)) in str(error)
    assert played.said == [INITIALIZE]


def test_a_result_without_a_revision_is_no_handshake() -> None:
    assert isinstance(Played({}, mode="legacy").fail(), ProtocolError)


@pytest.mark.requirement("VER-07", "VER-21")
@pytest.mark.parametrize(
    "error",
    [
        InvalidParams("Unsupported protocol version", data={"supported": ["2026-07-28"]}),
        MethodNotFound("this server speaks 2026-07-28 only: see the manual"),
        HttpError("no", status=400, body="this server speaks 2026-07-28 only"),
        ConnectionLost("gone"),
        AuthError("who are you?", status=401),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refused_handshake_shows_what_the_server_said(error: McpError) -> None:
    played = Played(error, mode="legacy")
    raised = played.fail()
    assert raised is error
    assert error.message in str(raised)
    assert played.said == [INITIALIZE]


# -- modes -----------------------------------------------------------------------------------


def test_there_are_two_ways_to_find_out_and_every_revision_can_be_pinned() -> None:
    assert list(MODES) == ["auto", "legacy", *REVISIONS]


@pytest.mark.parametrize("mode", ["", "AUTO", "modern", "2025-01-01"])
def test_a_mode_that_does_not_exist_is_refused_before_anything_is_sent(mode: str) -> None:
    played = Played(mode=mode)
    error = played.fail()
    assert isinstance(error, UsageError)
    assert repr(mode) in str(error)
    assert "'auto'" in str(error)
    assert played.said == []


@pytest.mark.requirement("VER-01")
def test_without_a_probe_the_handshake_is_the_first_thing_that_is_said() -> None:
    played = Played(initialized("2024-11-05"), mode="legacy")
    assert played.run().dialect.revision == "2024-11-05"
    assert played.said[0] == INITIALIZE


def test_without_a_probe_a_refused_revision_is_an_error() -> None:
    refusal = unsupported({"supported": [NEWEST]})
    played = Played(refusal, mode="legacy")
    assert played.fail() is refusal
    assert played.said == [INITIALIZE]


@pytest.mark.requirement("VER-02")
@pytest.mark.parametrize("revision", STATEFUL)
def test_a_pinned_stateful_revision_is_offered_and_the_only_one_accepted(revision: str) -> None:
    played = Played(initialized(revision), mode=revision)
    assert played.run().dialect.revision == revision
    assert played.said == [f"initialize {revision}", INITIALIZED]
    for other in set(REVISIONS) - {revision}:
        error = Played(initialized(other), mode=revision).fail()
        assert isinstance(error, ProtocolError)
        assert repr(other) in str(error)
        assert revision in str(error)


@pytest.mark.parametrize("mode", ["legacy", "2025-03-26"])
def test_a_server_that_dies_without_a_probe_is_not_started_twice(mode: str) -> None:
    played = Played(died(), mode=mode)
    assert isinstance(played.fail(), TransportError)
    assert RESTART not in played.said


def test_a_pinned_stateless_revision_is_asked_for_without_a_probe() -> None:
    result = discovered(NEWEST)
    played = Played(result, mode=NEWEST)
    negotiated = played.run()
    assert negotiated.dialect.revision == NEWEST
    assert negotiated.result is result
    assert played.said == [DISCOVER]


@pytest.mark.parametrize("offered", [["2025-11-25"], [], ["2099-01-01"]])
def test_a_pinned_stateless_revision_is_not_given_up_for_another(offered: list[str]) -> None:
    played = Played(discovered(*offered), mode=NEWEST)
    error = played.fail()
    assert isinstance(error, ProtocolError)
    assert str(offered) in str(error)
    assert NEWEST in str(error)
    assert played.said == [DISCOVER]


def test_a_pinned_stateless_revision_is_not_read_into_an_answer_that_does_not_name_it() -> None:
    assert isinstance(Played({}, mode=NEWEST).fail(), ProtocolError)


def test_a_known_server_that_is_out_of_order_is_not_asked_anything_else() -> None:
    for status in (401, 503):
        outage = HttpError("no", status=status)
        played = Played(outage, known="2025-06-18")
        assert played.fail() is outage
        assert played.said == ["initialize 2025-06-18"]


@pytest.mark.parametrize(
    "refusal",
    [
        MethodNotFound("what?"),
        unsupported({"supported": ["2025-11-25"]}),
        HttpError("no", status=400),
        died(),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_pinned_stateless_revision_has_no_way_back_to_initialize(
    refusal: McpError | ServerExited,
) -> None:
    played = Played(refusal, mode=NEWEST)
    assert played.fail() is (refusal.error if isinstance(refusal, ServerExited) else refusal)
    assert played.said == [DISCOVER]


# -- servers we know -------------------------------------------------------------------------


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize("revision", STATEFUL)
def test_a_server_known_as_stateful_is_not_probed_again(revision: str) -> None:
    played = Played(initialized(revision), known=revision)
    assert played.run().dialect.revision == revision
    assert played.said == [f"initialize {revision}", INITIALIZED]


@pytest.mark.requirement("VER-16")
@pytest.mark.parametrize(
    "surprise",
    [
        unsupported({"supported": [NEWEST]}),
        MethodNotFound("initialize?"),
        HttpError("no", status=404),
        initialized("1999-01-01"),
        died(),
    ],
    ids=["unsupported version", "no such method", "404", "another revision", "died"],
)
def test_a_server_that_is_no_longer_what_it_was_goes_the_whole_way(surprise: EffectOutcome) -> None:
    played = Played(surprise, discovered(NEWEST), known="2025-06-18")
    assert played.run().dialect.revision == NEWEST
    assert played.said == ["initialize 2025-06-18", RESTART, PROBE]


def test_a_known_server_that_cannot_be_reached_is_not_asked_anything_else() -> None:
    for outcome in (ConnectFailed("refused"), ConnectionLost("reset")):
        played = Played(outcome, known="2025-06-18")
        assert isinstance(played.fail(), TransportError)
        assert played.said == ["initialize 2025-06-18"]


def test_a_server_known_as_stateless_is_asked_again_what_it_can_do() -> None:
    played = Played(discovered(NEWEST), known=NEWEST)
    assert played.run().dialect.revision == NEWEST
    assert played.said == [PROBE]


def test_what_is_known_changes_nothing_for_a_pinned_mode() -> None:
    assert Played(discovered(NEWEST), mode=NEWEST, known="2025-06-18").run().dialect.revision == (
        NEWEST
    )
    played = Played(initialized(), mode="legacy", known="2024-11-05")
    played.run()
    assert played.said == [INITIALIZE, INITIALIZED]


# -- for every server ------------------------------------------------------------------------


@pytest.mark.requirement("VER-19")
@pytest.mark.parametrize("name", ["official", "evil", "", None])
def test_what_a_server_calls_itself_decides_nothing(name: str | None) -> None:
    info = {"serverInfo": {"name": name, "version": name}}
    stateful = Played(MethodNotFound("no"), {**initialized(), **info}).run()
    meta = {"_meta": {"io.modelcontextprotocol/serverInfo": info["serverInfo"]}}
    stateless = Played({**discovered(NEWEST), **info, **meta}).run()
    assert stateful.dialect.revision == "2025-11-25"
    assert stateless.dialect.revision == NEWEST


@given(
    st.lists(
        st.sampled_from(
            [
                ProbeTimedOut(),
                died(),
                MethodNotFound("no"),
                unsupported({"supported": [NEWEST]}),
                unsupported({"supported": ["2025-06-18"]}),
                HttpError("no", status=404),
                HttpError("no", status=503),
                discovered(NEWEST),
                discovered("2025-06-18"),
                initialized(),
                initialized("1999-01-01"),
                {},
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
    outcome: EffectOutcome = None
    try:
        while True:
            effect = steps.send(outcome)
            outcome = None
            if isinstance(effect, Restart):
                restarts += 1
            if isinstance(effect, SendRequest):
                outcome = outcomes[asked]
                if isinstance(outcome, ProbeTimedOut) and not effect.probe:
                    outcome = MethodNotFound("only a probe has a limit of its own")
                asked += 1
    except StopIteration as stop:
        negotiated: Negotiated = stop.value
        accepted = {"auto": REVISIONS, "legacy": STATEFUL}.get(mode, (mode,))
        assert negotiated.dialect.revision in accepted
    except McpError:
        pass  # an end, too
    # Where what was known turns out wrong, the whole way is gone after that.
    in_vain = mode == "auto" and known is not None
    assert 1 <= asked <= 5 + in_vain
    assert restarts <= 2 + in_vain


def test_the_whole_way_is_gone_once_where_what_was_known_was_in_vain() -> None:
    steps = negotiate("auto", HELLO, STATEFUL[0])
    refusal = MethodNotFound("no")
    outcomes: list[EffectOutcome] = [died(), ProbeTimedOut(), refusal]
    effects = []
    effect = next(steps)
    while outcomes:
        effects.append(effect)
        answer = outcomes.pop(0) if isinstance(effect, SendRequest) else None
        if answer is refusal:
            break
        effect = steps.send(answer)
    with pytest.raises(MethodNotFound):
        steps.send(refusal)
    methods = [
        each.method if isinstance(each, SendRequest) else type(each).__name__ for each in effects
    ]
    assert methods == ["initialize", "Restart", "server/discover", "initialize"]
