"""Change events by subscription (basic/patterns/subscriptions). Since 2026-07-28."""

from __future__ import annotations

from syncmcp.types.base import Flag, NotificationParams, Result, WireModel


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
