"""HTTP+SSE with a server that tests control."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from requests.auth import HTTPBasicAuth

import syncmcp
from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    ProtocolError,
    RequestTimeout,
    ServerError,
    UsageError,
)
from syncmcp.testing import Server, serve_http
from syncmcp.transports._http_reply import MAX_ADDRESS
from syncmcp.transports.sse import SseTransport
from tests.support.stage import elsewhere
from tests.transports.certificates import Certificates
from tests.transports.http_peer import WAIT, FakeReceiver, ForeignAdapter, Held, Request, calling
from tests.transports.old_peer import ADDRESS, OldServer, connected, old_server, opened, target


def call(client: syncmcp.Client, **options: Any) -> str:
    return client.call_tool("work", **options).text


# The URL for messages


@pytest.mark.parametrize(
    ("named", "path"),
    [
        (ADDRESS, ADDRESS),
        ("messages?session=1", "/messages?session=1"),
        ("?session=1", "/mcp?session=1"),
        ("HTTP://127.0.0.1:{port}/deep/er?x=1#part", "/deep/er?x=1"),
        ("//127.0.0.1:{port}/x", "/x"),
    ],
)
@pytest.mark.requirement("SSE-01")
def test_messages_are_posted_to_the_address_that_the_stream_names(named: str, path: str) -> None:
    with old_server() as old:
        old.address = named.format(port=old.server.port)
        with connected(old) as client:
            assert client.server.revision == "2024-11-05"
            assert call(client) == "done"
        [stream] = old.requests("GET")
        assert (stream.path, stream.headers["accept"]) == ("/mcp", "text/event-stream")
        posts = old.requests("POST")
        assert [post.message["method"] for post in posts] == [
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]
        assert {post.path for post in posts} == {path}
        assert {post.headers["content-type"] for post in posts} == {"application/json"}


ELSEWHERE = "http://127.0.0.1:1 https://127.0.0.1:{port} http://[::1]:{port} //elsewhere.invalid"
NO_ADDRESS = ("http://me:pa55word@127.0.0.1:{port}/m", "", "http://[oops", "/a b", "/%C3%A9\u00e9")


@pytest.mark.parametrize("named", [*(f"{one}/messages" for one in ELSEWHERE.split()), *NO_ADDRESS])
@pytest.mark.requirement("SSE-01", "SEC-05")
def test_an_address_of_another_origin_is_refused_and_both_are_named(named: str) -> None:
    with old_server() as old:
        port = old.server.port
        there = old.address = named.format(port=port)
        with pytest.raises(ProtocolError) as caught:
            syncmcp.connect(target(old))
        assert "pa55word" not in str(caught.value)
        if there.endswith("/messages"):
            origin = f"{'http:' * there.startswith('//')}{there.removesuffix('/messages')}"
            assert f"http://127.0.0.1:{port} " in str(caught.value)
            assert f" {origin}," in str(caught.value)
        assert [one.method for one in old.server.requests] == ["GET"]


def test_an_address_has_a_longest_length() -> None:
    longest = f"/messages?{'k=v&' * MAX_ADDRESS}"[:MAX_ADDRESS]
    with old_server() as old:
        old.address = longest
        with connected(old) as client:
            call(client)
        old.address = f"{longest}x"
        with pytest.raises(ProtocolError, match="more than 16,384 bytes"):
            syncmcp.connect(target(old))


# Messages of the stream


@pytest.mark.requirement("SSE-02")
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_are_read_from_the_events_named_message(size: int) -> None:
    with old_server() as old:
        old.prelude = b"\xef\xbb\xbf: hello\r\n\r\nid: 1\r\nretry: 5\r\n\r\n"
        old.answers = False
        with connected(old) as client:
            future = client.call_tool.future("work")
            old.wait_for_calls(1)
            answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}'
            right, wrong = (answer % (old.calls[0], word) for word in (b"right", b"wrong"))
            stream = b"id: 3\r\n\r\n: comment\r\nevent: other\r\ndata: %b\r\n\r\n" % wrong
            stream += b"event: endpoint\r\ndata: /elsewhere\r\n\r\nevent: message\r\nid: 4\r\n"
            stream += b"data: %b\r\ndata: %b\r\n\r\n" % (right[:17], right[17:])
            for start in range(0, len(stream), size):
                old.write(stream[start : start + size])
            assert future.result(WAIT).text == "right"
            old.answers = True
            assert call(client) == "done"
        assert {one.path for one in old.requests("POST")} == {ADDRESS}


class Hasty(OldServer):
    """Answers a call on the stream before its POST, which may never get a response."""

    def __init__(self, *, accepts: bool) -> None:
        super().__init__()
        self.accepts = accepts
        self.given_up = threading.Event()

    def take(self, request: Request) -> None:
        if request.message.get("method") != "tools/call":
            super().take(request)
            return
        self.answer(request.id, "hasty")
        if self.accepts:
            request.connection.respond(202)
        elif request.connection.wait_for_end():
            self.given_up.set()


def test_a_post_answered_late_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp.transports.sse._LATE_POST", WAIT)
    hasty = Hasty(accepts=True)
    with old_server() as old:
        old.server.script, hasty.server = hasty, old.server
        with connected(hasty) as client:
            assert [call(client) for _ in range(5)] == ["hasty"] * 5
        assert len(old.server.connections) == 2  # one for the stream, one for POSTs


@pytest.mark.pitfall("22")
def test_comments_are_a_sign_of_life_and_what_comes_behind_the_address_is_not_lost() -> None:
    early = {"jsonrpc": "2.0", "method": "notifications/early"}
    with old_server() as old:
        old.address = f"{ADDRESS}\n\nevent: message\ndata: {json.dumps(early)}"
        with opened(old) as (_, receiver):
            receiver.wait_for(lambda: len(receiver.frames) == 1)
            del receiver.signs[:]
            old.write(b": still here\n\n")
            receiver.wait_for(lambda: receiver.signs == [None])
            assert receiver.messages == [early]


@pytest.mark.parametrize("ends", [True, False], ids=["end", "cut"])
@pytest.mark.pitfall("22")
def test_the_end_of_the_stream_ends_all_calls_and_the_next_one_opens_another(ends: bool) -> None:
    with old_server() as old, connected(old) as client:
        old.answers = False
        futures = [client.call_tool.future("work") for _ in range(3)]
        old.wait_for_calls(3)
        if ends:
            old.streams[0].end_events()
        old.streams[0].close()
        for future in futures:
            error = future.exception(WAIT)
            assert isinstance(error, ConnectionLost)
            assert (error.delivery, error.server) == ("unknown", client.server.name)
        old.answers = True
        assert call(client) == "done"
        assert len(old.streams) == 2


# Opening


def test_a_stream_that_names_no_address_ends_the_opening_in_time() -> None:
    with old_server() as old:
        old.address = None
        with pytest.raises(RequestTimeout, match="has named no URL for messages") as caught:
            syncmcp.connect(target(old), open_timeout=0.2)
        assert (caught.value.kind, caught.value.seconds) == ("open", 0.2)
        assert old.streams[0].ended.wait(WAIT)


def test_a_stream_that_ends_without_an_address_is_a_failed_connection() -> None:
    def brief(request: Request) -> None:
        old.open_stream(request)
        request.connection.end_events()

    with old_server() as old:
        old.address, old.server.script = None, brief
        with pytest.raises(ConnectFailed, match="ended before the event `endpoint`"):
            syncmcp.connect(target(old))


def test_a_stream_that_begins_with_a_message_is_none_of_an_old_server() -> None:
    with old_server() as old:
        old.prelude = b'data: {"jsonrpc":"2.0","method":"x"}\n\n'
        with pytest.raises(ProtocolError, match="does not begin with"):
            syncmcp.connect(target(old))


@pytest.mark.parametrize("status", [200, 204, 401, 503])
def test_a_get_that_brings_no_stream_says_what_came(status: int) -> None:
    def script(request: Request) -> None:
        kind = "text/html" if status == 200 else ""
        request.connection.respond(status, b"" if status == 204 else b"no", {"Content-Type": kind})

    with old_server() as old:
        old.server.script = script
        with pytest.raises(AuthError if status == 401 else HttpError) as caught:
            syncmcp.connect(target(old), retry=None)
        assert caught.value.status == status
        assert old.server.url in str(caught.value)
        assert [one.method for one in old.server.requests] == ["GET"]


def test_a_transport_that_never_opened_can_be_closed() -> None:
    with old_server() as old:
        transport = SseTransport(target(old))
        transport.close(Deadline(WAIT))
        with pytest.raises(ClosedError):
            transport.open(FakeReceiver(), Deadline(WAIT))
        assert old.server.requests == []


def test_neither_a_stateless_revision_nor_another_transport_can_be_chosen() -> None:
    http = syncmcp.Http("http://127.0.0.1/sse", transport="sse")
    with pytest.raises(UsageError, match="2026-07-28"):
        syncmcp.Client(http, mode="2026-07-28")
    with pytest.raises(UsageError, match="'auto', 'streamable' or 'sse'"):
        syncmcp.Http("http://127.0.0.1/", transport="websocket")  # type: ignore[arg-type]


# Outgoing messages


@pytest.mark.parametrize(
    ("status", "error"), [(400, HttpError), (401, AuthError), (403, AuthError), (500, HttpError)]
)
def test_a_refused_post_fails_its_call_alone(status: int, error: type[HttpError]) -> None:
    with old_server() as old, connected(old) as client:
        old.answers = False
        other = client.call_tool.future("work")
        old.wait_for_calls(1)
        old.status = (status, b"go away")
        with pytest.raises(error) as caught:
            call(client)
        assert (caught.value.status, caught.value.body) == (status, "go away")
        old.answer(old.calls[0])
        assert other.result(WAIT).text == "done"
        assert len(old.streams) == 1


@pytest.mark.requirement("SSE-01")
def test_a_call_refused_by_a_forgotten_session_goes_to_a_new_one() -> None:
    with old_server() as old, connected(old) as client:
        old.status = (404, b"Could not find session")

        def fresh(request: Request) -> None:
            if request.method == "GET":
                old.status = (202, b"")
            old(request)

        old.server.script = fresh
        assert call(client) == "done"
        assert len(old.streams) == 2
        assert len(old.calls) == 2


@pytest.mark.parametrize("wire", ["plain", "TLS"])
@pytest.mark.pitfall("H1")
def test_a_post_that_is_not_accepted_ends_with_its_deadline_or_when_cancelled(
    wire: str, certificates: Certificates
) -> None:
    with reached_over(wire, certificates) as (old, http), connected(old, http) as client:
        held = Held()
        old.server.script = calling(held, old)
        with pytest.raises(RequestTimeout) as caught:
            call(client, timeout=0.1)
        assert caught.value.delivery == "unknown"
        assert held.gone.wait(WAIT)
        held.came.clear()
        held.gone.clear()
        future = client.call_tool.future("work", timeout=None)
        assert held.came.wait(WAIT)
        assert future.cancel()
        assert held.gone.wait(WAIT)


def test_headers_and_credentials_go_with_the_stream_and_with_every_message() -> None:
    with old_server() as old:
        http = target(old, headers={"X-Key": "k"}, auth=HTTPBasicAuth("me", "pw"))
        with connected(old, http) as client:
            assert call(client, headers={"X-Call": "one"}) == "done"
        for one in old.server.requests:
            assert one.headers["x-key"] == "k"
            assert one.headers["authorization"].startswith("Basic ")
            is_call = one in old.posted("tools/call")
            assert one.headers.get("x-call") == ("one" if is_call else None)


# TLS, SOCKS proxies, and adapters of the program


@contextmanager
def reached_over(wire: str, certificates: Certificates) -> Iterator[tuple[OldServer, Http]]:
    """Yield a server of 2024-11-05, and a target that reaches it over this wire."""
    context = certificates.server_context() if wire == "TLS" else None
    with old_server(context) as old, requests.Session() as session:
        if wire == "TLS":
            yield old, target(old, verify=certificates.authority)
        elif wire == "plain":
            yield old, target(old)
        else:
            session.mount("http://", ForeignAdapter())
            yield old, target(old, session=session)


@pytest.mark.parametrize(
    ("wire", "closes"), [("plain", True), ("TLS", False), ("TLS", True), ("foreign adapter", True)]
)
@pytest.mark.requirement("SSE-01", "SSE-02")
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
            assert call(client) == "done"
    assert set(seen) == {None}


@pytest.mark.parametrize("wire", ["plain", "TLS"])
def test_closing_ends_a_wait_for_the_address(wire: str, certificates: Certificates) -> None:
    with reached_over(wire, certificates) as (old, http):
        old.address = None
        client = syncmcp.Client(http)
        opening = elsewhere(client.open)
        old.wait_for(lambda: len(old.streams) == 1)
        client.close()
        assert type(opening.exception(WAIT)) is syncmcp.ClosedError
        assert old.streams[0].ended.wait(WAIT)


# Detecting the transport of a URL


def error(code: int, data: Any = None) -> bytes:
    """Return the body of a JSON-RPC error without an id."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "no", "data": data}}
    return json.dumps(body).encode()


def methods(old: OldServer) -> list[str]:
    """Return the requests to the URL of the stream: `GET`, or the JSON-RPC method of a POST."""
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
def test_who_refuses_the_handshake_so_is_reached_over_http_sse(status: int, body: bytes) -> None:
    with old_server() as old:
        old.refuse_post = (status, body)
        with syncmcp.connect(old.server.url) as client:
            assert client.server.revision == "2024-11-05"
            assert call(client) == "done"
        assert methods(old) == ["server/discover", "initialize", "GET"]


def test_an_error_that_came_with_success_is_the_servers_own_word() -> None:
    with old_server() as old:
        old.server.script = lambda one: one.connection.json(json.loads(error(-32000)))
        with pytest.raises(ServerError) as caught:
            syncmcp.connect(old.server.url, mode="legacy")
        assert caught.value.status == 0
        assert methods(old) == ["initialize"]


def test_a_stream_that_is_none_of_an_old_server_costs_no_more_than_a_probe() -> None:
    with old_server() as old:
        old.address = None
        with pytest.raises(HttpError, match=r"HTTP\+SSE") as caught:
            syncmcp.connect(old.server.url, probe_timeout=0.2)
        assert caught.value.status == 405


def test_by_option_there_is_no_fallback() -> None:
    with old_server() as old:
        with pytest.raises(HttpError) as caught:
            syncmcp.connect(syncmcp.Http(old.server.url, transport="streamable"))
        assert caught.value.status == 405
        assert methods(old) == ["server/discover", "initialize"]


@pytest.mark.requirement("VER-16")
def test_a_client_knows_the_transport_until_the_server_is_no_old_one_any_more() -> None:
    def moved(request: Request) -> None:
        if request.method == "GET":
            request.connection.respond(405)
        else:
            reply = new.endpoint.handle_post(request.headers, request.body)
            assert isinstance(reply.body, bytes)
            request.connection.respond(reply.status, reply.body, reply.headers)

    with old_server() as old, serve_http(Server("new")) as new:
        client = syncmcp.Client(old.server.url)
        for _ in range(2):
            with client:
                assert client.server.revision == "2024-11-05"
                assert call(client) == "done"
        assert methods(old) == ["server/discover", "initialize", "GET", "GET"]
        old.server.script = moved
        with client:
            assert client.server.revision == "2026-07-28"
