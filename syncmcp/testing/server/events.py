"""HTTP responses and event streams (WHATWG server-sent events), with replay of missed events."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from syncmcp.testing.listener import format_event

KEEP_ALIVE = b": still here\n\n"

# The interval at which a waiting stream checks whether its client is still connected.
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Event:
    """One message on a stream; a `final` message is the response, which ends the stream."""

    data: bytes
    number: int
    final: bool


@dataclass(frozen=True)
class Pause:
    """The server closes the stream before the response; the client may resume the stream."""

    retry_ms: int | None


Item = Event | Pause | None
"""An item in the queue of a reader; `None` is the end of the stream."""


class EventStream:
    """One ordered stream of messages with at most one reader at a time.

    A reader that attaches later, or again, receives the messages that it missed; the latest `limit`
    messages are stored. The ids of events begin with `name`.
    """

    def __init__(self, name: str, limit: int = 0) -> None:
        self.name = name
        self._lock = threading.Lock()  # Guards all attributes below.
        self._events: deque[Event] = deque(maxlen=limit)
        self._last = 0
        self._delivered = 0
        self._finished = False
        self._reader: queue.SimpleQueue[Item] | None = None

    def append(self, data: bytes, *, final: bool = False) -> None:
        """Add a message; a final one ends the stream, after which messages are discarded."""
        with self._lock:
            if self._finished:
                return
            self._last += 1
            event = Event(data, self._last, final)
            self._finished = final
            self._events.append(event)
            self._put(event)

    def finish(self) -> None:
        """End the stream without a final message."""
        with self._lock:
            self._finished = True
            self._put(None)

    def pause(self, retry_ms: int | None) -> None:
        """Disconnect the reader. The stream continues, and a reader can resume it."""
        with self._lock:
            self._put(Pause(retry_ms))
            self._reader = None

    def attach(self, after: int | None) -> queue.SimpleQueue[Item]:
        """Return a queue of the stored messages after number `after`, and of all later messages.

        If `after` is `None`, this is the last message that any reader has delivered. An earlier
        reader ends.
        """
        reader: queue.SimpleQueue[Item] = queue.SimpleQueue()
        with self._lock:
            self._put(None)
            start = self._delivered if after is None else after
            missed = [event for event in self._events if event.number > start]
            for event in missed:
                reader.put(event)
            if self._finished and not any(event.final for event in missed):
                reader.put(None)
            self._reader = reader
        return reader

    def detach(self, reader: queue.SimpleQueue[Item]) -> None:
        with self._lock:
            if self._reader is reader:
                self._reader = None

    def mark_delivered(self, event: Event) -> None:
        with self._lock:
            self._delivered = max(self._delivered, event.number)

    @property
    def position(self) -> int:
        with self._lock:
            return self._delivered

    def _put(self, item: Item) -> None:
        if self._reader is not None:
            self._reader.put(item)


class EventBody(Iterator[bytes]):
    """The body of an event-stream response: an iterator of chunks, each of whole events.

    The body starts after message number `after`, or, if that is `None`, after the last delivered
    message. While it waits, the body calls `gone` every 50 ms, which returns whether the client has
    closed the connection. After `keep_alive` seconds without an event, a comment is sent. `prelude`
    is sent first. `ended` is true after the last chunk.
    """

    def __init__(
        self,
        stream: EventStream,
        *,
        after: int | None,
        gone: Callable[[], bool] | None,
        keep_alive: float | None,
    ) -> None:
        self.ended = False
        self.stream = stream
        self._gone = gone
        self._keep_alive = keep_alive
        self._queue = stream.attach(after)
        self._first: list[Item] = []
        self.prelude = b""
        self._with_ids = False
        self._lock = threading.Lock()  # Guards `_closed` and `_at_close`.
        self._closed = False
        self._at_close: list[Callable[[bool], None]] = []

    def enable_ids(self, *, priming: bool, retry_ms: int | None) -> None:
        """Send an id with each event, so that the stream can be resumed.

        With `priming`, the stream begins with an event that has an id and no data (2025-11-25).
        """
        self._with_ids = True
        if priming:
            self.prelude = format_event(b"", self._id(self.stream.position), retry_ms)
        elif retry_ms is not None:
            self.prelude = format_event(None, retry=retry_ms)

    @property
    def ready(self) -> bool:
        """Whether the next chunk is available without waiting."""
        return bool(self.prelude or self._first) or not self._queue.empty()

    def at_close(self, function: Callable[[bool], None]) -> None:
        """Call `function(whole)` once, when the body was read to its end (true) or closed."""
        with self._lock:
            if not self._closed:
                self._at_close.append(function)
                return
        function(False)

    def wait_first(self) -> Item:
        """Wait for the first item without consuming it; `None` if the stream ends first."""
        item = self._next_item(None)
        self._first.append(item)
        return item

    def wait_final(self) -> Event | None:
        """Wait for the response, and discard messages before it; `None` if the stream ends."""
        item = self._first.pop() if self._first else self._next_item(None)
        while isinstance(item, Event) and not item.final:
            item = self._next_item(None)
        self._close_once(whole=True)
        return item if isinstance(item, Event) else None

    def __next__(self) -> bytes:
        if self.ended:
            raise StopIteration
        chunk, self.prelude = self.prelude, b""
        if chunk and not self._first and self._queue.empty():
            return chunk
        try:
            item = self._first.pop() if self._first else self._next_item(self._keep_alive)
        except queue.Empty:
            return chunk + KEEP_ALIVE
        if isinstance(item, Event):
            self.stream.mark_delivered(item)
            chunk += format_event(item.data, self._id(item.number) if self._with_ids else None)
            self.ended = item.final
        else:
            if item is not None and item.retry_ms is not None:
                chunk += format_event(None, retry=item.retry_ms)
            self.ended = True
        if self.ended:
            self._close_once(whole=True)
        if not chunk:
            raise StopIteration
        return chunk

    def close(self) -> None:
        """Stop reading, from any thread; a blocked reader wakes up.

        The method is idempotent.
        """
        self._close_once(whole=False)
        self._queue.put(None)

    def _next_item(self, limit: float | None) -> Item:
        """Wait for the next item while the client is connected; raise `queue.Empty`."""
        if self._gone is None:
            return self._queue.get(timeout=limit)
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            try:
                return self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self._gone():
                    self._close_once(whole=False)
                    return None
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    def _id(self, number: int) -> str:
        return f"{self.stream.name}-{number}"

    def _close_once(self, *, whole: bool) -> None:
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self.ended = True
            self.stream.detach(self._queue)
            for function in self._at_close:
                function(whole)


@dataclass(frozen=True)
class HttpReply:
    """The response to an HTTP request.

    Attributes:
        status: The status code.
        headers: The headers, without `Content-Length`.
        body: The whole body as bytes, or an iterator of its chunks. After writing the chunks, also
            if writing fails, the HTTP server must call the iterator's `close()`.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | EventBody = b""
