"""Event streams over HTTP: kept connections, resumption, and listening."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import (
    ConnectionLost,
    HttpError,
    LimitExceeded,
    ProtocolError,
    RequestTimeout,
    SessionLost,
)
from syncmcp.transports.base import Outgoing
from syncmcp.transports.http import SHORTEST_LISTEN_PAUSE

from .http_peer import (
    WAIT,
    Request,
    Running,
    Script,
    logged,
    notification,
    opened,
    request,
    serving,
    settles,
)

NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}


def answer(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {}}


def stateful(script: Script, get: Callable[[Request], None] | None = None) -> Script:
    """A server of the stateful era whose calls and GET requests are scripted."""

    def run(one: Request) -> None:
        if one.method == "GET" and (get is None or "last-event-id" not in one.headers):
            one.connection.respond(405)
        elif one.method == "GET":
            assert get is not None
            get(one)
        elif one.method == "DELETE":
            one.connection.respond(405)
        elif one.message["method"] == "initialize":
            one.connection.result(one, Mcp_Session_Id="session-1")
        else:
            script(one)

    return run


def start(transport: Any) -> None:
    transport.send(request("initialize"))
    transport.adopt({"MCP-Protocol-Version": "2025-11-25"}, stateful=True)


def cut(one: Request) -> None:
    one.connection.close()


@pytest.mark.parametrize("separate", [True, False])
def test_a_call_answered_by_events_keeps_its_connection(separate: bool) -> None:
    receivers: list[Any] = []

    def script(one: Request) -> None:
        connection = one.connection
        connection.start_events()
        if separate:
            frames = receivers[0].frames
            before = len(frames)
            connection.event(NOTE)
            connection.event(answer(one.id))
            # The end of the stream comes later than the answer.
            receivers[0].wait_for(lambda: len(frames) == before + 2)
            connection.end_events()
        else:
            connection.write(b"2\r\n:\n\r\n")
            connection.event(answer(one.id))
            connection.event(NOTE)
            connection.end_events()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        receivers.append(receiver)
        for _ in range(5):
            transport.send(request())
    assert not receiver.failures
    assert len(server.connections) == 1
    assert len(receiver.frames) == (10 if separate else 5)  # nothing counts after the answer


def test_a_stream_that_does_not_end_after_the_answer_holds_nobody() -> None:
    def script(one: Request) -> None:
        one.connection.start_events()
        one.connection.event(answer(one.id))
        assert one.connection.wait_for_end()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        for _ in range(2):
            started = time.monotonic()
            transport.send(request())
            assert time.monotonic() - started < 0.8 * WAIT
    assert len(receiver.frames) == 2
    assert len(server.connections) == 2


@pytest.mark.pitfall("H2")
def test_each_event_is_delivered_when_it_arrives() -> None:
    seen = [threading.Event(), threading.Event()]

    def script(one: Request) -> None:
        # Not chunked: the end of the body is the end of the connection.
        one.connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number, gate in enumerate(seen):
            one.connection.write(b'data: {"n":%d}\n\n' % number)
            assert gate.wait(WAIT)
        one.connection.write(b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % one.id)
        one.connection.close()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        running = Running(transport, request())
        for number, gate in enumerate(seen):
            receiver.wait_for(lambda count=number: len(receiver.frames) == count + 1)  # type: ignore[misc]
            gate.set()
        running.join()
    assert not receiver.failures


@pytest.mark.requirement("HTM-08")
def test_comments_are_a_sign_of_life_and_nothing_else() -> None:
    heard = threading.Event()

    def script(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b": ping\n: data: {}\n\n")
        assert heard.wait(WAIT)
        one.connection.event(answer(one.id))
        one.connection.end_events()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        out = request()
        running = Running(transport, out)
        receiver.wait_for(lambda: receiver.signs == [out])
        assert not receiver.frames
        heard.set()
        running.join()
    assert len(receiver.frames) == 1


def test_an_event_beyond_the_limit_ends_the_call() -> None:
    def script(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b"data: " + b"x" * 2000)
        assert one.connection.wait_for_end()

    with serving(script) as server, opened(Http(server.url, max_body=1000)) as (transport, got):
        transport.send(request())
    assert isinstance(got.error, LimitExceeded)
    assert "max_body=1000" in str(got.error)


# Resumption


@pytest.mark.requirement("HTL-04", "HTL-07", "HTL-08", "HTL-09", "HTL-10", "HTL-14")
@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_that_ended_early_is_resumed_after_the_time_the_server_asked_for(
    clean: bool, pauses: list[float]
) -> None:
    pending: list[Any] = []

    def call(one: Request) -> None:
        pending.append(one.id)
        one.connection.start_events()
        # More than a client would wait by itself.
        one.connection.chunk(b"id: first\nretry: 1500\ndata: \n\n")
        if clean:
            one.connection.end_events()
        else:
            one.connection.chunk(b"id: second\ndata: {")
            cut(one)

    def resume(one: Request) -> None:
        one.connection.start_events()
        one.connection.event(NOTE, id="second")
        one.connection.event(answer(pending[0]), id="third")
        one.connection.end_events()

    with serving(stateful(call, resume)) as server, opened(server.url) as (transport, receiver):
        start(transport)
        out = request()
        transport.send(out)
        assert not receiver.failures
    assert [o for _, o in receiver.frames[1:]] == [out, out]
    [get] = [one for one in server.requests if "last-event-id" in one.headers]
    assert get.method == "GET"
    assert get.headers["last-event-id"] == "first"
    assert get.headers["accept"] == "text/event-stream"
    assert get.headers["mcp-session-id"] == "session-1"
    assert get.headers["mcp-protocol-version"] == "2025-11-25"
    assert pauses == [1.5]


def interrupted(one: Request) -> None:
    one.connection.start_events()
    one.connection.chunk(b"id: 1\nretry: 1\n\n")
    one.connection.end_events()


@pytest.mark.pitfall("4")
@pytest.mark.usefixtures("pauses")
def test_resuming_that_brings_nothing_is_given_up() -> None:
    def resume(one: Request) -> None:
        one.connection.start_events()
        one.connection.end_events()

    with serving(stateful(interrupted, resume)) as server, opened(server.url) as (transport, got):
        start(transport)
        transport.send(request(seconds=None))
        assert type(got.error) is ConnectionLost
        assert got.error.delivery == "unknown"
    assert sum("last-event-id" in one.headers for one in server.requests) == 3


@pytest.mark.parametrize(
    ("status", "attempts", "error", "words"),
    [
        (405, 1, HttpError, "405"),
        (400, 1, HttpError, "400"),
        (503, 3, HttpError, "503"),
        # Which does not mean that the call was refused.
        (404, 1, SessionLost, "no longer knows this session"),
    ],
)
@pytest.mark.usefixtures("pauses")
def test_a_server_that_does_not_resume_leaves_the_outcome_unknown(
    status: int, attempts: int, error: type[Exception], words: str
) -> None:
    def resume(one: Request) -> None:
        one.connection.respond(status)

    with serving(stateful(interrupted, resume)) as server, opened(server.url) as (transport, got):
        start(transport)
        transport.send(request(seconds=None))
        assert type(got.error) is error
        assert got.error.delivery == "unknown"  # type: ignore[attr-defined]
        assert words in str(got.error)
    assert sum("last-event-id" in one.headers for one in server.requests) == attempts


def test_an_event_stream_without_a_single_event_breaks_the_protocol() -> None:
    def empty(one: Request) -> None:
        one.connection.start_events()
        one.connection.end_events()

    with serving(stateful(empty)) as server, opened(server.url) as (transport, got):
        start(transport)
        transport.send(request(seconds=None))
    assert type(got.error) is ProtocolError
    assert "empty event stream" in str(got.error)


def test_a_listener_that_fails_unexpectedly_ends_the_connection_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def hold(one: Request) -> None:
        one.connection.start_events()
        one.connection.event({"jsonrpc": "2.0", "method": "notifications/x"})
        assert one.connection.wait_for_end()

    def fail(frame: bytes, out: Outgoing | None = None) -> bool:
        if out is None:
            raise ZeroDivisionError("surprise")
        return settles(frame, out)

    with serving(Listening(hold)) as server, opened(server.url) as (transport, receiver):
        receiver.receive = fail  # type: ignore[method-assign]
        start(transport)
        receiver.wait_for(lambda: bool(receiver.ends))
    [error] = receiver.ends
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert [one.levelname for one in caplog.records if one.exc_info] == ["ERROR"]


@pytest.mark.pitfall("4", "H1b")
def test_a_wait_before_resuming_ends_with_the_deadline_or_when_withdrawn() -> None:
    waiting = threading.Event()

    def call(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b"id: 1\nretry: 3600000\n\n")
        one.connection.end_events()
        waiting.set()

    with serving(stateful(call)) as server, opened(server.url) as (transport, receiver):
        start(transport)
        transport.send(request(seconds=0.2))
        assert isinstance(receiver.error, RequestTimeout)
        receiver.failures.clear()
        waiting.clear()
        out = request(seconds=None)
        running = Running(transport, out)
        assert waiting.wait(WAIT)
        assert transport.cancel(out) == "unknown"
        running.join()
        assert not receiver.failures


# Listening


class Listening:
    """The GET side of a server, one script per stream opened."""

    def __init__(self, *scripts: Script) -> None:
        self.gets: list[Request] = []
        self._scripts = list(scripts)
        self.all_done = threading.Event()

    def __call__(self, one: Request) -> None:
        if one.method == "GET":
            self.gets.append(one)
            script = self._scripts.pop(0)
            script(one)
            if not self._scripts:
                self.all_done.set()
        elif one.method == "DELETE":
            one.connection.respond(200)
        elif "id" not in one.message:
            one.connection.respond(202)
        else:
            one.connection.result(one, Mcp_Session_Id="session-1")


@pytest.mark.requirement("HTL-04", "HTL-10", "HTL-14")
def test_the_listening_stream_opens_with_adopt_and_delivers_what_comes() -> None:
    def stream(one: Request) -> None:
        one.connection.start_events()
        one.connection.event(NOTE)
        one.connection.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert one.connection.wait_for_end()

    server_side = Listening(stream)
    theirs = {"accept": "application/json", "Content-Type": "text/html"}
    with (
        serving(server_side) as server,
        opened(Http(server.url, headers=theirs)) as (transport, receiver),
    ):
        transport.send(request("initialize"))
        transport.send(notification())
        assert not server_side.gets
        transport.adopt({"MCP-Protocol-Version": "2025-11-25"}, stateful=True)
        receiver.wait_for(lambda: len(receiver.frames) == 3)
        names = {thread.name for thread in threading.enumerate()}
        assert any(name.startswith("syncmcp-listen[http://127.0.0.1") for name in names)
    [get] = server_side.gets
    assert get.headers["accept"] == "text/event-stream"
    assert get.headers["mcp-session-id"] == "session-1"
    assert get.headers["mcp-protocol-version"] == "2025-11-25"
    assert "content-type" not in get.headers
    assert [out for _, out in receiver.frames[1:]] == [None, None]
    assert not receiver.failures


@pytest.mark.requirement("HTL-05")
@pytest.mark.parametrize("status", [405, 404, 400, 401, 406])
def test_a_server_without_a_listening_stream_is_asked_once(status: int) -> None:
    server_side = Listening(lambda one: one.connection.respond(status))
    with (
        logged("no stream to listen to") as stopped,
        serving(server_side) as server,
        opened(server.url) as (transport, receiver),
    ):
        start(transport)
        assert stopped.wait()
        receiver.wait_for(lambda: receiver.is_silent)  # nobody will ask again
        assert not receiver.was_heard
        transport.send(request())
        assert not receiver.failures
        assert not receiver.ends
        assert len(server_side.gets) == 1


@pytest.mark.pitfall("4")
@pytest.mark.parametrize("headers", [True, False])
def test_a_server_that_holds_the_listening_stream_open_delays_nothing(headers: bool) -> None:
    held = threading.Event()

    def hold(one: Request) -> None:
        if headers:
            one.connection.start_events()
        held.set()
        assert one.connection.wait_for_end()

    with serving(Listening(hold)) as server, opened(server.url) as (transport, receiver):
        start(transport)
        assert held.wait(WAIT)
        transport.send(request())
        assert not receiver.failures
        started = time.monotonic()
        transport.close(Deadline(WAIT))
        assert time.monotonic() - started < 0.8 * WAIT


def test_the_listening_stream_ends_with_its_session() -> None:
    held, ended = threading.Event(), threading.Event()

    def hold(one: Request) -> None:
        one.connection.start_events()
        held.set()
        assert one.connection.wait_for_end()
        ended.set()

    listening = Listening(hold)

    def script(one: Request) -> None:
        if one.method == "POST" and one.message["method"] == "tools/call":
            one.connection.respond(404)
        else:
            listening(one)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        start(transport)
        assert held.wait(WAIT)
        transport.send(request())
        assert isinstance(receiver.error, SessionLost)
        assert ended.wait(WAIT)


@pytest.mark.requirement("HTL-07", "HTL-09")
@pytest.mark.usefixtures("pauses")
def test_a_broken_listening_stream_is_reopened_where_it_broke() -> None:
    def first(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b"retry: 10\nid: 41\n\n")
        one.connection.event(NOTE, id="42")
        one.connection.chunk(b"id: 43\ndata: {")
        cut(one)

    def second(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b": only a comment\n\n")
        one.connection.end_events()

    def third(one: Request) -> None:
        one.connection.respond(503)

    def last(one: Request) -> None:
        one.connection.start_events()
        one.connection.event(NOTE, id="44")
        assert one.connection.wait_for_end()

    server_side = Listening(first, second, third, last)
    with serving(server_side) as server, opened(server.url) as (transport, receiver):
        start(transport)
        receiver.wait_for(lambda: len(receiver.frames) == 3)
    assert [get.headers.get("last-event-id") for get in server_side.gets] == [
        None,
        "42",
        "42",
        "42",
    ]


def broken_off(*events: bytes) -> Script:
    """A stream that ends after these events."""

    def script(one: Request) -> None:
        one.connection.start_events()
        for event in events:
            one.connection.chunk(event + b"\n\n")
        one.connection.end_events()

    return script


def lasting(one: Request) -> None:
    one.connection.start_events()
    one.connection.event(NOTE)
    assert one.connection.wait_for_end()


SOME = b'data: {"jsonrpc":"2.0","method":"notifications/y"}'
GAPS: dict[str, tuple[list[Script], int]] = {
    "never interrupted": ([], 0),
    "ended without an event": ([broken_off()], 1),
    "ended after an event without an id": ([broken_off(SOME)], 1),
    "ended after an event with an id": ([broken_off(b"id: 1\n" + SOME)], 0),
    "ended after the id was taken back": ([broken_off(b"id: 1\n" + SOME, b"id:\ndata:")], 1),
    "broken by the network": ([cut], 1),
    "twice": ([broken_off(SOME), broken_off(SOME)], 2),
    "refused at first": ([lambda one: one.connection.respond(503)], 1),
    "too early": ([lambda one: one.connection.respond(429), broken_off(b"id: 1\n" + SOME)], 1),
}


@pytest.mark.parametrize(("before", "misses"), GAPS.values(), ids=GAPS)
@pytest.mark.usefixtures("pauses")
def test_messages_may_be_missing_unless_the_stream_is_resumed_by_an_id(
    before: list[Script], misses: int
) -> None:
    server_side = Listening(*before, lasting)
    seen: list[int] = []
    with serving(server_side) as server, opened(server.url) as (transport, receiver):
        receive = receiver.receive

        def note(frame: bytes, out: Outgoing | None = None) -> bool:
            if b"notifications/x" in frame:
                seen.append(receiver.misses)  # said before anything of the new stream is received
            return receive(frame, out)

        receiver.receive = note  # type: ignore[method-assign]
        start(transport)
        receiver.wait_for(lambda: seen == [misses])
        assert not receiver.is_silent
    assert len(server_side.gets) == len(before) + 1


def test_a_stream_cut_all_the_time_is_missed_twice_a_second_at_most(pauses: list[float]) -> None:
    """Each time listeners fetch what may have changed."""
    server_side = Listening(*[broken_off(b"retry: 0\n" + SOME)] * 20, lasting)
    with serving(server_side) as server, opened(server.url) as (transport, receiver):
        start(transport)
        receiver.wait_for(lambda: any(b"notifications/x" in frame for frame, _ in receiver.frames))
    assert receiver.misses == len(pauses) == 20
    assert min(pauses) == SHORTEST_LISTEN_PAUSE == 0.5


@pytest.mark.pitfall("4")
@pytest.mark.usefixtures("pauses")
def test_a_listening_stream_that_never_brings_anything_is_given_up() -> None:
    def broken(one: Request) -> None:
        one.connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        cut(one)

    def told_to_hurry(one: Request) -> None:
        one.connection.start_events()
        one.connection.chunk(b"retry: 1\n\n")
        cut(one)

    def away(one: Request) -> None:
        one.connection.respond(500)

    server_side = Listening(told_to_hurry, broken, away, broken)
    with (
        logged("gave up listening") as gave_up,
        serving(server_side) as server,
        opened(server.url) as (transport, receiver),
    ):
        start(transport)
        assert gave_up.wait()
        assert gave_up.level_seen == logging.WARNING  # as it worked once
        receiver.wait_for(lambda: receiver.is_silent)
        assert receiver.was_heard
        transport.send(request())
        assert not receiver.failures
    assert len(server_side.gets) == 4


@pytest.mark.pitfall("H6")
def test_as_many_connections_are_kept_as_calls_may_be_open() -> None:
    count = 24
    together = threading.Barrier(count)

    def script(one: Request) -> None:
        together.wait(WAIT)
        one.connection.result(one)

    with serving(script) as server, opened(server.url, max_in_flight=count) as (transport, got):
        for _ in range(2):
            runs = [Running(transport, request()) for _ in range(count)]
            for run in runs:
                run.join()
        assert not got.failures
    assert len(server.connections) == count
