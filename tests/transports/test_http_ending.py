"""Ending an exchange from another thread, or by its deadline, in the middle of its response.

What comes before the response: `test_phases.py`; how long each part may take:
`test_http_limits.py`.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
import requests

from syncmcp._http.exchange import AbortableExchange
from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import ClosedError, RequestTimeout
from tests.support.stage import Clock, tick

from .http_peer import (
    WAIT,
    Connection,
    FakeReceiver,
    ForeignAdapter,
    Request,
    Running,
    dripping,
    opened,
    request,
    serving,
)
from .phases import HOST, Mute, Resolver

SOON = 20.0
"""Far more than ending may take, in seconds, and less than `WAIT`."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def mid_headers(connection: Connection) -> None:
    connection.write(b"HTTP/1.1 200 OK\r\nX: ")


def mid_error(connection: Connection) -> None:
    connection.write(b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nwhat")


PHASES = pytest.mark.parametrize("phase", [mid_headers, mid_error])


def assert_ended_quietly(running: Running, receiver: FakeReceiver) -> None:
    running.join(SOON)
    assert running.error is None
    assert not receiver.failures


@PHASES
@pytest.mark.pitfall("H1", "H1b", "14")
@pytest.mark.requirement("HTM-09")
def test_withdrawing_ends_the_exchange_at_once_and_the_server_sees_it(phase: Any) -> None:
    reached, gone = threading.Event(), threading.Event()

    def script(one: Request) -> None:
        phase(one.connection)
        reached.set()
        assert one.connection.wait_for_end()
        gone.set()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        out = request(seconds=None)
        running = Running(transport, out)
        assert reached.wait(WAIT)
        assert transport.cancel(out) == "unknown"
        assert_ended_quietly(running, receiver)
        assert gone.wait(WAIT)
    assert [one.method for one in server.requests] == ["POST"]


@PHASES
@pytest.mark.pitfall("4")
def test_the_deadline_ends_a_silent_exchange_without_anybody_s_help(
    phase: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, clock = threading.Event(), Clock(monkeypatch, "syncmcp._concurrency.timing")

    def script(one: Request) -> None:
        phase(one.connection)
        reached.set()
        assert one.connection.wait_for_end()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        running = Running(transport, request(seconds=600))
        assert reached.wait(WAIT)
        clock.advance(601)
        tick()
        running.join()
    if phase is not mid_error:  # there the status is known
        error = receiver.error
        assert isinstance(error, RequestTimeout)
        assert (error.kind, error.seconds, error.delivery) == ("total", 600, "unknown")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.pitfall("4", "H5")
@pytest.mark.parametrize(
    ("head", "more"),
    [
        pytest.param(HEAD, b" ", id="json"),
        pytest.param(EVENTS, chunk(b'data: {"method": "notifications/x"}\n\n'), id="events"),
        pytest.param(EVENTS, chunk(b":\n"), id="comments"),
        pytest.param(EVENTS, chunk(b"data:\n"), id="lines"),
    ],
)
def test_the_deadline_ends_a_dripping_exchange_without_anybody_s_help(
    head: bytes, more: bytes
) -> None:
    with serving(dripping(head, more)) as server, opened(server.url) as (transport, receiver):
        started = time.monotonic()
        transport.send(request(seconds=0.2))
        assert time.monotonic() - started < SOON
    assert isinstance(receiver.error, RequestTimeout)
    if more == chunk(b":\n"):
        assert len(receiver.signs) > 1
        assert not receiver.frames


def test_the_socket_of_a_request_has_no_timeout_of_its_own_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float | None] = []
    receive = socket.socket.recv_into

    def recv_into(self: socket.socket, *args: Any) -> int:
        if threading.current_thread() is threading.main_thread():
            seen.append(self.gettimeout())
        return receive(self, *args)

    with (
        serving(lambda one: one.connection.result(one)) as server,
        opened(server.url) as (transport, receiver),
    ):
        monkeypatch.setattr(socket.socket, "recv_into", recv_into)
        transport.send(request())
        monkeypatch.undo()
        assert not receiver.failures
    assert set(seen) == {None}


def test_a_request_withdrawn_before_it_began_is_never_sent() -> None:
    with (
        serving(lambda one: one.connection.result(one)) as server,
        opened(server.url) as (transport, receiver),
    ):
        out = request()
        assert transport.cancel(out) == "not_sent"
        transport.send(out)
        assert not receiver.failures
        assert not receiver.frames
    assert not server.requests


def test_a_request_whose_deadline_has_passed_is_never_sent() -> None:
    with (
        serving(lambda one: one.connection.result(one)) as server,
        opened(server.url) as (transport, receiver),
    ):
        transport.send(request(seconds=0))
        assert isinstance(receiver.error, RequestTimeout)
        assert receiver.error.delivery == "not_sent"
    assert not server.requests


@pytest.mark.pitfall("H1b")
def test_withdrawing_ends_an_exchange_with_a_mute_proxy() -> None:
    mute = Mute()
    proxies = {"https": f"http://127.0.0.1:{mute.port}"}
    with opened(Http("https://mcp.invalid/", proxies=proxies)) as (transport, receiver):
        out = request(seconds=None)
        running = Running(transport, out)
        assert mute.heard.wait(WAIT)
        assert transport.cancel(out) == "not_sent"
        assert_ended_quietly(running, receiver)
    mute.close()


@pytest.mark.pitfall("H1b")
def test_what_comes_to_a_foreign_session_after_the_withdrawal_is_closed() -> None:
    came, withdrawn = threading.Event(), threading.Event()

    def script(one: Request) -> None:
        came.set()
        assert withdrawn.wait(WAIT)
        one.connection.start_events()
        assert one.connection.wait_for_end()

    with serving(script) as server, requests.Session() as session:
        session.mount("http://", ForeignAdapter())
        with opened(Http(server.url, session=session)) as (transport, receiver):
            out = request(seconds=None)
            running = Running(transport, out)
            assert came.wait(WAIT)
            assert transport.cancel(out) == "unknown"
            withdrawn.set()
            running.join()
            assert running.error is None
            assert not receiver.failures
            assert server.connection(0).ended.wait(WAIT)


@pytest.mark.pitfall("H1c")
def test_withdrawing_a_finished_request_leaves_its_connection_alone() -> None:
    reached, go = threading.Event(), threading.Event()

    def script(one: Request) -> None:
        if one.message["params"]:
            reached.set()
            assert go.wait(WAIT)
        one.connection.result(one)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        first, second = request(), request(params={"slow": True})
        transport.send(first)
        running = Running(transport, second)
        assert reached.wait(WAIT)
        transport.cancel(first)
        go.set()
        running.join()
        transport.send(request())
        assert not receiver.failures
        assert len(receiver.frames) == 3
    assert len(server.connections) == 1


def test_closing_does_not_settle_what_was_withdrawn() -> None:
    reached = threading.Event()

    def script(one: Request) -> None:
        reached.set()
        assert one.connection.wait_for_end()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        out = request(seconds=None)
        running = Running(transport, out)
        assert reached.wait(WAIT)
        transport.cancel(out)
        transport.close(Deadline(WAIT))
        running.join(SOON)
        assert not receiver.failures


def test_close_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    with resolver.stuck(), opened(f"http://{HOST}/") as (transport, receiver):
        running = Running(transport, request(seconds=None))
        assert resolver.asked.wait(WAIT)
        transport.close(Deadline(WAIT))
        running.join(SOON)
        assert type(receiver.error) is ClosedError
        assert receiver.error.delivery == "not_sent"


def test_what_ctrl_c_interrupts_while_closing_the_next_close_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, abort = threading.Event(), AbortableExchange.abort

    def script(one: Request) -> None:
        if one.method == "DELETE":
            one.connection.respond(200)
        elif one.method == "GET":
            one.connection.respond(405)
        elif one.message["method"] == "initialize":
            one.connection.result(one, Mcp_Session_Id="s")
        else:
            reached.set()
            assert one.connection.wait_for_end()

    def interrupted(exchange: AbortableExchange) -> bool:
        monkeypatch.setattr(AbortableExchange, "abort", abort)
        raise KeyboardInterrupt

    with serving(script) as server, opened(server.url) as (transport, receiver):
        transport.send(request("initialize"))
        transport.adopt({}, stateful=True)
        running = Running(transport, request("tools/call", seconds=None))
        assert reached.wait(WAIT)
        monkeypatch.setattr(AbortableExchange, "abort", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transport.close(Deadline(WAIT))
        for _ in range(2):
            transport.close(Deadline(WAIT))
        running.join(SOON)
        assert type(receiver.error) is ClosedError
        assert receiver.error.delivery == "unknown"
        assert [one.method for one in server.requests].count("DELETE") == 1
