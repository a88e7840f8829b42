"""A provider of models on loopback: it records what it is asked, and streams what it is told."""

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
    """A provider."""

    def __init__(self, server: RawServer, turns: SimpleQueue[Turn]) -> None:
        self.url = f"http://127.0.0.1:{server.port}"
        self._server = server
        self._turns = turns

    @property
    def asked(self) -> list[Request]:
        """What it was asked, in order."""
        return self._server.requests

    @property
    def body(self) -> dict[str, Any]:
        """The newest request."""
        return dict(self.asked[-1].message)

    def say(self, *turns: Turn | list[str]) -> Turn:
        """Answer the next requests so; return the last of these answers."""
        given = [turn if isinstance(turn, Turn) else Turn(turn) for turn in turns]
        for turn in given:
            self._turns.put(turn)
        return given[-1]


@contextmanager
def double() -> Iterator[Double]:
    """A provider that is there for a while."""
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
