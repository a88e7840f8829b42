"""Event streams are read as the standard says."""

from __future__ import annotations

import re

import pytest
from hypothesis import strategies as st

from syncmcp.transports import _http_reply
from syncmcp.transports._http_reply import EventStream
from tests.system.stress.doubles import in_pieces
from tests.system.stress.sizes import FEW, MANY, explore, sizes


class Reference:
    """Reads whole streams by the letter of the standard, one byte string after the other."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: float | None = None

    def read(self, stream: bytes) -> list[bytes]:
        found = []
        data: list[bytes] = []
        kind = b""
        id = self.last_id
        # What follows the last line end is no line.
        for line in re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]:
            name, colon, value = line.partition(b":")
            if colon and value[:1] == b" ":
                value = value[1:]
            if line == b"":
                self.last_id = id
                # Data of nothing but line ends is no message to us.
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


line = st.tuples(st.sampled_from(FIELDS) | st.binary(max_size=20), line_ends).map(b"".join)
lines = st.lists(line | line_ends, max_size=12).map(b"".join)
streams = st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), lines).map(b"".join)
ended_anywhere = streams | st.builds(lambda stream, end: stream[:end], streams, st.integers(0, 300))
cuts = st.lists(st.integers(0, 1000), max_size=6)


def read_streams(given: list[tuple[bytes, list[int]]]) -> None:
    parser, reference = EventStream(10**6), Reference()
    for stream, places in given:
        read = [data for piece in in_pieces(stream, places) for data in parser.feed(piece)]
        assert read == reference.read(stream)
        assert (parser.last_id or "") == reference.last_id
        assert parser.retry == reference.retry
        # The connection broke; the next stream goes on from the last id.
        parser.reset()


@pytest.mark.parametrize("long", [_http_reply._LONG, 0])  # long events are read in another way
@sizes(4 * FEW, MANY, 600)
def test_event_streams_read_as_the_standard_says(
    size: int, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http_reply, "_LONG", long)
    explore(st.lists(st.tuples(ended_anywhere, cuts), min_size=1, max_size=3), read_streams, size)
