"""A listener on loopback that serves each connection on a thread of its own."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from typing_extensions import Self

HOST = "127.0.0.1"

LOOPBACK = (HOST, "localhost", "::1")
"""The host names that lead to a listener, and no others."""

# Seconds to wait for a thread that was told to end; it needs far less.
_JOIN_SECONDS = 10.0


class Closing:
    """Has `close` called at the end of a `with` statement."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def reset_at_close(connection: socket.socket) -> None:
    """Have the connection end by a TCP reset when its socket is closed."""
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


class Listener:
    """Accepts connections on loopback until it is closed, and serves each on a thread of its own.

    Args:
        accept: Called on the listener's thread with each connection and its number, from 0. Returns
            a function that serves the connection, which is closed when that returns.
        port: The port; 0 picks a free one.
    """

    def __init__(
        self, accept: Callable[[socket.socket, int], Callable[[], object]], port: int = 0
    ) -> None:
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
        """Stop listening; connections stay open. Idempotent."""
        with self._lock:
            if self.closing:
                return
            self.closing = True
        # Not every system wakes a thread that accepts when its socket is closed.
        with suppress(OSError), socket.create_connection((HOST, self.port)):
            self._thread.join(_JOIN_SECONDS)

    def drop(self, how: int = socket.SHUT_RDWR) -> None:
        """Shut down every open connection."""
        for connection in self.open:
            with suppress(OSError):  # The connection may have ended meanwhile.
                connection.shutdown(how)

    def close(self, how: int = socket.SHUT_RDWR) -> None:
        """Stop listening, shut down every connection and wait for the threads."""
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
