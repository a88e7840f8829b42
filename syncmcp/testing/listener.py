"""A listener on loopback, heads of HTTP messages and server-sent events, and base classes."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import BinaryIO, NamedTuple

from typing_extensions import Self

from syncmcp._base.checks import check_callable

HOST = "127.0.0.1"

LOOPBACK = (HOST, "localhost", "::1")
"""The host names under which clients reach a listener."""

# Seconds to wait for a thread to end; it needs far less.
_JOIN_SECONDS = 10.0


class Closing:
    """A context manager that calls `close` at the end of the `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Watched:
    """State that threads change and tests wait for.

    A `with` block holds the lock and wakes all waiting threads at its end. To read, hold `changed`.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())

    def __enter__(self) -> Self:
        self.changed.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.changed.notify_all()
        self.changed.release()

    def _wake(self) -> None:
        """Wake the waiting threads after a change of state that this object does not guard."""
        with self:
            pass

    def wait_for(self, predicate: Callable[[Self], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(self)` is true; return whether it became so.

        Args:
            predicate: Called on this thread, after each change, with the lock held. It must not
                block.
            timeout: The longest time to wait, in seconds.

        Raises:
            UsageError: `predicate` is not a function of one argument.
        """
        check_callable(predicate, "predicate", (type(self).__name__.lower(),))
        with self.changed:
            return self.changed.wait_for(lambda: predicate(self), timeout)


def reset_at_close(connection: socket.socket) -> None:
    """Make the connection end with a TCP reset when its socket is closed."""
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


class Listener:
    """Accepts connections on loopback until it is closed, and serves each on a thread of its own.

    `accept` is called on the listener's thread with each connection and its number, from 0. It
    returns a function that serves the connection. After that, the listener closes the connection.
    """

    def __init__(
        self, accept: Callable[[socket.socket, int], Callable[[], object]], port: int = 0
    ) -> None:
        if not 0 <= port <= 65_535:  # `create_server` would raise and leave its socket open
            raise ValueError(f"port must be 0 to 65535, not {port}")
        self._socket = socket.create_server((HOST, port), backlog=128)
        self.port: int = self._socket.getsockname()[1]
        self.accepted = 0
        self.closing = False
        self._accept = accept
        self._lock = threading.Lock()  # Guards `_open`, `accepted` and `closing`.
        self._open: dict[socket.socket, threading.Thread] = {}
        self._thread = _thread("syncmcp-testing-listener", self._run)
        self._thread.start()

    @property
    def open(self) -> list[socket.socket]:
        with self._lock:
            return list(self._open)

    def stop(self) -> None:
        """Stop listening; connections stay open.

        The method is idempotent.
        """
        with self._lock:
            if self.closing:
                return
            self.closing = True
        # On some systems, closing a socket does not wake a thread in `accept`. A connection does.
        with suppress(OSError), socket.create_connection((HOST, self.port)):
            self._thread.join(_JOIN_SECONDS)

    def drop(self, how: int = socket.SHUT_RDWR) -> None:
        """Shut down every open connection."""
        for connection in self.open:
            with suppress(OSError):  # The connection may have ended.
                connection.shutdown(how)

    def close(self, how: int = socket.SHUT_RDWR) -> None:
        """Stop listening, shut down every connection, and wait for the threads."""
        self.stop()
        self.drop(how)
        with self._lock:
            threads = list(self._open.values())
        for thread in threads:
            thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with self._socket:
            for number in itertools.count():
                connection, _ = self._socket.accept()
                with self._lock:
                    if self.closing:
                        connection.close()
                        return
                    self.accepted += 1
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                serve = self._accept(connection, number)
                self._start(connection, serve)

    def _start(self, connection: socket.socket, serve: Callable[[], object]) -> None:
        def run() -> None:
            try:
                serve()
            finally:
                self._remove(connection)

        thread = _thread("syncmcp-testing-connection", run)
        with self._lock:
            self._open[connection] = thread
        try:
            thread.start()
        except RuntimeError:  # The interpreter is shutting down and starts no threads.
            self._remove(connection)

    def _remove(self, connection: socket.socket) -> None:
        with self._lock:
            del self._open[connection]
        connection.close()


def _thread(name: str, run: Callable[[], None]) -> threading.Thread:
    return threading.Thread(target=run, name=name, daemon=True)


# Heads of HTTP messages and server-sent events, as bytes.


_PHRASES = {entry.value: entry.phrase for entry in HTTPStatus}

_MAX_LINE_SIZE = 65536
_MAX_HEADERS = 100


class RequestHead(NamedTuple):
    """The head of a request, with the names of its headers in lower case."""

    verb: str
    target: str
    version: str
    headers: dict[str, str]


class HeadTooLong(ValueError):
    """A request has more than 100 headers."""


def read_request_head(stream: BinaryIO) -> RequestHead | None:
    """Read the head of the next request; `None` at the end of the stream; raise `ValueError`."""
    start = stream.readline(_MAX_LINE_SIZE)
    if not start:
        return None
    verb, target, version = start.decode("latin-1").split()
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{version} is not a version of HTTP/1")
    headers: dict[str, str] = {}
    while line := stream.readline(_MAX_LINE_SIZE).strip():
        if len(headers) == _MAX_HEADERS:
            raise HeadTooLong
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return RequestHead(verb, target, version, headers)


def format_head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the head of a response with its blank line."""
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def format_event(
    data: bytes | None,
    event_id: str | None = None,
    retry: int | None = None,
    event: str | None = None,
) -> bytes:
    """Return a server-sent event with the fields that are not `None`."""
    fields = {"event": event, "id": event_id, "retry": retry}
    lines = [f"{name}: {value}".encode() for name, value in fields.items() if value is not None]
    if data is not None:
        # JSON has no raw line ends; other data needs a `data:` line for each of its lines.
        lines += [b"data: " + line for line in re.split(rb"\r\n|\r|\n", data)]
    return b"\n".join(lines) + b"\n\n"
