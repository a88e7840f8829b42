"""What a `FaultProxy` has seen, and which faults wait for what is to come."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any, Literal

from syncmcp.testing.faults.faults import Fault, Planned

__all__ = ["Ending", "Exchange", "Record"]

Ending = Literal["complete", "cut", "reset", "client left", "server left", "closed"]
"""How an exchange ended: with the whole answer, by a fault in order or by a reset, because the
client or the server ended its connection, or because the proxy was closed."""

# A method stands near the beginning of a message; a long message is not waited for.
_METHOD = re.compile(rb'"method"\s*:\s*"([^"\\]+)"')


@dataclass
class Exchange:
    """One request and its answer, as they passed.

    Attributes:
        number: Counted from 0 over all connections.
        connection: The number of the client's connection, from 0.
        verb: The HTTP method.
        path: The request's target.
        headers: The request's headers, names in lower case.
        method: The JSON-RPC method in the body, if there is one.
        body: The request's body, as far as it was read.
        sent: Whether the whole request went to the server.
        status: The answer's HTTP status, once it has come.
        passed: How many bytes of the answer's body went to the client.
        ended: How it ended, or `None` while it runs; for a complete one, a moment after the client
            has its last byte.
    """

    number: int
    connection: int
    verb: str
    path: str
    headers: dict[str, str]
    method: str | None = None
    body: bytes = field(default=b"", repr=False)
    sent: bool = False
    status: int | None = None
    passed: int = 0
    ended: Ending | None = None

    @property
    def message(self) -> Any:
        """The body as JSON; raises `ValueError` when it is none."""
        return json.loads(self.body)


class Record:
    """The exchanges of one proxy and its queue of faults, shared by all its threads.

    Attributes:
        changed: Guards everything; notified whenever something here changes.
        exchanges: All exchanges so far.
        planned: All faults that were ever queued.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.exchanges: list[Exchange] = []
        self.planned: list[Planned] = []
        self._queue: list[Planned] = []

    def plan(self, fault: Fault, verb: str | None, method: str | None, nth: int) -> Planned:
        """Put a fault into the queue."""
        planned = Planned(fault, verb, method, nth, self.changed)
        with self.changed:
            self.planned.append(planned)
            self._queue.append(planned)
        return planned

    def connected(self) -> Planned | None:
        """A connection has come: return the fault that it meets."""
        return self._take(None, None, at_connect=True)

    def begin(
        self, connection: int, verb: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[Exchange, Planned | None]:
        """A request has come, with the beginning of its body: return the fault that it meets."""
        found = _METHOD.search(body)
        method = found.group(1).decode("utf-8", "replace") if found else None
        with self.changed:
            number = len(self.exchanges)
            exchange = Exchange(number, connection, verb, path, headers, method, body)
            self.exchanges.append(exchange)
            planned = self._take(verb, method, at_connect=False)
            if planned is not None:
                planned.exchange = exchange
            self.changed.notify_all()
        return exchange, planned

    def note(self, exchange: Exchange, **facts: Any) -> None:
        """Change what is known of an exchange."""
        with self.changed:
            for name, value in facts.items():
                setattr(exchange, name, value)
            self.changed.notify_all()

    def _take(self, verb: str | None, method: str | None, *, at_connect: bool) -> Planned | None:
        with self.changed:
            due = [
                planned
                for planned in self._queue
                if (planned.fault.at == "connect") is at_connect and planned._is_due(verb, method)
            ]
            if not due:
                return None
            self._queue.remove(due[0])
            return due[0]
