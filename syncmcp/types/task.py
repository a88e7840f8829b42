"""Tasks: requests that outlive their answer.

In 2025-11-25 they are part of the protocol (basic/utilities/tasks), since 2026-07-28 the extension
``io.modelcontextprotocol/tasks``. Not in older revisions.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from syncmcp.types.base import ErrorObject, NotificationParams, PaginatedResult, Result, WireModel
from syncmcp.types.input import InputRequest

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""Where a task stands; the last three are final."""


class Task(WireModel):
    """The state of a task (basic/utilities/tasks#task; extension: Task Polling).

    Attributes:
        task_id: Opaque.
        status: A `TaskStatus`. A tool result with ``is_error`` makes a task failed in 2025-11-25
            and completed since 2026-07-28.
        status_message: For people.
        created_at: An ISO 8601 date and time.
        last_updated_at: An ISO 8601 date and time.
        ttl: Milliseconds after ``created_at`` for which the server keeps the task; ``None`` means
            without limit. 2025-11-25.
        ttl_ms: The same, since 2026-07-28.
        poll_interval: Milliseconds to wait between two looks at the task. 2025-11-25.
        poll_interval_ms: The same, since 2026-07-28.
        input_requests: Questions to be answered by ``tasks/update``, by key, if the status is
            ``input_required``. Since 2026-07-28.
        result: What the request would have answered, if completed. Since 2026-07-28.
        error: The error it would have answered, if failed. Since 2026-07-28.
    """

    task_id: str
    status: TaskStatus | str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None = None
    ttl_ms: int | None = None
    poll_interval: int | None = None
    poll_interval_ms: int | None = None
    input_requests: dict[str, InputRequest] | None = None
    result: dict[str, Any] | None = None
    error: ErrorObject | None = None

    @property
    def is_final(self) -> bool:
        """Whether the task has ended, in whatever way."""
        return self.status in ("completed", "failed", "cancelled")


class RelatedTaskMetadata(WireModel):
    """The value of ``_meta["io.modelcontextprotocol/related-task"]``. Only 2025-11-25.

    See basic/utilities/tasks#associating-task-related-messages.
    """

    task_id: str


class CreateTaskResult(Result):
    """Answer to a request that is run as a task (basic/utilities/tasks#creating-tasks).

    Only 2025-11-25; since 2026-07-28 it is a `TaskResult` with the ``result_type`` ``"task"``.
    """

    task: Task


class TaskResult(Result, Task):
    """A task whose fields stand in the result itself.

    Answers ``tasks/get``; in 2025-11-25 also ``tasks/cancel``; since 2026-07-28 also a
    ``tools/call`` that is run as a task (extension: Task Creation).
    """


class ListTasksResult(PaginatedResult):
    """Answer to ``tasks/list`` (basic/utilities/tasks#listing-tasks). Only 2025-11-25."""

    tasks: list[Task]


class TaskStatusNotificationParams(NotificationParams, Task):
    """Parameters of ``notifications/tasks/status``; of ``notifications/tasks`` since 2026-07-28."""
