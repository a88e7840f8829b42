"""Sessions over HTTP: replacing lost sessions, resuming sessions of other clients, and pings."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    ClosedError,
    ConnectionLost,
    Http,
    NotSupported,
    OutcomeUnknown,
    RequestFuture,
    RequestTimeout,
    SessionLost,
)
from syncmcp.testing import Server
from syncmcp.types import CallToolResult, Implementation
from tests.support.moved_time import MovedTime
from tests.support.session_server import Answer, SessionServer, on, refuse, session_server
from tests.support.shops import known
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Stage,
    Wire,
    in_threads,
    logged,
    nervous,
    rotated_stateful,
)
from tests.transports.http_peer import Request

CROWD = 64

MODE: Any = STATEFUL


def connect(server: SessionServer, **options: Any) -> syncmcp.Client:
    """Connect without probing for the newest revision."""
    given: dict[str, Any] = {"mode": MODE, **options}
    return syncmcp.connect(server.url, **given)


def in_the_first_session(server: SessionServer, act: Callable[[Request], object]) -> Answer:
    """Return a hook that calls `act` for the tool calls of the first session."""
    answer = on(b"tools/call", act=act)
    return lambda one: server.known == "session-1" and answer(one)


def held_call(
    client: syncmcp.Client, server: SessionServer
) -> tuple[RequestFuture[CallToolResult], Request]:
    """Return the future of a call that the server holds, and the request."""
    held: SimpleQueue[Request] = SimpleQueue()
    server.before = on(b'"slow"', act=held.put)
    return client.call_tool.future("slow"), held.get(timeout=PATIENCE)


# -- lost sessions ---------------------------------------------------------------------------------
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
        (b"[1]", False),
        (b"", False),
    ],
    ids=repr,
)
def test_a_400_that_speaks_of_the_session_means_that_it_is_lost(body: bytes, lost: bool) -> None:
    json_type = {"Content-Type": "application/json"}
    with session_server() as server, connect(server) as client:
        server.before = in_the_first_session(
            server, lambda one: one.connection.respond(400, body, json_type)
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
        server.before = in_the_first_session(server, refuse_together)
        with connect(server, retry=None) as client:

            def call() -> str:
                if kind == "futures":
                    return client.call_tool.future("pid").result(6 * PATIENCE).text
                return client.call_tool("pid").text

            assert in_threads(*[call] * CROWD) == ["session-2"] * CROWD
            assert client.server.info == Implementation(name="session-2", version="1")
            assert client.session_id == "session-2"
        assert server.count("initialize") == 2
        assert server.seen["session-1", "tools/call"] == CROWD
        assert server.seen["session-2", "tools/call"] == CROWD
        assert server.seen["session-1", "DELETE"] == 0  # no need to end a lost session


@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15", "16")
@pytest.mark.parametrize("closed", [False, True])
def test_a_lost_session_ends_no_call_but_the_one_that_is_refused(closed: bool) -> None:
    with session_server() as server:
        with connect(server) as client:
            call, request = held_call(client, server)
            server.forget()
            assert client.call_tool("fast").text == "session-2"
            assert not call.done()
            if not closed:
                server.result(request, {"content": [{"type": "text", "text": "done"}]})
                assert call.result(PATIENCE).text == "done"
                assert call.attempts == 1
        assert isinstance(call.exception(PATIENCE), syncmcp.ClosedError if closed else type(None))
        assert sum((params or {}).get("name") == "slow" for *_, params in server.requests) == 1


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
        again = [
            (method, params and {key: params[key] for key in params if key != "_meta"})
            for session, method, params in server.requests
            if session == "session-2" and method != "GET"
        ]
        assert again == [
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
            client.set_log_level("error")
            client.subscribe_resource("a:1")
            events = client.listen(uris=["a:2"], timeout=PATIENCE)
            call, request = held_call(client, server)
            server.revision, server.capabilities = "2025-03-26", {"tools": {}}
            server.forget()
            assert client.call_tool("fast").text == "session-2"
            assert client.server.revision == "2025-03-26"
            assert "could not restore a part of the session" in caplog.text
            # The program did not ask to try undeclared features.
            with pytest.raises(syncmcp.SubscriptionLost, match="undeclared"):
                next(events)
            events.close()
            assert server.seen["session-2", "resources/subscribe"] == 0
            assert server.seen["session-2", "logging/setLevel"] == 0
            with pytest.raises(NotSupported):
                client.subscribe_resource("a:2")
            server.result(request, {"content": [], "structuredContent": {"n": 1}})
            assert call.result(PATIENCE).data == {"n": 1}  # read by the revision of its own session


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
        client.subscribe_resource("a:1")  # each new session begins with this request
        server.before = forget
        with pytest.raises(SessionLost):
            client.ping()
        assert not storm.wait(1.0)  # without a limit: about 100 sessions in this time


@pytest.mark.requirement("HTL-11")
def test_a_notification_that_is_refused_goes_to_the_new_session() -> None:
    with session_server() as server, connect(server) as client:
        bad = {"Mcp-Session-Id": "bad id"}
        server.before = on(b"tools/call", act=lambda one: server.result(one, {"content": []}, bad))
        client.call_tool("pid")
        assert client.session_id == "session-1"  # only `initialize` sets the session id
        server.forget()
        client.notify("acme/news", {"n": 1})
        assert server.seen["session-1", "acme/news"] == 1
        assert server.seen["session-2", "acme/news"] == 1


# -- resuming the session of another client --------------------------------------------------------
@pytest.mark.requirement("HTL-10", "HTL-14", "M-34")
@pytest.mark.parametrize("mode", ["auto", "2025-03-26"])
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


def test_a_session_that_the_server_no_longer_knows_is_replaced() -> None:
    def refuse(one: Request) -> bool:
        if one.headers.get("mcp-session-id") == "gone" or b"discover" in one.body:
            one.connection.respond(404)
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
    heard = threading.Semaphore(0)
    options: dict[str, Any] = {"on_notification": lambda method, params: heard.release()}

    def listen(one: Request) -> bool:
        if one.method != "GET":
            return False
        gets.append(one)
        one.connection.start_events()
        news = {"jsonrpc": "2.0", "method": "acme/news"}
        one.connection.event(news, id=f"e {len(gets)}")
        return True

    with session_server() as server:
        server.before = listen
        target = Http(server.url, keep_session=True)
        with syncmcp.connect(target, mode=MODE, **options) as first:
            assert heard.acquire(timeout=PATIENCE)
            session, event = first.session_id, first.last_event_id
        assert (session, event) == ("session-1", "e 1")
        assert server.count("DELETE") == 0
        target = Http(server.url, session_id=session, last_event_id=event)
        with syncmcp.connect(target, **options) as second:
            assert heard.acquire(timeout=PATIENCE)
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


watching = pytest.mark.requirement("RPC-25")
INTERVAL = 600.0
PATIENT: dict[str, Any] = {"ping_interval": INTERVAL, "timeout": None, "idle_timeout": None}

# A hook that leaves pings without an answer.
silent = on(b'"ping"', act=lambda one: None)


class Pings:
    """Triggers the pings of a client, and checks that the server gets them."""

    def __init__(self, client: syncmcp.Client, moved: MovedTime, count: Callable[[], int]) -> None:
        self.sent = 0
        self._client, self._moved, self._count = client, moved, count
        self._last: object = None

    def send(self) -> None:
        """Move the clock by one interval, and wait until the server has the ping."""
        self._moved.waits_for(INTERVAL)
        self._last = self._entry()
        self._moved.advance(INTERVAL)
        self.sent += 1
        known(lambda: self._count() == self.sent)

    def answered(self) -> None:
        """Trigger a ping, and wait for the client to process its answer."""
        self.send()
        known(lambda: self._entry() is not self._last)

    def missed(self) -> None:
        """Trigger a ping that is not answered within an interval."""
        self.send()
        self._moved.waits_for(INTERVAL)
        self._moved.advance(INTERVAL)

    def _entry(self) -> object:
        heartbeat = self._client._core._heartbeat
        return heartbeat and heartbeat._entry


@rotated_stateful
@watching
def test_a_ping_is_sent_in_each_interval_until_the_close(wire: Wire, moved: MovedTime) -> None:
    stage = Stage()
    with wire.connect(stage.server, **PATIENT) as client:
        pings = Pings(client, moved, lambda: stage.stats.requests["ping"])
        for _ in range(3):
            pings.answered()
        heartbeat = client._core._heartbeat
        assert heartbeat is not None
        client.close()
        moved.advance(10 * INTERVAL)
        heartbeat._check()  # as if a ping had been due at the moment of closing
        assert stage.stats.requests["ping"] == 3


@pytest.mark.parametrize(
    "options", [{"mode": STATEFUL}, {"mode": STATELESS, "ping_interval": INTERVAL}]
)
@watching
def test_no_pings_are_sent(options: Any, moved: MovedTime) -> None:
    server = Server()
    with syncmcp.connect(server, **options) as client:
        assert client._core._heartbeat is None
        moved.advance(10 * INTERVAL)
        assert server.stats.requests["ping"] == 0


@pytest.mark.pitfall("5")
@watching
def test_two_misses_in_a_row_end_every_call(
    moved: MovedTime, caplog: pytest.LogCaptureFixture
) -> None:
    def hold(one: Request) -> bool:
        return b'"slow"' in one.body or b'"a:slow"' in one.body or silent(one)

    with session_server() as server:
        server.before = hold
        with connect(server, retry=None, **PATIENT) as client:
            pings = Pings(client, moved, lambda: server.count("ping"))
            tool = client.call_tool.future("slow")
            read = client.read_resource.future("a:slow")
            for method in ("tools/call", "resources/read"):  # wait until both requests are sent
                server.wait_for(partial(server.seen.__contains__, ("session-1", method)))
            pings.missed()
            assert not tool.done()
            pings.missed()
            assert isinstance(tool.exception(PATIENCE), OutcomeUnknown)
            error = read.exception(PATIENCE)
            assert type(error) is ConnectionLost
            assert "ping_interval" in str(error)
            assert caplog.text.count("no response to a ping") == 2
            server.before = lambda one: False
            assert client.call_tool("fast").text == "session-2"
            pings.answered()  # a ping of the new connection


@watching
def test_an_answer_forgives_the_miss_before(
    moved: MovedTime, caplog: pytest.LogCaptureFixture
) -> None:
    with session_server() as server, connect(server, **PATIENT) as client:
        pings = Pings(client, moved, lambda: server.count("ping"))
        server.before = silent
        pings.missed()
        server.before = lambda one: False
        pings.answered()
        server.before = silent
        pings.missed()
        moved.waits_for(INTERVAL)  # the client waits for the next ping
        assert client.call_tool("pid").text == "session-1"
        assert caplog.text.count("no response to a ping (1)") == 2


@pytest.mark.pitfall("15")
@watching
def test_a_refusal_of_a_ping_is_an_answer_and_a_lost_session_begun_again(moved: MovedTime) -> None:
    with session_server() as server, connect(server, **PATIENT) as client:
        pings = Pings(client, moved, lambda: server.count("ping"))
        server.before = on(b'"ping"', act=refuse)
        for _ in range(3):
            pings.answered()
        assert client.call_tool("pid").text == "session-1"
        server.before = lambda one: False
        server.forget()
        pings.send()
        known(lambda: server.count("initialize") == 2)
        assert client.call_tool("pid").text == "session-2"


@pytest.mark.pitfall("4")
@watching
def test_a_ping_waits_in_no_line_and_is_no_sign_of_life_of_a_call(moved: MovedTime) -> None:
    reported, stage = threading.Event(), Stage()
    with syncmcp.connect(stage.server, mode=MODE, max_in_flight=1, **PATIENT) as client:
        pings = Pings(client, moved, lambda: stage.stats.requests["ping"])
        future = client.call_tool.future(
            "hold", {"key": "a"}, idle_timeout=2.5 * INTERVAL, on_progress=lambda *_: reported.set()
        )
        [context] = stage.inside("a")
        context.report_progress(1)
        assert reported.wait(PATIENCE)
        for _ in range(2):
            pings.answered()
        assert not future.done()
        moved.advance(0.5 * INTERVAL)
        error = future.exception(PATIENCE)
        assert isinstance(error, RequestTimeout)
        assert error.kind == "idle"


@watching
def test_closing_ends_a_ping_under_way(moved: MovedTime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "syncmcp.connection")
    with session_server() as server:
        server.before = silent
        client = connect(server, **PATIENT)
        Pings(client, moved, lambda: server.count("ping")).send()
        client.close()
        with pytest.raises(ClosedError):
            client.ping()
        moved.advance(10 * INTERVAL)
        assert server.count("ping") == 1
    assert "no answer" not in caplog.text
