"""A simulated provider of models on loopback: it records requests and streams answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from tests.support.stage import PATIENCE
from tests.transports.http_peer import RawServer, Request, serving


@dataclass
class Turn:
    """One answer.

    Attributes:
        events: The pieces of the body, which are sent in this order.
        status: The HTTP status.
        held_before: The piece before which the provider waits for `goes_on`; -1 for the head of
            the answer; `None`: no wait. It then sends one piece more, but no end.
        held: Set when the provider waits there.
        goes_on: Set by a test to end the wait.
        gone: Set when the client has disconnected after that.
    """

    events: list[str]
    status: int = 200
    held_before: int | None = None
    held: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)


class Double:
    """A simulated provider."""

    def __init__(self, server: RawServer, turns: SimpleQueue[Turn]) -> None:
        self.url = f"http://127.0.0.1:{server.port}"
        self._server = server
        self._turns = turns

    @property
    def asked(self) -> list[Request]:
        """The received requests, in order."""
        return self._server.requests

    @property
    def body(self) -> dict[str, Any]:
        """The message of the newest request."""
        return dict(self.asked[-1].message)

    def say(self, *turns: Turn | list[str]) -> Turn:
        """Queue the answers to the next requests; return the last one."""
        given = [turn if isinstance(turn, Turn) else Turn(turn) for turn in turns]
        for turn in given:
            self._turns.put(turn)
        return given[-1]


@contextmanager
def double() -> Iterator[Double]:
    """Run a simulated provider."""
    turns: SimpleQueue[Turn] = SimpleQueue()
    ended = threading.Event()

    def hold(turn: Turn) -> None:
        turn.held.set()
        while not (turn.goes_on.wait(0.01) or ended.is_set()):
            pass

    def answer(request: Request) -> None:
        connection = request.connection
        try:
            turn = turns.get(timeout=PATIENCE)
        except Empty:
            turn = Turn(['{"error":{"message":"nothing to say"}}'], status=400)
        if turn.held_before == -1:
            hold(turn)
        if turn.status != 200:
            kind = {"Content-Type": "application/json"}
            connection.respond(turn.status, "".join(turn.events).encode(), kind)
            return
        connection.start_events()
        for number, event in enumerate(turn.events):
            if number == turn.held_before:
                hold(turn)
            connection.chunk(event.encode())
            if turn.held.is_set():
                if connection.wait_for_end():
                    turn.gone.set()
                return
        connection.end_events()

    with serving(answer) as server:
        try:
            yield Double(server, turns)
        finally:
            ended.set()
