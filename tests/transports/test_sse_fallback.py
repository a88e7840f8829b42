"""Which transport a URL leads to: Streamable HTTP, or HTTP+SSE where the server is an old one."""

from __future__ import annotations

import json
from typing import Any

import pytest

import syncmcp
from syncmcp.errors import AuthError, HttpError, ServerError
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


@pytest.mark.parametrize("mode", ["legacy", "2024-11-05"])
@pytest.mark.requirement("HTL-16")
def test_whoever_insists_on_the_handshake_gets_there_without_a_probe(mode: syncmcp.Mode) -> None:
    with old_server() as old:
        with syncmcp.connect(old.server.url, mode=mode) as client:
            assert client.call_tool("work").text == "done"
        assert methods(old) == ["initialize", "GET"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthError), (403, AuthError), (406, HttpError), (415, HttpError), (501, HttpError)],
)
@pytest.mark.requirement("HTL-16")
def test_no_other_refusal_is_a_sign_of_an_old_server(status: int, kind: type[HttpError]) -> None:
    with old_server() as old:
        old.refuse_post = (status, b"")
        with pytest.raises(kind) as caught:
            syncmcp.connect(old.server.url, mode="legacy", retry=None)
        assert caught.value.status == status
        assert methods(old) == ["initialize"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error(-32020)),
        (400, error(-32021)),
        (400, error(-32022, {"supported": ["2099-01-01"]})),
        (404, error(-32601)),
    ],
)
@pytest.mark.requirement("SSE-03")
def test_a_refusal_that_a_stateless_server_could_have_written_is_no_sign_of_an_old_one(
    status: int, body: bytes
) -> None:
    with old_server() as old:
        old.refuse_post = (status, body)
        with pytest.raises(ServerError):
            syncmcp.connect(old.server.url, mode="legacy")
        assert methods(old) == ["initialize"]


def test_an_error_that_came_with_success_is_the_servers_own_word() -> None:
    def script(request: Request) -> None:
        request.connection.json(json.loads(error(-32000)))

    with old_server() as old:
        old.server.script = script
        with pytest.raises(ServerError) as caught:
            syncmcp.connect(old.server.url, mode="legacy")
        assert caught.value.status == 0
        assert methods(old) == ["initialize"]


@pytest.mark.parametrize("status", [200, 404, 405])
@pytest.mark.requirement("HTL-16")
def test_where_the_fallback_fails_the_first_error_counts_and_both_are_named(status: int) -> None:
    def script(request: Request) -> None:
        if request.method == "GET":
            request.connection.respond(status, b"nothing", {"Content-Type": "text/plain"})
        else:
            request.connection.respond(404, b"no such page")

    with old_server() as old:
        old.server.script = script
        with pytest.raises(HttpError) as caught:
            syncmcp.connect(old.server.url)
        assert (caught.value.status, caught.value.method) == (404, "initialize")
        assert caught.value.body == "no such page"
        why = "'text/plain'" if status == 200 else f"HTTP {status}"
        assert why in caught.value.message.partition("HTTP+SSE")[2]
        assert methods(old) == ["server/discover", "initialize", "GET"]


def test_a_stream_that_is_none_of_an_old_server_costs_no_more_than_a_probe() -> None:
    with old_server() as old:
        old.address = None
        with pytest.raises(HttpError) as caught:
            syncmcp.connect(old.server.url, probe_timeout=0.2)
        assert caught.value.status == 405
        assert "HTTP+SSE" in caught.value.message


def test_credentials_wanted_for_the_stream_are_what_the_user_hears_of() -> None:
    def script(request: Request) -> None:
        request.connection.respond(401 if request.method == "GET" else 405)

    with old_server() as old:
        old.server.script = script
        with pytest.raises(AuthError) as caught:
            syncmcp.connect(old.server.url)
        assert caught.value.status == 401


def test_by_option_there_is_no_fallback() -> None:
    with old_server() as old:
        with pytest.raises(HttpError) as caught:
            syncmcp.connect(syncmcp.Http(old.server.url, transport="streamable"))
        assert caught.value.status == 405
        assert methods(old) == ["server/discover", "initialize"]


def test_by_option_nothing_else_is_tried_first() -> None:
    with old_server() as old:
        with syncmcp.connect(syncmcp.Http(old.server.url, transport="sse")) as client:
            assert client.call_tool("work").text == "done"
        assert methods(old) == ["GET"]


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
