"""The fault proxy forwards exchanges, applies queued faults, and records what happened."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from syncmcp.testing import Cut, Drip, Fault, FaultProxy, Hold, UnusedFaults
from tests.transports.certificates import Certificates, make
from tests.transports.http_peer import WAIT, RawServer, Request, serving

HELLO = b'{"jsonrpc": "2.0", "id": 1, "method": "hello"}'


class Client:
    """A plain HTTP client with one connection, which also returns partial responses."""

    def __init__(self, proxy: FaultProxy, tls: ssl.SSLContext | None = None) -> None:
        place = ("127.0.0.1", urlsplit(proxy.url).port)
        self.http = http.client.HTTPConnection(*place, timeout=WAIT)
        if tls is not None:
            self.http = http.client.HTTPSConnection(*place, timeout=WAIT, context=tls)

    def post(self, body: bytes = HELLO, verb: str = "POST") -> None:
        self.http.request(verb, "/mcp", body)

    def ask(self, body: bytes = HELLO, verb: str = "POST") -> bytes:
        self.post(body, verb)
        return self.http.getresponse().read()

    def receive(self) -> bytes:
        """Return the next bytes; none at the end of the connection."""
        assert self.http.sock is not None
        return self.http.sock.recv(65536)

    def raw(self) -> bytes:
        """Send a request; return all bytes up to the end of the connection."""
        self.post()
        return b"".join(iter(self.receive, b""))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


def say(one: Request) -> None:
    one.connection.respond(200, b"0123456789", {"X-Name": "value"})


def stream(one: Request) -> None:
    one.connection.start_events()
    one.connection.chunk(b": hello\n\n")
    for number in range(3):
        one.connection.event(number, id=str(number))
    one.connection.end_events()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@contextmanager
def between(
    script: Callable[[Request], None] = say, tls: ssl.SSLContext | None = None
) -> Iterator[FaultProxy]:
    """Yield a proxy for a scripted server."""
    with serving(script) as server, FaultProxy(server.url, tls=tls) as proxy:
        yield proxy


@contextmanager
def talking(
    script: Callable[[Request], None] = say,
) -> Iterator[tuple[RawServer, FaultProxy, Client]]:
    """Yield a scripted server, a proxy for it, and a client of the proxy."""
    with serving(script) as server, FaultProxy(server.url) as proxy, Client(proxy) as client:
        yield server, proxy, client


# Exchanges without a fault


def test_an_exchange_that_no_fault_meets_is_recorded() -> None:
    with between() as proxy, Client(proxy) as client:
        assert client.ask() == b"0123456789"
        [call] = proxy.exchanges
        assert (call.verb, call.path, call.status, call.sent) == ("POST", "/mcp", 200, True)
        assert (call.message, call.method) == (json.loads(HELLO), "hello")
        assert call.headers["content-length"] == str(len(HELLO))
        assert proxy.wait_for(lambda _: call.ended == "complete")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    ],
)
def test_an_answer_passes_as_it_was_and_the_connections_are_kept(answer: bytes) -> None:
    with talking(lambda one: one.connection.write(answer)) as (server, proxy, client):
        client.post()
        got = b""
        while len(got) < len(answer):
            got += client.receive()
        assert got == answer
        assert proxy.wait_for(lambda seen: seen.exchanges[0].ended == "complete")
        client.http.sock.sendall(b"GET /mcp HTTP/1.1\r\n\r\n")
        assert client.receive().startswith(b"H")
        assert proxy.connections == len(server.connections) == 1


def test_chunks_pass_both_ways() -> None:
    got: list[bytes] = []
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;extended\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: 1\r\n\r\n"
    )

    def serve(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted:
            while b"\r\n0\r\n\r\n" not in b"".join(got):
                got.append(accepted.recv(65536))
            accepted.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,), daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        with FaultProxy(url) as proxy, Client(proxy) as client:
            client.http.request("POST", "/mcp", iter([b"one ", b"two"]), encode_chunked=True)
            assert client.http.getresponse().read() == b"hello!"
            [exchange] = proxy.exchanges
            assert (exchange.body, exchange.passed) == (b"one two", 6)
        serving.join(WAIT)
    assert b"".join(got).endswith(b"\r\n\r\n7\r\none two\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("before", "ended"),
    [
        (b"", "server left"),
        # The beginning of a body that is cut off is forwarded.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234", "server left"),
        (b"HTTP/1.1 200 OK\r\n\r\nbody", "complete"),
    ],
)
def test_what_the_server_does_to_its_connection_happens_to_the_one_of_the_client(
    before: bytes, ended: str
) -> None:
    def script(one: Request) -> None:
        one.connection.write(before)
        one.connection.close()

    with talking(script) as (_, proxy, client):
        assert client.raw() == before
        assert proxy.wait_for(lambda seen: seen.exchanges[0].ended == ended)


def test_an_idle_connection_ends_with_that_of_the_server() -> None:
    with talking() as (server, _, client):
        assert client.ask() == b"0123456789"
        server.connections[0].sock.shutdown(socket.SHUT_RDWR)
        assert client.receive() == b""


def test_a_server_that_is_not_there_is_a_connection_cut() -> None:
    with socket.socket() as taken:  # no server can listen on its port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        with FaultProxy(url) as proxy, Client(proxy) as client:
            assert client.raw() == b""
            [exchange] = proxy.exchanges
            assert (exchange.sent, exchange.ended) == (False, "server left")


# Cuts

HEAD = b"HTTP/1.1 200 Whatever\r\nContent-Length: 10\r\nX-Name: value\r\n\r\n"


@pytest.mark.parametrize(
    ("fault", "passed", "asked"),
    [
        (Cut("request", after=len(HELLO)), b"", 0),
        (Cut("sent"), b"", None),
        (Cut("head", after=20), HEAD[:20], 1),
        (Cut("body"), HEAD, 1),
        (Cut("body", after=10), HEAD + b"0123456789", 1),
    ],
    ids=str,
)
def test_a_cut_lets_pass_what_comes_before_it_and_nothing_else(
    fault: Cut, passed: bytes, asked: int | None
) -> None:
    with talking() as (server, proxy, client):
        planned = proxy.queue(fault)
        assert client.raw() == passed
        planned.wait()
        [exchange] = proxy.exchanges
        assert planned.exchange is exchange
        assert (exchange.ended, exchange.sent) == ("cut", asked != 0)
        assert exchange.passed == max(0, len(passed) - len(HEAD))
        if asked is not None:
            assert len(server.requests) == asked


@pytest.mark.parametrize("place", ["connect", "body"])
def test_a_reset_is_one(place: Any) -> None:
    with between() as proxy:
        with Client(proxy) as client:
            planned = proxy.queue(Cut(place, reset=True))
            with pytest.raises(ConnectionResetError):
                client.raw()
            planned.wait()
            assert proxy.wait_for(lambda seen: not seen.open_connections)
            ends = [one.ended for one in proxy.exchanges]
            assert ends == ([] if place == "connect" else ["reset"])
        proxy.queue(Cut("connect"))  # before the proxy reads a byte
        with Client(proxy) as client:
            assert client.raw() == b""
        with Client(proxy) as client:
            assert client.ask() == b"0123456789"
        assert (len(proxy.exchanges), proxy.connections) == (len(ends) + 1, 3)


def test_a_cut_in_an_event_lets_half_of_it_pass() -> None:
    with between(stream) as proxy:
        with Client(proxy) as client:
            proxy.queue(Cut("event", after=1))
            got = client.raw()
            assert got.count(b": hello\n\n") == 1
            assert got.count(b"\n\n\r\n") == got.count(b"event:") == 2
            assert not got.endswith(b"\n\n")
            assert b"data: 0" in got
            assert b"data: 1" not in got
        with Client(proxy) as client:
            proxy.queue(Cut("body", after=3))
            assert client.raw().endswith(b"\r\n\r\n9\r\n: h")  # the chunk is incomplete
        with Client(proxy) as client:
            planned = proxy.queue(Hold("event", after=1))
            client.post()
            planned.wait()
            planned.release()
            assert client.http.getresponse().read().count(b"data: ") == 3


# Faults for certain exchanges


def test_faults_are_met_in_order_by_the_exchanges_that_they_are_for() -> None:
    def outcome(method: str) -> str:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode()
        with Client(proxy) as client:
            try:
                told = client.ask(b"", method) if method == "DELETE" else client.ask(body)
                return told.decode()
            except http.client.RemoteDisconnected:
                return "cut"
            except ConnectionResetError:
                return "reset"

    with between() as proxy:
        proxy.queue(Cut("head"), method="b", nth=2)
        proxy.queue(Cut("head", reset=True), method="b")
        proxy.queue(Cut("head"), verb="DELETE")
        proxy.queue(Cut("head", reset=True), nth=4)
        outcomes = [outcome(method) for method in ("a", "b", "b", "b", "DELETE", "b", "DELETE")]
        whole = "0123456789"
        assert outcomes == [whole, "reset", "cut", "reset", "cut", whole, whole]
        assert proxy.sends("b") == 4


def test_a_fault_that_never_happened_fails_the_test() -> None:
    with serving(say) as server:
        proxy = FaultProxy(server.url)
        with Client(proxy) as client:
            late = proxy.queue(Cut("body", after=11))
            assert client.ask() == b"0123456789"
            other = proxy.queue(Cut("head"), method="other")
            assert client.ask() == b"0123456789"
            assert proxy.unused() == [late, other]
            with pytest.raises(TimeoutError, match="did not happen"):
                other.wait(0)
        with pytest.raises(UnusedFaults, match=r"method='other' \(no exchange matched\)$"):
            proxy.close()
        proxy.close()
        # An unused fault does not hide another error.
        with pytest.raises(KeyError), FaultProxy(server.url) as proxy:  # noqa: PT012
            proxy.queue(Cut("head"))
            raise KeyError


def test_a_fault_a_queue_or_a_target_that_makes_no_sense_is_refused() -> None:
    rows: list[tuple[type[Fault], dict[str, Any]]] = [
        (Cut, {"at": "nowhere"}),
        (Cut, {"at": "sent", "after": 1}),
        (Hold, {"at": "body", "after": -1}),
        (Drip, {"at": "request"}),
        (Drip, {"at": "body", "size": 0}),
        (Drip, {"at": "body", "every": "x"}),
    ]
    for kind, given in rows:
        with pytest.raises(ValueError, match=r"\w"):
            kind(**given)
    half: Any = 9 / 2
    with pytest.raises(TypeError, match=r"^after must be an int, not float$"):
        Cut("body", after=half)
    with pytest.raises(ValueError, match=r"^size must be a whole number of at least 1, not 4.5$"):
        Drip("body", size=half)
    with pytest.raises(TypeError, match="SSLContext, not float"):
        FaultProxy("http://127.0.0.1:1/mcp", tls=half)
    with pytest.raises(ValueError, match="http://"):
        FaultProxy("https://127.0.0.1/mcp")
    with FaultProxy("http://127.0.0.1:1/mcp") as proxy:
        with pytest.raises(ValueError, match="nth"):
            proxy.queue(Cut("sent"), nth=0)
        with pytest.raises(ValueError, match=r"nth must be a whole number of at least 1, not 4.5"):
            proxy.queue(Cut("sent"), nth=half)
        with pytest.raises(ValueError, match="connection"):
            proxy.queue(Cut("connect"), method="x")
        with pytest.raises(ValueError, match="path"):
            proxy.retarget("http://127.0.0.1:1/other")


# Holds and drips


@pytest.mark.parametrize(
    "fault", [Hold("connect"), Hold("request", after=500_000), Hold("body", after=9)], ids=str
)
def test_a_hold_goes_on_when_it_is_released(fault: Fault) -> None:
    answers: list[bytes] = []
    body = HELLO[:-1] + b', "params": "' + b"x" * 1_000_000 + b'"}'
    with talking() as (server, proxy, client):
        # The proxy finds the method at the beginning of a long body.
        planned = proxy.queue(fault, method=None if fault.at == "connect" else "hello")
        asking = threading.Thread(target=lambda: answers.append(client.ask(body)), daemon=True)
        asking.start()
        planned.wait()
        assert not answers
        assert not (planned.exchange and planned.exchange.ended)
        planned.release()
        asking.join(WAIT)
        assert answers == [b"0123456789"]
        assert server.requests[0].body == body
        proxy.queue(Hold("head", seconds=0.01))  # ends after its time
        assert client.ask() == b"0123456789"
        proxy.queue(Hold("head")).release()  # released in advance
        assert client.ask() == b"0123456789"


def test_a_hold_ends_when_the_proxy_is_closed() -> None:
    """`tests/transports/test_phases.py` tests that it ends when the client disconnects."""
    places: tuple[Any, ...] = ("request", "connect")
    with between() as proxy, Client(proxy) as client, Client(proxy) as other:
        for one, place in zip((client, other), places, strict=True):
            planned = proxy.queue(Hold(place))
            one.post()
            planned.wait()
        proxy.close()
        assert proxy.exchanges[-1].ended == "closed"
        assert proxy.open_connections == 0


def test_a_drip_passes_a_piece_for_each_release() -> None:
    with talking() as (_, proxy, client):
        planned = proxy.queue(Drip("body", after=2, size=3))
        client.post()
        answer = client.http.getresponse()
        assert answer.read(2) == b"01"
        planned.wait()
        for piece in (b"234", b"567"):
            planned.release()
            assert answer.read1(10) == piece
        planned.release()
        assert answer.read() == b"89"
    with talking(stream) as (_, proxy, client):
        proxy.queue(Drip("head", every=0))  # or at a rate
        assert client.ask().count(b"data: ") == 3


# Servers that come and go


def test_later_exchanges_go_to_the_new_target() -> None:
    with (
        serving(lambda one: one.connection.respond(200, b"new")) as new,
        talking() as (_, proxy, client),
    ):
        assert client.ask() == b"0123456789"
        planned = proxy.queue(Hold("sent"))
        client.post()
        planned.wait()
        proxy.retarget(new.url)
        planned.release()
        assert client.http.getresponse().read() == b"0123456789"
        assert client.ask() == b"new"
        assert proxy.connections == 1


def test_idle_connections_can_be_dropped_and_busy_ones_stay() -> None:
    with talking() as (_, proxy, idle), Client(proxy) as busy:
        idle.ask()
        planned = proxy.queue(Hold("head"))
        busy.post()
        planned.wait()
        assert proxy.wait_for(lambda seen: seen.exchanges[0].ended == "complete")
        proxy.drop_idle()
        assert idle.receive() == b""
        planned.release()
        assert busy.http.getresponse().read() == b"0123456789"
        assert busy.ask() == b"0123456789"


@pytest.mark.parametrize("reset", [False, True])
def test_tls_is_cut_without_a_farewell(certificates: Certificates, reset: bool) -> None:
    trusting = ssl.create_default_context(cafile=certificates.authority)
    with between(tls=certificates.server_context()) as proxy, Client(proxy, trusting) as client:
        proxy.queue(Cut("body", 4, reset=reset))
        client.post()
        answer = client.http.getresponse()
        assert answer.read(4) == b"0123"
        # The error for a reset depends on the version of Python.
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()


def test_a_client_of_tls_that_goes_is_noticed(certificates: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=certificates.authority)
    with between(tls=certificates.server_context()) as proxy:
        with Client(proxy, ssl.create_default_context()) as client, pytest.raises(ssl.SSLError):
            client.ask()  # it does not trust the certificate
        planned = proxy.queue(Hold("head", after=5))
        with Client(proxy, trusting) as client:
            client.post()
            planned.wait()
        assert proxy.wait_for(lambda seen: not seen.open_connections)
        assert proxy.exchanges[-1].ended == "client left"
