"""The HTTP+SSE half of the test server, spoken to by hand and by clients."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

import syncmcp
from syncmcp.testing import Server, SseEndpoint, serve_http
from tests.testing.wires import PATIENCE, initialize, read_event, wsgi_served

Serve = Callable[[Server], AbstractContextManager[str]]


@contextmanager
def _http_server(server: Server) -> Iterator[str]:
    with serve_http(server, keep_alive=0.05) as http:
        yield http.sse_url


@contextmanager
def _wsgi(server: Server) -> Iterator[str]:
    # Here the end of a client shows when the next comment cannot be written.
    endpoint = SseEndpoint(server, messages="messages", keep_alive=0.05)
    with wsgi_served(endpoint) as root:
        yield f"{root}/sse"


every_half = pytest.mark.parametrize("serve", [_http_server, _wsgi], ids=["http.server", "wsgiref"])


def a_server() -> Server:
    server = Server("old")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


class Talk:
    """A session, by hand: an open stream and the address that it named."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._stream = self._connection()
        self._stream.request("GET", self._parts.path)
        self.response = self._stream.getresponse()
        self.address = ""
        if self.response.status == 200:
            first = self.next()
            assert first["event"] == "endpoint"
            self.address = first["data"]

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._parts.netloc, timeout=PATIENCE)

    def next(self) -> dict[str, str]:
        """The next event that is no comment."""
        event = read_event(self.response)
        while "data" not in event:
            event = read_event(self.response)
        return event

    def post(self, message: Any, address: str = "", **headers: str) -> int:
        connection = self._connection()
        path = f"/{(address or self.address).lstrip('/')}"
        given = {"Content-Type": "application/json"}
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        connection.request("POST", path, json.dumps(message).encode(), given)
        status = connection.getresponse().status
        connection.close()
        return status

    def close(self) -> None:
        self.response.close()
        self._stream.close()


@contextmanager
def talking(url: str) -> Iterator[Talk]:
    talk = Talk(url)
    try:
        yield talk
    finally:
        talk.close()


def request(method: str, params: Any = None, id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


@every_half
def test_a_stream_names_the_address_and_brings_the_answers_until_it_ends(serve: Serve) -> None:
    server = a_server()
    with serve(server) as url, talking(url) as other:
        with talking(url) as talk:
            assert talk.response.headers.get_content_type() == "text/event-stream"
            assert talk.address.lstrip("/").startswith("messages?session=")
            assert talk.address != other.address
            assert talk.post(request("initialize", initialize("2024-11-05"))) == 202
            answer = json.loads(talk.next()["data"])
            assert answer["result"]["protocolVersion"] == "2024-11-05"
            for number, one in enumerate((other, talk)):
                assert one.post(request("ping", id=number)) == 202
            ids = [json.loads(one.next()["data"])["id"] for one in (talk, other)]
            assert ids == [1, 0]
            assert server.stats.streams == server.stats.sessions == 2
            assert talk.post(request("ping"), "/messages") == 404
            assert talk.post(request("ping"), "/messages?session=unknown") == 404
            assert talk.post(request("ping"), Content_Type="text/plain") == 415
        assert server.stats.wait_for(lambda stats: stats.streams == stats.sessions == 1)
        assert other.post(request("ping"), talk.address) == 404


@every_half
def test_a_client_gets_along_with_it(serve: Serve) -> None:
    server = a_server()
    with serve(server) as url:
        with syncmcp.connect(syncmcp.Http(url, transport="sse")) as client:
            assert client.call_tool("add", {"a": 2, "b": 3}).text == "5"
            assert client.server.revision == "2025-11-25"
            assert server.stats.requests["server/discover"] == 0
        assert server.stats.wait_for(lambda stats: stats.streams == stats.sessions == 0)


def test_a_post_to_the_stream_is_refused_so_that_clients_fall_back() -> None:
    with serve_http(a_server()) as http, talking(http.sse_url) as talk:
        assert talk.post(request("initialize"), "/sse") == 405
        with syncmcp.connect(http.sse_url) as client:
            assert client.call_tool("add", {"a": 2, "b": 3}).text == "5"
    # A server without sessions has no such stream.
    server = Server("new", revisions=["2026-07-28"])
    with serve_http(server) as http, talking(http.sse_url) as talk:
        assert talk.response.status == 405


def test_foreign_origins_are_refused() -> None:
    endpoint = SseEndpoint(a_server(), allowed_hosts=["127.0.0.1"])
    foreign = {"Host": "127.0.0.1", "Origin": "http://elsewhere.invalid"}
    assert endpoint.handle_get(foreign).status == 403
    assert endpoint.handle_post(foreign, b"{}", "session=1").status == 403
    assert endpoint.handle_get({"Host": "elsewhere.invalid"}).status == 403
