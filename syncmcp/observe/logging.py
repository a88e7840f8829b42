"""Log messages and progress of a server, for `logging` and for progress bars."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._base.text import shorten, visible
from syncmcp.handlers import LogHandler, ProgressHandler

if TYPE_CHECKING:
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
"""The `logging` levels for those of RFC 5424. Any other level is logged as DEBUG."""

LONGEST = 10_000
"""The maximum number of characters of one log message that become part of a record."""


class LogRecords:
    """A `LogHandler` that logs the messages of a server with `logging`.

    Each message becomes one line, in which control and hidden characters are visible. The line
    begins with the name of the server's logger in brackets. That name creates no logger here,
    because a server may use any number of names. Records have the attributes `mcp_level`,
    `mcp_logger` and `mcp_data`: the fields of the message, unchanged. Secrets in a message are not
    masked: the messages of a server are data.

    Args:
        logger: Receives the records; its level decides which of them are logged.
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
        facts = {"mcp_level": message.level, "mcp_logger": message.logger, "mcp_data": message.data}
        self._logger.log(level, "%s%s", name, _one_line(said), extra=facts)

    def __repr__(self) -> str:
        return f"<LogRecords for {self._logger.name!r}>"


def as_log_handler(given: LogHandler | logging.Logger | None, server: str) -> LogHandler | None:
    """Return the handler for an ``on_log`` option; a logger gets a child named after the server."""
    if isinstance(given, logging.Logger):
        return LogRecords(given.getChild(visible(server).replace(".", "_")))
    return given


class Bar(Protocol):
    """A progress bar like that of tqdm. If it has `set_description`, it shows messages, too."""

    total: Any
    """The value of complete progress; `None` if it is unknown."""

    def update(self, n: float) -> object:
        """Advance by `n`."""
        ...


def on_bar(bar: Bar) -> ProgressHandler:
    """Return an ``on_progress`` callback for one call, which shows its progress on `bar`.

    For other kinds of progress bars, write a callback of your own:
    ``on_progress=lambda done, total, text: ...`` gets the total progress so far.
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
    """Return `text` as one line without hidden characters, shortened to `LONGEST` characters."""
    return visible(shorten(text, LONGEST))
