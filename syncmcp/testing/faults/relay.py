"""One connection through a `FaultProxy`: exchange after exchange, each with its fault."""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from syncmcp.testing.faults import Cut, Drip, Ending, Exchange, ExchangeLog, Hold, Place, Planned

# HTTP/1.1 messages as bytes: where a head ends, how a body is framed, where an event ends.


Framing = Literal["none", "length", "chunked", "end"]
"""How a body's end is known: there is none, by its length, by its chunks, by the connection's."""

_PIECE = 65536
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class ByteReader:
    """Bytes that come from `receive`, which returns none at the end."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._buffer = b""

    @property
    def has_buffered(self) -> bool:
        """Whether there are bytes that came and were not asked for yet."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add what was received elsewhere."""
        self._buffer += data

    def read_head(self) -> Head | None:
        """The next message's head, or `None` when nothing comes any more.

        Raises:
            EOFError: It broke off.
        """
        if not self._buffer and not self._fill_buffer():
            return None
        return Head.of(self._read_until(b"\r\n\r\n"))

    def read_line(self) -> bytes:
        """The next line, with its end. Raises `EOFError` when it breaks off."""
        return self._read_until(b"\r\n")

    def read_some(self, limit: int = _PIECE) -> bytes:
        """At least one byte and at most `limit`; none at the end."""
        if not self._buffer:
            self._fill_buffer()
        piece, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return piece

    def _read_until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if not self._fill_buffer():
                raise EOFError
        before, _, self._buffer = self._buffer.partition(mark)
        return before + mark

    def _fill_buffer(self) -> bool:
        data = self._receive()
        self._buffer += data
        return bool(data)


@dataclass(frozen=True)
class Head:
    """A message's head.

    Attributes:
        raw: Its bytes, with the blank line.
        words: The three parts of its first line.
        headers: The headers, names in lower case.
    """

    raw: bytes
    words: tuple[str, str, str]
    headers: dict[str, str]

    @classmethod
    def of(cls, raw: bytes) -> Head:
        """Read a head."""
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        one, two, three = [*first.split(" ", 2), "", ""][:3]
        fields = (line.partition(":") for line in lines)
        return cls(raw, (one, two, three), {n.strip().lower(): v.strip() for n, _, v in fields})

    @property
    def status(self) -> int:
        """The status of an answer."""
        return int(self.words[1])

    @property
    def length(self) -> int:
        """The length that it announces."""
        return int(self.headers.get("content-length", "0"))

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this message."""
        return self.headers.get("connection", "").lower() == "close" or "HTTP/1.0" in self.words

    def response_framing(self, verb: str) -> Framing:
        """How the body of an answer is framed."""
        if verb == "HEAD" or self.status < 200 or self.status in (204, 304):
            return "none"
        framing = request_framing(self)
        return "end" if framing == "none" and "content-length" not in self.headers else framing


def request_framing(head: Head) -> Framing:
    """How the body of a request is framed."""
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return "chunked"
    return "length" if head.length else "none"


def body_pieces(source: ByteReader, head: Head, framing: Framing) -> Iterator[bytes]:
    """The pieces of a body as they come, without chunk sizes.

    Raises:
        EOFError: It broke off.
    """
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
            continue  # a trailer, which nobody here needs


def _read_exactly(source: ByteReader, count: int) -> Iterator[bytes]:
    while count:
        piece = source.read_some(min(count, _PIECE))
        if not piece:
            raise EOFError
        count -= len(piece)
        yield piece


def frame_piece(piece: bytes, framing: Framing) -> tuple[bytes, int]:
    """A piece as it is written, and where in that the piece begins; no bytes are the end."""
    if framing != "chunked":
        return piece, 0
    size = b"%x\r\n" % len(piece)
    return size + piece + b"\r\n", len(size)


def split_events(body: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Cut an event stream where its events end; says of each part whether it is an event.

    Comments are none, and neither is what follows the last blank line.
    """
    rest = b""
    for piece in body:
        rest += piece
        while found := _BLANK_LINE.search(rest):
            block, rest = rest[: found.end()], rest[found.end() :]
            yield block, any(line and not line.startswith(b":") for line in block.splitlines())
    if rest:
        yield rest, False


# So much of a long request is read before its method is looked for.
_METHOD_SEARCH_BYTES = 4096
_RECEIVE = 65536

Address = tuple[str, int]


class _ConnectionEnded(Exception):
    """The connection is over, and this is how its exchange ended."""

    def __init__(self, how: Ending) -> None:
        super().__init__(how)
        self.how: Ending = how


class Relay:
    """Passes exchanges on between a client and a server, on a thread of its own.

    Attributes:
        idle: Whether the connection is between two exchanges. Guarded by `Record.changed`.
    """

    def __init__(
        self,
        accepted: socket.socket,
        number: int,
        target: Callable[[], Address],
        tls: ssl.SSLContext | None,
        log: ExchangeLog,
        on_end: Callable[[Relay], None],
    ) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.idle = False
        self._number = number
        self._target = target
        self._tls = tls
        self._log = log
        self._on_end = on_end
        self._client = accepted
        self._server: socket.socket | None = None
        self._address: Address | None = None  # of the server
        self._from_client = ByteReader(self._receive_from_client)
        self._from_server = ByteReader(self._receive_from_server)
        self._exchange: Exchange | None = None
        self._planned: Planned | None = None
        self._drip: Drip | None = None
        # Whatever another thread wants of this one, it says so and sends a byte.
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        self._closing = False
        self._closing_when_idle = False
        self.thread = threading.Thread(
            target=self._run, name="syncmcp-testing-connection", daemon=True
        )

    def close_when_idle(self) -> None:
        """End it in order as soon as it is idle; called from any thread."""
        self._closing_when_idle = True
        self._wake_up()

    def abort(self) -> None:
        """End it at once; called from any thread."""
        self._closing = True
        for sock in (self._client, self._server):
            if sock is not None:
                _shutdown(sock, socket.SHUT_RDWR)
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(OSError):  # it has ended, or has not yet heard the bell so often
            self._wakeup_sender.send(b"!")

    # The thread

    def _run(self) -> None:
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
        if self._server is not None:
            self._server.close()
        if self._exchange is not None:
            # Before the client can know it: what it does next may be to look here.
            self._log.update(self._exchange, ended=how)
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            with suppress(OSError):
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._client.close()
        else:
            _shutdown(self._client, socket.SHUT_WR)
        with self._log.changed:
            self.idle = False
            self._log.changed.notify_all()
        if self._planned is not None and isinstance(self._planned.fault, Cut):
            self._planned._mark_reached(self._wake_up)
        if how in ("cut", "server left", "complete"):
            # Closed with bytes unread, the socket would send a reset after all.
            with suppress(OSError):
                while self._client.recv(_RECEIVE):
                    continue
        self._client.close()
        self._wakeup_receiver.close()
        self._wakeup_sender.close()
        self._on_end(self)

    def _open(self) -> None:
        self._planned = self._log.take_connect_fault()
        if self._planned is not None:
            self._apply_fault(self._planned)
        self._planned = None
        if self._tls is not None:
            raw = self._client
            self._client = self._tls.wrap_socket(
                raw, server_side=True, do_handshake_on_connect=False
            )
            if self._closing:  # `end` may have had the socket that is none any more
                raise _ConnectionEnded("closed")
            assert isinstance(self._client, ssl.SSLSocket)
            self._client.do_handshake()

    def _pass_exchange(self) -> bool:
        """Pass one request and its answer; return whether the connection goes on."""
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
        with self._log.changed:
            self._log.update(exchange, ended="complete")
            self.idle = goes_on
        self._exchange = self._planned = self._drip = None
        return goes_on

    def _wait_for_request(self) -> None:
        with self._log.changed:
            self.idle = True
            self._log.changed.notify_all()
        while not self._from_client.has_buffered:
            if self._closing_when_idle:
                raise _ConnectionEnded("cut")
            if self._wait_ready(server=True):
                self._close_idle_server()
        with self._log.changed:
            self.idle = self._closing_when_idle = False

    def _close_idle_server(self) -> None:
        """An idle connection goes with its server, unless there is another target now."""
        assert self._server is not None
        if self._target() == self._address:
            raise _ConnectionEnded("server left")
        self._server.close()
        self._server = None

    def _read_request(self, head: Head) -> bytes:
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
        if self._server is not None and (
            address != self._address or self._wait_ready(0, server=True)
        ):
            self._server.close()
            self._server = None
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
        body = body_pieces(self._from_server, head, framing)
        if self._left_before_fault("event") is None:
            self._pass_body(exchange, body, framing)
        else:
            self._pass_events(exchange, body, framing)
        self._write(frame_piece(b"", framing)[0])
        return framing != "end" and not head.closes

    def _pass_body(self, exchange: Exchange, body: Iterator[bytes], framing: Framing) -> None:
        for piece in body:
            left = self._left_before_fault("body", exchange.passed)
            raw, begin = frame_piece(piece, framing)
            if left is not None and 0 < left <= len(piece):
                self._log.update(exchange, passed=exchange.passed + left)
                self._write_with_fault(raw, begin + left)
                self._log.update(exchange, passed=exchange.passed + len(piece) - left)
            else:
                self._write(raw)
                self._log.update(exchange, passed=exchange.passed + len(piece))

    def _pass_events(self, exchange: Exchange, body: Iterator[bytes], framing: Framing) -> None:
        count = 0
        for part, is_event in split_events(body):
            raw, begin = frame_piece(part, framing)
            middle = len(part) // 2
            if is_event and self._left_before_fault("event", count) == 0:
                self._log.update(exchange, passed=exchange.passed + middle)
                self._write_with_fault(raw, begin + middle)
                self._log.update(exchange, passed=exchange.passed + len(part) - middle)
            else:
                self._write(raw)
                self._log.update(exchange, passed=exchange.passed + len(part))
            count += is_event

    # Faults

    def _left_before_fault(self, place: Place, already: int = 0) -> int | None:
        """What still has to come before the fault, if it is one of this place."""
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
        """Wait for a release, or so many seconds."""
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
        """Write `data` with the fault in it, if it has a place there."""
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

    def _receive_from_client(self) -> bytes:
        return self._client.recv(_RECEIVE)

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
        """Wait until something happens; return whether the server can be read.

        Raises:
            _Over: The client has gone, or the proxy is closing.
        """
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
        """Take what the client says without being asked, most of all that it goes."""
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
        self._from_client.feed(data)


def _collect(incoming: Iterator[bytes], body: bytes, enough: int) -> bytes:
    while len(body) < enough:
        piece = next(incoming, b"")
        if not piece:
            break
        body += piece
    return body


def _shutdown(sock: socket.socket, how: int) -> None:
    # An SSLSocket's own shutdown() drops its TLS state under the thread that uses it.
    with suppress(OSError):
        socket.socket.shutdown(sock, how)
