"""What a `FaultProxy` can do to an exchange, and where in the exchange it does it.

from syncmcp.testing import Cut, FaultProxy, Hold

with FaultProxy(server.url) as proxy:
    proxy.queue(Cut("head", after=20, reset=True), method="tools/call")
    held = proxy.queue(Hold("sent"), method="tools/list", nth=2)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from syncmcp.testing.faults.exchanges import Exchange

__all__ = ["Cut", "Drip", "Fault", "Hold", "Place", "Planned"]

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

    def _is_due(self, verb: str | None, method: str | None) -> bool:
        """Count an exchange if it matches; return whether it is the one to meet, or later."""
        if self._verb not in (None, verb) or self._method not in (None, method):
            return False
        self._left -= 1
        return self._left <= 0

    def _begin(self, wake: Callable[[], None]) -> None:
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
