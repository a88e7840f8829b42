"""The faults of a `FaultProxy`, and its log of exchanges.

::

    from syncmcp.testing import Cut, FaultProxy, Hold

    with FaultProxy(server.url) as proxy:
        proxy.queue(Cut("head", after=20, reset=True), method="tools/call")
        held = proxy.queue(Hold("sent"), method="tools/list", nth=2)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from syncmcp._base.checks import kind_of, seconds, whole_number
from syncmcp.testing.listener import Watched

__all__ = ["Cut", "Drip", "Ending", "Exchange", "ExchangeLog", "Fault", "Hold", "Place", "Planned"]


Place = Literal["connect", "request", "sent", "head", "body", "event"]
"""A point of an HTTP exchange at which a fault happens; see `Fault`."""

_COUNTED = ("request", "head", "body", "event")


@dataclass(frozen=True)
class Fault:
    """A fault at a point of an exchange; the base class of `Cut`, `Hold` and `Drip`.

    The points, in the order of time:

    * ``"connect"``: The proxy has accepted a new connection, and has read nothing (with TLS: before
      the handshake). An open connection has no such point.
    * ``"request"``: The proxy has read `after` bytes of the request's body. The server has nothing.
    * ``"sent"``: The server has the whole request, so a tool runs. The proxy has read nothing of
      the response.
    * ``"head"``: The client has `after` bytes of the head of the response.
    * ``"body"``: The client has `after` bytes of the response's body, without chunk sizes.
    * ``"event"``: The client has `after` server-sent events and half of the next one. A JSON
      response has no such point: use ``serve_http(server, response="sse")``.

    Attributes:
        at: The point: "connect", "request", "sent", "head", "body" or "event".
        after: The number of bytes ("request", "head", "body") or events ("event") before the
            fault; 0 at the other points.

    Raises:
        ValueError: There is no such point, or `after` is negative or not 0 at "connect" or "sent".
        TypeError: `after` is not an `int`.
    """

    at: Place
    after: int = 0

    def __post_init__(self) -> None:
        if self.at not in get_args(Place):
            raise ValueError(f"at must be one of {', '.join(get_args(Place))}, not {self.at!r}")
        if isinstance(self.after, bool) or not isinstance(self.after, int):
            raise TypeError(f"after must be an int, not {kind_of(self.after)}")
        if self.after < 0 or (self.after and self.at not in _COUNTED):
            raise ValueError(f"after={self.after} does not apply at {self.at!r}")


@dataclass(frozen=True)
class Cut(Fault):
    """Ends both connections of the exchange, to the client and to the server.

    Attributes:
        reset: Whether the client's connection ends with a TCP reset instead of an orderly end.
    """

    reset: bool = False


@dataclass(frozen=True)
class Hold(Fault):
    """Stops the exchange until `Planned.release` is called; then it goes on.

    The fault also ends when the client disconnects. The proxy cannot notice that at "connect" and
    "request", where it does not read.

    Attributes:
        seconds: The seconds after which the exchange goes on without a release; `None` for no
            limit.

    Raises:
        ValueError: See `Fault`; or `seconds` is not a number of seconds.
    """

    seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds(self.seconds, "seconds")


@dataclass(frozen=True)
class Drip(Fault):
    """Sends the rest of the response in small pieces ("head", "body" and "event" only).

    Attributes:
        size: The number of bytes in one piece.
        every: The seconds before each piece; `None` sends one piece for each `Planned.release`.

    Raises:
        ValueError: See `Fault`; or the point is before the response, `size` is not a whole number
            of at least 1, or `every` is not a number of seconds.
        TypeError: See `Fault`.
    """

    size: int = 1
    every: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at not in ("head", "body", "event"):
            raise ValueError(f"only a response can drip, and {self.at!r} is before it")
        whole_number(self.size, "size")
        seconds(self.every, "every")


class Planned:
    """A queued fault, returned by `FaultProxy.queue`.

    The methods may be called from any thread.

    Attributes:
        fault: The fault.
        exchange: The exchange to which the fault was assigned; `None` before that, and at
            "connect".
        happened: Whether the exchange has reached the point of the fault. The value may become true
            just after the client's error; `wait` waits for it.
    """

    def __init__(
        self,
        fault: Fault,
        verb: str | None,
        method: str | None,
        nth: int,
        log: Watched,
    ) -> None:
        self.fault = fault
        self.exchange: Exchange | None = None
        self.happened = False
        self._verb = verb
        self._method = method
        self._left = nth
        self._log = log  # Its lock guards all attributes.
        self._releases = 0
        self._wake: Callable[[], None] | None = None

    def wait(self, timeout: float = 10.0) -> None:
        """Wait until the fault has happened; for a `Cut`, until the connections are cut.

        Args:
            timeout: The longest time to wait, in seconds.

        Raises:
            TimeoutError: The fault did not happen in time.
        """
        if not self._log.wait_for(lambda _: self.happened, timeout):
            raise TimeoutError(f"{self!r} did not happen within {timeout:g} s")

    def release(self, times: int = 1) -> None:
        """End a `Hold`, or send that many pieces of a `Drip`.

        The method may be called in advance.
        """
        with self._log.changed:
            self._releases += times
            wake = self._wake
        if wake is not None:
            wake()

    def __repr__(self) -> str:
        filters = {"verb": self._verb, "method": self._method}
        given = "".join(f", {name}={value!r}" for name, value in filters.items() if value)
        return f"{self.fault!r}{given}"

    # Called by the proxy

    def _matches(self, verb: str | None, method: str | None) -> bool:
        """Count an exchange that matches; return whether it is the n-th or a later one."""
        if self._verb not in (None, verb) or self._method not in (None, method):
            return False
        self._left -= 1
        return self._left <= 0

    def _mark_reached(self, wake: Callable[[], None]) -> None:
        """Record that the fault happens; `wake` wakes the thread that waits in it."""
        with self._log:
            self.happened = True
            self._wake = wake

    def _take_release(self) -> bool:
        """Consume one release; return whether there was one."""
        with self._log.changed:
            if not self._releases:
                return False
            self._releases -= 1
            return True


# The log of a `FaultProxy`, and its queue of faults.


Ending = Literal["complete", "cut", "reset", "client left", "server left", "closed"]
"""How an exchange ended: with the whole response, by a `Cut` ("cut" or "reset"), because the client
or the server closed its connection, or because the proxy was closed."""

# Searched only in the first bytes of a message, so that a long message need not be read whole.
_METHOD = re.compile(rb'"method"\s*:\s*"([^"\\]+)"')


@dataclass
class Exchange:
    """One HTTP request and its response, as the proxy has passed them on.

    Attributes:
        number: The number of the exchange, from 0, over all connections.
        connection: The number of the client's connection, from 0.
        verb: The HTTP method.
        path: The request's target.
        headers: The request's headers, with names in lower case.
        method: The JSON-RPC method in the body, or `None`.
        body: The request's body, as far as it was read.
        sent: Whether the whole request was sent to the server.
        status: The HTTP status of the response, or `None` before it was read.
        passed: The number of bytes of the response's body that were sent to the client; during a
            `Drip`, without the part that drips.
        ended: How the exchange ended: "complete", "cut", "reset", "client left", "server left" or
            "closed"; `None` before the end. "complete" is set shortly after the last byte was sent.
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
        """The body, decoded from JSON.

        Raises `ValueError` if the body is not JSON.
        """
        return json.loads(self.body)


class ExchangeLog(Watched):
    """The exchanges and the faults of one proxy; its lock guards both, and each exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[Exchange] = []
        self.planned: list[Planned] = []
        self.queue: list[Planned] = []

    def begin_exchange(
        self, connection: int, verb: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[Exchange, Planned | None]:
        """Add an exchange whose body was read at least in part; return it and its fault."""
        found = _METHOD.search(body)
        method = found.group(1).decode("utf-8", "replace") if found else None
        with self:
            number = len(self.exchanges)
            exchange = Exchange(number, connection, verb, path, headers, method, body)
            self.exchanges.append(exchange)
            planned = self.take_fault(verb, method)
            if planned is not None:
                planned.exchange = exchange
        return exchange, planned

    def update(self, exchange: Exchange, **facts: Any) -> None:
        with self:
            for name, value in facts.items():
                setattr(exchange, name, value)

    def take_fault(
        self, verb: str | None = None, method: str | None = None, *, at_connect: bool = False
    ) -> Planned | None:
        """Remove and return the fault for a new exchange or connection, or `None`."""
        with self.changed:
            due = [
                planned
                for planned in self.queue
                if (planned.fault.at == "connect") is at_connect and planned._matches(verb, method)
            ]
            if not due:
                return None
            self.queue.remove(due[0])
            return due[0]
