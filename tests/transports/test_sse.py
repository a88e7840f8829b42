"""HTTP+SSE against a server that does exactly what a test wants."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from requests.auth import HTTPBasicAuth

import syncmcp
from syncmcp.auth import Deadline
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    ProtocolError,
    RequestTimeout,
    UsageError,
)
from syncmcp.transports._http_reply import MAX_ADDRESS
from syncmcp.transports.sse import SseTransport
from tests.transports.http_peer import WAIT, FakeReceiver, Request, request
from tests.transports.old_peer import ADDRESS, OldServer, connected, old_server, opened, target


def call(client: syncmcp.Client, **options: Any) -> str:
    return client.call_tool("work", **options).text


# The address for messages


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


@pytest.mark.parametrize(
    ("named", "there"),
    [
        ("http://127.0.0.1:1/messages", "http://127.0.0.1:1"),
        ("https://127.0.0.1:{port}/messages", "https://127.0.0.1:{port}"),
        ("http://localhost:{port}/messages", "http://localhost:{port}"),
        ("//elsewhere.invalid/messages", "http://elsewhere.invalid"),
        ("http://[::1]:{port}/messages", "http://[::1]:{port}"),
        ("ftp://127.0.0.1:{port}/messages", "ftp://127.0.0.1:{port}"),
    ],
)
@pytest.mark.requirement("SSE-01", "SEC-05")
def test_an_address_of_another_origin_is_refused_and_both_are_named(named: str, there: str) -> None:
    with old_server() as old:
        port = old.server.port
        old.address = named.format(port=port)
        with pytest.raises(ProtocolError) as caught:
            syncmcp.connect(target(old))
        assert f"http://127.0.0.1:{port} " in str(caught.value)
        assert f" {there.format(port=port)}," in str(caught.value)
        assert [one.method for one in old.server.requests] == ["GET"]


@pytest.mark.parametrize(
    "named", ["http://me:pa55word@127.0.0.1:{port}/m", "", "http://[oops", "/a b", "/%C3%A9\u00e9"]
)
@pytest.mark.requirement("SEC-05")
def test_an_address_that_cannot_be_one_is_refused(named: str) -> None:
    with old_server() as old:
        old.address = named.format(port=old.server.port)
        with pytest.raises(ProtocolError) as caught:
            syncmcp.connect(target(old))
        assert "pa55word" not in str(caught.value)
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


# What comes on the stream


@pytest.mark.requirement("SSE-02")
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_are_read_from_the_events_named_message(size: int) -> None:
    with old_server() as old:
        old.prelude = b"\xef\xbb\xbf: hello\r\n\r\nid: 1\r\nretry: 5\r\n\r\n"
        old.answers = False
        with connected(old) as client:
            future = client.call_tool.future("work")
            old.wait_for_calls(1)
            [id] = old.calls
            answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}'
            right, wrong = answer % (id, b"right"), answer % (id, b"wrong")
            stream = b"id: 3\r\n\r\n: comment\r\nevent: other\r\ndata: %b\r\n\r\n" % wrong
            stream += b"event: endpoint\r\ndata: /elsewhere\r\n\r\n"
            stream += b"event: message\r\nid: 4\r\ndata: %b\r\ndata: %b\r\n\r\n" % (
                right[:17],
                right[17:],
            )
            for start in range(0, len(stream), size):
                old.write(stream[start : start + size])
            assert future.result(WAIT).text == "right"
            old.answers = True
            assert call(client) == "done"
        assert {one.path for one in old.requests("POST")} == {ADDRESS}


class Hasty(OldServer):
    """Answers a call on the stream before its POST, and may keep the POST for ever."""

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


def test_a_post_that_is_answered_after_the_call_keeps_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncmcp.transports.sse._LATE_POST", WAIT)
    hasty = Hasty(accepts=True)
    with old_server() as old:
        old.server.script, hasty.server = hasty, old.server
        with connected(hasty) as client:
            assert [call(client) for _ in range(5)] == ["hasty"] * 5
        assert len(old.server.connections) == 2  # one for the stream, one for messages


def test_what_comes_right_behind_the_first_event_is_not_lost() -> None:
    with old_server() as old:
        message = '{"jsonrpc":"2.0","method":"notifications/early"}'
        old.address = f"{ADDRESS}\n\nevent: message\ndata: {message}"
        with opened(old) as (_, receiver):
            receiver.wait_for(lambda: len(receiver.frames) == 1)
        assert receiver.messages == [{"jsonrpc": "2.0", "method": "notifications/early"}]


@pytest.mark.pitfall("22")
def test_comments_are_a_sign_of_life_for_every_call() -> None:
    with old_server() as old, opened(old) as (_, receiver):
        old.write(b": still here\n\n")
        receiver.wait_for(lambda: receiver.signs == [None])
        assert receiver.frames == []


@pytest.mark.parametrize("way", ["end", "cut"])
@pytest.mark.pitfall("22")
def test_the_end_of_the_stream_is_the_end_of_all_calls_and_the_next_one_opens_another(
    way: str,
) -> None:
    with old_server() as old, connected(old) as client:
        old.answers = False
        futures = [client.call_tool.future("work") for _ in range(3)]
        old.wait_for_calls(3)
        stream = old.streams[0]
        if way == "end":
            stream.end_events()
        stream.close()
        for future in futures:
            error = future.exception(WAIT)
            assert isinstance(error, ConnectionLost)
            assert error.delivery == "unknown"
            assert error.server == client.server.name
        old.answers = True
        assert call(client) == "done"
        assert len(old.streams) == 2


# Opening


def test_a_stream_that_names_no_address_ends_the_opening_in_time() -> None:
    with old_server() as old:
        old.address = None
        with pytest.raises(RequestTimeout) as caught:
            syncmcp.connect(target(old), open_timeout=1.0)
        assert (caught.value.kind, caught.value.seconds) == ("open", 1.0)
        assert "has named no URL for messages" in str(caught.value)
        assert old.streams[0].ended.wait(WAIT)


def test_a_stream_that_ends_without_an_address_is_a_failed_connection() -> None:
    class Brief(OldServer):
        def open_stream(self, request: Request) -> None:
            super().open_stream(request)
            request.connection.end_events()

    brief = Brief()
    brief.address = None
    with old_server() as old:
        old.server.script = brief
        with pytest.raises(ConnectFailed, match="ended before the event `endpoint`"):
            syncmcp.connect(target(old))


def test_a_stream_that_begins_with_a_message_is_none_of_an_old_server() -> None:
    with old_server() as old:
        old.prelude = b'data: {"jsonrpc":"2.0","method":"x"}\n\n'
        with pytest.raises(ProtocolError, match="does not begin with"):
            syncmcp.connect(target(old))


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (200, "text/html", HttpError),
        (204, "", HttpError),
        (404, "", HttpError),
        (405, "", HttpError),
        (401, "", AuthError),
        (503, "", HttpError),
    ],
)
def test_a_get_that_brings_no_stream_says_what_came(
    status: int, kind: str, error: type[HttpError]
) -> None:
    def script(request: Request) -> None:
        request.connection.respond(status, b"" if status == 204 else b"no", {"Content-Type": kind})

    with old_server() as old:
        old.server.script = script
        with pytest.raises(error) as caught:
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


def test_a_stateless_revision_is_not_spoken_over_it() -> None:
    http = syncmcp.Http("http://127.0.0.1/sse", transport="sse")
    with pytest.raises(UsageError, match="2026-07-28"):
        syncmcp.Client(http, mode="2026-07-28")


# Messages on their way out


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

        class Fresh(OldServer):
            def open_stream(self, request: Request) -> None:
                old.status = (202, b"")
                old.open_stream(request)

            def take(self, request: Request) -> None:
                old.take(request)

        old.server.script = Fresh()
        assert call(client) == "done"
        assert len(old.streams) == 2
        assert len(old.calls) == 2


def test_a_post_that_is_not_accepted_ends_with_its_deadline() -> None:
    class Deaf(OldServer):
        def take(self, request: Request) -> None:
            assert request.connection.wait_for_end()

    with old_server() as old:
        old.server.script = Deaf()
        with opened(old) as (transport, receiver):
            transport.send(request(seconds=0.1))
            assert isinstance(receiver.error, RequestTimeout)
            assert receiver.error.delivery == "unknown"


def test_headers_and_credentials_go_with_the_stream_and_with_every_message() -> None:
    with old_server() as old:
        http = target(old, headers={"X-Key": "k"}, auth=HTTPBasicAuth("me", "pw"))
        with syncmcp.connect(http) as client:
            assert call(client, headers={"X-Call": "one"}) == "done"
        for one in old.server.requests:
            assert one.headers["x-key"] == "k"
            assert one.headers["authorization"].startswith("Basic ")
        assert [one.headers.get("x-call") for one in old.posted("tools/call")] == ["one"]
        assert old.posted("initialize")[0].headers.get("x-call") is None


def test_a_redirect_within_the_origin_is_followed() -> None:
    class Moved(OldServer):
        def __call__(self, request: Request) -> None:
            if request.path.startswith("/new"):
                super().__call__(request)
            else:
                request.connection.respond(307, b"", {"Location": f"/new{request.path}"})

    moved = Moved()
    with old_server() as old:
        old.server.script = moved
        moved.server = old.server
        with connected(moved) as client:
            assert call(client) == "done"
        assert [one.path for one in moved.requests("GET")] == ["/mcp", "/new/mcp"]
        assert [one.path for one in moved.posted("tools/call")] == [ADDRESS, f"/new{ADDRESS}"]
