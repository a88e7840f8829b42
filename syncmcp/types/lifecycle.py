"""Capabilities, the results of the handshake and of ``server/discover``, and notifications."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from syncmcp.types.base import (
    CacheableResult,
    Flag,
    Implementation,
    NotificationParams,
    ProgressToken,
    RequestId,
    Result,
    WireModel,
)


class RootsCapability(WireModel):
    """Declares that the client answers ``roots/list`` (client/roots#capabilities).

    Attributes:
        list_changed: The client sends a notification when its list changes. Until 2025-11-25.
    """

    list_changed: Flag = False


class SamplingCapability(WireModel):
    """Declares that the client answers ``sampling/createMessage`` (client/sampling#capabilities).

    Attributes:
        context: Present if the client can include context of servers. Since 2025-11-25.
        tools: Present if the client lets the model use tools. Since 2025-11-25.
    """

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(WireModel):
    """Declares that the client answers ``elicitation/create``. Since 2025-06-18.

    With neither mode present, it means forms only (client/elicitation#capabilities).

    Attributes:
        form: Present if the client can show forms. Since 2025-11-25.
        url: Present if the client can send the user to a URL. Since 2025-11-25.
    """

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class TasksCapability(WireModel):
    """Declares which requests a client or server can run as tasks. Only 2025-11-25.

    See basic/utilities/tasks#capability-negotiation.

    Attributes:
        list: Present if it answers ``tasks/list``.
        cancel: Present if it answers ``tasks/cancel``.
        requests: The requests, as nested objects: ``{"tools": {"call": {}}}`` for a server,
            ``sampling.createMessage`` and ``elicitation.create`` for a client.
    """

    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class ClientCapabilities(WireModel):
    """The capabilities of a client (basic/lifecycle#capability-negotiation).

    ``None`` means that the client does not have the capability.

    Attributes:
        experimental: Settings of capabilities outside of the specification, by name.
        roots: The client answers ``roots/list``.
        sampling: The client answers ``sampling/createMessage``.
        elicitation: The client answers ``elicitation/create``. Since 2025-06-18.
        tasks: The client runs requests of the server as tasks. Only 2025-11-25.
        extensions: Settings of extensions, by identifier. Since 2026-07-28.
    """

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, Any] | None = None


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


class InitializeResult(Result):
    """The result of ``initialize`` (basic/lifecycle#initialization). Until 2025-11-25.

    Attributes:
        protocol_version: The revision that the server chose.
        capabilities: What the server can do.
        server_info: Name and version of the server; unverified.
        instructions: How to use the server, as text for a model.
    """

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult):
    """The result of ``server/discover`` (server/discover#discoverresult). Since 2026-07-28.

    Name and version of the server are in ``_meta``; see ``served_by``.

    Attributes:
        supported_versions: The revisions that the server speaks.
        capabilities: What the server can do.
        instructions: How to use the server, as text for a model.
    """

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


# Parameters of notifications.
#
# Those of ``notifications/initialized`` and of the ``list_changed`` notifications are plain
# `NotificationParams`.


class CancelledNotificationParams(NotificationParams):
    """Parameters of ``notifications/cancelled`` (basic/utilities/cancellation).

    Attributes:
        request_id: The id of the cancelled request; absent only in 2025-11-25, with tasks.
        reason: Why it was cancelled, for logs and people.
    """

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressNotificationParams(NotificationParams):
    """Parameters of ``notifications/progress`` (basic/utilities/progress).

    Attributes:
        progress_token: The token of the request that makes progress.
        progress: The progress so far, in any unit; increases with each notification.
        total: The value of ``progress`` at the end, if known.
        message: A description of the progress, for people. Since 2025-03-26.
    """

    progress_token: ProgressToken
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """Parameters of ``notifications/resources/updated`` (server/resources#subscriptions).

    Attributes:
        uri: The URI of the changed resource; may be below the URI that was subscribed to.
    """

    uri: str


class ElicitationCompleteNotificationParams(NotificationParams):
    """Parameters of ``notifications/elicitation/complete``. Only 2025-11-25.

    See client/elicitation#completion-notifications-for-url-mode-elicitation.

    Attributes:
        elicitation_id: The id of the URL elicitation whose interaction is complete.
    """

    elicitation_id: str


# Change events by subscription (basic/patterns/subscriptions). Since 2026-07-28.


class SubscriptionFilter(WireModel):
    """The notifications that a client asks for, or that a server grants.

    Attributes:
        tools_list_changed: Changes of the list of tools.
        prompts_list_changed: Changes of the list of prompts.
        resources_list_changed: Changes of the list of resources.
        resource_subscriptions: The URIs of resources whose changes are notified.
        task_ids: The ids of tasks whose changes are notified (tasks extension).
    """

    tools_list_changed: Flag = False
    prompts_list_changed: Flag = False
    resources_list_changed: Flag = False
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class SubscriptionsAcknowledgedNotificationParams(NotificationParams):
    """Parameters of ``notifications/subscriptions/acknowledged``, the first of a subscription.

    Attributes:
        notifications: What the server grants; may be less than the client asked for.
    """

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result):
    """The result of ``subscriptions/listen``, with which the server ends the subscription."""


# Log messages of servers (server/utilities/logging).


LoggingLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""The severity of a log message as in RFC 5424, least severe first.

See server/utilities/logging#log-levels.
"""


class LoggingMessageNotificationParams(NotificationParams):
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
