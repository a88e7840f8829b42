"""Time limits of HTTP transports and the memory transport, mostly by a clock that tests move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import requests

from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import ConnectionLost
from syncmcp.transports import http as http_module
from syncmcp.transports.http import ReconnectPolicy
from syncmcp.transports.memory import MemoryTransport
from tests.support.moved_time import MovedTime
from tests.support.parts import Exchange, raising
from tests.support.stage import PATIENCE
from tests.transports._stdio import Notes, frame
from tests.transports.http_peer import (
    Held,
    Noting,
    Request,
    notification,
    opened,
    request,
    serving,
    start,
)
from tests.transports.old_peer import connected, old_server
from tests.transports.test_http_exchange import answer
from tests.transports.test_sse import Hasty

LIMIT = 600.0


# -- one exchange


def test_an_adapter_of_the_program_is_told_the_time_that_is_left(moved: MovedTime) -> None:
    noting = Noting()
    with requests.Session() as session, serving(answer) as server:
        session.mount("http://", noting)
        with opened(Http(server.url, session=session)) as (transport, _):
            transport.send(request(seconds=LIMIT))
            transport.send(request(seconds=None))
    assert noting.limits == [(LIMIT, LIMIT), (None, None)]


def test_an_exchange_is_looked_at_a_quarter_second_after_its_deadline(moved: MovedTime) -> None:
    """The timer waits for the earliest deadline. When that exchange ends, it waits for the next."""
    with serving(Held()) as server, opened(server.url) as (transport, _):
        first, later = notification(seconds=10.0), notification(seconds=LIMIT)
        given_up = moved.start(partial(transport.send, first))
        server.connection(0)
        ended = moved.start(partial(transport.send, later))
        server.connection(1)
        moved.advance(10.25)
        assert isinstance(given_up.get(timeout=PATIENCE), Exception)
        moved.waits_for(LIMIT - 10.0)
        moved.advance(LIMIT - 10.0)
        assert isinstance(ended.get(timeout=PATIENCE), Exception)


@pytest.mark.pitfall("21")
def test_the_end_of_a_session_is_told_for_half_a_second(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    held = Held()

    class Limited(Exchange):
        def __init__(self, deadline: Deadline | None = None) -> None:
            assert deadline is not None
            limits.append(deadline.remaining())
            super().__init__(deadline)

    def script(one: Request) -> None:
        (held if one.method == "DELETE" else answer)(one)

    with serving(script) as server, opened(server.url) as (transport, _):
        start(transport)
        monkeypatch.setattr(http_module, "AbortableExchange", Limited)

        def is_told() -> None:
            assert held.came.wait(PATIENCE)
            moved.waits_for(0.5)

        assert moved.ending(0.5, partial(transport.close, Deadline(None)), is_told) is None
    assert limits == [0.5]


@pytest.mark.pitfall("21")
def test_a_function_for_headers_does_not_hold_up_closing(moved: MovedTime) -> None:
    closing, called, gate = threading.Event(), threading.Event(), threading.Event()

    def headers() -> dict[str, str]:
        if closing.is_set():
            called.set()
            assert gate.wait(3 * PATIENCE)
        return {}

    with serving(answer) as server, opened(Http(server.url, headers=headers)) as (transport, _):
        start(transport)
        assert transport._server_stream is not None
        assert transport._server_stream.answered.wait(PATIENCE)
        closing.set()

        def is_called() -> None:
            assert called.wait(PATIENCE)
            moved.waits_for(0.5)

        assert moved.ending(0.5, partial(transport.close, Deadline(None)), is_called) is None
        (late,) = [each for each in threading.enumerate() if "syncmcp-post" in each.name]
        gate.set()
        late.join(PATIENCE)
        assert not late.is_alive()
        assert "DELETE" not in [one.method for one in server.requests]


# -- streams


def test_streams_are_resumed_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_module, "random", SimpleNamespace(random=lambda: 0.0))
    policy, pauses = ReconnectPolicy(0.5), list[float | None]()
    for _ in range(7):
        pauses.append(policy.next_pause(None))
        policy.record_alive()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert ReconnectPolicy(0.5).next_pause(0.0) == 0.5
    assert ReconnectPolicy().next_pause(0.0) == 0.05
    assert ReconnectPolicy().next_pause(5000.0) == 3600.0
    polling, polled = ReconnectPolicy(), list[float | None]()
    for news in (False, False, False, True, False, False):
        (polling.record_use if news else polling.record_poll)()
        polled.append(polling.next_pause(0.0))
    assert polled == [0.05, 0.5, 0.5, 0.05, 0.05, 0.5]
    assert polling.next_pause(2.0) == 2.0 * 2  # doubled: the last attempt had no useful stream
    assert ReconnectPolicy().next_pause(1.0, 5000.0) == 3600.0


def test_a_post_whose_call_was_answered_has_a_tenth_of_a_second(moved: MovedTime) -> None:
    hasty = Hasty(accepts=False)
    with old_server() as old:
        old.server.script, hasty.server = hasty, old.server
        with connected(hasty) as client:
            call = partial(client.call_tool, "work", timeout=None, idle_timeout=None)
            answered = moved.start(call)
            moved.waits_for(0.1)
            assert not hasty.given_up.is_set()
            moved.advance(0.1)
            assert hasty.given_up.wait(PATIENCE)
            assert answered.get(timeout=PATIENCE).text == "hasty"


# -- in memory


class Echo:
    """A server that returns each frame."""

    name = "echo"

    def connect(self, deliver: Callable[[bytes], None], on_close: Callable[[], None]) -> Echo:
        self._deliver = deliver
        return self

    def receive(self, frame: bytes) -> None:
        self._deliver(frame)

    def close(self) -> None:
        """Do nothing."""


def echoed(on_receive: Callable[[], object]) -> tuple[MemoryTransport, Notes]:
    """Open a transport whose reader calls `on_receive` for the first answer."""
    notes, transport = Notes(), MemoryTransport(Echo())
    notes.on_receive = on_receive  # type: ignore[assignment]
    transport.open(notes, Deadline(None))
    transport.send(frame())
    return transport, notes


def test_a_server_in_this_process_is_waited_for_until_the_deadline(moved: MovedTime) -> None:
    inside, gate = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        gate.wait(3 * PATIENCE)

    transport, _ = echoed(hold)
    assert inside.wait(PATIENCE)
    close = partial(transport.close, Deadline(LIMIT))
    assert moved.ending(LIMIT, close, partial(moved.waits_for, LIMIT)) is None
    gate.set()


def test_a_reader_that_fails_unexpectedly_ends_the_connection_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = ZeroDivisionError("surprise")

    transport, notes = echoed(raising(failure))
    error = notes.wait_lost()
    transport.close(Deadline(PATIENCE))
    assert type(error) is ConnectionLost
    assert error.__cause__ is failure
    assert notes.losses == [error]
    assert [one.levelname for one in caplog.records if one.exc_info] == ["ERROR"]
    assert transport.describe() == ""
