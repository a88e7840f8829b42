"""What goes over the wire of one client: the newest frames, the log at DEBUG, what is counted.

The newest frames are always kept, because nobody knows beforehand when they will be needed. That
costs a copy of the beginning of each, and nothing is searched for secrets before it is shown.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from syncmcp._base.text import redact
from syncmcp._concurrency.timing import monotonic
from syncmcp.config import Http, Stdio
from syncmcp.observe.metrics import Measured

if TYPE_CHECKING:
    from syncmcp.interceptors import Interceptor
    from syncmcp.transports.base import Outgoing

_log = logging.getLogger("syncmcp.wire")

Direction: TypeAlias = Literal["sent", "received"]

FRAMES = 32
"""How many frames are kept."""

KEPT_BYTES = 1024
"""How much of each is kept."""

LOGGED_BYTES = 16 * 1024
"""How much of a frame is logged."""


class Frame(NamedTuple):
    """One frame that went over the wire."""

    when: float
    direction: Direction
    size: int
    beginning: bytes

    def text(self, secrets: Iterable[str]) -> str:
        """What is known of it, secrets removed."""
        return _shown(self.beginning, self.size, secrets)


class WireLog:
    """What the connections of one client, one after another, tell of their frames.

    Args:
        label: What logs call the server.
        target: What the client connects to: knows secrets that must not be shown.
        interceptors: Those of the client; a `Measured` is told of every frame.
    """

    def __init__(self, label: str, target: object, interceptors: Iterable[Interceptor]) -> None:
        self._label = label
        self.secrets = tuple(_secrets(target))
        self._measured = [each for each in interceptors if isinstance(each, Measured)]
        # Appended to on every thread that reads or writes, for which a deque needs no lock; what
        # is in it is made a `Frame` by whoever looks.
        self._frames: deque[tuple[float, Direction, int, bytes]] = deque(maxlen=FRAMES)

    @property
    def on_repeat(self) -> Callable[[str], object] | None:
        """Who is to be told that a request is sent again; `None` for nobody."""
        return self._repeated if self._measured else None

    def frames(self) -> list[Frame]:
        """The newest ones, oldest first."""
        return [Frame(*kept) for kept in self._frames.copy()]

    def facts(self, now: float) -> list[dict[str, Any]]:
        """The newest frames as plain values, secrets removed; see `Dump`."""
        return [
            {
                "age": round(now - frame.when, 3),
                "direction": frame.direction,
                "bytes": frame.size,
                "text": frame.text(self.secrets),
            }
            for frame in self.frames()
        ]

    def sent(self, out: Outgoing) -> None:
        """Take note of a frame that is handed to the transport. Never raises."""
        out.submitted = True
        self.record("sent", out.body)

    def record(self, direction: Direction, frame: bytes) -> None:
        """Take note of a frame. Never raises."""
        size = len(frame)
        self._frames.append((monotonic(), direction, size, frame[:KEPT_BYTES]))
        if _log.isEnabledFor(logging.DEBUG):
            arrow = "->" if direction == "sent" else "<-"
            _log.debug(
                "[%s] %s %s", self._label, arrow, _shown(frame[:LOGGED_BYTES], size, self.secrets)
            )
        for measured in self._measured:
            measured.moved(self._label, direction, size)

    def _repeated(self, method: str) -> None:
        for measured in self._measured:
            measured.repeated(self._label, method)


def _shown(beginning: bytes, size: int, secrets: Iterable[str]) -> str:
    text = redact(beginning.decode("utf-8", "replace").rstrip("\r\n"), secrets)
    left = size - len(beginning)
    return f"{text} ... {left} bytes more" if left > 0 else text


def _secrets(target: object) -> Iterator[str]:
    """Values that were given as secrets, or may be some."""
    if isinstance(target, Stdio):
        yield from target.env.values()
    elif isinstance(target, Http):
        if isinstance(target.headers, Mapping):
            yield from target.headers.values()
        if target.session_id is not None:
            yield target.session_id
