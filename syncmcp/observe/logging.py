"""What a server tells, handed to what programs have for it already: `logging`, progress bars."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from syncmcp.handlers import LogHandler, ProgressHandler
    from syncmcp.types import LoggingMessageNotificationParams

__all__ = ["Bar", "LogRecords", "on_bar"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""The levels of RFC 5424 as those of `logging`. Any other is the lowest."""

LONGEST = 10_000
"""Of what a server logs at once, so many characters become part of a record."""


class LogRecords:
    """A `LogHandler` that makes records of `logging`.

    What a server says is one line in which nothing is hidden. Its own logger's name stands before
    it, and makes no logger here: a server may think of any number of names. Records have the
    attributes `mcp_level`, `mcp_logger` and `mcp_data`: what the server said, as it was.

    Args:
        logger: Gets the records, and decides which of them it wants.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __call__(self, message: LoggingMessageNotificationParams) -> None:
        """Log one message."""
        level = LEVELS.get(message.level, logging.DEBUG)
        if not self._logger.isEnabledFor(level):
            return
        said = message.data if isinstance(message.data, str) else json.dumps(message.data)
        name = "" if message.logger is None else f"[{_one_line(message.logger)}] "
        facts = {
            "mcp_level": message.level,
            "mcp_logger": message.logger,
            "mcp_data": message.data,
        }
        self._logger.log(level, "%s%s", name, _one_line(said), extra=facts)

    def __repr__(self) -> str:
        return f"<LogRecords for {self._logger.name!r}>"


def as_log_handler(given: LogHandler | logging.Logger | None, server: str) -> LogHandler | None:
    """What a client was given as its ``on_log``; of a logger, the child with the server's name."""
    if isinstance(given, logging.Logger):
        return LogRecords(given.getChild(server.replace(".", "_")))
    return given


class Bar(Protocol):
    """A progress bar, as tqdm's is one. One with `set_description` is told of messages, too."""

    total: Any
    """What all of it is; `None` if nobody knows."""

    def update(self, n: float) -> object:
        """Advance by `n`."""
        ...


def on_bar(bar: Bar) -> ProgressHandler:
    """Return an ``on_progress`` for one call, which shows on `bar` how far it has come.

    Others than tqdm's are as near: ``on_progress=lambda done, total, text: ...`` is told what is
    done in all.
    """
    shown = 0.0

    def show(progress: float, total: float | None, message: str | None) -> None:
        nonlocal shown
        if total is not None:
            bar.total = total
        describe = getattr(bar, "set_description", None)
        if message is not None and describe is not None:
            describe(_one_line(message))
        bar.update(progress - shown)
        shown = progress

    return show


def _one_line(text: str) -> str:
    """`text` without what a terminal or a reader of lines would take for something else."""
    if text.isprintable() and len(text) <= LONGEST:
        return text
    left_out = f" ({len(text) - LONGEST:,} more characters)" if len(text) > LONGEST else ""
    written = (
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text[:LONGEST]
    )
    return "".join(written) + left_out
