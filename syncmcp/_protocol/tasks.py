"""Tasks: calls whose state is polled, and whose result is fetched when they have ended.

There are two variants. In 2025-11-25, tasks are part of the protocol: the client asks for one, and
fetches its result with a separate request (basic/utilities/tasks). Since 2026-07-28, they are an
extension: the server alone decides, and the state contains questions, result and error (ext-tasks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syncmcp._base.text import quote
from syncmcp._protocol.capabilities import server_error
from syncmcp.errors import McpError, ProtocolError, RequestCancelled

EXTENSION = "io.modelcontextprotocol/tasks"
"""The identifier of the extension, since 2026-07-28."""

RELATED_TASK_KEY = "io.modelcontextprotocol/related-task"
"""The key of `_meta` with the task that a message belongs to (2025-11-25)."""

CANCEL, GET, LIST, RESULT, UPDATE = (
    f"tasks/{verb}" for verb in ("cancel", "get", "list", "result", "update")
)

TASK_METHODS = frozenset((CANCEL, GET, LIST, RESULT, UPDATE))
"""The requests about tasks."""

AUGMENTED = "tools/call"
"""The one request that may become a task."""

FINAL_STATUSES = frozenset(("cancelled", "completed", "failed"))
"""The statuses of a task that has ended."""

ACTIONABLE_STATUSES = FINAL_STATUSES | {"input_required"}
"""The statuses in which the client has something to do: fetch the result, or answer questions."""

# Seconds between two polls of a task: the default, and the limits of what a server may ask for. A
# smaller interval would keep both sides busy, and a larger one is taken for a mistake.
DEFAULT_INTERVAL = 1.0
MIN_INTERVAL = 0.01
MAX_INTERVAL = 3600.0


class TaskState(NamedTuple):
    """The state of a task, as the server reported it."""

    id: str
    status: str
    interval: float  # seconds to wait before the next poll
    raw: dict[str, Any]  # the task object as the server sent it


class TaskRules(NamedTuple):
    """The rules for the tasks of one variant."""

    required_capability: tuple[str, ...]  # without it, no call becomes a task
    # Whether the client asks for a task in the parameters of the call, and fetches its result;
    # otherwise the server alone decides that a call becomes a task.
    requested_by_client: bool
    interval_key: str  # the member of a task object with the milliseconds between two polls

    def read(self, method: str, raw: Any) -> TaskState:
        """Read the task object in a result; `ProtocolError` without an id or a status."""
        task = raw if type(raw) is dict else {}
        task_id, status, pause = task.get("taskId"), task.get("status"), task.get(self.interval_key)
        if type(task_id) is not str or not task_id or type(status) is not str:
            raise ProtocolError("the task object has no id or no status", method=method)
        seconds = DEFAULT_INTERVAL
        if isinstance(pause, (int, float)) and pause == pause:  # noqa: PLR0124 - NaN alone is not
            # Clamped before the division, because some numbers are too large to divide.
            seconds = min(max(pause, MIN_INTERVAL * 1000), MAX_INTERVAL * 1000) / 1000
        return TaskState(task_id, status, seconds, task)


CORE_TASKS = TaskRules(("tasks", "requests", "tools", "call"), True, "pollInterval")
"""The tasks of 2025-11-25."""

EXTENSION_TASKS = TaskRules(("extensions", EXTENSION), False, "pollIntervalMs")
"""The tasks of the extension, since 2026-07-28."""


def created_task_id(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a result created (2025-11-25); `None` without a task."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def related_task_id(params: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a message belongs to (2025-11-25); `None` without a task."""
    meta = params.get("_meta")
    task = meta.get(RELATED_TASK_KEY) if isinstance(meta, dict) else None
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def with_related_task(message: dict[str, Any], task_id: str | None) -> dict[str, Any]:
    """Return a copy of a message with `task_id` in its `_meta`, or the message if it is `None`."""
    if task_id is None:
        return message
    return {
        **message,
        "_meta": {**(message.get("_meta") or {}), RELATED_TASK_KEY: {"taskId": task_id}},
    }


def cancelled_error(state: TaskState) -> RequestCancelled:
    """Return the error of a call whose task was cancelled."""
    reason = state.raw.get("statusMessage")
    return RequestCancelled(
        "the task was cancelled",
        reason=quote(reason) if isinstance(reason, str) else None,
        method=AUGMENTED,
    )


def failed_error(error: Any) -> McpError:
    """Return the error of a call whose task failed, from the `error` of its state (2026-07-28)."""
    code, message = (
        (error.get("code"), error.get("message")) if type(error) is dict else (None, None)
    )
    if type(code) is not int or type(message) is not str:
        return ProtocolError("the task failed, and the server does not say how", method=GET)
    failure = server_error(code, quote(message), error.get("data"))
    failure.method = AUGMENTED
    return failure
