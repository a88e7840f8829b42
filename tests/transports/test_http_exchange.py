"""One HTTP exchange: the request, and the meaning of the response."""

from __future__ import annotations

import json
import logging
import threading
from functools import partial
from traceback import walk_tb
from typing import Any

import pytest

from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import (
    ClosedError,
    HttpError,
    ProtocolError,
    RequestTimeout,
    SessionLost,
    UsageError,
)
from tests.support.stage import elsewhere, logged

from .http_peer import (
    WAIT,
    Request,
    Script,
    dripping,
    notification,
    opened,
    request,
    serving,
    start,
)

SECRET = "s3cret-t0ken-value"


def answer(one: Request) -> None:
    """Respond as a simple stateful server."""
    if one.method == "GET":
        one.connection.respond(405)
    elif one.method == "DELETE":
        one.connection.respond(200)
    elif "id" not in one.message:
        one.connection.respond(202)
    elif one.message["method"] == "initialize":
        one.connection.result(one, Mcp_Session_Id=SECRET)
    else:
        one.connection.result(one)


def respond(
    status: int, body: bytes = b"", content_type: str = "text/html", **headers: str
) -> Script:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda one: one.connection.respond(status, body, {"Content-Type": content_type, **given})


@pytest.mark.requirement("HTL-01", "HTL-02", "HTM-01", "HTM-02")
def test_each_message_is_a_post_of_its_own_that_accepts_json_and_events() -> None:
    with serving(answer) as server, opened(server.url) as (transport, receiver):
        outs = [request(), notification(), request()]
        for out in outs:
            transport.send(out)
    assert [one.method for one in server.requests] == ["POST"] * 3
    assert [one.path for one in server.requests] == ["/mcp"] * 3
    assert [one.body for one in server.requests] == [out.body for out in outs]
    for one in server.requests:
        assert one.headers["content-type"] == "application/json"
        assert one.headers["accept"] == "application/json, text/event-stream"
        assert one.headers["content-length"] == str(len(one.body))
    assert [message["id"] for message in receiver.messages] == [outs[0].id, outs[2].id]
    assert len(server.connections) == 1


@pytest.mark.requirement("HTL-03", "HTM-02")
def test_a_request_may_be_answered_by_json_or_by_events() -> None:
    def script(one: Request) -> None:
        reply = {"jsonrpc": "2.0", "id": one.id, "result": {}}
        if one.message["params"]:
            one.connection.start_events({"Content-Type": "Text/Event-Stream; charset=utf-8"})
            one.connection.event({"jsonrpc": "2.0", "method": "notifications/x"})
            one.connection.event(reply)
            one.connection.end_events()
        else:
            one.connection.json(reply, 200, {"Content-Type": "Application/JSON; charset=utf-8"})

    with serving(script) as server, opened(server.url) as (transport, receiver):
        first, second = request(), request(params={"stream": True})
        transport.send(first)
        transport.send(second)
    assert [out for _, out in receiver.frames] == [first, second, second]
    assert [message.get("id") for message in receiver.messages] == [first.id, None, second.id]


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_accepts_a_notification(status: int) -> None:
    with serving(respond(status)) as server, opened(server.url) as (transport, receiver):
        transport.send(notification())
        transport.send(notification())
    assert len(server.connections) == 1
    assert not receiver.frames


def test_a_notification_that_is_not_accepted_raises() -> None:
    with (
        serving(respond(400, b"no")) as server,
        opened(server.url) as (transport, receiver),
        pytest.raises(HttpError, match="notifications/initialized") as caught,
    ):
        transport.send(notification())
    assert caught.value.status == 400
    assert caught.value.delivery == "refused"
    assert not receiver.failures


# Headers


@pytest.mark.requirement("HTL-02", "HTL-14", "HTM-03", "HTM-04")
def test_headers_of_the_message_are_sent_and_none_of_the_user_replaces_those_of_the_protocol() -> (
    None
):
    theirs = {
        "X-Mine": "1",
        "accept": "text/html",
        "CONTENT-TYPE": "text/plain",
        "Content-Length": "1",
        "mcp-session-id": "theirs",
        "MCP-protocol-version": "theirs",
        "mcp-name": "theirs",
        "Transfer-Encoding": "chunked",
    }
    with serving(answer) as server, opened(Http(server.url, headers=theirs)) as (transport, _):
        transport.send(request("initialize"))
        transport.send(request(headers={"Mcp-Name": "add", "MCP-Protocol-Version": "2025-11-25"}))
        transport.adopt({"MCP-Protocol-Version": "2026-07-28"}, stateful=False)
        # Headers of a single call cannot replace them either.
        own = {"X-Mine": "2", "transfer-encoding": "chunked", "Mcp-Method": "tools/call"}
        transport.send(request(headers=own))
    first, second, last = server.requests
    assert [one.headers["x-mine"] for one in server.requests] == ["1", "1", "2"]
    assert last.headers["content-length"] == str(len(last.body))
    assert last.headers["mcp-method"] == "tools/call"
    assert last.headers["mcp-protocol-version"] == "2026-07-28"
    for one in server.requests:
        assert one.headers["content-type"] == "application/json"
        assert one.headers["accept"] == "application/json, text/event-stream"
        assert "transfer-encoding" not in one.headers
    assert not any(name.startswith("mcp-") for name in first.headers)
    assert second.headers["mcp-session-id"] == SECRET
    assert second.headers["mcp-name"] == "add"
    assert second.headers["mcp-protocol-version"] == "2025-11-25"


@pytest.mark.pitfall("24")
def test_a_headers_function_is_asked_for_each_request() -> None:
    tokens = ["Bearer one", "Bearer two"]
    given = iter(tokens)
    with serving(answer) as server:
        config = Http(server.url, headers=lambda: {"Authorization": next(given)})
        with opened(config) as (transport, _):
            transport.send(request())
            transport.send(request())
        assert [one.headers["authorization"] for one in server.requests] == tokens


def test_a_failing_headers_function_fails_the_call_and_nothing_is_sent() -> None:
    def broken() -> dict[str, str]:
        looked_up = SECRET
        raise KeyError(looked_up)

    with serving(answer) as server, opened(Http(server.url, headers=broken)) as (transport, got):
        transport.send(request())
    assert isinstance(got.error, UsageError)
    cause = got.error.__cause__
    assert isinstance(cause, KeyError)
    # The locals of the program's function stay available: see `release_frames`.
    assert [*walk_tb(cause.__traceback__)][-1][0].f_locals == {"looked_up": SECRET}
    assert SECRET not in str(got.error)
    assert not server.requests


@pytest.mark.parametrize(
    "headers",
    [*({"X": value} for value in ("a\r\nInjected: 1", "a\0b", "\u2603", 5)),
     *({name: "x"} for name in ("A b", "", "X:")), ["X"]],
    ids=str,
)  # fmt: skip
def test_a_header_that_cannot_be_sent_is_refused_whoever_gives_it(headers: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Http("http://h/", headers=headers)
    assert "Injected" not in str(caught.value)
    with serving(answer) as server:
        with opened(Http(server.url, headers=lambda: headers)) as (transport, got):
            transport.send(request())
            assert isinstance(got.error, UsageError)
            assert "headers function" in str(got.error)
        with opened(server.url) as (transport, got):
            transport.send(request(headers=headers))
            assert isinstance(got.error, UsageError)
    assert not server.requests


# The session


@pytest.mark.requirement("HTL-10", "HTL-12")
def test_the_session_id_is_sent_on_everything_after_initialize_and_deleted_at_close() -> None:
    with serving(answer) as server, opened(server.url) as (transport, receiver):
        for _ in range(2):  # the second session starts without the id of the first
            start(transport)
            transport.send(notification())
            transport.send(request())
        transport.close(Deadline(WAIT))
        assert not receiver.failures
    assert {one.method for one in server.requests} >= {"POST", "DELETE"}
    for one in server.requests:
        if one.body and one.message["method"] == "initialize":
            assert not {"mcp-session-id", "mcp-protocol-version"} & set(one.headers)
        else:
            assert one.headers["mcp-session-id"] == SECRET
    # The GET uses its own connection, so its place in the order varies.
    last = [one for one in server.requests if one.method != "GET"][-1]
    assert last.method == "DELETE"
    assert last.headers["mcp-protocol-version"] == "2025-11-25"


@pytest.mark.requirement("HTM-11")
def test_the_stateless_era_has_no_session_no_get_and_no_delete() -> None:
    def script(one: Request) -> None:
        if one.message["params"]:
            one.connection.stream(b'id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/x"}\n\n')
        else:
            one.connection.result(one, Mcp_Session_Id=SECRET)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        transport.send(request("server/discover"))
        transport.adopt({"MCP-Protocol-Version": "2026-07-28"}, stateful=False)
        transport.send(request(params={"stream": True}))
        transport.send(request())
        assert receiver.error.delivery == "unknown"  # type: ignore[attr-defined]
    assert [one.method for one in server.requests] == ["POST"] * 3
    for one in server.requests:
        assert not {"mcp-session-id", "last-event-id"} & set(one.headers)


@pytest.mark.requirement("HTL-13", "HTM-07")
@pytest.mark.parametrize("id", ["a b", "\x7f", "ü", "a\tb", " good"])
def test_a_session_id_with_forbidden_characters_is_refused(id: str) -> None:
    def script(one: Request) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": one.id, "result": {}}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-TYPE: application/json\r\nMCP-SESSION-ID: {id}x\r\n"
        one.connection.write(head.encode() + b"CONTENT-length: %d\r\n\r\n" % len(body) + body)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        transport.send(request("initialize"))
        if id == " good":  # spaces around a header's value are not part of it
            transport.send(request())
            assert not receiver.failures
            assert server.requests[1].headers["mcp-session-id"] == "goodx"
        else:
            assert isinstance(receiver.error, ProtocolError)
            assert not receiver.frames
            assert id not in receiver.error.message


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_404_with_our_session_is_a_lost_session_whatever_the_body_says(encoding: str) -> None:
    def script(one: Request) -> None:
        if one.method == "POST" and one.message["method"] == "tools/call":
            error = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600}}
            one.connection.json(error, 404, {"Content-Encoding": encoding})
        else:
            answer(one)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        transport.send(request())
        assert type(receiver.error) is HttpError  # there is no session yet
        receiver.failures.clear()
        transport.send(request("initialize"))
        transport.send(request())
        assert isinstance(receiver.error, SessionLost)
        assert receiver.error.delivery == "refused"


# Posting and closing


def test_a_failed_post_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "syncmcp.http")
    with (
        logged("syncmcp.http") as said,
        serving(respond(500)) as server,
        opened(server.url) as (transport, receiver),
    ):
        transport.post(notification("notifications/cancelled"))
        line = said.get(timeout=WAIT)
        assert line.startswith("DEBUG: ")
        assert "notifications/cancelled" in line
    assert not receiver.failures
    assert said.empty()


def test_after_close_nothing_is_sent() -> None:
    with serving(answer) as server, opened(server.url) as (transport, receiver):
        transport.close(Deadline(WAIT))
        transport.close(Deadline(WAIT))
        transport.send(request())
        assert isinstance(receiver.error, ClosedError)
        with pytest.raises(ClosedError):
            transport.send(notification())
    assert not server.requests


@pytest.mark.pitfall("21")
@pytest.mark.parametrize(
    ("begin", "more", "error"),
    [
        (b"", b"HTTP/1.1 102 On The Way\r\n\r\n", RequestTimeout),
        (b"HTTP/1.1 202 OK\r\nX: ", b"x", RequestTimeout),
        # The status shows that the server accepted the notification.
        (b"HTTP/1.1 202 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", type(None)),
    ],
    ids=["interim", "head", "trailer"],
)
def test_an_endless_answer_to_a_notification_holds_nobody(
    begin: bytes, more: bytes, error: type
) -> None:
    with serving(dripping(begin, more)) as server, opened(server.url) as (transport, _):
        sending = elsewhere(partial(transport.send, notification(seconds=0.2)))
        assert type(sending.exception(WAIT)) is error


@pytest.mark.pitfall("H8")
def test_close_works_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, begin = threading.current_thread(), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if threading.current_thread() is ours:
            raise RuntimeError("can't create new thread at interpreter shutdown")
        begin(thread)

    with serving(answer) as server, opened(server.url) as (transport, _):
        start(transport)
        transport.send(request())
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            transport.close(Deadline(WAIT))
        # The GET for the stream, on its own connection, may arrive later.
        assert "DELETE" in [request.method for request in server.requests]
