"""Long-running work: the tasks of 2025-11-25 and the tasks extension of 2026-07-28."""

# fmt: off
from __future__ import annotations

from .row import EXT_TASKS, ONLY_2511, RECEIVING, S2511, STATELESS, Row

CORE = f"{S2511}/basic/utilities/tasks"

ROWS = (
    Row("TSK-01", "MUST", ONLY_2511, f"{CORE}#capabilities",
        "A client that takes task-augmented questions declares `tasks`.",
        RECEIVING),
    Row("TSK-02", "MUST NOT", ONLY_2511, f"{CORE}#tool-level-negotiation",
        "Tools run as tasks only on servers that declare tasks."),
    Row("TSK-03", "MUST NOT", ONLY_2511, f"{CORE}#tool-level-negotiation",
        "A tool that forbids tasks, or is silent, is called plainly."),
    Row("TSK-04", "MUST", ONLY_2511, f"{CORE}#tool-level-negotiation",
        "A tool that requires a task is run as one."),
    Row("TSK-05", "MUST", ONLY_2511, f"{CORE}#task-support-and-handling",
        "A question with an undeclared task request is answered without a task."),
    Row("TSK-06", "MUST NOT", ONLY_2511, f"{CORE}#task-notifications",
        "A task is followed to its end without any status notification."),
    Row("TSK-07", "MUST", ONLY_2511, f"{CORE}#associating-task-related-messages",
        "Messages for a task name it in `_meta`."),
    Row("TSK-08", "MUST", ONLY_2511, f"{CORE}#task-listing",
        "Cursors of the task list go back as they came."),
    Row("TSK-09", "SHOULD", ONLY_2511, f"{CORE}#getting-tasks",
        "Polling keeps the server's interval and ends with the result."),
    Row("TSK-10", "MUST", ONLY_2511, f"{CORE}#behavior-requirements",
        "Tasks run for a server have states, lifetime and owner as specified.",
        RECEIVING),
    Row("TSX-01", "MUST", STATELESS, f"{EXT_TASKS}#capability-negotiation",
        "With the extension, a call may return its result or a task."),
    Row("TSX-02", "MUST", STATELESS, f"{EXT_TASKS}#capability-negotiation",
        "A task in response to another request fails the call."),
    Row("TSX-03", "MUST", STATELESS, f"{EXT_TASKS}#task-update-requests",
        "Questions of a task go to the same handlers as all others."),
    Row("TSX-04", "SHOULD", STATELESS, f"{EXT_TASKS}#task-update-requests",
        "A repeated question is answered once; poll intervals are kept."),
    Row("TSX-05", "MUST NOT", STATELESS, f"{EXT_TASKS}#task-cancellation",
        "A task is not cancelled by `notifications/cancelled`."),
    Row("TSX-06", "MUST", STATELESS, f"{EXT_TASKS}#streamable-http-routing-headers",
        "Requests about a task carry its id in `Mcp-Name`."),
    Row("TSX-07", "MUST", STATELESS, f"{EXT_TASKS}#protocol-errors",
        "Requests about tasks declare the extension."),
)
