"""What client and server tell each other about themselves (basic/lifecycle, server/discover)."""

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
    """The client answers ``roots/list`` (client/roots#capabilities).

    Attributes:
        list_changed: It tells when the list changes. Until 2025-11-25.
    """

    list_changed: Flag = False


class SamplingCapability(WireModel):
    """The client answers ``sampling/createMessage`` (client/sampling#capabilities).

    Attributes:
        context: It can include context of servers. Since 2025-11-25.
        tools: It can let the model use tools. Since 2025-11-25.
    """

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(WireModel):
    """The client answers ``elicitation/create``. Since 2025-06-18.

    With neither mode set it stands for forms alone (client/elicitation#capabilities).

    Attributes:
        form: It can show forms. Since 2025-11-25.
        url: It can send the user to a URL. Since 2025-11-25.
    """

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class TasksCapability(WireModel):
    """Which requests its declarer runs as tasks if asked to. Only 2025-11-25.

    See basic/utilities/tasks#capability-negotiation.

    Attributes:
        list: It answers ``tasks/list``.
        cancel: It answers ``tasks/cancel``.
        requests: An object per area, in it one per method: ``{"tools": {"call": {}}}`` for a
            server, ``sampling.createMessage`` and ``elicitation.create`` for a client.
    """

    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class ClientCapabilities(WireModel):
    """What a client can do (basic/lifecycle#capability-negotiation).

    Attributes:
        experimental: Settings by name of what is in no specification.
        elicitation: Since 2025-06-18.
        tasks: Only 2025-11-25.
        extensions: Settings by identifier of extension. Since 2026-07-28.
    """

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, Any] | None = None


class PromptsCapability(WireModel):
    """The server has prompts (server/prompts#capabilities)."""

    list_changed: Flag = False


class ResourcesCapability(WireModel):
    """The server has resources (server/resources#capabilities).

    Attributes:
        subscribe: It tells when single resources change, if asked to.
        list_changed: It tells when the list changes.
    """

    subscribe: Flag = False
    list_changed: Flag = False


class ToolsCapability(WireModel):
    """The server has tools (server/tools#capabilities)."""

    list_changed: Flag = False


class ServerCapabilities(WireModel):
    """What a server can do (basic/lifecycle#capability-negotiation, server/discover).

    ``None`` means that it cannot.

    Attributes:
        experimental: Settings by name of what is in no specification.
        completions: Since 2025-03-26; before, a server may complete without saying so.
        tasks: Only 2025-11-25.
        extensions: Settings by identifier of extension. Since 2026-07-28.
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
    """Answer to ``initialize`` (basic/lifecycle#initialization). Until 2025-11-25.

    Attributes:
        instructions: How to use the server, for a model.
    """

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult):
    """Answer to ``server/discover`` (server/discover#discoverresult). Since 2026-07-28.

    Who the server is stands in ``_meta``; see ``served_by``.

    Attributes:
        instructions: How to use the server, for a model.
    """

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


# Parameters of the notifications that belong to no single feature.
#
# ``notifications/initialized`` and the ``list_changed`` notifications carry `NotificationParams`.


class CancelledNotificationParams(NotificationParams):
    """Parameters of ``notifications/cancelled`` (basic/utilities/cancellation).

    Attributes:
        request_id: The request that is withdrawn; absent only in 2025-11-25, with tasks.
        reason: For logs and people.
    """

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressNotificationParams(NotificationParams):
    """Parameters of ``notifications/progress`` (basic/utilities/progress).

    Attributes:
        progress: Rises with each notification, in whatever unit the sender counts.
        total: Where ``progress`` ends, if known.
        message: What is going on. Since 2025-03-26.
    """

    progress_token: ProgressToken
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """Parameters of ``notifications/resources/updated`` (server/resources#subscriptions).

    Attributes:
        uri: The resource that changed; may lie below the one that was subscribed to.
    """

    uri: str


class ElicitationCompleteNotificationParams(NotificationParams):
    """Parameters of ``notifications/elicitation/complete``. Only 2025-11-25.

    See client/elicitation#completion-notifications-for-url-mode-elicitation.

    Attributes:
        elicitation_id: The URL elicitation whose interaction has ended.
    """

    elicitation_id: str


# Change events by subscription (basic/patterns/subscriptions). Since 2026-07-28.


class SubscriptionFilter(WireModel):
    """Which events are wanted, or granted.

    Attributes:
        resource_subscriptions: URIs of resources to be told of.
        task_ids: Tasks to be told of (tasks extension).
    """

    tools_list_changed: Flag = False
    prompts_list_changed: Flag = False
    resources_list_changed: Flag = False
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class SubscriptionsAcknowledgedNotificationParams(NotificationParams):
    """Parameters of ``notifications/subscriptions/acknowledged``, the first event.

    Attributes:
        notifications: What the server grants, perhaps less than was wanted.
    """

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result):
    """Answer to ``subscriptions/listen``: the server ends the subscription in good order."""


# Log messages of servers (server/utilities/logging).


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
