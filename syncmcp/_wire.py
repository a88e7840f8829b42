"""What goes over the wire of one client: the newest frames, the log at DEBUG, what is counted.

The newest frames are always kept, because nobody knows beforehand when they will be needed. That
costs a copy of the beginning of each, and nothing is searched for secrets before it is shown.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from syncmcp._redaction import redact
from syncmcp._threads import monotonic
from syncmcp.config import Http, Stdio
from syncmcp.metrics import Measured

if TYPE_CHECKING:
    from syncmcp._threads import Deadline
    from syncmcp.errors import McpError
    from syncmcp.interceptors import Interceptor
    from syncmcp.transports.base import Outgoing, Receiver, Transport

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


class Wire:
    """Listens in on the transports of one client, one after another.

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

    def tap(self, transport: Transport, label: str) -> None:
        """Hear what a transport that is not open yet sends and receives; name its server."""
        transport.label = label
        send, post, open_it = transport.send, transport.post, transport.open

        def open_tapped(receiver: Receiver, deadline: Deadline) -> None:
            open_it(_Tap(receiver, self), deadline)

        def send_tapped(out: Outgoing) -> None:
            self._sent(out)
            send(out)

        def post_tapped(out: Outgoing) -> None:
            self._sent(out)
            post(out)

        # On the object, not around it: what else a transport can do, its class says.
        transport.open = open_tapped  # type: ignore[method-assign]
        transport.send = send_tapped  # type: ignore[method-assign]
        transport.post = post_tapped  # type: ignore[method-assign]

    def _sent(self, out: Outgoing) -> None:
        if not out.recorded:
            out.recorded = True
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


class _Tap:
    """A receiver that lets the wire know what comes; see `Receiver`."""

    def __init__(self, receiver: Receiver, wire: Wire) -> None:
        self._receiver = receiver
        self._wire = wire

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        self._wire.record("received", frame)
        return self._receiver.receive(frame, out)

    def alive(self, out: Outgoing | None) -> None:
        self._receiver.alive(out)

    def settled(self, out: Outgoing) -> bool:
        return self._receiver.settled(out)

    def silent(self) -> None:
        self._receiver.silent()

    def failed(self, out: Outgoing, error: McpError) -> None:
        self._receiver.failed(out, error)

    def lost(self, error: McpError) -> None:
        self._receiver.lost(error)


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
