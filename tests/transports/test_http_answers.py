"""The meaning of each HTTP response to a request, also of broken servers and proxies."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from syncmcp.config import Http
from syncmcp.errors import (
    AuthError,
    ConnectionLost,
    HttpError,
    LimitExceeded,
    McpError,
    ProtocolError,
)
from tests.support.memory import peak

from .http_peer import (
    WAIT,
    Connection,
    FakeReceiver,
    Held,
    RawServer,
    Request,
    Script,
    opened,
    request,
    send_one,
    serving,
    start,
    streamed,
)
from .test_http_exchange import answer, respond


def reply_to(one: Request) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": one.id, "result": {}}).encode()


def whole(one: Request, body: bytes | None = None, length: int = -1, more: bytes = b"") -> bytes:
    body = reply_to(one) if body is None else body
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
    return head % (more, len(body) if length < 0 else length) + body


def written(make: Callable[[Request], bytes]) -> Script:
    """Return a script that writes the bytes that `make` returns, and closes the connection."""

    def script(one: Request) -> None:
        one.connection.write(make(one))
        one.connection.close()

    return script


def error_for(id: str | None, status: int) -> Script:
    message = {"jsonrpc": "2.0", "id": id, "error": {"code": -32001}}
    return lambda one: one.connection.json(message, status)


def compressed(cut: int | None, end: bytes = b"") -> Script:
    def make(one: Request) -> bytes:
        body = gzip.compress(reply_to(one))[:cut] + end
        return whole(one, body, more=b"Content-Encoding: gzip\r\n")

    return written(make)


PIECES = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
)
JSON = "application/json"
NOT_THE_ANSWER = "the server's response does not answer the request"
LOST = "the connection ended before the response"
TOO_LONG = "max_body=1000"
# A response, and the error of the call, with a limit of 1,000 bytes.
NO_ANSWERS: dict[str, tuple[Script, type[McpError], str]] = {
    "202": (respond(202), ProtocolError, "HTTP 202 and nothing else"),
    "no JSON": (respond(200, b"not json", JSON), ProtocolError, NOT_THE_ANSWER),
    "another id": (respond(200, b'{"id": "o", "result": 1}', JSON), ProtocolError, NOT_THE_ANSWER),
    "an empty stream": (streamed(), ProtocolError, "empty event stream"),
    "fewer bytes": (written(lambda one: whole(one, length=5)), ProtocolError, NOT_THE_ANSWER),
    "an error of another id": (error_for("other", 400), HttpError, "400"),
    "no credentials": (error_for(None, 401), AuthError, "requires credentials"),
    "other credentials": (error_for(None, 403), AuthError, "forbids this"),
    "another encoding": (respond(200, b"x", JSON, Content_Encoding="br"), HttpError, "'br'"),
    "a page": (respond(200, b"<html>Login</html>"), HttpError, "'text/html' instead of JSON"),
    "too much": (respond(200, b"x" * 1001, JSON), LimitExceeded, TOO_LONG),
    "too much in pieces": (written(lambda _: PIECES), LimitExceeded, TOO_LONG),
    "a long event": (
        streamed(b"data: " + b"x" * 2000, then=Connection.hold), LimitExceeded, TOO_LONG
    ),
    "an absurd length": (written(lambda one: whole(one, length=10**20)), LimitExceeded, TOO_LONG),
    "more bytes": (written(lambda one: whole(one, length=500)), ConnectionLost, LOST),
    "two lengths": (
        written(lambda one: whole(one, more=b"Content-Length: 3\r\n")), ConnectionLost,
        "Content-Length",
    ),
    "compressed and cut": (compressed(-4), ConnectionLost, "ended early"),
    "one and a piece": (compressed(None, b"\x1f\x8b\x08"), ConnectionLost, "ended early"),
    "one and rubbish": (compressed(None, b"rubbish"), ConnectionLost, LOST),
    "nothing": (written(lambda _: b""), ConnectionLost, LOST),
    "another protocol": (written(lambda _: b"SSH-2.0-OpenSSH\r\n"), ConnectionLost, LOST),
}  # fmt: skip


@pytest.mark.pitfall("8")
@pytest.mark.parametrize(("script", "kind", "words"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_a_request_without_its_answer_fails(
    script: Script, kind: type[McpError], words: str
) -> None:
    receiver = send_one(script, lambda url: Http(url, max_body=1000))
    error: Any = receiver.error
    assert type(receiver.error) is kind
    assert words in str(error)
    if kind is not ProtocolError:
        assert receiver.frames == [] or words == "400"
        assert error.delivery == ("refused" if kind is AuthError or words == "400" else "unknown")
    if kind is ConnectionLost:
        # A cause whose text contains a line end of the server is left out.
        assert (error.__cause__ is None) is ("SSH" in str(error))
    if "text/html" in str(error):
        assert "is the path right" in str(error)
        assert "Login" in error.body


@pytest.mark.pitfall("8")
@pytest.mark.parametrize("encoding", ["identity", "gzip"])  # "gzip" is false: the body is plain
@pytest.mark.parametrize(
    ("statuses", "kind", "delivery"),
    [
        ([400, 404, 405, 429], HttpError, "refused"),
        ([401, 403], AuthError, "refused"),
        ([500, 503], HttpError, "unknown"),
    ],
)
def test_each_error_status_is_an_error_with_status_and_excerpt(
    statuses: list[int], kind: type[HttpError], delivery: str, encoding: str
) -> None:
    for status in statuses:
        script = respond(status, b"<h1>Go away</h1>", Content_Encoding=encoding)
        error = send_one(script).error
        assert type(error) is kind
        assert isinstance(error, HttpError)
        assert (error.status, error.delivery, error.method) == (status, delivery, "tools/call")
        assert error.body == ("<h1>Go away</h1>" if encoding == "identity" else "")
        assert error.server is not None
        assert "127.0.0.1" in error.server


@pytest.mark.parametrize(
    ("status", "without", "given"),
    [
        (401, "requires credentials", "rejects the credentials that the client sent"),
        (403, "forbids this", "forbids this with the credentials that the client sent"),
    ],
)
def test_refused_credentials_are_told_from_none(status: int, without: str, given: str) -> None:
    text = str(send_one(respond(status)).error)
    assert f"the server {without}, and the client sent no Authorization header" in text
    assert "auth=" in text
    assert "headers=" in text
    error = send_one(respond(status), lambda url: Http(url, token="abc.def-ghi")).error
    assert f"the server {given} " in str(error)


@pytest.mark.requirement("HTM-12")
@pytest.mark.parametrize(
    ("status", "with_id", "kind"),
    [
        (400, True, "application/json"),
        (404, False, "Application/JSON; charset=utf-8"),
        (500, True, "text/plain"),
        (400, False, "text/plain"),
    ],
)
def test_an_error_status_with_an_error_is_an_answer(status: int, with_id: bool, kind: str) -> None:
    def script(one: Request) -> None:
        id = {"id": one.id} if with_id else {}
        error = {"jsonrpc": "2.0", **id, "error": {"code": -32601}}
        one.connection.json(error, status, {"Content-Type": kind})

    receiver = send_one(script)
    assert not receiver.failures
    assert receiver.messages[0]["error"] == {"code": -32601}


@pytest.mark.requirement("HTM-07")
@pytest.mark.parametrize("name", ["Content-Encoding", "content-encoding", "CONTENT-ENCODING"])
def test_a_compressed_body_is_decoded_and_bounded_by_what_it_decodes_to(name: str) -> None:
    def script(one: Request) -> None:
        assert one.headers["accept-encoding"] == "gzip"
        padding = "x" * one.message["params"]["size"]
        body = json.dumps({"jsonrpc": "2.0", "id": one.id, "result": {"x": padding}}).encode()
        half = len(body) // 2
        members = (body[:half], b"", body[half:])
        packed = b"".join(map(gzip.compress, members))
        headers = {"Content-Type": "application/json", name: "GZIP"}
        one.connection.respond(200, packed, headers)

    with serving(script) as server, opened(Http(server.url, max_body=100_000)) as (transport, got):
        transport.send(request(params={"size": 90_000}))
        transport.send(request(params={"size": 100_000}))
    assert got.messages[0]["result"] == {"x": "x" * 90_000}
    assert isinstance(got.error, LimitExceeded)


def test_a_refusal_names_its_status_once_and_shows_a_page_by_its_title() -> None:
    page = b"<!doctype html><html><head><title>Not\n here</title></head>" + b"<p>" * 400
    text = str(send_one(respond(404, page)).error)
    assert re.findall(r"\b404\b", text) == ["404"]  # a port may contain these digits
    assert "body began with: Not here;" in text
    assert "is it an MCP server, and is the path right" in text
    assert "is the path right" in str(send_one(respond(501)).error)  # as from a file server
    assert "is the path right" not in str(send_one(respond(500)).error)


def test_a_refusal_shows_only_the_beginning_of_a_body_without_a_title() -> None:
    error = send_one(respond(400, b"word " * 300, "text/plain")).error
    assert isinstance(error, HttpError)
    assert error.body.startswith("word word")
    assert len(error.body) <= 200
    assert "path" not in str(error)


@pytest.mark.requirement("HTM-07")
@pytest.mark.parametrize(
    ("status", "name"), [(429, "Retry_After"), (503, "retry_after"), (429, "RETRY_AFTER")]
)
def test_a_refusal_says_when_to_try_again(status: int, name: str) -> None:
    headers: Any = {name: "30"}
    error = send_one(respond(status, **headers)).error
    assert isinstance(error, HttpError)
    assert error.retry_after == 30
    assert "Retry-After: 30" in str(error)


def send_several(script: Script, count: int = 2) -> tuple[RawServer, FakeReceiver]:
    """Send several requests, all of which are answered; return server and receiver."""
    with serving(script) as server, opened(server.url) as (transport, receiver):
        for _ in range(count):
            transport.send(request())
        assert receiver.failures == []
        assert len(receiver.frames) == count
    return server, receiver


@pytest.mark.parametrize(("status", "times"), [(100, 1), (102, 300), (103, 1), (199, 300)])
def test_what_a_server_says_on_the_way_is_not_its_answer(status: int, times: int) -> None:
    def script(one: Request) -> None:
        one.connection.write(b"HTTP/1.1 %d On The Way\r\nLink: </x>\r\n\r\n" % status * times)
        one.connection.write(whole(one))

    server, _ = send_several(script)
    assert len(server.connections) == 1


def test_a_body_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    count = 10_000
    rest = b"2\r\n  \r\n" * count  # spaces before the message, each in a chunk of its own

    def script(one: Request) -> None:
        one.connection.start_events({"Content-Type": "application/json"})
        one.connection.write(rest)
        one.connection.chunk(reply_to(one))
        one.connection.end_events()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        assert peak(lambda: transport.send(request())) < 2**18
        assert len(receiver.frames[0][0]) > 2 * count


def test_a_second_answer_to_one_request_is_nobodys() -> None:
    server, receiver = send_several(lambda one: one.connection.write(whole(one) * 2), 5)
    assert [message["id"] for message in receiver.messages] == [one.id for one in server.requests]


def test_an_answer_that_comes_on_the_listening_stream_after_202_is_too_late() -> None:
    held = Held(Connection.start_events)

    def script(one: Request) -> None:
        if one.method == "POST" and one.message["method"] == "tools/call":
            one.connection.respond(202)
            [stream] = [each.connection for each in server.requests if each.method == "GET"]
            stream.event(json.loads(reply_to(one)))
        else:
            (held if one.method == "GET" else answer)(one)

    with serving(script) as server, opened(server.url) as (transport, receiver):
        start(transport)
        assert held.came.wait(WAIT)
        transport.send(request())
        assert isinstance(receiver.error, ProtocolError)
        receiver.wait_for(lambda: len(receiver.frames) == 2)
        assert receiver.frames[1][1] is None
        assert receiver.ends == []
