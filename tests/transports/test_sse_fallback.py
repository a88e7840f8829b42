"""Which transport a URL leads to: Streamable HTTP, or HTTP+SSE where the server is an old one."""

from __future__ import annotations

import json
from typing import Any

import pytest

import syncmcp
from syncmcp.errors import HttpError, ServerError
from syncmcp.testing import Server, serve_http
from tests.transports.http_peer import Request
from tests.transports.old_peer import OldServer, old_server


def error(code: int, data: Any = None) -> bytes:
    """The body of a JSON-RPC error that answers no request by its id."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no", "data": data}}
    return json.dumps(body).encode()


def methods(old: OldServer) -> list[str]:
    """What came to the stream's own address: `GET`, or the JSON-RPC method of a POST."""
    return [
        one.method if one.method == "GET" else one.message["method"]
        for one in old.server.requests
        if one.path == "/mcp"
    ]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error(-32000)),
        (404, b"Cannot POST /mcp"),
        (404, b'{"detail":"no"}'),
        (405, b""),
        (405, error(-32000)),
    ],
)
@pytest.mark.requirement("HTL-16", "SSE-01", "SSE-03")
@pytest.mark.pitfall("18")
def test_a_server_that_refuses_the_handshake_so_is_reached_over_http_sse(
    status: int, body: bytes
) -> None:
    with old_server() as old:
        old.refuse_post = (status, body)
        with syncmcp.connect(old.server.url) as client:
            assert client.server.revision == "2024-11-05"
            assert client.call_tool("work").text == "done"
        assert methods(old) == ["server/discover", "initialize", "GET"]


def test_an_error_that_came_with_success_is_the_servers_own_word() -> None:
    def script(request: Request) -> None:
        request.connection.json(json.loads(error(-32000)))

    with old_server() as old:
        old.server.script = script
        with pytest.raises(ServerError) as caught:
            syncmcp.connect(old.server.url, mode="legacy")
        assert caught.value.status == 0
        assert methods(old) == ["initialize"]


def test_a_stream_that_is_none_of_an_old_server_costs_no_more_than_a_probe() -> None:
    with old_server() as old:
        old.address = None
        with pytest.raises(HttpError) as caught:
            syncmcp.connect(old.server.url, probe_timeout=0.2)
        assert caught.value.status == 405
        assert "HTTP+SSE" in caught.value.message


def test_by_option_there_is_no_fallback() -> None:
    with old_server() as old:
        with pytest.raises(HttpError) as caught:
            syncmcp.connect(syncmcp.Http(old.server.url, transport="streamable"))
        assert caught.value.status == 405
        assert methods(old) == ["server/discover", "initialize"]


@pytest.mark.requirement("VER-16")
def test_a_client_knows_the_transport_the_next_time() -> None:
    with old_server() as old:
        client = syncmcp.Client(old.server.url)
        for _ in range(2):
            with client:
                assert client.call_tool("work").text == "done"
        assert methods(old) == ["server/discover", "initialize", "GET", "GET"]


@pytest.mark.requirement("VER-16")
def test_a_server_that_is_no_old_one_any_more_is_found_out_anew() -> None:
    with old_server() as old, serve_http(Server("new")) as new:
        client = syncmcp.Client(old.server.url)
        with client:
            assert client.server.revision == "2024-11-05"

        def moved(request: Request) -> None:
            if request.method == "GET":
                request.connection.respond(405)
            else:
                reply = new.endpoint.handle_post(request.headers, request.body)
                assert isinstance(reply.body, bytes)
                request.connection.respond(reply.status, reply.body, reply.headers)

        old.server.script = moved
        with client:
            assert client.server.revision == "2026-07-28"


def test_a_transport_that_there_is_not_is_refused() -> None:
    with pytest.raises(syncmcp.UsageError, match="'auto', 'streamable' or 'sse'"):
        syncmcp.Http("http://127.0.0.1/", transport="websocket")  # type: ignore[arg-type]
