"""A stream of bytes cut into lines, in linear time and bounded memory."""

from __future__ import annotations


class Cut(bytes):
    """The beginning of a line that was longer than allowed; the rest of it was thrown away."""

    __slots__ = ()


class Lines:
    """Collects chunks until a line is whole.

    A line ends at the byte 0x0A only: the other characters that `str.splitlines` takes for line
    ends may stand in a JSON string. One carriage return before it is dropped.

    Args:
        limit: The longest line kept, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Joined once when the line is whole: adding to one string would copy it for every chunk.
        self._parts: list[bytes] = []
        self._size = 0
        self._cutting = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; returns the lines that they complete, without their ends.

        Of a line over the limit a `Cut` is returned as soon as the limit is passed.
        """
        end = chunk.find(b"\n")
        if end < 0:
            return self._hold(chunk)
        lines = [] if self._cutting else self._first(chunk[:end])
        self._cutting = False
        if end + 1 < len(chunk):
            *whole, rest = chunk[end + 1 :].split(b"\n")
            lines += [self._checked(line) for line in whole]
            lines += self._hold(rest)
        return lines

    def rest(self) -> bytes:
        """What came after the last line end, when nothing more will come."""
        return b"".join(self._take())

    def _first(self, part: bytes) -> list[bytes]:
        if self._parts:
            part = b"".join((*self._take(), part))
        return [self._checked(part)]

    def _take(self) -> list[bytes]:
        parts, self._parts, self._size = self._parts, [], 0
        return parts

    def _checked(self, line: bytes) -> bytes:
        if line.endswith(b"\r"):
            line = line[:-1]
        return line if len(line) <= self._limit else Cut(line[: self._limit])

    def _hold(self, part: bytes) -> list[bytes]:
        if self._cutting or not part:
            return []
        self._parts.append(part)
        self._size += len(part)
        # One byte more than allowed: a carriage return does not count.
        if self._size <= self._limit + 1:
            return []
        self._cutting = True
        return [Cut(b"".join(self._take())[: self._limit])]
