"""The capabilities of servers, and their log messages."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from syncmcp.types.base import Flag, MetaModel, WireModel


class TasksCapability(WireModel):
    """Declares which requests a server can run as tasks. Only 2025-11-25.

    See basic/utilities/tasks#capability-negotiation.

    Attributes:
        list: Present if it answers ``tasks/list``.
        cancel: Present if it answers ``tasks/cancel``.
        requests: The requests, as nested objects: ``{"tools": {"call": {}}}``.
    """

    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class PromptsCapability(WireModel):
    """Declares that the server has prompts (server/prompts#capabilities).

    Attributes:
        list_changed: The server sends a notification when the list changes.
    """

    list_changed: Flag = False


class ResourcesCapability(WireModel):
    """Declares that the server has resources (server/resources#capabilities).

    Attributes:
        subscribe: The server notifies subscribers when a single resource changes.
        list_changed: The server sends a notification when the list changes.
    """

    subscribe: Flag = False
    list_changed: Flag = False


class ToolsCapability(WireModel):
    """Declares that the server has tools (server/tools#capabilities).

    Attributes:
        list_changed: The server sends a notification when the list changes.
    """

    list_changed: Flag = False


class ServerCapabilities(WireModel):
    """The capabilities of a server (basic/lifecycle#capability-negotiation, server/discover).

    ``None`` means that the server does not have the capability.

    Attributes:
        experimental: Settings of capabilities outside of the specification, by name.
        logging: The server sends log messages.
        completions: The server completes arguments. Since 2025-03-26; in 2024-11-05, servers may
            complete arguments without declaring it.
        prompts: The server has prompts.
        resources: The server has resources.
        tools: The server has tools.
        tasks: The server runs requests as tasks. Only 2025-11-25.
        extensions: Settings of extensions, by identifier. Since 2026-07-28.
    """

    experimental: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, Any] | None = None


# Log messages of servers (server/utilities/logging).


LoggingLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""The severity of a log message as in RFC 5424, least severe first.

See server/utilities/logging#log-levels.
"""


class LoggingMessageNotificationParams(MetaModel):
    """Parameters of ``notifications/message``.

    See server/utilities/logging#log-message-notifications.

    Attributes:
        level: A ``LoggingLevel``, or another string that the server sent instead.
        logger: The name of the logger, which is a part of the server.
        data: The message: any JSON value, often a string; untrusted.
    """

    level: LoggingLevel | str
    logger: str | None = None
    data: Any
