"""Records the frames of one client: the newest ones, a log at level DEBUG, and metrics.

The newest frames are always stored, for `Client.dump` after a fault. That costs a copy of the
beginning of each frame; secrets are removed only when frames are shown.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from syncmcp._base.secrets import Secrets
from syncmcp._base.text import logger
from syncmcp._concurrency.timing import monotonic
from syncmcp.config import Http, Stdio
from syncmcp.observe.metrics import Measured

if TYPE_CHECKING:
    from syncmcp.interceptors import Interceptor

_log = logger("syncmcp.wire")

Direction: TypeAlias = Literal["sent", "received"]

FRAMES = 32
"""How many frames are stored."""

KEPT_BYTES = 1024
"""How many bytes of each frame are stored."""

LOGGED_BYTES = 16 * 1024
"""How many bytes of a frame are logged."""


class WireLog:
    """Records the frames of all connections of one client.

    The secrets of `target` are removed from frames. A `Measured` among the interceptors is called
    with every frame.
    """

    def __init__(self, label: str, target: object, interceptors: Iterable[Interceptor]) -> None:
        self._label = label
        # Transports add the secrets that they send.
        self.secrets = target.secrets if isinstance(target, (Stdio, Http)) else Secrets()
        self._measured = [each for each in interceptors if isinstance(each, Measured)]
        # Time, direction, size and beginning of each. Appending to a deque needs no lock.
        self._frames: deque[tuple[float, Direction, int, bytes]] = deque(maxlen=FRAMES)

    def facts(self, now: float) -> list[dict[str, Any]]:
        """The newest frames as plain values, oldest first, secrets removed; see `Dump`."""
        return [
            {
                "age": round(now - when, 3),
                "direction": direction,
                "bytes": size,
                "text": _shown(beginning, size, self.secrets),
            }
            for when, direction, size, beginning in self._frames.copy()
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

    def repeated(self, method: str) -> None:
        """Report to metrics that a request of `method` is sent again."""
        for measured in self._measured:
            measured.repeated(self._label, method)


def _shown(beginning: bytes, size: int, secrets: Secrets) -> str:
    left = size - len(beginning)
    text = beginning.decode("utf-8", "replace").rstrip("\r\n")
    text = secrets.redact(text, ends_cut=left > 0)
    return f"{text} ... {left} bytes more" if left > 0 else text
