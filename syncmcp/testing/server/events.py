"""Event streams: written as the WHATWG standard says, kept for a while, replayed on request."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

KEEP_ALIVE = b": still here\n\n"

# How long a waiting stream goes without asking whether its client is still there.
_POLL_SECONDS = 0.05


def format_event(
    data: bytes | None,
    event_id: str | None = None,
    retry: int | None = None,
    event: str | None = None,
) -> bytes:
    """Return one event: its fields, a `data:` line for each line of data, an empty line."""
    lines: list[bytes] = []
    if event is not None:
        lines.append(b"event: " + event.encode())
    if event_id is not None:
        lines.append(b"id: " + event_id.encode())
    if retry is not None:
        lines.append(b"retry: %d" % retry)
    if data is not None:
        # JSON has no raw line ends, so this is one line but for data of another kind.
        whole = b"\n" not in data and b"\r" not in data
        pieces = [data] if whole else re.split(rb"\r\n|\r|\n", data)
        lines.extend(b"data: " + piece for piece in pieces)
    return b"\n".join(lines) + b"\n\n"


@dataclass(frozen=True)
class Event:
    """One message on a stream; `final` marks the answer that ends it."""

    data: bytes
    number: int
    final: bool


@dataclass(frozen=True)
class Pause:
    """The server closes the stream early; the client may take it up again."""

    retry_ms: int | None


Item = Event | Pause | None
"""What a reader takes off its queue; `None` is the end."""


class EventStream:
    """One ordered stream of messages with at most one reader at a time.

    A reader that comes later, or again, gets what it missed as long as that is kept.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()  # Guards everything below.
        self._events: deque[Event] = deque()
        self._store: EventStore | None = None
        self._last = 0
        self._delivered = 0
        self._finished = False
        self._reader: queue.SimpleQueue[Item] | None = None

    def append(self, data: bytes, *, final: bool = False) -> None:
        """Add a message; after a final one the stream has ended."""
        with self._lock:
            if self._finished:
                return
            self._last += 1
            event = Event(data, self._last, final)
            self._finished = final
            self._events.append(event)
            store = self._store
            if self._reader is not None:
                self._reader.put(event)
        if store is not None:
            store.count_events(self, 1)

    def finish(self) -> None:
        """End the stream without a final message."""
        with self._lock:
            self._finished = True
            if self._reader is not None:
                self._reader.put(None)

    def pause(self, retry_ms: int | None) -> None:
        """End the reader, not the stream."""
        with self._lock:
            if self._reader is not None:
                self._reader.put(Pause(retry_ms))
                self._reader = None

    def attach(self, after: int | None) -> queue.SimpleQueue[Item]:
        """Return a queue of the kept messages after number `after` and of all that follow.

        `None` starts behind the last message any reader took. An earlier reader ends.
        """
        reader: queue.SimpleQueue[Item] = queue.SimpleQueue()
        with self._lock:
            if self._reader is not None:
                self._reader.put(None)
            start = self._delivered if after is None else after
            ended = self._finished
            for event in self._events:
                if event.number > start:
                    reader.put(event)
                    ended = ended and not event.final
            if ended:
                reader.put(None)
            self._reader = reader
        return reader

    def detach(self, reader: queue.SimpleQueue[Item]) -> None:
        """Forget a reader that went away."""
        with self._lock:
            if self._reader is reader:
                self._reader = None

    def mark_delivered(self, event: Event) -> None:
        """Note that a reader took `event`."""
        with self._lock:
            self._delivered = max(self._delivered, event.number)

    @property
    def position(self) -> int:
        """The number of the last message any reader took."""
        with self._lock:
            return self._delivered

    def set_store(self, store: EventStore) -> int:
        """Let `store` bound what is kept from now on; return how much that is."""
        with self._lock:
            self._store = store
            return len(self._events)

    def discard_oldest(self) -> bool:
        """Drop the oldest message; return whether the stream is over and empty."""
        with self._lock:
            if self._events:
                self._events.popleft()
            return self._finished and not self._events


class EventStore:
    """The streams of one session and a bound on the messages kept for replay."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()  # Guards both below; taken before a stream's lock.
        self._streams: OrderedDict[str, EventStream] = OrderedDict()
        self._order: deque[EventStream] = deque()

    def add(self, stream: EventStream) -> None:
        """Keep what `stream` carries."""
        with self._lock:
            self._streams[stream.name] = stream
        self.count_events(stream, stream.set_store(self))

    def count_events(self, stream: EventStream, messages: int) -> None:
        """Note new messages of `stream` and drop the oldest of all beyond the limit."""
        with self._lock:
            self._order.extend([stream] * messages)
            while len(self._order) > self._limit:
                oldest = self._order.popleft()
                if oldest.discard_oldest():
                    self._streams.pop(oldest.name, None)

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """Return the stream an event id belongs to and its number there."""
        name, _, number = event_id.rpartition("-")
        with self._lock:
            stream = self._streams.get(name)
        if stream is None or not number.isdecimal():
            return None
        return stream, int(number)

    def close(self) -> None:
        """End all streams and keep nothing."""
        with self._lock:
            streams = list(self._streams.values())
            self._streams.clear()
            self._order.clear()
        for stream in streams:
            stream.finish()


class EventBody(Iterator[bytes]):
    """The body of an event-stream response: an iterator of chunks, each whole events.

    Args:
        stream: What to read.
        after: The number of the message to start behind; `None` for the last one read.
        gone: Asked now and then, while waiting, whether the client has hung up.
        keep_alive: Seconds of silence after which a comment is sent; `None` for never.

    Attributes:
        stream: What it reads.
        ended: Whether the chunk returned last was the last one.
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
        self._prelude = b""
        self._with_ids = False
        self._lock = threading.Lock()  # Guards both below: `close` may come from any thread.
        self._closed = False
        self._at_close: list[Callable[[bool], None]] = []

    def enable_ids(self, *, priming: bool, retry_ms: int | None) -> None:
        """Give each event an id, so that the stream can be taken up again.

        Args:
            priming: Whether an event with an id and empty data goes first (2025-11-25).
            retry_ms: The reconnection time to announce, in milliseconds.
        """
        self._with_ids = True
        if priming:
            self._prelude = format_event(b"", self._id(self.stream.position), retry_ms)
        elif retry_ms is not None:
            self._prelude = format_event(None, retry=retry_ms)

    def set_prelude(self, prelude: bytes) -> None:
        """Send these events first."""
        self._prelude = prelude

    @property
    def ready(self) -> bool:
        """Whether the next chunk is there without waiting."""
        return bool(self._prelude or self._first) or not self._queue.empty()

    def at_close(self, function: Callable[[bool], None]) -> None:
        """Call `function(whole)` once the body is done with, read whole or not."""
        with self._lock:
            if not self._closed:
                self._at_close.append(function)
                return
        function(False)

    def mark_read(self) -> None:
        """Say that the answer was taken by `wait_first` or `wait_final`."""
        self._close_once(whole=True)

    def wait_first(self) -> Item:
        """Wait for the first message, which stays to be read; `None` if there will be none."""
        item = self._next_item(None)
        self._first.append(item)
        return item

    def wait_final(self) -> Event | None:
        """Wait for the answer and drop what comes before it; `None` if there will be none."""
        item = self._first.pop() if self._first else self._next_item(None)
        while isinstance(item, Event) and not item.final:
            item = self._next_item(None)
        return item if isinstance(item, Event) else None

    def __next__(self) -> bytes:
        if self.ended:
            raise StopIteration
        chunk, self._prelude = self._prelude, b""
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
        """Stop reading. Any thread may call it; a blocked reader wakes up. Idempotent."""
        self._close_once(whole=False)
        self._queue.put(None)

    def _next_item(self, limit: float | None) -> Item:
        """Take the next item, looking after the client; `queue.Empty` after `limit` seconds."""
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
    """What to write back.

    Attributes:
        status: The status code.
        headers: The headers; there is no `Content-Length` among them.
        body: The whole body, or an iterator of its chunks. Whoever writes chunks must call
            `close()` when the client has gone or writing has ended, whatever happened.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | EventBody = b""
