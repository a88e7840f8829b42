"""The parser of event streams, by the rules of the WHATWG."""

from __future__ import annotations

import sys
import time
from itertools import chain
from types import FrameType
from typing import Any

import pytest

from syncmcp.auth import Deadline
from syncmcp.errors import LimitExceeded
from syncmcp.transports import _http_reply
from syncmcp.transports._http_reply import EventStream
from tests.support.memory import peak
from tests.support.parts import Exchange, aborted

LIMIT = 64 * 1024 * 1024


def fed(*chunks: bytes, limit: int = LIMIT) -> tuple[EventStream, list[bytes]]:
    """Return a parser that has read these chunks, and the data of their events."""
    events = EventStream(limit)
    return events, [data for chunk in chunks for data in events.feed(chunk)]


def parse(*chunks: bytes, limit: int = LIMIT) -> list[bytes]:
    return fed(*chunks, limit=limit)[1]


LONG = b"x" * 100_000
SEPARATORS = '{"a":"\u2028\u2029\x85\x0b\x0c\x1c"}'.encode()
OTHER = b"event: e\ndata: " + LONG + b"\n\nevent: e\ndata: 1\ndata: 2\n\n"
KINDS = b"event: ping\ndata: 1\n\nevent: message\ndata: 2\n\nevent:\ndata: 3\n\n"
MARKED = b"\xef\xbb\xbfdata: 1\n\ndata: 2\n\n"
SAID: dict[str, tuple[bytes, list[bytes]]] = {
    "a line end in two chunks is one": (b"data: 1\r|\ndata: 2\r|\n\r|\n", [b"1\n2"]),
    "an event ended by CR waits for no LF": (b"data: 1\r\r", [b"1"]),
    "lines are joined": (b"data: {\ndata:  \ndata\ndata:}\n\n", [b"{\n \n\n}"]),
    "one space": (b"data:1\n\ndata: 1\n\ndata:  1\n\n", [b"1", b"1", b" 1"]),
    "a late byte order mark": (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [b"1"]),
    "other types": (KINDS, [b"2", b"3"]),
    "long events of other types": (OTHER, []),
    "a long event": (b"event: message\ndata: " + LONG + b"\n\n", [LONG]),
    "comments": (b": hello\n:\nfoo: bar\ndata: 1\n: more\nbar\n\n", [b"1"]),
    "no UTF-8": (b"data: \xff\xfe\x85\n\n", [b"\xff\xfe\x85"]),
    "no line ends": (b"data: " + SEPARATORS + b"\n\n", [SEPARATORS]),
    "a byte order mark": (MARKED, [b"1", b"2"]),
    "a byte order mark in two chunks": (MARKED.replace(b"\xbf", b"|\xbf"), [b"1", b"2"]),
    "a byte order mark in three chunks": (MARKED.replace(b"\xbb", b"|\xbb|"), [b"1", b"2"]),
    "a byte order mark and then a chunk": (MARKED.replace(b"\xbf", b"\xbf|"), [b"1", b"2"]),
    "half a byte order mark in a chunk": (MARKED.replace(b"\xbb", b"|\xbb"), [b"1", b"2"]),
    "an end in an event": (b'data: 0\n\n|data: {"trunc', [b"0"]),
    "an end in a line": (b"data: 0\n\n|data: 1", [b"0"]),
    "an end behind a line": (b"data: 0\n\n|data: 1\n", [b"0"]),
    "an end behind a line with CR": (b"data: 0\n\n|data: 1\r\n", [b"0"]),
}


@pytest.mark.requirement("HTM-08")
@pytest.mark.pitfall("H3")
@pytest.mark.parametrize(("stream", "data"), SAID.values(), ids=SAID)
def test_what_a_stream_says(stream: bytes, data: list[bytes]) -> None:
    assert parse(*stream.split(b"|")) == data


@pytest.mark.requirement("HTL-15")
@pytest.mark.pitfall("H3")
@pytest.mark.parametrize(
    ("stream", "last_id", "retry"),
    [
        (b"id: 7\ndata: \n\n", "7", None),
        (b"id: 8\ndata\n\nid: 9\ndata:\ndata:\n\n", "9", None),
        (b"id: abc\n\nretry: 1500\n\n", "abc", 1.5),
        (b"retry: " + b"0" * 5000 + b"12\n\n", None, 0.012),
        *(
            (b"retry:" + value + b"\n\n", None, None)
            for value in (b"", b"abc", b"-1", b"1.5", b"1e3", b" 5 ", b"\xd9\xa1")
        ),
    ],
)
def test_an_event_without_data_moves_the_cursor_or_says_when_to_come_again(
    stream: bytes, last_id: str | None, retry: float | None
) -> None:
    events, data = fed(stream)
    assert (events.last_id, events.retry, data) == (last_id, retry, [])


def test_an_absurd_retry_is_a_long_time_and_no_error() -> None:
    events, _ = fed(b"retry: " + b"9" * 5000 + b"\n\n")
    assert events.retry is not None
    assert events.retry > 86_400


def test_an_id_counts_only_when_its_event_is_complete() -> None:
    events, _ = fed(b"id: 1\ndata: x\n\nid: 2\ndata: y\n")
    assert events.last_id == "1"
    events.reset()
    assert list(events.feed(b"data: z\n\n")) == [b"z"]
    assert events.last_id == "1"
    list(events.feed(b"id\n\n"))  # an empty `id` removes the last id
    assert events.last_id is None


def test_a_retry_counts_before_its_event_is_complete_and_after_the_stream_broke() -> None:
    events, _ = fed(b"retry: 100\n\n\xef\xbb\xbfretry: 200\nid: 1\nretry: 3")
    assert events.retry == 0.1
    list(events.feed(b"00\nretry:\n"))
    assert events.retry == 0.3
    events.reset()
    assert events.retry == 0.3
    list(events.feed(b"\n\n\xef\xbb\xbfretry: 400\n"))
    assert events.retry == 0.3
    list(events.feed(b"retry: 500\nretry: 6.0\ndata: 1\n\n"))
    assert (events.retry, events.last_id) == (0.5, None)


@pytest.mark.pitfall("H3")
@pytest.mark.parametrize("end", [b"", b"\n\n"])
@pytest.mark.parametrize("stream", [b"data: " + b"x" * 101, b"data: xxxxxxxxx\n" * 11, b":" * 101])
def test_an_event_beyond_the_limit_is_an_error_with_the_option(stream: bytes, end: bytes) -> None:
    events, stream = EventStream(100, "max_body"), stream + end
    pieces = (stream[start : start + 10] for start in range(0, len(stream), 10))
    with pytest.raises(LimitExceeded, match="max_body=100"):
        list(chain.from_iterable(map(events.feed, pieces)))


def test_many_events_together_may_be_longer_than_the_limit() -> None:
    assert len(parse(b"data: 12345\n\n" * 100, limit=20)) == 100


@pytest.mark.parametrize("comment", [b": still here\n", b":\r", b": still here\n\n"])
def test_comments_for_ever_are_no_long_event(comment: bytes) -> None:
    assert parse(*[comment] * 100, b"data: 1\n\n", limit=20) == [b"1"]


def test_events_before_one_beyond_the_limit_are_delivered() -> None:
    events = EventStream(10).feed(b"data: 1\n\ndata: " + b"x" * 20 + b"\n\n")
    assert next(events) == b"1"
    with pytest.raises(LimitExceeded):
        next(events)


@pytest.mark.parametrize(
    ("line", "size"),
    [*((line, 2**14) for line in (b":\n", b"a\n", b"data:\n", b"data:ab\n")), (b"data:abcd\n", 2)],
)
def test_short_lines_or_chunks_take_no_more_memory_than_their_bytes(line: bytes, size: int) -> None:
    event = line * (2**15 // len(line)) + b"\n"
    events = EventStream(LIMIT)

    def read() -> None:
        for start in range(0, len(event), size):
            list(events.feed(event[start : start + size]))

    assert peak(read) < 5 * len(event)


class _LateAtThirdLook(Deadline):
    """Expires at the third check, and counts the checks."""

    looks = 0

    @property
    def expired(self) -> bool:
        self.looks += 1
        return self.looks >= 3


@pytest.mark.parametrize("line", [b"data\n", b"id:1\n", b"retry:1\n"])
def test_an_event_of_many_lines_is_read_no_longer_than_the_exchange_may_take(line: bytes) -> None:
    deadline = _LateAtThirdLook(None)
    events, _ = fed(line * 100_000)
    with Exchange(deadline), pytest.raises(TimeoutError):
        list(events.feed(b"\n"))
    assert deadline.looks == 3


def test_what_is_read_of_an_event_that_broke_off_takes_no_longer_either() -> None:
    deadline, exchange = _LateAtThirdLook(None), Exchange()
    events, _ = fed(b"retry:1\n" * 100_000)
    with Exchange(deadline), pytest.raises(TimeoutError):
        assert events.retry
    assert deadline.looks == 3
    exchange.abort()
    with exchange, aborted():
        events.reset()


@pytest.mark.parametrize("line", [b":\n", b"a\n", b"database:\n"])
def test_lines_that_say_nothing_take_no_steps(line: bytes) -> None:
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line" and frame.f_code.co_filename == _http_reply.__file__
        return count

    event = line * 100_000 + b"data: 1\n\n"
    before = sys.gettrace()
    sys.settrace(count)
    try:
        got = parse(event)
    finally:
        sys.settrace(before)
    assert got == [b"1"]
    assert steps < 200


@pytest.mark.alone
@pytest.mark.pitfall("H3")
@pytest.mark.parametrize(
    ("stream", "size", "most"),
    [
        # An earlier parser needed 25 seconds for 160,000 lines.
        (b"data: x\n" * 200_000 + b"\n", 399_999, 4),
        (b"data: " + b"x" * 5_000_000 + b"\n\n", 5_000_000, 0.3),
    ],
    ids=["many lines", "a long one"],
)
def test_time_is_linear_in_the_size_of_an_event(stream: bytes, size: int, most: float) -> None:
    start = time.thread_time()
    [data] = parse(*(stream[at : at + 16384] for at in range(0, len(stream), 16384)))
    assert time.thread_time() - start < most
    assert len(data) == size
