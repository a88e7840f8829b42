"""The frames that one client sends and receives: the newest ones, the log at DEBUG, metrics.

The newest frames are always kept, for `Client.dump` after a fault. That costs a copy of the
beginning of each frame; secrets are removed only when frames are shown.
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

_log = logging.getLogger("syncmcp.wire")

Direction: TypeAlias = Literal["sent", "received"]

FRAMES = 32
"""How many frames are kept."""

KEPT_BYTES = 1024
"""How many bytes of each frame are kept."""

LOGGED_BYTES = 16 * 1024
"""How many bytes of a frame are logged."""


class Frame(NamedTuple):
    """One frame that went over the wire."""

    when: float
    direction: Direction
    size: int
    beginning: bytes

    def text(self, secrets: Iterable[str]) -> str:
        """The beginning of the frame, secrets removed."""
        return _shown(self.beginning, self.size, secrets)


class WireLog:
    """Records the frames of all connections of one client.

    Args:
        label: What logs call the server.
        target: What the client connects to; its secrets are removed from frames.
        interceptors: The client's interceptors; a `Measured` is called with every frame.
    """

    def __init__(self, label: str, target: object, interceptors: Iterable[Interceptor]) -> None:
        self._label = label
        self.secrets = tuple(_secrets(target))
        self._measured = [each for each in interceptors if isinstance(each, Measured)]
        # Plain tuples, of which `frames` makes a `Frame`. A deque needs no lock for appending.
        self._frames: deque[tuple[float, Direction, int, bytes]] = deque(maxlen=FRAMES)

    @property
    def on_repeat(self) -> Callable[[str], object] | None:
        """Called with the method of each retried request; `None` if there are no metrics."""
        return self._repeated if self._measured else None

    def frames(self) -> list[Frame]:
        """The newest frames, oldest first."""
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

    def record(self, direction: Direction, frame: bytes) -> None:
        """Record a frame that is passed to the transport, or was read. Never raises."""
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
    """Values of the target that are secrets, or may be."""
    if isinstance(target, Stdio):
        yield from target.env.values()
    elif isinstance(target, Http):
        if isinstance(target.headers, Mapping):
            yield from target.headers.values()
        if target.session_id is not None:
            yield target.session_id
