"""What a `FaultProxy` can do to an exchange, and where in the exchange it does it.

from syncmcp.testing import Cut, FaultProxy, Hold

with FaultProxy(server.url) as proxy:
    proxy.queue(Cut("head", after=20, reset=True), method="tools/call")
    held = proxy.queue(Hold("sent"), method="tools/list", nth=2)
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = ["Cut", "Drip", "Ending", "Exchange", "Fault", "Hold", "Place", "Planned", "Record"]


Place = Literal["connect", "request", "sent", "head", "body", "event"]
"""A place in an exchange, in the order in which they come:

"connect"
    the connection was accepted and no byte was read (with TLS: before the handshake);
"request"
    `after` bytes of the request's body were read, and nothing has gone to the server;
"sent"
    the server has the whole request, and nothing of its answer was read;
"head"
    the answer's head has come, and `after` bytes of it went to the client;
"body"
    `after` bytes of the answer's body, chunk sizes not counted, went to the client;
"event"
    `after` events went to the client, and half of the next one, which has come whole.
"""

_COUNTED = ("request", "head", "body", "event")


@dataclass(frozen=True)
class Fault:
    """Something that happens at a place.

    Attributes:
        at: The place.
        after: How many bytes, or events, come before it.

    Raises:
        ValueError: There is no such place, or nothing to count there.
    """

    at: Place
    after: int = 0

    def __post_init__(self) -> None:
        if self.at not in get_args(Place):
            raise ValueError(f"there is no place {self.at!r}, but {', '.join(get_args(Place))}")
        if self.after < 0 or (self.after and self.at not in _COUNTED):
            raise ValueError(f"after={self.after} means nothing at {self.at!r}")


@dataclass(frozen=True)
class Cut(Fault):
    """Ends both connections of the exchange, to the client and to the server.

    Attributes:
        reset: Reset the client's connection instead of ending it in order.
    """

    reset: bool = False


@dataclass(frozen=True)
class Hold(Fault):
    """Lets nothing pass until `Planned.release`, or the client has gone; then all goes on.

    At "connect" and "request" it reads nothing either, and so cannot see that the client has gone.

    Attributes:
        seconds: Goes on by itself after that long; `None` never does.
    """

    seconds: float | None = None


@dataclass(frozen=True)
class Drip(Fault):
    """Lets the rest of the answer pass in small pieces ("head", "body" and "event" only).

    Attributes:
        size: Bytes in one piece.
        every: Seconds before each piece; `None` lets one pass for each `Planned.release`.
    """

    size: int = 1
    every: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at not in ("head", "body", "event"):
            raise ValueError(f"only an answer can drip, and there is none at {self.at!r}")
        if self.size < 1:
            raise ValueError(f"size={self.size} would let nothing pass")


class Planned:
    """A fault in the queue of a proxy; what `FaultProxy.queue` returns.

    Attributes:
        fault: The fault.
        exchange: The exchange that it met, once it was matched (never at "connect").
        happened: Whether its place was reached.
    """

    def __init__(
        self,
        fault: Fault,
        verb: str | None,
        method: str | None,
        nth: int,
        changed: threading.Condition,
    ) -> None:
        self.fault = fault
        self.exchange: Exchange | None = None
        self.happened = False
        self._verb = verb
        self._method = method
        self._left = nth
        self._changed = changed  # Guards everything here.
        self._releases = 0
        self._wake: Callable[[], None] | None = None

    def wait(self, timeout: float = 10.0) -> None:
        """Wait until the place was reached; for a `Cut`, until the connections are cut.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: It was not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.happened, timeout):
                raise TimeoutError(f"{self!r} did not happen within {timeout:g} s")

    def release(self, times: int = 1) -> None:
        """Let a `Hold` go on, or so many pieces of a `Drip` pass; also in advance."""
        with self._changed:
            self._releases += times
            wake = self._wake
        if wake is not None:
            wake()

    def __repr__(self) -> str:
        filters = {"verb": self._verb, "method": self._method}
        given = "".join(f", {name}={value!r}" for name, value in filters.items() if value)
        return f"{self.fault!r}{given}"

    # Of the proxy

    def _matches(self, verb: str | None, method: str | None) -> bool:
        """Count an exchange if it matches; return whether it is the one to meet, or later."""
        if self._verb not in (None, verb) or self._method not in (None, method):
            return False
        self._left -= 1
        return self._left <= 0

    def _mark_reached(self, wake: Callable[[], None]) -> None:
        """Note that the place was reached, and how to wake who waits there."""
        with self._changed:
            self.happened = True
            self._wake = wake
            self._changed.notify_all()

    def _take_release(self) -> bool:
        """Use up one release, if there is one."""
        with self._changed:
            if not self._releases:
                return False
            self._releases -= 1
            return True


# What a `FaultProxy` has seen, and which faults wait for what is to come.


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


class ExchangeLog:
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

    def queue(self, fault: Fault, verb: str | None, method: str | None, nth: int) -> Planned:
        """Put a fault into the queue."""
        planned = Planned(fault, verb, method, nth, self.changed)
        with self.changed:
            self.planned.append(planned)
            self._queue.append(planned)
        return planned

    def take_connect_fault(self) -> Planned | None:
        """A connection has come: return the fault that it meets."""
        return self._take(None, None, at_connect=True)

    def begin_exchange(
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

    def update(self, exchange: Exchange, **facts: Any) -> None:
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
                if (planned.fault.at == "connect") is at_connect and planned._matches(verb, method)
            ]
            if not due:
                return None
            self._queue.remove(due[0])
            return due[0]
