"""Log records that a server can provoke at will: one a second of each kind, others are counted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.timing import monotonic

if TYPE_CHECKING:
    import logging

LOG_INTERVAL = 1.0
"""The shortest time between two records of one kind, in seconds."""


class LimitedLog:
    """Keeps a server from flooding the program's log; there is one for each connection.

    A kind is a message before its arguments are filled in, so messages are literals. The first
    record of a kind is logged at once. Those that come too soon after it are counted, and the next
    record has their number; what is counted at the end of the connection is logged by `flush`.
    Thread-safe.
    """

    def __init__(self) -> None:
        # Guards the table. Reentrant, and not held while something is logged: handlers are code of
        # the program.
        self._lock = threading.RLock()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def log(
        self, logger: logging.Logger, level: int, message: str, *args: Any, exc_info: bool = False
    ) -> None:
        """Log a record, or count it.

        Args:
            logger: The logger.
            level: The level of the record.
            message: The message, a literal: it stands for the kind of the record.
            args: What is filled in; long texts are cut.
            exc_info: Whether the record has the traceback of the current exception.
        """
        if not logger.isEnabledFor(level):
            return
        now, args = monotonic(), tuple(map(_shortened, args))
        with self._lock:
            kind = self._kinds.setdefault((logger.name, message), _Kind())
            if now < kind.next_at:
                kind.left_out += 1
                kind.last = logger, level, message, args
                return
            left_out, kind.left_out, kind.last = kind.left_out, 0, None
            kind.next_at = now + LOG_INTERVAL
        if left_out:
            message, args = f"{message}{_MORE}", (*args, left_out)
        logger.log(level, message, *args, exc_info=exc_info, stacklevel=2)

    def flush(self) -> None:
        """Log the last record of each kind of which records were left out."""
        with self._lock:
            left = [kind for kind in self._kinds.values() if kind.last is not None]
            records = [(kind.last, kind.left_out - 1) for kind in left]
            for kind in left:
                kind.last, kind.left_out = None, 0
        for last, more in records:
            assert last is not None
            logger, level, message, args = last
            if more:
                message, args = f"{message}{_MORE}", (*args, more)
            logger.log(level, message, *args)


# The longest text that is filled in, in characters: a server may send megabytes.
_LONGEST = 1000

_MORE = " (and %d more like it since the last record)"


class _Kind:
    """What is known of the records of one kind."""

    __slots__ = ("last", "left_out", "next_at")

    def __init__(self) -> None:
        self.next_at = float("-inf")
        # How many records were left out since the last one, and the newest of them.
        self.left_out = 0
        self.last: tuple[logging.Logger, int, str, tuple[Any, ...]] | None = None


def _shortened(value: Any) -> Any:
    """The value, or the beginning of its text; an exception would keep its traceback."""
    if isinstance(value, BaseException):
        value = str(value)
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}..."
    return value
