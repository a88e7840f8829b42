"""One connection through a `FaultProxy`: it passes on exchanges and applies their faults."""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from syncmcp.testing.faults import Cut, Drip, Ending, Exchange, ExchangeLog, Hold, Place, Planned
from syncmcp.testing.listener import reset_at_close

# Parsing of HTTP/1.1 messages and of event streams.


Framing = Literal["none", "length", "chunked", "end"]
"""How a body is delimited: no body, by its length, in chunks, by the end of the connection."""

_PIECE = 65536
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class _ByteReader:
    """Reads from `receive`, which returns no bytes at the end of the stream."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self.buffer = b""

    def read_head(self) -> _Head | None:
        """Read the head of the next message; `None` at the end; raise `EOFError` within a head."""
        if not self.buffer and not self._fill_buffer():
            return None
        return _Head.of(self._read_until(b"\r\n\r\n"))

    def read_line(self) -> bytes:
        return self._read_until(b"\r\n")

    def read_some(self, limit: int = _PIECE) -> bytes:
        """Read at least one byte and at most `limit` bytes; return no bytes at the end."""
        if not self.buffer:
            self._fill_buffer()
        piece, self.buffer = self.buffer[:limit], self.buffer[limit:]
        return piece

    def _read_until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            if not self._fill_buffer():
                raise EOFError
        before, _, self.buffer = self.buffer.partition(mark)
        return before + mark

    def _fill_buffer(self) -> bool:
        data = self._receive()
        self.buffer += data
        return bool(data)


@dataclass(frozen=True)
class _Head:
    """The head of an HTTP message: `raw` includes its blank line, names are in lower case."""

    raw: bytes
    words: tuple[str, str, str]
    headers: dict[str, str]

    @classmethod
    def of(cls, raw: bytes) -> _Head:
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        one, two, three = [*first.split(" ", 2), "", ""][:3]
        fields = (line.partition(":") for line in lines)
        return cls(raw, (one, two, three), {n.strip().lower(): v.strip() for n, _, v in fields})

    @property
    def status(self) -> int:
        return int(self.words[1])

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close" or "HTTP/1.0" in self.words

    def response_framing(self, verb: str) -> Framing:
        """Return how the body of a response to `verb` is delimited."""
        if verb == "HEAD" or self.status < 200 or self.status in (204, 304):
            return "none"
        framing = request_framing(self)
        return "end" if framing == "none" and "content-length" not in self.headers else framing


def request_framing(head: _Head) -> Framing:
    """Return how the body of a request is delimited."""
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return "chunked"
    return "length" if head.length else "none"


def body_pieces(source: _ByteReader, head: _Head, framing: Framing) -> Iterator[bytes]:
    """Yield a body as it is received, without chunk sizes; raise `EOFError` if it is cut."""
    if framing == "length":
        yield from _read_exactly(source, head.length)
    elif framing == "end":
        while piece := source.read_some():
            yield piece
    elif framing == "chunked":
        while size := int(source.read_line().partition(b";")[0], 16):
            yield from _read_exactly(source, size)
            source.read_line()
        while source.read_line() != b"\r\n":
            continue  # Trailers are ignored.


def _read_exactly(source: _ByteReader, count: int) -> Iterator[bytes]:
    while count:
        piece = source.read_some(min(count, _PIECE))
        if not piece:
            raise EOFError
        count -= len(piece)
        yield piece


def frame_piece(piece: bytes, framing: Framing) -> tuple[bytes, int]:
    """Return a piece with its framing, and its offset there; an empty piece ends the body."""
    if framing != "chunked":
        return piece, 0
    size = b"%x\r\n" % len(piece)
    return size + piece + b"\r\n", len(size)


def split_events(body: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Split an event stream after each blank line; yield each part and whether it is an event.

    Comments are not events. The rest after the last blank line is not an event, either.
    """
    rest = b""
    for piece in body:
        rest += piece
        while found := _BLANK_LINE.search(rest):
            block, rest = rest[: found.end()], rest[found.end() :]
            yield block, any(line and not line.startswith(b":") for line in block.splitlines())
    if rest:
        yield rest, False


# The method of a request is searched in this many bytes of its body.
_METHOD_SEARCH_BYTES = 4096
_RECEIVE = 65536

Address = tuple[str, int]


class _ConnectionEnded(Exception):
    """The connection ends; `how` is the ending of its exchange."""

    def __init__(self, how: Ending) -> None:
        super().__init__(how)
        self.how: Ending = how


class Relay:
    """Passes exchanges on between a client and a server, on the thread of `run`."""

    def __init__(
        self,
        accepted: socket.socket,
        number: int,
        target: Callable[[], Address],
        tls: ssl.SSLContext | None,
        log: ExchangeLog,
    ) -> None:
        self.idle = False  # Whether no exchange is running; guarded by the lock of the log.
        self._number = number
        self._target = target
        self._tls = tls
        self._log = log
        self._client = accepted
        self._server: socket.socket | None = None
        self._address: Address | None = None  # of the server
        self._from_client = _ByteReader(lambda: self._client.recv(_RECEIVE))
        self._from_server = _ByteReader(self._receive_from_server)
        self._exchange: Exchange | None = None
        self._planned: Planned | None = None
        self._drip: Drip | None = None
        # Other threads set a flag and send a byte here to wake this one.
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        self._closing = False

    def abort(self) -> None:
        """Abort the connection now; called from any thread."""
        self._closing = True
        for sock in (self._client, self._server):
            if sock is not None:
                _shutdown(sock, socket.SHUT_RDWR)
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(OSError):  # The relay has ended, or the socket's buffer is full.
            self._wakeup_sender.send(b"!")

    # The thread

    def run(self) -> None:
        self._wakeup_receiver.setblocking(False)
        self._wakeup_sender.setblocking(False)
        how: Ending = "client left"
        try:
            self._open()
            while self._pass_exchange():
                continue
            how = "complete"
        except _ConnectionEnded as over:
            how = over.how
        except OSError:
            how = "client left"
        finally:
            self._end_connection("closed" if self._closing and how != "reset" else how)

    def _end_connection(self, how: Ending) -> None:
        self._close_server()
        if self._exchange is not None:
            # Recorded before the client can notice the end: the test may read it next.
            self._log.update(self._exchange, ended=how)
        if how == "reset":
            with suppress(OSError):
                reset_at_close(self._client)
            self._client.close()
        else:
            _shutdown(self._client, socket.SHUT_WR)
        with self._log:
            self.idle = False
        if self._planned is not None and isinstance(self._planned.fault, Cut):
            self._planned._mark_reached(self._wake_up)
        if how in ("cut", "server left", "complete"):
            # A socket that is closed with unread bytes would send a reset.
            with suppress(OSError):
                while self._client.recv(_RECEIVE):
                    continue
        self._client.close()
        self._wakeup_receiver.close()
        self._wakeup_sender.close()

    def _open(self) -> None:
        self._planned = self._log.take_fault(at_connect=True)
        if self._planned is not None:
            self._apply_fault(self._planned)
        self._planned = None
        if self._tls is not None:
            raw = self._client
            self._client = self._tls.wrap_socket(
                raw, server_side=True, do_handshake_on_connect=False
            )
            if self._closing:  # `abort` may have shut down the socket before it was wrapped.
                raise _ConnectionEnded("closed")
            assert isinstance(self._client, ssl.SSLSocket)
            self._client.do_handshake()

    def _pass_exchange(self) -> bool:
        """Pass on one request and its response; return whether the connection goes on."""
        self._wait_for_request()
        try:
            head = self._from_client.read_head()
            if head is None:
                raise _ConnectionEnded("client left")
            request = self._read_request(head)
        except EOFError:
            raise _ConnectionEnded("client left") from None
        exchange = self._exchange
        assert exchange is not None
        try:
            self._connect().sendall(request)
            self._log.update(exchange, sent=True)
            self._apply_fault_at("sent")
            goes_on = self._pass_answer(exchange)
        except (EOFError, OSError):
            raise _ConnectionEnded("server left") from None
        goes_on = goes_on and not head.closes
        with self._log:
            self._log.update(exchange, ended="complete")
            self.idle = goes_on
        self._exchange = self._planned = self._drip = None
        return goes_on

    def _wait_for_request(self) -> None:
        with self._log:
            self.idle = True
        while not self._from_client.buffer:
            if self._wait_ready(server=True):
                # The server has closed an idle connection.
                if self._target() == self._address:
                    raise _ConnectionEnded("server left")
                self._close_server()
        with self._log.changed:
            self.idle = False

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _read_request(self, head: _Head) -> bytes:
        framing = request_framing(head)
        incoming = body_pieces(self._from_client, head, framing)
        body = _collect(incoming, b"", _METHOD_SEARCH_BYTES)
        verb, path, _ = head.words
        self._exchange, self._planned = self._log.begin_exchange(
            self._number, verb, path, head.headers, body
        )
        after = self._left_before_fault("request")
        if after is not None:
            body = _collect(incoming, body, after)
            if len(body) >= after:
                self._apply_fault_at("request")
        body += b"".join(incoming)
        self._log.update(self._exchange, body=body)
        if framing == "none":
            return head.raw
        end = frame_piece(b"", framing)[0] if body else b""
        return head.raw + frame_piece(body, framing)[0] + end

    def _connect(self) -> socket.socket:
        address = self._target()
        if address != self._address or self._wait_ready(0, server=True):
            self._close_server()
        if self._server is None:
            try:
                self._server = socket.create_connection(address)
            except OSError:
                raise _ConnectionEnded("server left") from None
            self._server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._address = address
            if self._closing:
                raise _ConnectionEnded("closed")
        return self._server

    def _pass_answer(self, exchange: Exchange) -> bool:
        while True:
            head = self._from_server.read_head()
            if head is None:
                raise EOFError
            if head.status >= 200:
                break
            self._write(head.raw)
        self._log.update(exchange, status=head.status)
        self._write_with_fault(head.raw, self._left_before_fault("head"))
        framing = head.response_framing(exchange.verb)
        if self._left_before_fault("body") == 0:
            self._apply_fault_at("body")
        self._pass_body(exchange, body_pieces(self._from_server, head, framing), framing)
        self._write(frame_piece(b"", framing)[0])
        return framing != "end" and not head.closes

    def _pass_body(self, exchange: Exchange, body: Iterator[bytes], framing: Framing) -> None:
        by_event = self._left_before_fault("event") is not None
        events = 0
        for part, is_event in split_events(body) if by_event else ((one, False) for one in body):
            raw, begin = frame_piece(part, framing)
            place = self._left_before_fault("body", exchange.passed)
            if is_event and self._left_before_fault("event", events) == 0:
                place = len(part) // 2
            if place is not None and 0 < place <= len(part):
                self._log.update(exchange, passed=exchange.passed + place)
                self._write_with_fault(raw, begin + place)
                self._log.update(exchange, passed=exchange.passed + len(part) - place)
            else:
                self._write(raw)
                self._log.update(exchange, passed=exchange.passed + len(part))
            events += is_event

    # Faults

    def _left_before_fault(self, place: Place, already: int = 0) -> int | None:
        """Return the bytes or events left before the fault; `None` if it is at another point."""
        planned = self._planned
        if planned is None or planned.fault.at != place:
            return None
        return planned.fault.after - already

    def _apply_fault_at(self, place: Place) -> None:
        planned = self._planned
        if planned is not None and planned.fault.at == place:
            self._apply_fault(planned)

    def _apply_fault(self, planned: Planned) -> None:
        fault = planned.fault
        if isinstance(fault, Cut):
            raise _ConnectionEnded("reset" if fault.reset else "cut")
        planned._mark_reached(self._wake_up)
        if isinstance(fault, Drip):
            self._drip = fault
        elif isinstance(fault, Hold):
            self._wait_for_release(planned, fault.seconds)

    def _wait_for_release(self, planned: Planned, seconds: float | None) -> None:
        """Wait for a release, at most `seconds`."""
        until = None if seconds is None else time.monotonic() + seconds
        reads = planned.fault.at not in ("connect", "request")
        while not planned._take_release():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            self._wait_ready(left, client=reads)

    def _write(self, data: bytes) -> None:
        drip = self._drip
        if drip is None:
            self._send(data)
            return
        assert self._planned is not None
        for start in range(0, len(data), drip.size):
            self._wait_for_release(self._planned, drip.every)
            self._send(data[start : start + drip.size])

    def _write_with_fault(self, data: bytes, place: int | None) -> None:
        """Write `data`; apply the fault at its offset `place`, if that is within `data`."""
        if place is None or place > len(data):
            self._write(data)
            return
        self._write(data[:place])
        assert self._planned is not None
        self._apply_fault(self._planned)
        self._write(data[place:])

    # Bytes

    def _send(self, data: bytes) -> None:
        try:
            self._client.sendall(data)
        except OSError:
            raise _ConnectionEnded("client left") from None

    def _receive_from_server(self) -> bytes:
        while not self._wait_ready(server=True):
            continue
        assert self._server is not None
        try:
            return self._server.recv(_RECEIVE)
        except OSError:
            raise _ConnectionEnded("server left") from None

    def _wait_ready(
        self, seconds: float | None = None, *, client: bool = True, server: bool = False
    ) -> bool:
        """Wait for a readable socket or a wake-up; return whether the server is readable."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup_receiver, selectors.EVENT_READ)
            if client:
                selector.register(self._client, selectors.EVENT_READ)
            if server and self._server is not None:
                selector.register(self._server, selectors.EVENT_READ)
            ready: set[Any] = {key.fileobj for key, _ in selector.select(seconds)}
        if self._wakeup_receiver in ready:
            with suppress(OSError):
                self._wakeup_receiver.recv(_RECEIVE)
        if self._closing:
            raise _ConnectionEnded("closed")
        if self._client in ready:
            self._read_client_early()
        return self._server in ready

    def _read_client_early(self) -> None:
        """Read from the client outside of a request, to notice that it has disconnected."""
        self._client.setblocking(False)
        try:
            data = self._client.recv(_RECEIVE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            raise _ConnectionEnded("client left") from None
        finally:
            self._client.setblocking(True)
        if not data:
            raise _ConnectionEnded("client left")
        self._from_client.buffer += data


def _collect(incoming: Iterator[bytes], body: bytes, enough: int) -> bytes:
    while len(body) < enough:
        piece = next(incoming, b"")
        if not piece:
            break
        body += piece
    return body


def _shutdown(sock: socket.socket, how: int) -> None:
    # The `shutdown()` of an SSLSocket would discard TLS state that another thread uses.
    with suppress(OSError):
        socket.socket.shutdown(sock, how)
