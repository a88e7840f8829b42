"""The loggers of the library: nothing that a server says can forge a line of a log.

One filter at each logger makes a record one line without control characters. So no call of a logger
has to think of what a server may have put into a name or an error.
"""

from __future__ import annotations

import logging

from syncmcp._base.text import several_lines, visible

LOGGERS = (
    "syncmcp",
    "syncmcp._concurrency.cancel",
    "syncmcp.approval",
    "syncmcp.auth",
    "syncmcp.cache",
    "syncmcp.callbacks",
    "syncmcp.client",
    "syncmcp.connection",
    "syncmcp.executors",
    "syncmcp.group",
    "syncmcp.handlers",
    "syncmcp.handlers.roots",
    "syncmcp.http",
    "syncmcp.interceptors",
    "syncmcp.memory",
    "syncmcp.observe.metrics",
    "syncmcp.retry",
    "syncmcp.schema",
    "syncmcp.stderr",
    "syncmcp.stdio",
    "syncmcp.subscriptions",
    "syncmcp.tasks",
    "syncmcp.testing",
    "syncmcp.threads",
    "syncmcp.tools",
    "syncmcp.transports",
    "syncmcp.ui",
    "syncmcp.ui.browser",
    "syncmcp.wire",
)
"""The names of all loggers. A filter sees the records of its own logger alone."""

_tracebacks = logging.Formatter()


def make_visible(record: logging.LogRecord) -> bool:
    """Change a record whose text has control or hidden characters; a filter for loggers.

    Others stay as they are, so that programs may group them by their message without arguments.
    """
    text = record.getMessage()
    shown = visible(text)
    if shown != text:
        record.msg, record.args = shown, ()
    if record.exc_info and record.exc_info[1] is not None and _may_forge(record.exc_info[1]):
        record.exc_text = several_lines(_tracebacks.formatException(record.exc_info))
    return True


def _may_forge(error: BaseException) -> bool:
    """Whether an exception, or what led to it, has a text that is more than a visible line."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        text = str(one)
        if visible(text) != text:
            return True
        one = one.__cause__ or one.__context__
    return False


def guard_loggers() -> None:
    """Have all loggers of the library show foreign text as one line."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(make_visible)
