"""HTTP+SSE over TLS, through SOCKS proxies, and with connections that are not ours."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp.config import Http
from tests.support.stage import elsewhere
from tests.transports.certificates import Certificates
from tests.transports.http_peer import WAIT, ForeignAdapter
from tests.transports.old_peer import ADDRESS, OldServer, connected, old_server, target

WIRES = ("plain", "TLS", "foreign adapter")


@contextmanager
def reached_over(wire: str, certificates: Certificates) -> Iterator[tuple[OldServer, Http]]:
    """A server of 2024-11-05, and the way to it."""
    context = certificates.server_context() if wire == "TLS" else None
    with old_server(context) as old, requests.Session() as session:
        if wire == "TLS":
            yield old, target(old, verify=certificates.authority)
        elif wire == "plain":
            yield old, target(old)
        else:
            session.mount("http://", ForeignAdapter())
            yield old, target(old, session=session)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.requirement("SSE-01", "SSE-02")
def test_calls_are_made_over_any_kind_of_connection(wire: str, certificates: Certificates) -> None:
    with reached_over(wire, certificates) as (old, http):
        with connected(old, http) as client:
            assert [client.call_tool("work").text for _ in range(3)] == ["done"] * 3
            stream = old.streams[0]
        assert stream.ended.wait(WAIT)
        assert {one.path for one in old.requests("POST")} == {ADDRESS}


@pytest.mark.parametrize(
    ("wire", "closes"), [("plain", True), ("TLS", False), ("TLS", True), ("foreign adapter", True)]
)
def test_the_time_for_opening_does_not_bound_the_silence_of_the_stream(
    wire: str, closes: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float | None] = []
    receive = socket.SocketIO.readinto

    def readinto(self: Any, buffer: Any) -> int | None:
        if threading.current_thread().name.startswith("syncmcp-read"):
            seen.append(self._sock.gettimeout())
        return receive(self, buffer)

    monkeypatch.setattr(socket.SocketIO, "readinto", readinto)
    with reached_over(wire, certificates) as (old, http):
        old.closes = closes
        with connected(old, http, open_timeout=WAIT) as client:
            assert client.call_tool("work").text == "done"
    assert set(seen) == {None}


@pytest.mark.parametrize("wire", ["plain", "TLS"])
@pytest.mark.pitfall("H1")
def test_cancelling_ends_a_post_that_is_not_accepted(wire: str, certificates: Certificates) -> None:
    ended = threading.Event()
    with reached_over(wire, certificates) as (old, http):
        take = old.take

        def hold(request: Any) -> None:
            if request.message.get("method") == "tools/call":
                with old._changed:
                    old.calls.append(request.id)
                    old._changed.notify_all()
                if request.connection.wait_for_end():
                    ended.set()
            else:
                take(request)

        old.take = hold  # type: ignore[method-assign]
        with connected(old, http) as client:
            future = client.call_tool.future("work", timeout=None)
            old.wait_for_calls(1)
            assert future.cancel()
            assert ended.wait(WAIT)


@pytest.mark.parametrize("wire", ["plain", "TLS"])
def test_closing_ends_an_opening_that_waits_for_the_address(
    wire: str, certificates: Certificates
) -> None:
    with reached_over(wire, certificates) as (old, http):
        old.address = None
        client = syncmcp.Client(http)
        opening = elsewhere(client.open)
        old.wait_for(lambda: len(old.streams) == 1)
        client.close()
        assert type(opening.exception(WAIT)) is syncmcp.ClosedError
        assert old.streams[0].ended.wait(WAIT)
