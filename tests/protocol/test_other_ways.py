"""What is left to try when `initialize` is refused, and going on with somebody's session."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.negotiate import (
    ClientHello,
    EffectOutcome,
    SendRequest,
    UseLegacySse,
    negotiate,
)
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    HttpError,
    InvalidRequest,
    McpError,
    MethodNotFound,
    ServerError,
    SessionLost,
)

HELLO = ClientHello({"name": "tests", "version": "1"}, OfferedCapabilities())
OLD_ANSWER: dict[str, Any] = {
    "protocolVersion": "2024-11-05",
    "capabilities": {},
    "serverInfo": {"name": "s"},
}


def refused(status: int, kind: type[ServerError] | type[HttpError] = HttpError) -> McpError:
    error = kind("refused", status=status)
    error.method = "initialize"
    return error


def drive(steps: Any, *outcomes: EffectOutcome) -> tuple[list[str], Any]:
    """Play a negotiation; return what it did, and its result or error."""
    left, did = list(outcomes), []
    outcome: EffectOutcome = None
    try:
        while True:
            effect = steps.send(outcome)
            did.append(effect.method if hasattr(effect, "method") else type(effect).__name__)
            outcome = left.pop(0) if isinstance(effect, SendRequest | UseLegacySse) else None
    except StopIteration as stop:
        assert not left
        return did, stop.value
    except McpError as error:
        assert not left
        return did, error


@pytest.mark.requirement("HTL-16")
@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("mode", ["legacy", "2024-11-05"])
def test_a_server_that_refuses_the_post_is_tried_over_the_older_transport(
    mode: str, status: int
) -> None:
    steps = negotiate(mode, HELLO, sse_fallback=True)
    did, negotiated = drive(steps, refused(status), None, OLD_ANSWER)
    assert did == ["initialize", "UseLegacySse", "initialize", "notifications/initialized"]
    assert negotiated.dialect.revision == "2024-11-05"


@pytest.mark.requirement("HTL-16")
def test_after_a_probe_the_older_transport_gets_no_second_one() -> None:
    steps = negotiate("auto", HELLO, sse_fallback=True)
    did, negotiated = drive(steps, refused(404), refused(404), None, OLD_ANSWER)
    assert did[0] == "server/discover"
    assert did[1:4] == ["initialize", "UseLegacySse", "initialize"]
    assert negotiated.dialect.revision == "2024-11-05"


@pytest.mark.requirement("HTL-16")
@pytest.mark.parametrize(
    "error",
    [
        refused(500),
        refused(401, AuthError),
        refused(404, MethodNotFound),
        pytest.param(HttpError("refused", status=404), id="not of initialize"),
    ],
)
def test_any_other_refusal_is_the_end(error: McpError) -> None:
    did, raised = drive(negotiate("legacy", HELLO, sse_fallback=True), error)
    assert (did, raised) == (["initialize"], error)


@pytest.mark.requirement("HTL-16")
def test_where_there_is_no_older_transport_none_is_tried() -> None:
    error = refused(404)
    assert drive(negotiate("legacy", HELLO), error) == (["initialize"], error)


@pytest.mark.requirement("HTL-16")
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (HttpError("the server answered Not Found", status=404), "HTTP 404"),
        (HttpError("no stream of events", status=200), "no stream of events"),
        (ConnectFailed("nobody is there"), "nobody is there"),
    ],
)
def test_when_both_ways_fail_the_first_error_names_both(failure: McpError, told: str) -> None:
    first = refused(405, InvalidRequest)
    did, error = drive(negotiate("legacy", HELLO, sse_fallback=True), first, failure)
    assert did == ["initialize", "UseLegacySse"]
    assert type(error) is InvalidRequest
    assert error.status == 405
    assert "refused" in error.message
    assert told in error.message
    assert error.__cause__ is failure


def test_a_sign_in_that_fails_on_the_older_way_is_what_the_caller_sees() -> None:
    denied = AuthError("no", status=401)
    _, error = drive(negotiate("legacy", HELLO, sse_fallback=True), refused(404), denied)
    assert error is denied


# -- somebody's session


@pytest.mark.requirement("M-34")
@pytest.mark.parametrize(
    ("mode", "revision"),
    [("auto", "2025-11-25"), ("legacy", "2025-11-25"), ("2025-03-26", "2025-03-26")],
)
def test_a_session_that_answers_is_gone_on_with(mode: str, revision: str) -> None:
    did, negotiated = drive(negotiate(mode, HELLO, resume=True), {})
    assert (did, negotiated.dialect.revision) == (["ping"], revision)
    assert negotiated.resumed


@pytest.mark.requirement("M-34")
@pytest.mark.parametrize("gone", [SessionLost("gone"), MethodNotFound("no ping")])
def test_where_a_session_is_gone_another_one_begins(gone: McpError) -> None:
    did, negotiated = drive(negotiate("legacy", HELLO, resume=True), gone, OLD_ANSWER)
    assert did == ["ping", "initialize", "notifications/initialized"]
    assert not negotiated.resumed


def test_where_there_are_no_sessions_there_is_none_to_go_on_with() -> None:
    answer = {"supportedVersions": ["2026-07-28"]}
    did, negotiated = drive(negotiate("2026-07-28", HELLO, resume=True), answer)
    assert (did, negotiated.resumed) == (["server/discover"], False)


def test_a_server_that_cannot_be_asked_for_its_session_is_an_error() -> None:
    away = ConnectFailed("nobody is there")
    assert drive(negotiate("auto", HELLO, resume=True), away) == (["ping"], away)
