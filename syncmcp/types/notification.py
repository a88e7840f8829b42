"""Parameters of the notifications that belong to no single feature.

``notifications/initialized`` and the ``list_changed`` notifications carry `NotificationParams`.
"""

from __future__ import annotations

from syncmcp.types.base import NotificationParams, ProgressToken, RequestId


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
