"""Ending an exchange during its response, from another thread or at the deadline.

For earlier phases, see `test_phases.py`; for time limits of each part, see `test_http_limits.py`.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import requests
from urllib3.connectionpool import HTTPConnectionPool

from syncmcp._http.exchange import AbortableExchange
from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import ClosedError, RequestTimeout
from syncmcp.transports.http import HttpTransport
from tests.support.parts import raising
from tests.support.stage import elsewhere

from .certificates import Certificates
from .http_peer import (
    WAIT,
    FakeReceiver,
    ForeignAdapter,
    Held,
    RawServer,
    Request,
    Script,
    calling,
    dripping,
    notification,
    opened,
    request,
    serving,
    start,
    withdraw,
)
from .phases import HOST, Mute, Resolver, full_backlog
from .test_http_exchange import answer as stateful
from .test_http_exchange import respond

SOON = 20.0
"""Far longer than ending may take, in seconds, and shorter than `WAIT`."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(one: Request) -> None:
    one.connection.result(one)


@pytest.mark.parametrize("begun", [b"200 OK\r\nX: ", b"500 No\r\nContent-Length: 9\r\n\r\nwhat"])
@pytest.mark.pitfall("H1", "H1b", "14")
@pytest.mark.requirement("HTM-09")
def test_withdrawing_ends_the_exchange_at_once_and_the_server_sees_it(begun: bytes) -> None:
    held = Held(lambda connection: connection.write(b"HTTP/1.1 " + begun))
    with serving(held) as server, opened(server.url) as (transport, receiver):
        withdraw(transport, held.came)
        assert not receiver.failures
        assert held.gone.wait(WAIT)
    assert [one.method for one in server.requests] == ["POST"]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


DRIPS = {
    "json": (HEAD, b" "),
    "events": (EVENTS, chunk(b'data: {"method": "notifications/x"}\n\n')),
    "comments": (EVENTS, chunk(b":\n")),
    "lines": (EVENTS, chunk(b"data:\n")),
}


@pytest.mark.pitfall("4", "H5")
@pytest.mark.parametrize("kind", DRIPS)
def test_the_deadline_ends_a_dripping_exchange_by_itself(kind: str) -> None:
    with serving(dripping(*DRIPS[kind])) as server, opened(server.url) as (transport, receiver):
        started = time.monotonic()
        transport.send(request(seconds=0.2))
        assert time.monotonic() - started < SOON
    assert isinstance(receiver.error, RequestTimeout)
    if kind == "comments":
        assert len(receiver.signs) > 1
        assert not receiver.frames


def test_the_socket_of_a_request_has_no_timeout_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float | None] = []
    receive = socket.socket.recv_into

    def recv_into(self: socket.socket, *args: Any) -> int:
        if threading.current_thread() is threading.main_thread():
            seen.append(self.gettimeout())
        return receive(self, *args)

    with serving(answer) as server, opened(server.url) as (transport, receiver):
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "recv_into", recv_into)
            transport.send(request())
        assert not receiver.failures
    assert set(seen) == {None}


def test_a_request_that_was_withdrawn_or_is_too_late_is_never_sent() -> None:
    with serving(answer) as server, opened(server.url) as (transport, receiver):
        out = request()
        assert transport.cancel(out) == "not_sent"
        transport.send(out)
        assert (receiver.failures, receiver.frames) == ([], [])
        transport.send(request(seconds=0))
        assert isinstance(receiver.error, RequestTimeout)
        assert receiver.error.delivery == "not_sent"
    assert not server.requests
    with full_backlog() as port, opened(f"http://127.0.0.1:{port}/") as (transport, receiver):
        transport.send(request(seconds=0.1))
        assert isinstance(receiver.error, RequestTimeout)
        assert receiver.error.delivery == "not_sent"


@pytest.mark.pitfall("H1b")
def test_withdrawing_ends_an_exchange_with_a_mute_proxy() -> None:
    mute = Mute()
    proxies = {"https": f"http://127.0.0.1:{mute.port}"}
    with opened(Http("https://mcp.invalid/", proxies=proxies)) as (transport, receiver):
        withdraw(transport, mute.heard, "not_sent")
        assert not receiver.failures
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
            running = elsewhere(partial(transport.send, out))
            assert came.wait(WAIT)
            assert transport.cancel(out) == "unknown"
            withdrawn.set()
            running.result(WAIT)
            assert not receiver.failures
            assert server.connection(0).ended.wait(WAIT)


def test_closing_does_not_settle_what_was_withdrawn() -> None:
    held, out = Held(), request(seconds=None)
    with serving(held) as server, opened(server.url) as (transport, receiver):
        running = elsewhere(partial(transport.send, out))
        assert held.came.wait(WAIT)
        transport.cancel(out)
        transport.close(Deadline(WAIT))
        running.result(WAIT)
        assert not receiver.failures


def test_close_while_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    with resolver.stuck(), opened(f"http://{HOST}/") as (transport, receiver):
        running = elsewhere(partial(transport.send, request(seconds=None)))
        assert resolver.asked.wait(WAIT)
        transport.close(Deadline(WAIT))
        running.result(WAIT)
        assert type(receiver.error) is ClosedError
        assert receiver.error.delivery == "not_sent"


def test_a_close_that_ctrl_c_interrupts_is_finished_later(monkeypatch: pytest.MonkeyPatch) -> None:
    held, abort = Held(), AbortableExchange.abort

    def interrupted(exchange: AbortableExchange) -> bool:
        monkeypatch.setattr(AbortableExchange, "abort", abort)
        raise KeyboardInterrupt

    with (
        serving(calling(held, stateful)) as server,
        opened(server.url) as (transport, receiver),
    ):
        start(transport)
        running = elsewhere(partial(transport.send, request("tools/call", seconds=None)))
        assert held.came.wait(WAIT)
        monkeypatch.setattr(AbortableExchange, "abort", interrupted)
        with pytest.raises(KeyboardInterrupt):
            transport.close(Deadline(WAIT))
        for _ in range(2):
            transport.close(Deadline(WAIT))
        running.result(WAIT)
        assert type(receiver.error) is ClosedError
        assert receiver.error.delivery == "unknown"
        assert [one.method for one in server.requests].count("DELETE") == 1


# A connection that returned to its pool belongs to the next request


WIRES = ("plain", "TLS", "foreign adapter")
Handover = Callable[[socket.socket], None]


@pytest.fixture
def handovers(monkeypatch: pytest.MonkeyPatch) -> list[Handover]:
    """Return a list of actions, which run in turn as soon as a connection returns to its pool."""
    todo: list[Handover] = []
    put = HTTPConnectionPool._put_conn

    def put_and_take(pool: Any, connection: Any) -> None:
        put(pool, connection)
        if todo and connection is not None and connection.sock is not None:
            todo.pop(0)(connection.sock)

    monkeypatch.setattr(HTTPConnectionPool, "_put_conn", put_and_take)
    return todo


@contextmanager
def opened_over(
    wire: str, script: Script, certificates: Certificates
) -> Iterator[tuple[RawServer, HttpTransport, FakeReceiver]]:
    context = certificates.server_context() if wire == "TLS" else None
    with serving(script, context) as server, requests.Session() as session:
        options: dict[str, Any] = {}
        if wire == "TLS":
            options["verify"] = certificates.authority
        elif wire != "plain":
            session.mount("http://", ForeignAdapter())
            options["session"] = session
        with opened(Http(server.url, **options)) as (transport, receiver):
            yield server, transport, receiver
    assert len(server.connections) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.pitfall("H1c")
def test_the_rest_of_a_response_is_read_and_then_its_socket_is_left_alone(
    wire: str, certificates: Certificates, handovers: list[Handover]
) -> None:
    taken: list[socket.socket] = []

    def take(sock: socket.socket) -> None:
        sock.settimeout(None)  # as for a request without a deadline
        taken.append(sock)

    touched: list[float | None] = []
    settimeout = socket.socket.settimeout

    def watched(sock: socket.socket, seconds: float | None) -> None:
        if sock in taken:
            touched.append(seconds)
        settimeout(sock, seconds)

    with opened_over(wire, respond(202, b"accepted"), certificates) as (_, transport, _):
        handovers.append(take)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "settimeout", watched)
            transport.send(notification())
        assert len(taken) == 1
        assert touched == []
        assert taken[0].gettimeout() is None
        transport.send(notification())


@pytest.mark.parametrize(
    ("by", "wire"),
    [*(("withdrawal", wire) for wire in WIRES), ("Ctrl-C", "plain"), ("Ctrl-C", "TLS")],
)
@pytest.mark.pitfall("H1c", "9")
def test_ending_at_the_moment_of_release_leaves_the_connection_to_the_next(
    by: str, wire: str, certificates: Certificates, handovers: list[Handover]
) -> None:
    out = request()

    def withdraw_it(_: socket.socket) -> None:
        thread = threading.Thread(target=transport.cancel, args=(out,))
        thread.start()
        thread.join(WAIT)
        assert not thread.is_alive()

    with opened_over(wire, answer, certificates) as (server, transport, receiver):
        if by == "Ctrl-C":
            handovers.append(raising(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                transport.send(out)
        else:
            handovers.append(withdraw_it)
            transport.send(out)
        assert handovers == []
        transport.send(request())
        assert receiver.failures == []
        assert len(server.requests) == 2
