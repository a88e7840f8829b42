"""Sessions over HTTP: lost ones are begun again, once for all, and others can go on with them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import Http, NotSupported, RequestFuture, SessionLost
from syncmcp.testing import serve_http
from syncmcp.types import CallToolResult
from tests.support.session_server import Answer, SessionServer, on, refuse, session_server
from tests.support.stage import PATIENCE, STATEFUL, Stage, in_threads, logged, nervous
from tests.transports.http_peer import Request

CROWD = 64

MODE: Any = STATEFUL


def connect(server: SessionServer, **options: Any) -> syncmcp.Client:
    """An open client that does not look for the newest revision first."""
    given: dict[str, Any] = {"mode": MODE, **options}
    return syncmcp.connect(server.url, **given)


def in_the_first_session(act: Callable[[Request], object]) -> Answer:
    """Do `act` to the calls of tools of the first session."""

    def answer(one: Request) -> bool:
        if b"tools/call" in one.body and one.headers["mcp-session-id"] == "session-1":
            act(one)
            return True
        return False

    return answer


class Slow:
    """Keeps the calls of the tool `slow` without an answer."""

    def __init__(self) -> None:
        self.held: list[Request] = []
        self._arrived = threading.Event()

    def __call__(self, one: Request) -> bool:
        if b'"slow"' not in one.body:
            return False
        self.held.append(one)
        self._arrived.set()
        return True

    def call(self, client: syncmcp.Client) -> RequestFuture[CallToolResult]:
        """A call that the server holds."""
        future = client.call_tool.future("slow")
        assert self._arrived.wait(PATIENCE)
        return future


# -- a session that the server has forgotten -------------------------------------------------------
@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
@pytest.mark.parametrize("response", ["json", "sse"])
def test_a_forgotten_session_is_begun_again_and_the_call_answered(response: Any) -> None:
    stage = Stage()
    with serve_http(stage.server, response=response) as http:
        with syncmcp.connect(http.url, mode=MODE) as client:
            first = client.session_id
            http.endpoint.forget_sessions()
            assert client.call_tool("echo", {"text": "a"}).text == "a"
            assert client.call_tool.future("echo", {"text": "b"}).result(PATIENCE).text == "b"
            http.endpoint.forget_sessions()
            assert client.call_tool.future("echo", {"text": "c"}).result(PATIENCE).text == "c"
            assert first is not None
            assert client.session_id not in (None, first)
        with stage.stats as stats:
            assert stats.requests["initialize"] == 3
            assert stats.requests["tools/call"] == 3
            assert stats.sessions == 0


def refusal(message: str, id: Any = None) -> bytes:
    error = {"code": -32000, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode()


@pytest.mark.pitfall("15")
@pytest.mark.parametrize(
    ("body", "lost"),
    [
        (refusal("Bad Request: No valid session ID provided"), True),
        (b"Invalid Session ID", True),
        (refusal("Bad Request: sessions are for those who sleep"), False),
        (refusal("there is no such session", id="other"), False),
        (b"[1]", False),
        (b"", False),
    ],
    ids=repr,
)
def test_a_400_that_speaks_of_the_session_means_that_it_is_lost(body: bytes, lost: bool) -> None:
    json_type = {"Content-Type": "application/json"}
    with session_server() as server, connect(server) as client:
        server.before = in_the_first_session(
            lambda one: one.connection.respond(400, body, json_type)
        )
        if lost:
            assert client.call_tool("pid").text == "session-2"
        else:
            with pytest.raises(syncmcp.McpError) as caught:
                client.call_tool("pid")
            assert not isinstance(caught.value, SessionLost)
            assert server.count("initialize") == 1


@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
@pytest.mark.parametrize("kind", ["calls", "futures"])
def test_all_threads_that_are_refused_at_once_share_one_new_session(kind: str) -> None:
    refused = threading.Barrier(CROWD)

    def refuse_together(one: Request) -> None:
        refused.wait(PATIENCE)
        one.connection.respond(404)

    with session_server() as server, nervous():
        server.before = in_the_first_session(refuse_together)
        with connect(server, retry=None) as client:

            def call() -> str:
                if kind == "futures":
                    return client.call_tool.future("pid").result(6 * PATIENCE).text
                return client.call_tool("pid").text

            assert in_threads(*[call] * CROWD) == ["session-2"] * CROWD
            assert client.server.info is not None
            assert client.server.info.name == "session-2"
        assert server.count("initialize") == 2
        assert server.seen["session-1", "tools/call"] == CROWD
        assert server.seen["session-2", "tools/call"] == CROWD
        assert server.seen["session-1", "DELETE"] == 0  # it is gone anyway


@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15", "16")
@pytest.mark.parametrize("closed", [False, True])
def test_a_lost_session_ends_no_call_but_the_one_that_is_refused(closed: bool) -> None:
    with session_server() as server:
        server.before = slow = Slow()
        with connect(server) as client:
            call = slow.call(client)
            server.forget()
            assert client.call_tool("fast").text == "session-2"
            assert not call.done()
            if not closed:
                server.result(slow.held[0], {"content": [{"type": "text", "text": "done"}]})
                assert call.result(PATIENCE).text == "done"
                assert call.attempts == 1
        assert isinstance(call.exception(PATIENCE), syncmcp.ClosedError if closed else type(None))
        assert len(slow.held) == 1


@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
def test_a_server_that_forgets_at_once_is_not_asked_a_third_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with session_server() as server:
        server.before = on(b"tools/call", act=lambda one: one.connection.respond(404))
        with connect(server) as client:
            logged = caplog.at_level(logging.WARNING, "syncmcp.retry")
            with logged, pytest.raises(SessionLost) as caught:
                client.call_tool("pid")
            assert caught.value.delivery == "refused"
            assert caught.value.attempts == 2
            assert "2 attempts" in str(caught.value)
            assert server.count("tools/call") == 2
            assert "sending tools/call again" in caplog.text
            assert "session-1" not in caplog.text + str(caught.value)
            server.before = lambda one: False
            assert client.call_tool("pid").text == "session-3"


@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
def test_log_level_and_subscriptions_are_asked_for_again_and_nothing_else() -> None:
    with session_server() as server, connect(server, roots=["/tmp"]) as client:
        server.before = on(b'"a:bad"', b'"info"', act=refuse)
        client.set_log_level("debug")
        client.set_log_level("error")
        for uri in ("a:1", "a:2", "a:3"):
            client.subscribe_resource(uri)
        client.unsubscribe_resource("a:2")
        with pytest.raises(syncmcp.ServerError):
            client.subscribe_resource("a:bad")
        with pytest.raises(syncmcp.ServerError):
            client.set_log_level("info")
        client.list_tools()
        server.forget()
        client.call_tool("pid")
        again = [entry[1:] for entry in server.requests if entry[0] == "session-2"]
        for _, params in again:
            if params is not None:
                params.pop("_meta", None)
        assert [entry for entry in again if entry[0] != "GET"] == [
            ("notifications/initialized", None),
            ("logging/setLevel", {"level": "error"}),
            ("resources/subscribe", {"uri": "a:1"}),
            ("resources/subscribe", {"uri": "a:3"}),
            ("tools/call", {"name": "pid"}),
        ]
        client.close()
        client.open()
        assert server.seen["session-3", "resources/subscribe"] == 0


@pytest.mark.requirement("HTL-11", "VER-06")
def test_a_new_session_may_be_of_another_revision_and_declare_less(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with session_server() as server:
        server.listens = True
        with connect(server, mode="legacy") as client:
            server.before = slow = Slow()
            client.set_log_level("error")
            client.subscribe_resource("a:1")
            events = client.listen(uris=["a:2"], timeout=PATIENCE)
            call = slow.call(client)
            server.revision, server.capabilities = "2025-03-26", {"tools": {}}
            server.forget()
            assert client.call_tool("fast").text == "session-2"
            assert client.server.revision == "2025-03-26"
            assert "could not restore a part of the session" in caplog.text
            # Nobody said to try what is not declared.
            with pytest.raises(syncmcp.SubscriptionLost, match="undeclared"):
                next(events)
            events.close()
            assert server.seen["session-2", "resources/subscribe"] == 0
            assert server.seen["session-2", "logging/setLevel"] == 0
            with pytest.raises(NotSupported):
                client.subscribe_resource("a:2")
            structured = {"content": [], "structuredContent": {"n": 1}}
            server.result(slow.held[0], structured)
            assert call.result(PATIENCE).data == {"n": 1}  # in the revision that it was asked in


@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
def test_a_server_that_forgets_each_session_at_once_is_not_asked_for_ever() -> None:
    storm = threading.Event()

    def forget(one: Request) -> bool:
        if b'"initialize"' in one.body and server.count("initialize") > 20:
            storm.set()
        if b'"initialize"' in one.body or b'"notifications/' in one.body:
            return False
        if one.method == "POST":
            one.connection.respond(404)
        return one.method == "POST"

    with session_server() as server, connect(server) as client:
        client.subscribe_resource("a:1")  # which each new session is asked for first
        server.before = forget
        with pytest.raises(SessionLost):
            client.ping()
        assert not storm.wait(1.0)  # a hundred sessions are begun in that time, if anybody does


@pytest.mark.requirement("HTL-11")
def test_a_notification_that_is_refused_goes_to_the_new_session() -> None:
    with session_server() as server, connect(server) as client:
        renamed = {"Mcp-Session-Id": "bad id"}
        server.before = on(
            b"tools/call", act=lambda one: server.result(one, {"content": []}, renamed)
        )
        client.call_tool("pid")
        assert client.session_id == "session-1"  # which only the answer to `initialize` names
        server.forget()
        client.notify("acme/news", {"n": 1})
        assert server.seen["session-1", "acme/news"] == 1
        assert server.seen["session-2", "acme/news"] == 1


# -- going on with the session of another client ---------------------------------------------------
@pytest.mark.requirement("HTL-10", "HTL-14", "M-34")
@pytest.mark.parametrize("mode", ["auto", STATEFUL, "2025-03-26"])
def test_another_client_goes_on_without_a_handshake(mode: Any) -> None:
    with session_server() as server:
        with connect(server) as first:
            target = Http(server.url, session_id=first.session_id)
            with syncmcp.connect(target, mode=mode) as second:
                assert second.session_id == "session-1"
                assert second.call_tool("pid").text == "session-1"
                assert second.list_tools().tools == []
                assert second.server.info is None
                assert second.server.revision == (STATEFUL if mode == "auto" else mode)
        assert server.count("initialize") == 1
        assert server.count("server/discover") == 0
        assert server.seen["session-1", "ping"] == 1


@pytest.mark.parametrize("status", [404, 400])
def test_a_session_that_the_server_no_longer_knows_is_replaced(status: int) -> None:
    def refuse(one: Request) -> bool:
        if one.headers.get("mcp-session-id") == "gone" or b"discover" in one.body:
            one.connection.respond(status)
            return True
        return False

    with session_server() as server:
        server.before = refuse
        target = Http(server.url, session_id="gone", last_event_id="7")
        with syncmcp.connect(target) as client:
            assert client.session_id == "session-1"
            assert client.call_tool("pid").text == "session-1"
        assert (server.seen["gone", "ping"], server.seen["", "ping"]) == (1, 0)


@pytest.mark.requirement("HTL-09", "M-34")
def test_another_client_hears_what_came_after_the_last_event() -> None:
    gets: list[Request] = []
    heard = threading.Event()

    def listen(one: Request) -> bool:
        if one.method != "GET":
            return False
        gets.append(one)
        one.connection.start_events()
        id = len(gets)
        news = {"jsonrpc": "2.0", "method": "acme/news", "params": {"n": id}}
        one.connection.event(news, id=f"e {id}")
        return True

    with session_server() as server:
        server.before = listen
        target = Http(server.url, keep_session=True)
        with syncmcp.connect(
            target, mode=MODE, on_notification=lambda method, params: heard.set()
        ) as first:
            assert heard.wait(PATIENCE)
            session, event = first.session_id, first.last_event_id
        assert (session, event) == ("session-1", "e 1")
        assert server.count("DELETE") == 0
        heard.clear()
        target = Http(server.url, session_id=session, last_event_id=event)
        with syncmcp.connect(target, on_notification=lambda method, params: heard.set()) as second:
            assert heard.wait(PATIENCE)
            assert second.last_event_id == "e 2"
        assert [one.headers.get("last-event-id") for one in gets] == [None, "e 1"]
        assert server.count("DELETE") == 1


@pytest.mark.requirement("HTL-13")
@pytest.mark.parametrize(
    "options",
    [
        *({"session_id": wrong} for wrong in ("a b", "", "ü-secret", 7)),
        *({"last_event_id": wrong} for wrong in ("", "secret\n", 7)),
        {"keep_session": "yes"},
        {"session_id": "s", "transport": "sse"},
        {"last_event_id": "7", "transport": "sse"},
    ],
    ids=str,
)
def test_ids_that_cannot_be_sent_are_refused_and_none_is_shown(options: Any) -> None:
    with pytest.raises(syncmcp.UsageError) as caught:
        Http("http://127.0.0.1:1/mcp", **options)
    assert "secret" not in str(caught.value)
    target = Http("http://127.0.0.1:1/mcp", session_id="abc-session", last_event_id="abc-event")
    assert "abc" not in repr(target) + repr(syncmcp.Client(target))
    assert "session_id=***" in repr(target)
    assert "last_event_id=***" in repr(target)


# -- threads that need one connection --------------------------------------------------------------
@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
def test_threads_that_wait_for_a_new_session_that_cannot_be_had_fail_together() -> None:
    count = 8
    refused, all_told = threading.Barrier(count), threading.Event()

    def fail(one: Request) -> bool:
        if b'"initialize"' in one.body:
            assert all_told.wait(PATIENCE)
            one.connection.respond(500, b"out of order")
        elif b'"tools/call"' in one.body:
            refused.wait(PATIENCE)
            one.connection.respond(404)
        else:
            return False
        return True

    with (
        logged("syncmcp.retry") as said,
        session_server() as server,
        connect(server, retry=None) as client,
    ):
        server.before = fail
        futures = [client.call_tool.future("pid") for _ in range(count)]
        for _ in futures:
            assert "sending tools/call again" in said.get(timeout=PATIENCE)
        all_told.set()
        for future in futures:
            error = future.exception(PATIENCE)
            assert isinstance(error, syncmcp.HttpError)
            assert error.delivery == "not_sent"
        server.before = lambda one: False
        assert client.call_tool("pid").text.startswith("session-")
