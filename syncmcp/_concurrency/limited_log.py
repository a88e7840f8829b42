"""Log records that a server can cause: one per second of each kind is logged, others counted."""

from __future__ import annotations

import logging
import threading
from typing import Any

from syncmcp._base.secrets import Secrets
from syncmcp._concurrency.timing import monotonic

LOG_INTERVAL = 1.0
"""The shortest time between two records of one kind, in seconds."""


class LimitedLog:
    """Keeps a server from flooding the program's log; each connection has one.

    A kind is a message without its arguments, so messages are literals. The first record of a kind
    is logged at once. Records that follow too soon are counted, and the next record contains their
    number. At the end of the connection, `flush` logs the last record that was left out.
    Thread-safe.

    Args:
        secrets: Masked in the arguments.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._secrets = secrets
        # Guards the table. Reentrant, and not held while something is logged: log handlers are code
        # of the program.
        self._lock = threading.RLock()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def log(
        self,
        logger: logging.Logger,
        level: int,
        message: str,
        *args: Any,
        exc_info: bool | BaseException | None = False,
    ) -> None:
        """Log a record, or count it. The message, a literal, identifies the kind of the record."""
        if not logger.isEnabledFor(level):
            return
        now, args = monotonic(), tuple(map(_kept, args))
        with self._lock:
            kind = self._kinds.setdefault((logger.name, message), _Kind())
            if now < kind.next_at:
                kind.left_out += 1
                kind.last = logger, level, message, args
                return
            left_out, kind.left_out, kind.last = kind.left_out, 0, None
            kind.next_at = now + LOG_INTERVAL
        args = tuple(map(self._shown, args))
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
            args = tuple(map(self._shown, args))
            if more:
                message, args = f"{message}{_MORE}", (*args, more)
            logger.log(level, message, *args)

    def _shown(self, value: Any) -> Any:
        """Return an argument for the log; a text is cut, and its secrets are masked."""
        if not isinstance(value, str):
            return value
        text, cut = value[:_LONGEST], len(value) > _LONGEST
        if self._secrets is not None:
            text = self._secrets.redact(text, ends_cut=cut)
        return f"{text}..." if cut else text


# The longest text of an argument in the log, in characters: a server may send megabytes.
_LONGEST = 1000

_MORE = " (and %d more like it since the last record)"


class _Kind:
    """The state of the records of one kind."""

    __slots__ = ("last", "left_out", "next_at")

    def __init__(self) -> None:
        self.next_at = float("-inf")
        # How many records were left out since the last one, and the newest of them.
        self.left_out = 0
        self.last: tuple[logging.Logger, int, str, tuple[Any, ...]] | None = None


def _kept(value: Any) -> Any:
    """Return an argument to store: a text is cut, an exception is replaced by its text."""
    if isinstance(value, BaseException):
        value = str(value)
    return value[: _LONGEST + 1] if isinstance(value, str) else value
