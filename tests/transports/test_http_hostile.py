"""Servers and proxies that bend HTTP: each call has its own answer, or an error that is true."""

from __future__ import annotations

import gzip
import json
import socket
import struct

import pytest

from syncmcp.errors import (
    AuthError,
    ConnectionLost,
    HttpError,
    LimitExceeded,
    ProtocolError,
)
from tests.support.memory import peak
from tests.transports.http_peer import (
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
)
from tests.transports.test_http_exchange import answer as stateful

JSON = b"Content-Type: application/json\r\n"


def answer(one: Request) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": one.id, "result": {}}).encode()


def whole(one: Request, length: int | None = None) -> bytes:
    body = answer(one)
    size = len(body) if length is None else length
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (JSON, size, body)


def send_several(script: Script, count: int = 2) -> tuple[RawServer, FakeReceiver]:
    """Each of some calls gets an answer; returns who took part."""
    with serving(script) as server, opened(server.url) as (transport, receiver):
        for _ in range(count):
            transport.send(request())
        assert receiver.failures == []
        assert len(receiver.frames) == count
    return server, receiver


# Interim responses


@pytest.mark.parametrize(("status", "times"), [(100, 1), (102, 300), (103, 1), (199, 300)])
def test_what_a_server_says_on_the_way_is_not_its_answer(status: int, times: int) -> None:
    def script(one: Request) -> None:
        one.connection.write(b"HTTP/1.1 %d On The Way\r\nLink: </x>\r\n\r\n" % status * times)
        one.connection.write(whole(one))

    server, _ = send_several(script)
    assert len(server.connections) == 1


# Bodies that are not what their headers say


@pytest.mark.parametrize(
    ("status", "error"), [(400, HttpError), (401, AuthError), (500, HttpError)]
)
def test_an_error_that_is_wrongly_said_to_be_compressed_keeps_its_status(
    status: int, error: type[HttpError]
) -> None:
    found = send_one(
        lambda one: one.connection.respond(status, b"go away", {"Content-Encoding": "gzip"})
    ).error
    assert type(found) is error
    assert found.status == status


def test_a_body_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    count = 10_000
    rest = b"2\r\n  \r\n" * count  # blanks before the message, each piece of its own

    def script(one: Request) -> None:
        one.connection.start_events({"Content-Type": "application/json"})
        one.connection.write(rest)
        one.connection.chunk(answer(one))
        one.connection.end_events()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        assert peak(lambda: transport.send(request())) < 2**18
        assert len(receiver.frames[0][0]) > 2 * count


@pytest.mark.parametrize("end", [b"", b"\x1f\x8b\x08", b"rubbish"])
def test_a_compressed_answer_that_is_cut_or_followed_by_rubbish_is_no_answer(end: bytes) -> None:
    def script(one: Request) -> None:
        body = gzip.compress(answer(one))
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        one.connection.respond(200, body + end if end else body[:-4], headers)

    receiver = send_one(script)
    assert isinstance(receiver.error, ConnectionLost)
    assert receiver.error.delivery == "unknown"
    assert receiver.frames == []


@pytest.mark.parametrize(
    ("length", "error"), [(5, ProtocolError), (500, ConnectionLost), (10**20, LimitExceeded)]
)
def test_an_answer_of_another_length_than_it_says_is_none(
    length: int, error: type[Exception]
) -> None:
    def script(one: Request) -> None:
        one.connection.write(whole(one, length))
        one.connection.close()

    assert type(send_one(script).error) is error


def test_two_lengths_of_one_answer_are_none() -> None:
    def script(one: Request) -> None:
        one.connection.write(whole(one).replace(JSON, JSON + b"Content-Length: 3\r\n"))

    error = send_one(script).error
    assert isinstance(error, ConnectionLost)
    assert "Content-Length" in error.message


@pytest.mark.parametrize(
    "line", [b" folded\r\n", b"X: a\r\n\tb\r\n", b"X (y): 1\r\n", b"X:\x01\r\n"]
)
def test_a_line_that_is_no_ordinary_header_leaves_those_before_it(line: bytes) -> None:
    def script(one: Request) -> None:
        one.connection.write(whole(one).replace(b"\r\n\r\n", b"\r\nX: 1\r\n%b\r\n" % line))

    server, _ = send_several(script)
    assert len(server.connections) == 1


def test_a_second_answer_to_one_request_is_nobodys() -> None:
    server, receiver = send_several(lambda one: one.connection.write(whole(one) * 2), 5)
    assert [message["id"] for message in receiver.messages] == [one.id for one in server.requests]


# Connections that end at the wrong moment


def test_a_reset_behind_the_answer_costs_a_connection_and_nothing_else() -> None:
    def script(one: Request) -> None:
        connection = one.connection
        connection.start_events()
        connection.event(json.loads(answer(one)))
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sock.close()

    with serving(script) as server, opened(server.url) as (transport, receiver):
        for _ in range(3):
            transport.send(request())
        # A reset may overtake the answer; then the call says so.
        assert len(receiver.frames) + len(receiver.failures) == 3
        assert {type(error) for _, error in receiver.failures} <= {ConnectionLost}
    assert len(server.connections) == 3


def test_an_answer_that_comes_on_the_listening_stream_after_202_is_too_late() -> None:
    held = Held(Connection.start_events)

    def script(one: Request) -> None:
        if one.method == "GET":
            held(one)
        elif one.method == "DELETE" or one.message["method"] == "initialize":
            stateful(one)
        else:
            one.connection.respond(202)
            [stream] = [each.connection for each in server.requests if each.method == "GET"]
            stream.event(json.loads(answer(one)))

    with serving(script) as server, opened(server.url) as (transport, receiver):
        transport.send(request("initialize"))
        transport.adopt({"MCP-Protocol-Version": "2025-11-25"}, stateful=True)
        assert held.came.wait(WAIT)
        transport.send(request())
        assert isinstance(receiver.error, ProtocolError)
        receiver.wait_for(lambda: len(receiver.frames) == 2)
        assert receiver.frames[1][1] is None
        assert receiver.ends == []
