"""Who waits for which id: the table behind every answer, timeout and cancel.

Whoever *takes* an entry settles it; everybody who comes later finds nothing. The table has no lock
of its own: its connection guards it.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from syncmcp._protocol.jsonrpc import Id
from syncmcp._protocol.subscription import LISTEN


class Entry(Protocol):
    """What a table entry needs to know of itself."""

    id: int
    method: str


C = TypeVar("C", bound=Entry)
Q = TypeVar("Q")


class RequestTable(Generic[C, Q]):
    """The two tables of one connection: our open requests, and the server's.

    They are two because both sides count from wherever they like: the server's cancel of *its*
    request 3 must never touch *our* request 3.
    """

    def __init__(self, first_id: int, max_in_flight: int) -> None:
        self.next_id = first_id
        self._max = max_in_flight
        self._calls: dict[int, C] = {}
        # Those that last as long as somebody listens: nothing waits for their end.
        self._lasting: dict[int, C] = {}
        # Registered, but not to be sent before others are done.
        self._line: deque[int] = deque()
        self._in_line: set[int] = set()
        self._questions: dict[Id, Q] = {}

    def __len__(self) -> int:
        """How many of our requests will end by themselves."""
        return len(self._calls)

    def register(self, call: C, *, at_once: bool = False) -> bool:
        """Give `call` an id never used before and keep it.

        Args:
            call: The request.
            at_once: It does not stand in line: those in front may be waiting for it.

        Returns:
            Whether it may be sent now; otherwise it stands in line, and `take` says when.
        """
        id = call.id = self.next_id
        self.next_id = id + 1
        if call.method == LISTEN:
            self._lasting[id] = call
            return True
        self._calls[id] = call
        if at_once or len(self._calls) - len(self._in_line) <= self._max:
            return True
        self._line.append(id)
        self._in_line.add(id)
        return False

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._in_line)

    def open_calls(self) -> list[C]:
        """Our open requests."""
        return [*self._calls.values(), *self._lasting.values()]

    def get(self, id: object) -> C | None:
        """The request of ours with this id, if it is open."""
        key = own_id(id)
        return None if key is None else self._calls.get(key) or self._lasting.get(key)

    def only(self) -> C | None:
        """Our open request, if there is exactly one.

        A ping is none, and neither is one that lasts: nothing else belongs to them.
        """
        if len(self._calls) > 2:
            return None
        calls = [call for call in self._calls.values() if call.method != "ping"]
        return calls[0] if len(calls) == 1 else None

    def take(self, id: object) -> C | None:
        """Remove and return the request of ours with this id; `None` if somebody was faster."""
        key = own_id(id)
        if key is None:
            return None
        call = self._calls.pop(key, None) or self._lasting.pop(key, None)
        self._in_line.discard(key)
        return call

    def next_in_line(self) -> C | None:
        """After a `take`: the request that may be sent now, if one was waiting for its turn."""
        while self._line and len(self._calls) - len(self._in_line) < self._max:
            id = self._line.popleft()
            if id in self._in_line:
                self._in_line.remove(id)
                return self._calls[id]
        return None

    def drain(self) -> list[C]:
        """Take every open request."""
        calls = self.open_calls()
        self._calls.clear()
        self._lasting.clear()
        self._line.clear()
        self._in_line.clear()
        return calls

    @property
    def open_questions(self) -> int:
        """How many requests of the server's have no answer yet."""
        return len(self._questions)

    def receive(self, id: Id, question: Q) -> bool:
        """Keep a request of the server's; `False` if its id is in use already."""
        if id in self._questions:
            return False
        self._questions[id] = question
        return True

    def finish(self, id: object, question: Q | None = None) -> Q | None:
        """Remove a request of the server's: answered, or cancelled by the server.

        With `question`, only that one: another may have its id by now.
        """
        if type(id) is not int and type(id) is not str:
            return None
        if question is not None and self._questions.get(id) is not question:
            return None
        return self._questions.pop(id, None)


def own_id(id: object) -> int | None:
    """The id of ours that the peer means. Some servers turn numbers into strings."""
    if type(id) is int:
        return id
    if type(id) is str and id.isascii() and id.isdigit() and len(id) < 20:
        return int(id)
    return None
