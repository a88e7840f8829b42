"""What is left to try when `initialize` is refused, and going on with somebody's session."""

from __future__ import annotations

import pytest

from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    HeaderMismatch,
    HttpError,
    InvalidRequest,
    McpError,
    MethodNotFound,
    MissingCapability,
    ServerError,
    SessionLost,
    UnsupportedVersion,
)
from tests.protocol.negotiating import (
    DISCOVER,
    INITIALIZE,
    INITIALIZED,
    NEWEST,
    OLDER_TRANSPORT,
    PROBE,
    Played,
    agrees,
    gives_up,
    initialized,
)

OLD = "2024-11-05"


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
    if mode == "legacy":  # after a probe there is no second one
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
    gives_up([INITIALIZE], refused(404), mode="legacy")  # there is no older transport
    # A sign-in that fails on the older way is what the caller sees.
    denied = AuthError("no", status=401)
    said = [INITIALIZE, OLDER_TRANSPORT]
    gives_up(said, refused(404), denied, mode="legacy", sse_fallback=True)


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
    played = Played(refused(405, InvalidRequest), failure, mode="legacy", sse_fallback=True)
    error = played.fail()
    assert played.said == [INITIALIZE, OLDER_TRANSPORT]
    assert type(error) is InvalidRequest
    assert error.status == 405
    assert error.message == (f"refused; it is not an HTTP+SSE server either (GET: {told})")
    assert error.__cause__ is failure


# -- somebody's session


@pytest.mark.requirement("M-34")
@pytest.mark.parametrize(
    ("mode", "revision"),
    [("auto", "2025-11-25"), ("legacy", "2025-11-25"), ("2025-03-26", "2025-03-26")],
)
def test_a_session_that_answers_is_gone_on_with(mode: str, revision: str) -> None:
    ping = f"ping {revision}"
    assert agrees([ping], revision, {}, mode=mode, resume=True).resumed
    away = ConnectFailed("nobody is there")
    gives_up([ping], away, mode=mode, resume=True)


@pytest.mark.requirement("M-34")
@pytest.mark.parametrize("gone", [SessionLost("gone"), MethodNotFound("no ping")])
def test_where_a_session_is_gone_another_one_begins(gone: McpError) -> None:
    said = ["ping 2025-11-25", INITIALIZE, INITIALIZED]
    played = agrees(said, OLD, gone, initialized(OLD), mode="legacy", resume=True)
    assert not played.resumed


def test_where_there_are_no_sessions_there_is_none_to_go_on_with() -> None:
    answer = {"supportedVersions": [NEWEST]}
    assert not agrees([DISCOVER], NEWEST, answer, mode=NEWEST, resume=True).resumed
