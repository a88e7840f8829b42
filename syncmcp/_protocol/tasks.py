"""Tasks: calls whose state is polled, and whose result is fetched when they have ended.

There are two variants. In 2025-11-25, tasks are part of the protocol: the client asks for one, and
fetches its result with a separate request (basic/utilities/tasks). Since 2026-07-28, they are an
extension: the server alone decides, and the state contains questions, result and error (ext-tasks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._base.text import redact
from syncmcp._protocol.dialect import Dialect, PolledTask, Reply, TaskState
from syncmcp._protocol.steps import Send, Steps, read_questions
from syncmcp.errors import McpError, ProtocolError, RequestCancelled, ServerError

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


class CoreTasks:
    """The tasks of 2025-11-25. See `TaskProtocol`."""

    required_capability: tuple[str, ...] = ("tasks", "requests", "tools", "call")
    requested_by_client = True

    def read(self, method: str, raw: Any) -> TaskState:
        """See `TaskProtocol`."""
        return _read(method, raw, "pollInterval")

    def advance(
        self, poller: PolledTask, dialect: Dialect, timeout: float | None
    ) -> Steps[dict[str, Any] | None]:
        """See `TaskProtocol`. The server sends its questions while ``tasks/result`` is open."""
        assert poller.state is not None
        status = poller.state.status
        if status == "cancelled":
            raise _cancelled(poller.state)
        if status not in ACTIONABLE_STATUSES:
            return None
        try:
            reply: Reply = yield Send(RESULT, {"taskId": poller.id})
        except ServerError as error:
            if not poller.ended:  # at the latest poll: it may have ended or been deleted since
                try:
                    yield from poller.poll(timeout)
                except ServerError:
                    raise error from None
            if poller.state.status == "cancelled":
                raise _cancelled(poller.state) from error
            raise
        result = reply.dialect.read_result(RESULT, reply.result)
        assert isinstance(result, dict)
        if not poller.ended:
            poller.set_final_status("failed" if result.get("isError") is True else "completed")
        return result


class ExtensionTasks:
    """The tasks of the extension, since 2026-07-28. See `TaskProtocol`."""

    required_capability: tuple[str, ...] = ("extensions", EXTENSION)
    requested_by_client = False

    def read(self, method: str, raw: Any) -> TaskState:
        """See `TaskProtocol`."""
        return _read(method, raw, "pollIntervalMs")

    def advance(
        self, poller: PolledTask, dialect: Dialect, timeout: float | None
    ) -> Steps[dict[str, Any] | None]:
        """See `TaskProtocol`."""
        assert poller.state is not None
        _, status, _, raw = poller.state
        if status == "cancelled":
            raise _cancelled(poller.state)
        if status == "failed":
            raise _failure(raw.get("error"))
        if status == "completed":
            result = dialect.read_result(AUGMENTED, raw.get("result"))
            if not isinstance(result, dict):
                raise ProtocolError("the result of a task is not a final result", method=GET)
            return result
        if status == "input_required":
            questions = raw.get("inputRequests")
            yield from poller.answer_questions(read_questions(GET, questions), timeout)
        return None


def created_task_id(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a result created (2025-11-25); `None` if it created none."""
    task = result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def related_task_id(params: Mapping[str, Any]) -> str | None:
    """The id of the task that a message belongs to (2025-11-25); `None` if it belongs to none."""
    meta = params.get("_meta")
    task = meta.get(RELATED_TASK_KEY) if isinstance(meta, dict) else None
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def with_related_task(message: dict[str, Any], task_id: str | None) -> dict[str, Any]:
    """A copy of a result or of parameters with `task_id` in its `_meta`, unless that is `None`."""
    if task_id is None:
        return message
    return {
        **message,
        "_meta": {**(message.get("_meta") or {}), RELATED_TASK_KEY: {"taskId": task_id}},
    }


def _read(method: str, raw: Any, interval: str) -> TaskState:
    task = raw if type(raw) is dict else {}
    task_id, status, pause = task.get("taskId"), task.get("status"), task.get(interval)
    if type(task_id) is not str or not task_id or type(status) is not str:
        raise ProtocolError("the task object has no id or no status", method=method)
    seconds = DEFAULT_INTERVAL
    if isinstance(pause, (int, float)) and pause == pause:  # noqa: PLR0124 - NaN alone is not
        # Clamped before the division, because some numbers are too large to divide.
        seconds = min(max(pause, MIN_INTERVAL * 1000), MAX_INTERVAL * 1000) / 1000
    return TaskState(task_id, status, seconds, task)


def _cancelled(state: TaskState) -> RequestCancelled:
    reason = state.raw.get("statusMessage")
    return RequestCancelled(
        "the task was cancelled",
        reason=reason if isinstance(reason, str) else None,
        method=AUGMENTED,
        delivery="unknown",
    )


def _failure(error: Any) -> McpError:
    code, message = (
        (error.get("code"), error.get("message")) if type(error) is dict else (None, None)
    )
    if type(code) is not int or type(message) is not str:
        return ProtocolError("the task failed, and the server does not say how", method=GET)
    failure = ServerError.from_wire(code, redact(message), error.get("data"))
    failure.method = AUGMENTED
    return failure
