"""Log messages of servers (server/utilities/logging)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from syncmcp.types.base import NotificationParams

LoggingLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""Severity, rising, as in RFC 5424 (server/utilities/logging#log-levels)."""


class LoggingMessageNotificationParams(NotificationParams):
    """Parameters of ``notifications/message``.

    See server/utilities/logging#log-message-notifications.

    Attributes:
        level: A ``LoggingLevel``, or what an unruly server sent for it.
        logger: Which part of the server speaks.
        data: Any JSON value, often a string; untrusted.
    """

    level: LoggingLevel | str
    logger: str | None = None
    data: Any
