"""The heads of HTTP messages, compared with those of urllib3 and http.client."""

from __future__ import annotations

import io
import time
from http.client import HTTPException, HTTPResponse, LineTooLong, RemoteDisconnected
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests import Response
from requests.cookies import RequestsCookieJar, extract_cookies_to_jar
from requests.models import PreparedRequest
from urllib3.connection import HTTPConnection
from urllib3.util import SKIP_HEADER, Timeout

from syncmcp._http import connections
from syncmcp._http.connections import MAX_HEAD


class Wire:
    """A socket that returns prepared bytes, and stores what is sent."""

    def __init__(self, received: bytes = b"") -> None:
        self.received = received
        self.sent: list[bytes] = []

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.received))

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)

    def settimeout(self, seconds: float | None) -> None:
        """Accept any timeout: nothing here waits."""

    def shutdown(self, how: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


# Writing

PLAIN = {
    "User-Agent": "syncmcp",
    "Accept-Encoding": "gzip",
    "X-Latin": "caf\xe9\t\x80",
    "X-Empty": "",
    "x_~!": "1",
    "Content-Length": "2",
}


def written_by(
    kind: type[HTTPConnection], headers: dict[str, Any], body: Any = b"{}", host: str = "a.example"
) -> bytes:
    connection = kind(host, 8080)
    connection.sock = wire = Wire()
    connection.request("POST", "/mcp?x=1", body, headers, preload_content=False)
    return b"".join(wire.sent)


@pytest.mark.parametrize("host", ["a.example", "127.0.0.1", "::1"])
def test_a_plain_head_is_written_as_by_urllib3(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = written_by(HTTPConnection, PLAIN, host=host)
    monkeypatch.delattr(HTTPConnection, "request")  # the library must not need urllib3's own method
    assert written_by(connections._Connection, PLAIN, host=host) == theirs


@pytest.mark.parametrize(
    "more",
    [
        {"Host": "b.example"},
        {"Last-Event-ID": b"\xc3\xa9"},
        *({name: SKIP_HEADER} for name in ("User-Agent", "Accept-Encoding")),
        *({"Age": 5}, {"X Y": "1"}, {"X": "\x01"}),
    ],
)
def test_what_is_not_plain_is_written_by_urllib3(more: dict[str, Any]) -> None:
    headers = {**PLAIN, **more}
    assert connections._plain_lines(headers) is None
    assert written_by(connections._Connection, headers) == written_by(HTTPConnection, headers)


@pytest.mark.parametrize(
    ("missing", "body"),
    [
        *((name, b"{}") for name in ("User-Agent", "Accept-Encoding", "Content-Length")),
        *(("Content-Length", body) for body in (None, "text", [b"1", b"2"])),
    ],
)
def test_what_is_missing_and_a_body_of_another_kind_go_to_urllib3(missing: str, body: Any) -> None:
    headers = {name: value for name, value in PLAIN.items() if name != missing}
    ours = written_by(connections._Connection, headers, body)
    assert ours == written_by(HTTPConnection, headers, body)


@pytest.mark.parametrize(
    "more",
    [
        *({"X": f"1{end}Y: 2"} for end in ("\r\n", "\n", "\r")),
        *({name: "2"} for name in ("X: 1\r\nY", "X:", "")),
        *({"X": value} for value in ("\u2028", None, SKIP_HEADER)),
    ],
)
def test_no_header_smuggles_another_one_in(more: dict[str, Any]) -> None:
    errors = []
    for kind in (connections._Connection, HTTPConnection):
        with pytest.raises((ValueError, TypeError)) as caught:
            written_by(kind, {**PLAIN, **more})
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(("method", "url"), [("PO ST", "/"), ("POST", "/a b"), ("POST", "/\r\nX:")])
def test_no_method_and_no_path_smuggles_a_header_in(method: str, url: str) -> None:
    connection = connections._Connection("a.example")
    connection.sock = wire = Wire()
    with pytest.raises((ValueError, HTTPException)):
        connection.request(method, url, b"{}", PLAIN)
    assert wire.sent == []


def test_urllib3_takes_the_limits_of_a_request_as_they_are() -> None:
    ours, theirs = connections._Limits(1.5, None), Timeout(connect=1.5, read=None)
    theirs.start_connect()
    assert (ours.connect_timeout, ours.read_timeout) == (1.5, None)
    assert (ours.connect_timeout, ours.read_timeout) == (
        theirs.connect_timeout,
        theirs.read_timeout,
    )
    assert ours.clone() is ours


# Reading

STATUS = st.sampled_from(
    ["HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 204", "HTTP/1.1 304 x", "HTTP/1.1 404  No "]
)
LINES = st.sampled_from(
    ["Content-Type: text/plain", "content-type:application/json", "X:\t 1 \t", "X: 2", "X:", "X:  ",
     "Content-Length: 5", "Content-Length: 6", "Content-Length: -1", "Content-Length: x",
     "Transfer-Encoding: chunked", "transfer-encoding: Chunked", "Transfer-Encoding: gzip, chunked",
     "Connection: close", "Connection: Keep-Alive, X", "Set-Cookie: a=1", "Set-Cookie: b=2",
     " folded", "\tContent-Length: 7", "no colon", ": no name", "X : space", "From me", "X(: 1",
     "X: a\rContent-Length: 8", "X: a\x0bb\x1c\x85c", "X: \x00", "X: \xe9"]
)  # fmt: skip
HEADS = st.tuples(
    STATUS, st.lists(st.tuples(LINES, st.sampled_from(["\r\n", "\r\n", "\n"])), max_size=8)
).map(lambda head: f"{head[0]}\r\n" + "".join(f"{line}{end}" for line, end in head[1]) + "\r\n")


def read_by(kind: type[HTTPResponse], head: bytes) -> Any:
    response: Any = kind(Wire(head), method="POST")  # type: ignore[arg-type]
    response.begin()
    return response


@given(HEADS)
def test_a_head_is_read_as_http_client_reads_it(text: str) -> None:
    head = text.encode("latin-1") + b"body"
    theirs, ours = read_by(HTTPResponse, head), read_by(connections._Response, head)
    for name in ("version", "status", "reason", "chunked", "length", "will_close"):
        assert getattr(ours, name) == getattr(theirs, name), name
    unfolded = [
        (name.lower(), value.replace("\r\n", "").replace("\n", ""))
        for name, value in theirs.headers.items()
    ]
    assert sorted((n.lower(), v) for n, v in ours.headers.iteritems()) == sorted(unfolded)
    assert ours.fp.read() == b"body"


def test_the_time_for_a_folded_content_type_is_linear() -> None:
    fold = b"\r\n " + b";" * 60_000
    head = b'HTTP/1.1 200 OK\r\nContent-Type: multipart/x; a="' + fold * 4 + b"\r\n\r\n"
    before = time.process_time()
    assert len(read_by(connections._Response, head).headers["content-type"]) > 240_000
    assert time.process_time() - before < 1  # an earlier version took half a minute


def test_attributes_that_http_client_reads_a_body_by_are_all_set() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    theirs, ours = read_by(HTTPResponse, head), read_by(connections._Response, head)
    assert vars(ours).keys() == vars(theirs).keys()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 " + b"x" * 65536 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 65536 + b"\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\nX: " + b"x" * 65536 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 100 + b"\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_a_head_beyond_the_limits_is_the_error_that_http_client_raises(head: bytes) -> None:
    with pytest.raises(HTTPException) as caught:
        read_by(connections._Response, head)
    if b"103" in head:  # neither accepts a header of this length
        assert type(caught.value) is LineTooLong
        return
    with pytest.raises(HTTPException) as expected:
        read_by(HTTPResponse, head)
    assert type(caught.value) is type(expected.value)


def test_as_many_headers_as_http_client_takes_are_taken() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 99 + b"\r\n"
    assert len(read_by(connections._Response, head).headers.getlist("x")) == 99


def test_the_headers_of_a_response_are_bounded_together() -> None:
    line = b"X: " + b"x" * (MAX_HEAD // 4 - 10) + b"\r\n"
    read_by(connections._Response, b"HTTP/1.1 200 OK\r\n" + line * 4 + b"\r\n")
    with pytest.raises(HTTPException, match=f"more than {MAX_HEAD} bytes"):
        read_by(connections._Response, b"HTTP/1.1 200 OK\r\n" + line * 5 + b"\r\n")


def test_no_time_is_spent_on_what_cannot_be_a_cookie() -> None:
    long = b"a=b;" * 16_000
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\n"
    for name in (b"Set-Cookie", b"Set-Cookie2"):
        head += name + b": " + long + b"\r\n"
    response = read_by(connections._Response, head + b"Set-Cookie2: c=1\r\n\r\n")
    assert response.headers["set-cookie2"] == long.decode() + ", c=1"
    assert list(response.msg.items()) == [("Set-Cookie", "a=1")]


@pytest.mark.parametrize("cut", [b"", b"X: 1\r\n", b"X"])
def test_a_head_that_breaks_off_is_no_answer(cut: bytes) -> None:
    with pytest.raises(RemoteDisconnected):
        read_by(connections._Response, b"HTTP/1.1 200 OK\r\n" + cut)


@pytest.mark.parametrize("line", [b" " * 65000, b"x" * 65000, b" x" * 32500, b"\t \t" * 21000])
def test_the_time_for_a_head_does_not_depend_on_what_is_in_it(line: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + (b"X:" + line + b"\0\r\n") * 4 + b"\r\n"
    start = time.thread_time()
    read_by(connections._Response, head)
    assert time.thread_time() - start < 2


def test_each_cookie_of_a_response_is_found() -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2; Path=/\r\n\r\n"
    connection = connections._Connection("a.example")
    connection.sock = Wire(head)
    connection.request("POST", "/", b"{}", PLAIN)
    request = PreparedRequest()
    request.prepare("POST", "http://a.example/")
    response, jar = Response(), RequestsCookieJar()
    response.raw = connection.getresponse()
    extract_cookies_to_jar(jar, request, response.raw)  # type: ignore[no-untyped-call]
    assert jar.get_dict() == {"a": "1", "b": "2"}
