"""Event streams over HTTP: kept connections, resumption, listening, and pauses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, count, repeat
from typing import Any

import pytest

from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import (
    ConnectionLost,
    HttpError,
    McpError,
    ProtocolError,
    RequestTimeout,
    SessionLost,
)
from syncmcp.transports.base import Outgoing
from syncmcp.transports.http import SHORTEST_LISTEN_PAUSE, USEFUL_SECONDS, HttpTransport
from tests.support.stage import elsewhere

from .http_peer import (
    WAIT,
    Connection,
    FakeReceiver,
    Held,
    RawServer,
    Request,
    Script,
    calling,
    notification,
    opened,
    request,
    serving,
    settles,
    start,
    streamed,
    withdraw,
)

NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}


def answer(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {}}


def refused(status: int, **headers: str) -> Script:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda one: one.connection.respond(status, headers=given)


not_here = refused(405)


def stateful(call: Script, resume: Script = not_here) -> Script:
    """Return a stateful server with scripts for calls and for resumed streams."""

    def run(one: Request) -> None:
        if one.method != "POST":
            (resume if "last-event-id" in one.headers else not_here)(one)
        elif one.message["method"] == "initialize":
            one.connection.result(one, Mcp_Session_Id="session-1")
        else:
            call(one)

    return run


@contextmanager
def started(script: Script) -> Iterator[tuple[RawServer, HttpTransport, FakeReceiver]]:
    with serving(script) as server, opened(server.url) as (transport, receiver):
        start(transport)
        yield server, transport, receiver


@pytest.mark.parametrize("separate", [True, False])
def test_a_call_answered_by_events_keeps_its_connection(separate: bool) -> None:
    def script(one: Request) -> None:
        if separate:
            before = len(receiver.frames)
            one.connection.stream(NOTE, answer(one.id), end=False)
            # The end of the stream follows after the response has been read.
            receiver.wait_for(lambda: len(receiver.frames) == before + 2)
            one.connection.end_events()
        else:
            one.connection.stream(b":\n", answer(one.id), NOTE)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        for _ in range(5):
            transport.send(request())
    assert not receiver.failures
    assert len(server.connections) == 1
    assert len(receiver.frames) == (10 if separate else 5)  # later messages are ignored


@pytest.mark.pitfall("H2")
def test_each_event_is_delivered_when_it_arrives() -> None:
    seen = [threading.Event(), threading.Event()]

    def script(one: Request) -> None:
        # Without chunks or a length, the body ends with the connection.
        one.connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number, gate in enumerate(seen):
            one.connection.write(b'data: {"n":%d}\n\n' % number)
            assert gate.wait(WAIT)
        one.connection.write(b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % one.id)
        one.connection.close()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        running = elsewhere(partial(transport.send, request()))
        for number, gate in enumerate(seen):
            receiver.wait_for(lambda count=number: len(receiver.frames) == count + 1)  # type: ignore[misc]
            gate.set()
        running.result(WAIT)
    assert not receiver.failures


@pytest.mark.requirement("HTM-08")
def test_comments_are_a_sign_of_life_and_nothing_else() -> None:
    heard = threading.Event()

    def script(one: Request) -> None:
        one.connection.stream(b": ping\n: data: {}\n\n", end=False)
        assert heard.wait(WAIT)
        one.connection.event(answer(one.id))
        one.connection.end_events()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        out = request()
        running = elsewhere(partial(transport.send, out))
        receiver.wait_for(lambda: receiver.signs == [out])
        assert not receiver.frames
        heard.set()
        running.result(WAIT)
    assert len(receiver.frames) == 1


@pytest.mark.pitfall("H6")
def test_as_many_connections_are_kept_as_calls_may_be_open() -> None:
    count = 24
    together = threading.Barrier(count)

    def script(one: Request) -> None:
        together.wait(WAIT)
        one.connection.result(one)

    with serving(script) as server, opened(server.url, max_in_flight=count) as (transport, got):
        for _ in range(2):
            runs = [elsewhere(partial(transport.send, request())) for _ in range(count)]
            for run in runs:
                run.result(WAIT)
        assert not got.failures
    assert len(server.connections) == count


# Resumption


@pytest.mark.requirement("HTL-04", "HTL-07", "HTL-08", "HTL-09", "HTL-10", "HTL-14")
@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_that_ended_is_resumed_when_it_asked_for(clean: bool, pauses: list[float]) -> None:
    pending: list[Any] = []

    def call(one: Request) -> None:
        pending.append(one.id)
        # Longer than the client's own pause.
        first = b"id: first\nretry: 1500\ndata: \n\n"
        if clean:
            one.connection.stream(first)
        else:
            one.connection.stream(first, b"id: second\ndata: {", end=False)
            one.connection.close()

    def resume(one: Request) -> None:
        one.connection.start_events()
        one.connection.event(NOTE, id="second")
        one.connection.event(answer(pending[0]), id="third")
        one.connection.end_events()

    with started(stateful(call, resume)) as (server, transport, receiver):
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


@pytest.mark.parametrize(
    ("resume", "attempts", "error", "words"),
    [
        (streamed(), 3, ConnectionLost, "the event stream ended before the response"),
        (refused(405), 1, HttpError, "405"),
        (refused(400), 1, HttpError, "400"),
        (refused(503), 3, HttpError, "503"),
        # The 404 is about the session: the call itself may have run.
        (refused(404), 1, SessionLost, "no longer knows this session"),
    ],
    ids=["nothing", "405", "400", "503", "404"],
)
@pytest.mark.pitfall("4")
@pytest.mark.usefixtures("pauses")
def test_a_server_that_does_not_resume_leaves_the_outcome_unknown(
    resume: Script, attempts: int, error: type[McpError], words: str
) -> None:
    interrupted = streamed(b"id: 1\nretry: 1\n\n")
    with started(stateful(interrupted, resume)) as (server, transport, receiver):
        transport.send(request(seconds=None))
        assert type(receiver.error) is error
        assert receiver.error.delivery == "unknown"  # type: ignore[attr-defined]
        assert words in str(receiver.error)
    assert sum("last-event-id" in one.headers for one in server.requests) == attempts


def test_an_event_stream_without_an_event_breaks_the_protocol_in_a_session_too() -> None:
    with started(stateful(streamed())) as (_, transport, receiver):
        transport.send(request(seconds=None))
    assert type(receiver.error) is ProtocolError
    assert "empty event stream" in str(receiver.error)


def test_a_listener_that_fails_unexpectedly_ends_the_connection_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(frame: bytes, out: Outgoing | None = None) -> bool:
        if out is None:
            raise ZeroDivisionError("surprise")
        return settles(frame, out)

    with serving(Listening(lasting)) as server, opened(server.url) as (transport, receiver):
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
        one.connection.stream(b"id: 1\nretry: 3600000\n\n")
        waiting.set()

    with started(stateful(call)) as (_, transport, receiver):
        transport.send(request(seconds=0.2))
        assert isinstance(receiver.error, RequestTimeout)
        receiver.failures.clear()
        waiting.clear()
        withdraw(transport, waiting)
        assert not receiver.failures


def test_a_resumption_refused_for_now_is_tried_when_it_is_wanted(pauses: list[float]) -> None:
    asked: list[Any] = []

    def call(one: Request) -> None:
        asked.append(one.id)
        streamed(b"retry: 10\nid: 1\n\n", then=Connection.close)(one)

    def resume(one: Request) -> None:
        asked.append("resumed")
        last = len(asked) > 2
        (streamed(answer(asked[0])) if last else refused(429, Retry_After="23"))(one)

    with started(stateful(call, resume)) as (_, transport, receiver):
        transport.send(request())
        assert not receiver.failures
    assert pauses == [0.05, 23]


@pytest.mark.requirement("HTL-07", "HTL-09")
@pytest.mark.pitfall("22")
def test_a_call_whose_stream_brings_only_ids_polls_twice_a_second(pauses: list[float]) -> None:
    numbers, asked = count(), list[Any]()

    def script(one: Request) -> None:
        number = next(numbers)
        if one.method == "POST":
            asked.append(one.id)
        if number < 4:
            one.connection.stream(b"retry: 0\nid: %d\ndata: \n\n" % number, end=False)
            one.connection.close()
        else:
            one.connection.stream(answer(asked[0]))

    with started(stateful(script, script)) as (_, transport, receiver):
        transport.send(request())
        assert not receiver.failures
    assert pauses == [0.05, 0.5, 0.5, 0.5]


# Listening


class Listening:
    """The GET side of a server, with one script for each stream."""

    def __init__(self, *scripts: Script) -> None:
        self.gets: list[Request] = []
        self._scripts = list(scripts)

    def __call__(self, one: Request) -> None:
        if one.method == "GET":
            self.gets.append(one)
            self._scripts.pop(0)(one)
        elif one.method == "DELETE":
            one.connection.respond(200)
        elif "id" not in one.message:
            one.connection.respond(202)
        else:
            one.connection.result(one, Mcp_Session_Id="session-1")


lasting = streamed(NOTE, then=Connection.hold)


@pytest.mark.requirement("HTL-04", "HTL-10", "HTL-14")
def test_the_listening_stream_opens_with_adopt_and_delivers_what_comes() -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    server_side = Listening(streamed(NOTE, ping, then=Connection.hold))
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
    server_side = Listening(refused(status))
    with started(server_side) as (_, transport, receiver):
        receiver.wait_for(lambda: receiver.is_silent)  # there will be no further request
        assert not receiver.was_heard
        transport.send(request())
        assert (receiver.failures, receiver.ends) == ([], [])
        assert len(server_side.gets) == 1


@pytest.mark.pitfall("4")
@pytest.mark.parametrize("begin", [Connection.start_events, None], ids=["headers", "nothing"])
def test_a_server_that_holds_the_listening_stream_open_delays_nothing(begin: Any) -> None:
    held = Held(begin)
    with started(Listening(held)) as (_, transport, receiver):
        assert held.came.wait(WAIT)
        transport.send(request())
        assert not receiver.failures
        begun = time.monotonic()
        transport.close(Deadline(WAIT))
        assert time.monotonic() - begun < 0.8 * WAIT


def test_the_listening_stream_ends_with_its_session() -> None:
    held = Held(Connection.start_events)
    with started(calling(refused(404), Listening(held))) as (_, transport, receiver):
        assert held.came.wait(WAIT)
        transport.send(request())
        assert isinstance(receiver.error, SessionLost)
        assert held.gone.wait(WAIT)


@pytest.mark.requirement("HTL-07", "HTL-09")
@pytest.mark.usefixtures("pauses")
def test_a_broken_listening_stream_is_reopened_where_it_broke() -> None:
    def first(one: Request) -> None:
        one.connection.stream(b"retry: 10\nid: 41\n\n", end=False)
        one.connection.event(NOTE, id="42")
        one.connection.chunk(b"id: 43\ndata: {")
        one.connection.close()

    server_side = Listening(first, streamed(b": only a comment\n\n"), refused(503), lasting)
    with started(server_side) as (_, _, receiver):
        receiver.wait_for(lambda: len(receiver.frames) == 3)
    last_ids = [get.headers.get("last-event-id") for get in server_side.gets]
    assert last_ids == [None, "42", "42", "42"]


SOME = b'data: {"jsonrpc":"2.0","method":"notifications/y"}\n\n'
with_id = streamed(b"id: 1\n" + SOME)
GAPS: dict[str, tuple[list[Script], int]] = {
    "never interrupted": ([], 0),
    "ended without an event": ([streamed()], 1),
    "ended after an event without an id": ([streamed(SOME)], 1),
    "ended after an event with an id": ([with_id], 0),
    "ended after the id was taken back": ([streamed(b"id: 1\n" + SOME, b"id:\ndata:\n\n")], 1),
    "broken by the network": ([lambda one: one.connection.close()], 1),
    "twice": ([streamed(SOME), streamed(SOME)], 2),
    "refused at first": ([refused(503)], 1),
    "too early": ([refused(429), with_id], 1),
}


@pytest.mark.parametrize(("before", "misses"), GAPS.values(), ids=GAPS)
@pytest.mark.usefixtures("pauses")
def test_messages_may_be_missing_unless_an_id_resumes(before: list[Script], misses: int) -> None:
    server_side = Listening(*before, lasting)
    seen: list[int] = []
    with serving(server_side) as server, opened(server.url) as (transport, receiver):
        receive = receiver.receive

        def note(frame: bytes, out: Outgoing | None = None) -> bool:
            if b"notifications/x" in frame:
                seen.append(receiver.misses)  # reported before the first message of the new stream
            return receive(frame, out)

        receiver.receive = note  # type: ignore[method-assign]
        start(transport)
        receiver.wait_for(lambda: seen == [misses])
        assert not receiver.is_silent
    assert len(server_side.gets) == len(before) + 1


@pytest.mark.pitfall("4")
@pytest.mark.usefixtures("pauses")
def test_a_listening_stream_that_never_brings_anything_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(one: Request) -> None:
        one.connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        one.connection.close()

    told_to_hurry = streamed(b"retry: 1\n\n", then=Connection.close)
    server_side = Listening(told_to_hurry, broken, refused(500), broken)
    with started(server_side) as (_, transport, receiver):
        receiver.wait_for(lambda: receiver.is_silent)
        assert receiver.was_heard
        transport.send(request())
        assert not receiver.failures
    assert len(server_side.gets) == 4
    told = [one.levelname for one in caplog.records if "stopped listening" in one.getMessage()]
    assert told == ["WARNING"]  # a WARNING, because a stream was open before


# The pauses before a listening stream is opened again


def listened_to(*streams: Script) -> int:
    """Listen to these streams and one that stays open; return how often messages were missed."""
    staying = Held(Connection.start_events)
    with started(Listening(*streams, staying)) as (_, transport, receiver):
        assert staying.came.wait(WAIT)
        transport.send(request())
        assert (receiver.failures, receiver.ends) == ([], [])
    return receiver.misses


closed_at_once = streamed(b"retry: 0\nid: 7\n\n: a comment\n\n", then=Connection.close)


def test_a_stream_cut_all_the_time_is_missed_twice_a_second_at_most(pauses: list[float]) -> None:
    """Each miss makes listeners fetch lists that may have changed."""
    assert listened_to(*[streamed(b"retry: 0\n" + SOME)] * 20) == len(pauses) == 20
    assert min(pauses) == SHORTEST_LISTEN_PAUSE == 0.5


@pytest.mark.requirement("HTL-15")
@pytest.mark.pitfall("22")
def test_a_stream_of_comments_that_is_cut_all_the_time_is_kept(pauses: list[float]) -> None:
    listened_to(*[streamed(b": nothing new\n\n", then=Connection.close)] * 12)
    assert len(pauses) == 12
    assert pauses[-1] >= 30


def test_a_message_on_a_listening_stream_lets_the_pauses_begin_anew(pauses: list[float]) -> None:
    news = streamed({"jsonrpc": "2.0", "method": "acme/news"}, then=Connection.close)
    listened_to(*[closed_at_once] * 4, news, closed_at_once, closed_at_once)
    assert pauses[3] >= 4
    assert 0.5 <= pauses[4] <= 0.625
    assert 1.0 <= pauses[6] <= 2.5


def test_a_listening_stream_that_was_open_for_seconds_lets_the_pauses_begin_anew(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = chain([0.0] * 8, [0.0, USEFUL_SECONDS], repeat(0.0))  # two times for each stream
    monkeypatch.setattr("syncmcp.transports.http.monotonic", looks.__next__)
    listened_to(*[closed_at_once] * 6)
    assert pauses[3] >= 4
    assert 0.5 <= pauses[4] <= 0.625
    assert pauses[5] >= 1


@pytest.mark.pitfall("22")
def test_a_stream_refused_for_now_is_asked_for_when_it_is_wanted(pauses: list[float]) -> None:
    listened_to(refused(503, Retry_After="17"))
    assert pauses == [17]
