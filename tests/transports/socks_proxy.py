"""A SOCKS5 proxy on loopback (RFC 1928, CONNECT, no password) that records the addresses."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO

_WAIT = 30.0


class SocksProxy:
    """Connects every request to one local port; `asked` lists the requested addresses."""

    def __init__(self, port: int) -> None:
        self.asked: list[tuple[str, int]] = []
        self._port = port
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socks5h://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            _shut(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_WAIT)
            assert not thread.is_alive()

    def _start(self, run: Callable[..., None], *args: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=run, args=args, name="test-socks", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            stream = client.makefile("rb")
            _read(stream, _read(stream, 2)[1])
            client.sendall(b"\5\0")
            _, _, _, kind = _read(stream, 4)
            host = _read(stream, _read(stream, 1)[0] if kind == 3 else 4)
            name = host.decode() if kind == 3 else socket.inet_ntoa(host)
            self.asked.append((name, int.from_bytes(_read(stream, 2), "big")))
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                self._sockets.append(server)
                client.sendall(b"\5\0\0\1\0\0\0\0\0\0")
                back = self._start(pump, server, client)
                pump(client, server)
                back.join(_WAIT)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the client has gone")
    return data


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _shut(target, socket.SHUT_WR)


def _shut(sock: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(how)


@contextlib.contextmanager
def socks_proxy(port: int) -> Iterator[SocksProxy]:
    proxy = SocksProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
