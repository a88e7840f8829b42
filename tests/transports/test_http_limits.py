"""When HTTP and the wires beside it give up or go on, by a clock that stands; a few by the real."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from urllib3.exceptions import HTTPError

from syncmcp._http import connecting
from syncmcp._http import session as session_module
from syncmcp._http.connecting import _connect_one, connect, resolve
from syncmcp._http.exchange import AbortableExchange
from syncmcp._http.session import HttpSession, finish
from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.transports import http as http_module
from syncmcp.transports.http import ReconnectPolicy
from syncmcp.transports.memory import MemoryTransport
from tests.support.moved_time import MovedTime, soonest
from tests.support.stage import PATIENCE
from tests.transports._stdio import Notes, frame
from tests.transports.http_peer import (
    ForeignAdapter,
    Request,
    notification,
    opened,
    request,
    serving,
)
from tests.transports.old_peer import connected, old_server
from tests.transports.test_http_exchange import answer
from tests.transports.test_memory import Echo
from tests.transports.test_sse import Hasty

LIMIT = 600.0


def exchanging(job: Callable[[AbortableExchange], object], limit: float | None) -> object:
    with AbortableExchange(Deadline(limit)) as exchange:
        return job(exchange)


# -- connecting


@contextmanager
def nobody_knows() -> Iterator[Callable[[str, int], list[Any]]]:
    """A look-up of names that does not return."""
    gate = threading.Event()

    def look_up(name: str, port: int) -> list[Any]:
        gate.wait(3 * PATIENCE)
        return []

    yield look_up
    gate.set()


def test_a_name_is_looked_up_until_the_deadline(moved: MovedTime) -> None:
    with nobody_knows() as look_up:
        job = partial(exchanging, lambda own: resolve("a.example", 80, own, look_up), LIMIT)
        error = moved.ending(LIMIT, job, partial(moved.waits_for, LIMIT))
    assert isinstance(error, TimeoutError)


def test_the_address_of_a_page_is_looked_up_for_half_a_minute(moved: MovedTime) -> None:
    with nobody_knows() as look_up:
        guard = UrlGuard("https://mcp.example.com/mcp", allow_private=True, look_up=look_up)
        check = partial(guard.check_page, "http://page.example/")
        error = moved.ending(30.0, check, partial(moved.waits_for, 30.0))
    assert isinstance(error, UnsafeUrl)


def address_of(port: int) -> Any:
    return socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)


def test_each_address_has_its_share_of_the_time(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float | None] = []

    def connect_one(sock: object, address: object, seconds: float | None, own: object) -> None:
        shares.append(seconds)
        raise OSError("nobody is there")

    monkeypatch.setattr(connecting, "_connect_one", connect_one)
    for limit in (LIMIT, None):
        with pytest.raises(OSError, match="nobody is there"):
            exchanging(lambda own: connect([address_of(1)] * 2, "host", own, (), None), limit)
    assert shares == [LIMIT / 2, LIMIT, None, None]


def test_an_address_that_does_not_respond_is_given_up_when_its_share_is_over(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def wait_for_write(sock: object, timeout: float) -> bool:
        waits.set()
        return threading.Event().wait(0.001)

    monkeypatch.setattr(connecting, "wait_for_write", wait_for_write)
    sock: Any = SimpleNamespace(
        setblocking=lambda blocks: None, connect_ex=lambda address: errno.EINPROGRESS
    )
    job = partial(exchanging, lambda own: _connect_one(sock, None, LIMIT, own), None)
    error = moved.ending(LIMIT, job, lambda: waits.wait(PATIENCE))
    assert isinstance(error, TimeoutError)


def test_a_connection_has_the_time_that_is_left(moved: MovedTime) -> None:
    def job(own: AbortableExchange) -> float | None:
        sock, _ = connect([address_of(server.port)], "127.0.0.1", own, (), None)
        with sock:
            return sock.gettimeout()

    with serving(answer) as server:
        assert exchanging(job, LIMIT) == LIMIT
        assert exchanging(job, None) is None


# -- one exchange


class Noting(ForeignAdapter):
    """Notes how long each request may take."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[Any] = []

    def send(self, *args: Any, **options: Any) -> Any:
        self.limits.append(options["timeout"])
        return super().send(*args, **options)


def test_an_adapter_of_the_program_is_told_the_time_that_is_left(moved: MovedTime) -> None:
    noting = Noting()
    with requests.Session() as session, serving(answer) as server:
        session.mount("http://", noting)
        with opened(Http(server.url, session=session)) as (transport, _):
            transport.send(request(seconds=LIMIT))
            transport.send(request(seconds=None))
    assert noting.limits == [(LIMIT, LIMIT), (None, None)]


@pytest.mark.parametrize("watched", [True, False])
def test_a_request_is_given_the_time_that_is_left(
    watched: bool, moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[Any] = []
    with serving(answer) as server:
        session = HttpSession(Http(server.url), 1)
        adapter: Any = session._adapter
        send = adapter.send

        def sending(request: Any, **options: Any) -> Any:
            limits.append(options["timeout"])
            return send(request, **options)

        monkeypatch.setattr(adapter, "send", sending)
        with AbortableExchange(Deadline(LIMIT)) as own:
            own.watched = watched
            finish(own, session.send(own, "POST", server.url, {}, b"{}"))
        session.close()
    assert limits == [(LIMIT, None if watched else LIMIT)]


def send(url: str, body: bytes) -> None:
    """A request that has a tenth of a second, and nothing else that ends it."""
    session = HttpSession(Http(url, verify=False), 1)
    with AbortableExchange(Deadline(0.1)) as own, pytest.raises((OSError, HTTPError)):
        session.send(own, "POST", url, {}, body)
    session.close()


@pytest.mark.alone
@pytest.mark.parametrize("phase", ["a handshake", "a request", "a response"])
def test_the_operations_of_a_socket_have_the_time_that_is_left(phase: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scheme = "https" if phase == "a handshake" else "http"
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
        body = b"x" * 20_000_000 if phase == "a request" else b"{}"
        assert 0.1 <= soonest(lambda: send(url, body)) < 0.25


def test_the_rest_of_a_response_is_waited_for_a_tenth_of_a_second(moved: MovedTime) -> None:
    limits: list[float] = []
    sock: Any = SimpleNamespace(settimeout=limits.append)
    raw = SimpleNamespace(connection=sock, read1=lambda size, decode_content: b"")
    session_module._drain(AbortableExchange(Deadline(None)), raw, sock)
    assert limits == [pytest.approx(0.1)]


def silent(one: Request) -> None:
    one.connection.wait_for_end()


def test_an_exchange_is_looked_at_a_quarter_of_a_second_after_its_deadline(
    moved: MovedTime,
) -> None:
    """Of two of them the timer knows the sooner; it looks for the other one when that has ended."""
    with serving(silent) as server, opened(server.url) as (transport, _):
        first = moved.start(partial(transport.send, notification(seconds=10.0)))
        server.connection(0)
        later = partial(transport.send, notification(seconds=LIMIT))
        ended = moved.start(later)
        server.connection(1)
        moved.advance(10.25)
        assert isinstance(first.get(timeout=PATIENCE), Exception)
        moved.waits_for(LIMIT - 10.0)
        moved.advance(LIMIT - 10.0)
        assert isinstance(ended.get(timeout=PATIENCE), Exception)


@pytest.mark.pitfall("21")
def test_the_end_of_a_session_is_told_for_half_a_second(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    deleting = threading.Event()

    class Exchange(AbortableExchange):
        def __init__(self, deadline: Deadline) -> None:
            limits.append(deadline.remaining())
            super().__init__(deadline)

    def script(one: Request) -> None:
        if one.method == "DELETE":
            deleting.set()
            one.connection.wait_for_end()
        else:
            answer(one)

    with serving(script) as server, opened(server.url) as (transport, _):
        transport.send(request("initialize"))
        transport.adopt({}, stateful=True)
        monkeypatch.setattr(http_module, "AbortableExchange", Exchange)

        def is_told() -> None:
            assert deleting.wait(PATIENCE)
            moved.waits_for(0.5)

        assert moved.ending(0.5, partial(transport.close, Deadline(None)), is_told) is None
    assert limits == [0.5]


# -- streams


def test_streams_are_taken_up_again_after_longer_and_longer_pauses(
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


def test_a_server_in_this_process_is_waited_for_until_the_deadline(moved: MovedTime) -> None:
    notes, inside, gate = Notes(), threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        gate.wait(3 * PATIENCE)

    notes.on_receive = hold
    transport = MemoryTransport(Echo())
    transport.open(notes, Deadline(None))
    transport.send(frame())
    assert inside.wait(PATIENCE)

    def close() -> None:
        transport.close(Deadline(LIMIT))

    assert moved.ending(LIMIT, close, partial(moved.waits_for, LIMIT)) is None
    gate.set()
