"""Event streams (`text/event-stream`): bytes in, the data of `message` events out.

sseclient-py reads the events. Lines, limits and the stream's cursor are kept here, because it
loses events that carry only an `id` or `retry`, emits an event that the end of the stream cut off,
trips over a byte order mark, knows no limit, copies data about ten times, and needs quadratic time
for many chunks or many `data` lines. So it is given whole events, of one `data` line of common
length; what is longer is joined here.

Spec: basic/transports, "Streamable HTTP"; WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from sseclient import SSEClient

from syncmcp.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Attempts", "EventStream"]


_BOM = b"\xef\xbb\xbf"

# Data longer than this, in bytes, is not copied through sseclient.
_LONG = 64 * 1024

# Ten digits of milliseconds are 115 days: beyond any deadline, and cheap to convert.
_RETRY_DIGITS = 10


class EventStream:
    """The parser of one stream.

    Attributes:
        last_id: The id to resume from: that of the last complete event that had one, which an
            empty `id` takes back; `None` when there is none.
        endpoint: The data of the first event `endpoint`, with which the stream of a server of
            2024-11-05 begins; `None` before it.
        empty: Whether not a single byte has come, on any of the connections.
        retry: The seconds that the server wants a client to wait before it reconnects, or `None`.
    """

    def __init__(self, limit: int, option: str = "max_body") -> None:
        """Make a parser for a new stream.

        Args:
            limit: The longest event accepted, in bytes.
            option: What that limit is called where the user sets it.
        """
        self.last_id: str | None = None
        self.endpoint: bytes | None = None
        self.retry: float | None = None
        self.empty = True
        self._limit = limit
        self._option = option
        self._first_line = True
        self._after_cr = False
        self._partial: list[bytes] = []  # the pieces of a line that has no end yet
        self._partial_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = b""
        self._id = b""
        self._one_event = _OneEvent()
        # latin-1 maps bytes to characters one to one: what goes in comes out, valid UTF-8 or not.
        self._events: Iterator[Any] = SSEClient(self._one_event, char_enc="latin-1").events()

    def restart(self) -> None:
        """Forget the incomplete event of a broken stream; `last_id` and `retry` stay."""
        self._first_line = True
        self._after_cr = False
        self._partial.clear()
        self._partial_size = 0
        self._data, self._data_size, self._event = [], 0, b""
        self._id = b"" if self.last_id is None else self.last_id.encode()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes of the stream, yield the data of each `message` event they complete.

        Events without data, or of another type, yield nothing, but their `id` and `retry` count.

        Raises:
            LimitExceeded: An event is longer than the limit.
        """
        self.empty = self.empty and not chunk
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            # A CR ends a line at once: the LF that may follow might not come for hours.
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial.clear()
            self._partial_size = 0
        for line in lines:
            if not line:
                data = self._end_event()
                if data:
                    yield data
            else:
                self._take(line)
        if rest:
            self._partial.append(rest)
            self._partial_size += len(rest)
            self._check(self._partial_size)

    def _take(self, line: bytes) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._add_data(line[6:] if line.startswith(b" ", 5) else line[5:])
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._add_data(b"")
        elif field == b"event":
            self._event = value
        elif field == b"id":
            if b"\0" not in value:
                self._id = value
        elif field == b"retry" and value.isdigit():
            self.retry = int(value.lstrip(b"0")[:_RETRY_DIGITS] or b"0") / 1000

    def _add_data(self, value: bytes) -> None:
        self._check(len(value))
        self._data.append(value)
        self._data_size += len(value) + 1

    def _end_event(self) -> bytes:
        self._first_line = False
        self.last_id = self._id.decode("utf-8", "replace") or None
        lines, event = self._data, self._event
        self._data, self._data_size, self._event = [], 0, b""
        if event == b"endpoint" and self.endpoint is None:
            self.endpoint = b"\n".join(lines)
        # Data that is all line ends is no JSON: an event whose only use is its id.
        if not any(lines):
            return b""
        if len(lines) > 1 or len(lines[0]) > _LONG:
            return b"\n".join(lines) if event in (b"", b"message") else b""
        self._one_event.put(b"event: %b\ndata: %b\n\n" % (event, lines[0]))
        parsed = next(self._events)
        return parsed.data.encode("latin-1") if parsed.event == "message" else b""

    def _check(self, more: int) -> None:
        if self._data_size + more > self._limit:
            raise LimitExceeded(
                f"an event of the server is longer than {self._option}={self._limit} bytes"
            )


class _OneEvent:
    """The source sseclient reads from: exactly the event that was put there."""

    def __init__(self) -> None:
        self._event = b""

    def put(self, event: bytes) -> None:
        self._event = event

    def __iter__(self) -> _OneEvent:
        return self

    def __next__(self) -> bytes:
        event, self._event = self._event, b""
        return event


# When to try a broken event stream again, and when to give up.


# Attempts in a row that bring nothing new.
_FRUITLESS = 3

# Seconds: without a word from the server; at least, whatever it says; at most, unless it says so.
_DEFAULT = 1.0
_SHORTEST = 0.05
_LONGEST = 30.0


class Attempts:
    """Counts fruitless attempts and says how long to wait before the next one."""

    def __init__(self) -> None:
        self._fruitless = 0

    def progress(self) -> None:
        """Something new came: start counting anew."""
        self._fruitless = 0

    def stop(self) -> None:
        """Do not try again."""
        self._fruitless = _FRUITLESS

    def next_pause(self, retry: float | None) -> float | None:
        """Seconds to wait before the next attempt, `None` to give up.

        Never less than `retry`, the server's own wish (basic/transports, 2025-11-25: MUST).
        """
        if self._fruitless >= _FRUITLESS:
            return None
        base = max(_SHORTEST, _DEFAULT if retry is None else retry)
        pause = base
        if self._fruitless or retry is None:
            pause = max(base, min(_LONGEST, base * 2**self._fruitless))
            # Many clients that lost the same server should not all come back at once.
            pause *= 1 + random.random() / 4  # noqa: S311 - no secret depends on it
        self._fruitless += 1
        return pause
