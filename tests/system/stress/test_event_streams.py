"""Event streams are parsed as the standard says, and a valid event is read after any bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from hypothesis import strategies as st

from syncmcp import LimitExceeded, ProtocolError
from syncmcp.transports._http_reply import EventStream
from syncmcp.types import CallToolResult
from tests.support.stage import STATELESS
from tests.system.stress.doubles import Bench, Double, call, event, http_bench, in_pieces, saying
from tests.system.stress.sizes import FEW, MANY, explore, sizes
from tests.transports.http_peer import Request


class Reference:
    """A simple parser of whole streams, which follows the text of the standard."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: float | None = None

    def read(self, stream: bytes) -> list[bytes]:
        found = []
        data: list[bytes] = []
        kind = b""
        id = self.last_id
        # Text after the last line end is no line.
        for line in re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]:
            name, colon, value = line.partition(b":")
            if colon and value[:1] == b" ":
                value = value[1:]
            if line == b"":
                self.last_id = id
                # The client ignores an event whose data has only line ends.
                if b"".join(data) and kind in (b"", b"message"):
                    found.append(b"\n".join(data))
                data, kind = [], b""
            elif name == b"data":
                data.append(value)
            elif name == b"event":
                kind = value
            elif name == b"id" and b"\0" not in value:
                id = value.decode("utf-8", "replace")
            elif name == b"retry" and re.fullmatch(rb"[0-9]+", value):
                self.retry = int(value) / 1000
        return found


FIELDS = (
    *(b"data: {}", b"data:x", b"data:  two", b"data", b"Data: x", b" data: x"),
    *(b"data: \x85\x0b\x0c\x1c\xe2\x80\xa8", b"data: " + b"long" * 20_000),
    *(b"event: message", b"event: other", b"event: message\x85", b"event"),
    *(b"id: 7", b"id: \xff\xc3", b"id: \0", b"id"),
    *(b"retry: 15", b"retry: 1e3", b"retry: \xb2", b"retry:"),
    *(b": comment", b":", b"\xef\xbb\xbfdata: late"),
)


line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


def streams_of(fields: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    line = st.tuples(st.sampled_from(fields) | st.binary(max_size=20), line_ends).map(b"".join)
    lines = st.lists(line | line_ends, max_size=12).map(b"".join)
    return st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), lines).map(b"".join)


streams = streams_of([field for field in FIELDS if len(field) < 1000])
long_streams = streams_of(FIELDS)
ended_anywhere = long_streams | st.builds(
    lambda stream, end: stream[:end], long_streams, st.integers(0, 300)
)
cuts = st.lists(st.integers(0, 1000), max_size=6)


def read_streams(given: list[tuple[bytes, list[int]]]) -> None:
    parser, reference = EventStream(10**6), Reference()
    for stream, places in given:
        read = [data for piece in in_pieces(stream, places) for data in parser.feed(piece)]
        assert read == reference.read(stream)
        assert (parser.last_id or "") == reference.last_id
        assert parser.retry == reference.retry
        # As after a lost connection: the next stream resumes after the last id.
        parser.reset()


@sizes(8 * FEW, MANY, 600)
def test_event_streams_read_as_the_standard_says(size: int) -> None:
    explore(st.lists(st.tuples(ended_anywhere, cuts), min_size=1, max_size=3), read_streams, size)


def read_up_to_a_limit(ends: Counter[str], given: tuple[int, bytes, list[int]]) -> None:
    limit, stream, places = given
    parser = EventStream(limit)
    expected = Reference().read(stream)
    read: list[bytes] = []
    try:
        for piece in in_pieces(stream, places):
            read.extend(parser.feed(piece))
    except LimitExceeded:
        ends["refused"] += 1
        lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        assert max(map(len, lines.split(b"\n\n"))) > limit
        expected = expected[: len(read)]
    else:
        ends["read"] += 1
    assert read == expected
    assert all(len(data) <= limit for data in read)


@sizes(8 * FEW, MANY, 600)
def test_event_streams_are_refused_only_beyond_the_limit(size: int) -> None:
    ends: Counter[str] = Counter()
    examples = st.tuples(st.integers(5, 50), ended_anywhere, cuts)
    explore(examples, partial(read_up_to_a_limit, ends), size)
    assert ends["read"] > 0
    assert ends["refused"] > 0


class Streamer:
    """Sends the bytes of an example, then a valid event, unless it breaks off; in pieces."""

    def __init__(self) -> None:
        self.double = Double()
        self.before = b""
        self.cuts: list[int] = []
        self.breaks_off = False

    def script(self, request: Request) -> None:
        if request.method != "POST" or b'"victim"' not in request.body:
            self.double.script(request)
            return
        line = request.connection
        line.start_events()
        stream = self.before
        if not self.breaks_off:
            stream += b"\n\n" + event(saying(request.id, "right"))
        for piece in in_pieces(stream, self.cuts):
            line.chunk(piece)
        line.end_events()


def hear_streams(bench: Bench, streamer: Streamer, given: tuple[bytes, list[int], bool]) -> None:
    streamer.before, streamer.cuts, streamer.breaks_off = given
    outcome = bench.examine(lambda message: None, call)
    if isinstance(outcome, CallToolResult):
        assert outcome.text == "right"
        assert not streamer.breaks_off
    elif not streamer.breaks_off:
        # An invalid message ends the call, because the stream belongs to that call only.
        assert type(outcome) is ProtocolError, outcome
        assert Reference().read(streamer.before + b"\n\n")


@sizes(FEW, MANY, 1800)
def test_a_sound_event_is_heard_after_streams(size: int) -> None:
    streamer = Streamer()
    examples = st.tuples(streams, cuts, st.booleans())
    with http_bench(streamer.script, streamer.double, STATELESS) as (place, _):
        explore(examples, partial(hear_streams, place, streamer), size)
