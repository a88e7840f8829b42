"""HTTP/1.1 messages as bytes: where a head ends, how a body is framed, where an event ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Framing", "Head", "Source", "events", "in_frame", "pieces", "request_framing"]

Framing = Literal["none", "length", "chunked", "end"]
"""How a body's end is known: there is none, by its length, by its chunks, by the connection's."""

_PIECE = 65536
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Source:
    """Bytes that come from `receive`, which returns none at the end."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._buffer = b""

    @property
    def ahead(self) -> bool:
        """Whether there are bytes that came and were not asked for yet."""
        return bool(self._buffer)

    def put(self, data: bytes) -> None:
        """Add what was received elsewhere."""
        self._buffer += data

    def head(self) -> Head | None:
        """The next message's head, or `None` when nothing comes any more.

        Raises:
            EOFError: It broke off.
        """
        if not self._buffer and not self._more():
            return None
        return Head.of(self._through(b"\r\n\r\n"))

    def line(self) -> bytes:
        """The next line, with its end. Raises `EOFError` when it breaks off."""
        return self._through(b"\r\n")

    def some(self, limit: int = _PIECE) -> bytes:
        """At least one byte and at most `limit`; none at the end."""
        if not self._buffer:
            self._more()
        piece, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return piece

    def _through(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            if not self._more():
                raise EOFError
        before, _, self._buffer = self._buffer.partition(mark)
        return before + mark

    def _more(self) -> bool:
        data = self._receive()
        self._buffer += data
        return bool(data)


@dataclass(frozen=True)
class Head:
    """A message's head.

    Attributes:
        raw: Its bytes, with the blank line.
        words: The three parts of its first line.
        headers: The headers, names in lower case.
    """

    raw: bytes
    words: tuple[str, str, str]
    headers: dict[str, str]

    @classmethod
    def of(cls, raw: bytes) -> Head:
        """Read a head."""
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        one, two, three = [*first.split(" ", 2), "", ""][:3]
        fields = (line.partition(":") for line in lines)
        return cls(raw, (one, two, three), {n.strip().lower(): v.strip() for n, _, v in fields})

    @property
    def status(self) -> int:
        """The status of an answer."""
        return int(self.words[1])

    @property
    def length(self) -> int:
        """The length that it announces."""
        return int(self.headers.get("content-length", "0"))

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this message."""
        return self.headers.get("connection", "").lower() == "close" or "HTTP/1.0" in self.words

    def answer_framing(self, verb: str) -> Framing:
        """How the body of an answer is framed."""
        if verb == "HEAD" or self.status < 200 or self.status in (204, 304):
            return "none"
        framing = request_framing(self)
        return "end" if framing == "none" and "content-length" not in self.headers else framing


def request_framing(head: Head) -> Framing:
    """How the body of a request is framed."""
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return "chunked"
    return "length" if head.length else "none"


def pieces(source: Source, head: Head, framing: Framing) -> Iterator[bytes]:
    """The pieces of a body as they come, without chunk sizes.

    Raises:
        EOFError: It broke off.
    """
    if framing == "length":
        yield from _exactly(source, head.length)
    elif framing == "end":
        while piece := source.some():
            yield piece
    elif framing == "chunked":
        while size := int(source.line().partition(b";")[0], 16):
            yield from _exactly(source, size)
            source.line()
        while source.line() != b"\r\n":
            continue  # a trailer, which nobody here needs


def _exactly(source: Source, count: int) -> Iterator[bytes]:
    while count:
        piece = source.some(min(count, _PIECE))
        if not piece:
            raise EOFError
        count -= len(piece)
        yield piece


def in_frame(piece: bytes, framing: Framing) -> tuple[bytes, int]:
    """A piece as it is written, and where in that the piece begins; no bytes are the end."""
    if framing != "chunked":
        return piece, 0
    size = b"%x\r\n" % len(piece)
    return size + piece + b"\r\n", len(size)


def events(body: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Cut an event stream where its events end; says of each part whether it is an event.

    Comments are none, and neither is what follows the last blank line.
    """
    rest = b""
    for piece in body:
        rest += piece
        while found := _BLANK_LINE.search(rest):
            block, rest = rest[: found.end()], rest[found.end() :]
            yield block, any(line and not line.startswith(b":") for line in block.splitlines())
    if rest:
        yield rest, False
