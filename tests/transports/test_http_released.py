"""A connection that went back to its pool is another request's: whoever had it leaves it alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from urllib3.connectionpool import HTTPConnectionPool

from syncmcp.config import Http

from .certificates import Certificates
from .http_peer import (
    WAIT,
    ForeignAdapter,
    RawServer,
    Request,
    notification,
    opened,
    request,
    serving,
)

WIRES = pytest.mark.parametrize("wire", ["plain", "TLS", "foreign adapter"])

Handover = Callable[[socket.socket], None]


@pytest.fixture
def handovers(monkeypatch: pytest.MonkeyPatch) -> list[Handover]:
    """What the next threads do that get a connection, at the very moment when they can have it."""
    todo: list[Handover] = []
    put = HTTPConnectionPool._put_conn

    def put_and_take(pool: Any, connection: Any) -> None:
        put(pool, connection)
        if todo and connection is not None and connection.sock is not None:
            todo.pop(0)(connection.sock)

    monkeypatch.setattr(HTTPConnectionPool, "_put_conn", put_and_take)
    return todo


@contextmanager
def serving_over(
    wire: str, script: Callable[[Request], None], certificates: Certificates
) -> Iterator[tuple[RawServer, Http]]:
    context = certificates.server_context() if wire == "TLS" else None
    with serving(script, context) as server, requests.Session() as session:
        options: dict[str, Any] = {}
        if wire == "TLS":
            options["verify"] = certificates.authority
        elif wire != "plain":
            session.mount("http://", ForeignAdapter())
            options["session"] = session
        yield server, Http(server.url, **options)


@WIRES
@pytest.mark.pitfall("H1c")
def test_the_rest_of_a_response_is_read_and_then_its_socket_is_left_alone(
    wire: str, certificates: Certificates, handovers: list[Handover]
) -> None:
    taken: list[socket.socket] = []

    def take(sock: socket.socket) -> None:
        sock.settimeout(None)  # for a request without a deadline
        taken.append(sock)

    def script(one: Request) -> None:
        one.connection.respond(202, b"accepted")

    touched: list[float | None] = []
    settimeout = socket.socket.settimeout

    def watched(sock: socket.socket, seconds: float | None) -> None:
        if sock in taken:
            touched.append(seconds)
        settimeout(sock, seconds)

    with serving_over(wire, script, certificates) as (server, target), opened(target) as (it, _):
        handovers.append(take)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "settimeout", watched)
            it.send(notification())
        assert len(taken) == 1
        assert touched == []
        assert taken[0].gettimeout() is None
        it.send(notification())
    assert len(server.connections) == 1


@WIRES
@pytest.mark.pitfall("H1c")
def test_withdrawing_at_the_moment_of_release_leaves_the_connection_to_the_next(
    wire: str, certificates: Certificates, handovers: list[Handover]
) -> None:
    def script(one: Request) -> None:
        one.connection.result(one)

    with (
        serving_over(wire, script, certificates) as (server, target),
        opened(target) as (transport, receiver),
    ):
        out = request()

        def withdraw(_: socket.socket) -> None:
            thread = threading.Thread(target=transport.cancel, args=(out,))
            thread.start()
            thread.join(WAIT)
            assert not thread.is_alive()

        handovers.append(withdraw)
        transport.send(out)
        assert handovers == []
        transport.send(request())
        assert receiver.failures == []
    assert len(server.requests) == 2
    assert len(server.connections) == 1


@pytest.mark.parametrize("wire", ["plain", "TLS"])
@pytest.mark.pitfall("9")
def test_ctrl_c_at_the_moment_of_release_leaves_the_connection_to_the_next(
    wire: str, certificates: Certificates, handovers: list[Handover]
) -> None:
    def script(one: Request) -> None:
        one.connection.result(one)

    def strike(_: socket.socket) -> None:
        raise KeyboardInterrupt

    with (
        serving_over(wire, script, certificates) as (server, target),
        opened(target) as (transport, receiver),
    ):
        handovers.append(strike)
        with pytest.raises(KeyboardInterrupt):
            transport.send(request())
        transport.send(request())
        assert receiver.failures == []
    assert len(server.requests) == 2
    assert len(server.connections) == 1
