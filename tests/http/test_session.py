"""One request in an exchange: its time limits, and the reuse of its connection."""

from __future__ import annotations

import gzip
import http.client
import io
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
import urllib3
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from syncmcp._concurrency.timing import Deadline
from syncmcp._http import errors
from syncmcp._http import session as session_module
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp._http.session import HttpSession, body_of, finish
from syncmcp._http.url_guard import UrlGuard
from syncmcp.config import Http
from tests.support.moved_time import MovedTime, soonest
from tests.support.stage import PATIENCE
from tests.transports.http_peer import Request, serving
from tests.transports.test_http_exchange import answer

LIMIT = 600.0


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


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_a_pause_within_the_deadline_is_waited_for(
    limit: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    wait = lambda own, event, seconds: waits.append(seconds)  # noqa: E731
    monkeypatch.setattr(AbortableExchange, "wait", wait)
    AbortableExchange(Deadline(limit)).sleep(5.0)
    assert waits == [5.0]


def send(url: str, body: bytes) -> None:
    """Send a request that only its deadline of a tenth of a second can end."""
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


def test_a_response_that_is_read_after_its_exchange_gives_its_connection_back() -> None:
    with serving(lambda one: one.connection.result(one)) as server:
        session = HttpSession(Http(server.url), 1)
        for number in range(2):
            with AbortableExchange(Deadline(PATIENCE)) as own:
                body = b'{"id": %d}' % number
                response = session.send(own, "POST", server.url, {}, body)
            assert response.json()["id"] == number
        session.close()
        assert len(server.connections) == 1


@pytest.mark.requirement("SEC-01")
@pytest.mark.parametrize(("body", "headers"), [(b"no", {}), (b"", {"Connection": "close"})])
def test_the_guard_learns_from_answers_where_a_server_is(
    body: bytes, headers: dict[str, str]
) -> None:
    guard = UrlGuard("https://unknown.example/mcp", look_up=lambda host, port: [])
    met: list[requests.Response] = []

    class Auth(AuthBase):
        def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.register_hook("response", self.look)  # type: ignore[no-untyped-call]
            return request

        def look(self, response: requests.Response, **_: Any) -> None:
            met.append(response)
            guard.record_peer(response)

    def script(one: Request) -> None:
        one.connection.respond(401, body, headers)
        if headers:
            one.connection.close()

    with serving(script) as server:
        session = HttpSession(Http(f"http://mcp.example.org:{server.port}/mcp", auth=Auth()), 1)
        exchange = AbortableExchange(Deadline(PATIENCE))
        exchange.resolve = lambda host, port: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        ]
        with exchange:
            response = session.send(exchange, "GET", session.url, session.merged(session.headers))
            finish(exchange, response)
        session.close()
        assert met == [response]
    guard.check("https://127.0.0.1/token")  # the server is known to be on this computer


# Bodies: a compressed piece is decompressed in several parts


INFLATED = 8 * 2**20


class Body:
    """The body of a compressed response in one piece, and the exchange that reads it."""

    def __init__(self, compressed: bytes) -> None:
        self.deadline = SimpleNamespace(expired=False)
        self.exchange = AbortableExchange(cast("Any", self.deadline))
        response = requests.Response()
        response.raw = urllib3.HTTPResponse(io.BytesIO(compressed), preload_content=False)
        response.headers["Content-Encoding"] = "gzip"
        self.parts: Iterator[bytes] = body_of(self.exchange, response)

    def expire(self) -> None:
        self.deadline.expired = True


@pytest.mark.parametrize(
    ("end", "error"),
    [(Body.expire, TimeoutError), (lambda it: it.exchange.abort(), ExchangeAborted)],
)
def test_reading_ends_within_a_piece_that_inflates_to_a_thousand_times_its_size(
    end: Callable[[Body], object], error: type[Exception]
) -> None:
    body = Body(gzip.compress(b"\n" * INFLATED))
    assert 0 < len(next(body.parts)) <= INFLATED / 16
    end(body)
    with pytest.raises(error):
        next(body.parts)


def test_empty_members_of_a_compressed_body_count_as_parts() -> None:
    body = Body(gzip.compress(b"first") + gzip.compress(b"") * 1_000 + gzip.compress(b"last"))
    assert next(body.parts) == b"first"
    body.expire()
    with pytest.raises(TimeoutError):
        next(body.parts)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (http.client.IncompleteRead(b"a", 2), "IncompleteRead(1 bytes read, 2 more expected)"),
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_kind_of_an_error_is_named_once(error: Exception, words: str) -> None:
    assert errors._describe(error) == words
