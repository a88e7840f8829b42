"""The HTTP+SSE half of the test server, spoken to by hand and by clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

import syncmcp
from syncmcp.testing import Server, SseEndpoint, serve_http
from tests.testing.wires import PATIENCE, Http, initialize, read_event, wsgi_served

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


@contextmanager
def talking(url: str) -> Iterator[tuple[HTTPResponse, str]]:
    """A session by hand: its open stream and the address that this named."""
    with Http(url) as client:
        stream = client.request("GET")
        first = read_event(stream)
        assert first["event"] == "endpoint"
        yield stream, urljoin(url, first["data"])
        stream.close()


def told(stream: HTTPResponse) -> Any:
    """The next message of a stream, past its comments."""
    event = read_event(stream)
    while "data" not in event:
        event = read_event(stream)
    return json.loads(event["data"])


def post(
    address: str, method: str = "ping", params: Any = None, id: int = 1, **options: Any
) -> int:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    return requests.post(address, json=body, timeout=PATIENCE, **options).status_code


@pytest.mark.parametrize("serve", [_http_server, _wsgi], ids=["http.server", "wsgiref"])
def test_a_stream_names_the_address_and_brings_the_answers_until_it_ends(serve: Serve) -> None:
    server = Server("old")
    server.add_tool(lambda: "5", name="five")
    with serve(server) as url:
        with talking(url) as (other, there):
            with talking(url) as (stream, address):
                assert stream.headers.get_content_type() == "text/event-stream"
                assert address.startswith(urljoin(url, "/messages?session="))
                assert address != there
                assert post(address, "initialize", initialize("2024-11-05")) == 202
                assert told(stream)["result"]["protocolVersion"] == "2024-11-05"
                for number, one in enumerate((there, address)):
                    assert post(one, id=number) == 202
                assert [told(one)["id"] for one in (stream, other)] == [1, 0]
                assert server.stats.streams == server.stats.sessions == 2
                assert post(urljoin(url, "/messages")) == 404
                assert post(urljoin(url, "/messages?session=unknown")) == 404
                assert post(address, headers={"Content-Type": "text/plain"}) == 415
            assert server.stats.wait_for(lambda stats: stats.streams == stats.sessions == 1)
            assert post(address) == 404
        with syncmcp.connect(syncmcp.Http(url, transport="sse")) as client:
            assert client.call_tool("five").text == "5"
            assert client.server.revision == "2025-11-25"
            assert server.stats.requests["server/discover"] == 0
        assert server.stats.wait_for(lambda stats: stats.streams == stats.sessions == 0)


def test_what_is_not_for_it_is_refused() -> None:
    # So that clients fall back.
    with serve_http(Server("old")) as http:
        assert post(http.sse_url, "initialize") == 405
    # A server without sessions has no such stream.
    with serve_http(Server("new", revisions=["2026-07-28"])) as http:
        assert requests.get(http.sse_url, timeout=PATIENCE).status_code == 405
    endpoint = SseEndpoint(Server("old"), allowed_hosts=["127.0.0.1"])
    foreign = {"Host": "127.0.0.1", "Origin": "http://elsewhere.invalid"}
    assert endpoint.handle_get(foreign).status == 403
    assert endpoint.handle_post(foreign, b"{}", "session=1").status == 403
    assert endpoint.handle_get({"Host": "elsewhere.invalid"}).status == 403
