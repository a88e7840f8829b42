"""DNS look-ups and connecting: their time limits, and how other threads end them."""

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

from syncmcp._concurrency.timing import Deadline
from syncmcp._http import connecting
from syncmcp._http.connecting import _connect_one, connect, resolve
from syncmcp._http.exchange import AbortableExchange
from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE
from tests.transports.http_peer import opened, request, serving
from tests.transports.test_http_exchange import answer

LIMIT = 600.0


def exchanging(job: Callable[[AbortableExchange], object], limit: float | None) -> object:
    with AbortableExchange(Deadline(limit)) as exchange:
        return job(exchange)


@contextmanager
def nobody_knows() -> Iterator[Callable[[str, int], list[Any]]]:
    """Yield a DNS look-up that does not return within the context."""
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


def test_each_address_has_its_share_of_time(
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


# -- from another thread


@pytest.mark.pitfall("H1b")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_withdrawing_at_the_moment_when_it_is_connected_leaves_no_socket_open(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = connecting._connect_one
    connected: list[socket.socket] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        opened(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/") as (transport, receiver),
    ):
        out = request(seconds=None)

        def withdraw_then(sock: socket.socket, *args: Any) -> None:
            connect(sock, *args)
            connected.append(sock)
            assert transport.cancel(out) == "not_sent"

        monkeypatch.setattr(connecting, "_connect_one", withdraw_then)
        transport.send(out)
        assert not receiver.failures
    assert [sock.fileno() for sock in connected] == [-1]


def test_an_address_that_is_silent_leaves_time_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    connect_one = connecting._connect_one

    def connect(sock: socket.socket, address: Any, *args: Any) -> None:
        if address[1] == 1:
            raise TimeoutError("nothing came back")
        connect_one(sock, address, *args)

    monkeypatch.setattr(connecting, "_connect_one", connect)
    with serving(answer) as server, opened("http://mcp.invalid/") as (transport, receiver):
        addresses = [address_of(1), address_of(server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        transport.send(request())
        assert not receiver.failures
        assert len(server.requests) == 1
