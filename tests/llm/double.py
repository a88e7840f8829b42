"""A provider of models on loopback: it records what it is asked, and streams what it is told."""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from tests.support.stage import PATIENCE


class Asked(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gives up hangs up in the middle; only other errors are worth a word."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


@dataclass
class Turn:
    """One answer.

    Attributes:
        events: Pieces of the body, each sent when the one before it was.
        status: Of the answer.
        held_before: The piece before which the provider stops until it may go on, -1 for the head
            of the answer; `None` for none. It then writes one piece more, and no end.
        held: Set when it has stopped there.
        goes_on: To be set when it may go on.
        gone: Set when the client has hung up after that.
    """

    events: list[str]
    status: int = 200
    held_before: int | None = None
    held: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)


class Double:
    """A provider.

    Attributes:
        url: Where it is.
        asked: What it was asked, in order.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._turns: SimpleQueue[Turn] = SimpleQueue()
        self._ended = threading.Event()
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                double.asked.append(Asked(self.path, dict(self.headers), body))
                try:
                    turn = double._turns.get(timeout=PATIENCE)
                except Empty:
                    turn = Turn(['{"error":{"message":"nothing to say"}}'], status=400)
                with_events = turn.status == 200
                if turn.held_before == -1:
                    double._hold(turn)
                self.send_response(turn.status)
                kind = "text/event-stream" if with_events else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for number, event in enumerate(turn.events):
                    if number == turn.held_before:
                        double._hold(turn)
                    data = event.encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    if turn.held.is_set():
                        double._await_hang_up(turn, self.connection)
                        self.close_connection = True
                        return
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def body(self) -> dict[str, Any]:
        """The newest request."""
        return self.asked[-1].body

    def say(self, *turns: Turn | list[str]) -> Turn:
        """Answer the next requests so; return the last of these answers."""
        given = [turn if isinstance(turn, Turn) else Turn(turn) for turn in turns]
        for turn in given:
            self._turns.put(turn)
        return given[-1]

    def _hold(self, turn: Turn) -> None:
        """Wait until the provider may go on, or the test is over."""
        turn.held.set()
        while not (turn.goes_on.wait(0.01) or self._ended.is_set()):
            pass

    def _await_hang_up(self, turn: Turn, connection: socket.socket) -> None:
        """Wait until the client hangs up, or the test is over."""
        while not self._ended.is_set():
            if select.select([connection], [], [], 0.01)[0] and not connection.recv(1):
                turn.gone.set()
                break

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


@contextmanager
def double() -> Iterator[Double]:
    """A provider that is there for a while."""
    provider = Double()
    provider.start()
    try:
        yield provider
    finally:
        provider.close()
