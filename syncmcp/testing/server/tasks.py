"""Tools that run as tasks: the tasks of 2025-11-25, and the extension since 2026-07-28."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from syncmcp.testing.listener import Watched
from syncmcp.testing.server import wire
from syncmcp.testing.server.asking import Asked, Rounds
from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.features import TASKS, TASKS_REVISION, Features, Tool
from syncmcp.testing.server.questions import Progress, Withdrawn
from syncmcp.testing.server.session import Call
from syncmcp.testing.server.wire import Message, RpcError

RELATED = "io.modelcontextprotocol/related-task"
TASK_IDS = "taskIds"
"""The member of a listen request with the tasks that it is about."""

_FINAL = ("completed", "failed", "cancelled")


class Task(Watched):
    """One task.

    The methods may be called from any thread.

    Attributes:
        id: The id of the task.
        params: The params of the `tools/call` that created it.
        ttl_ms: The time to live that is sent to the client, in milliseconds. It is not enforced.
        status: The status of the task.
        polls: The number of `tasks/get` requests for the task.
        call: The call that its tool serves, which outlives the `tools/call` request.
    """

    def __init__(self, tasks: Tasks, call: Call, ttl_ms: int | None) -> None:
        super().__init__()
        self.id = secrets.token_urlsafe(16)
        self.params = call.params
        self.ttl_ms = ttl_ms
        self.status = "working"
        self.polls = 0
        self.answer: Message | RpcError | None = None
        # The response to `tools/call` is the task; `finish` stores the result of the tool.
        self.call = replace(call, outlet=wire.Outlet(self.send), batch=None)
        self._tasks = tasks
        self._created = self._updated = _now()
        self._message: str | None = None
        # The lock guards all attributes below and `status`.
        self._input_requests: dict[str, Message] = {}
        self._answers: dict[str, Any] = {}
        self._keys = 0
        # The open `tasks/result` requests, on whose streams questions are sent (2025-11-25).
        self._result_calls: list[Call] = []

    @property
    def ended(self) -> bool:
        """Whether the task has ended."""
        return self.status in _FINAL

    def describe(self) -> Message:
        """Return the task in the form of its revision, without result, error and questions."""
        stateless = self.call.revision in wire.STATELESS
        entry: Message = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self._created,
            "lastUpdatedAt": self._updated,
            "ttlMs" if stateless else "ttl": self.ttl_ms,
            "pollIntervalMs" if stateless else "pollInterval": self._tasks.poll_interval_ms,
        }
        if self._message is not None:
            entry["statusMessage"] = self._message
        return entry

    def describe_detailed(self) -> Message:
        """Return the result of `tasks/get` in 2026-07-28."""
        with self.changed:
            entry = self.describe()
            if self.status == "input_required":
                entry["inputRequests"] = dict(self._input_requests)
            elif self.status == "completed" and isinstance(self.answer, dict):
                entry["result"] = {"resultType": "complete", **self.answer}
            elif self.status == "failed" and isinstance(self.answer, RpcError):
                entry["error"] = wire.error_reply(None, self.answer)["error"]
            return entry

    def set_status(self, status: str, message: str | None = None) -> bool:
        """Change the status and notify the client; return `False` if the task has ended."""
        with self:
            if self.ended:
                return False
            self.status, self._updated = status, _now()
            if message is not None:
                self._message = message
        if self.ended:
            self._tasks.stats._count(tasks=-1)
        self._tasks.notify_changed(self)
        return True

    def finish(self, answer: Message | RpcError) -> None:
        """End the task with the result of its tool, or with the error that it raised."""
        failed = isinstance(answer, RpcError)
        if self.call.revision not in wire.STATELESS and isinstance(answer, dict):
            failed = answer.get("isError") is True
        with self.changed:
            if not self.ended:
                self.answer = answer
        self.set_status("failed" if failed else "completed")

    def cancel(self) -> bool:
        """Cancel the task; return `False` if it has ended."""
        if not self.set_status("cancelled"):
            return False
        self.call.cancel("the task was cancelled")
        return True

    def send(self, message: Message) -> bool:
        """Send a message on the stream of a `tasks/result`; return whether one was open.

        Without such a stream, notifications are sent on the session's own stream.
        """
        if self.call.revision in wire.STATELESS:
            return False  # The revision has no stream for it.
        params = message.get("params", {})
        message = {
            **message,
            "params": {**params, "_meta": {**wire.meta_of(params), **self.related}},
        }
        with self.changed:
            channels = list(self._result_calls)
        if any(channel.send(message) for channel in channels):
            return True
        session = self.call.session
        if session is not None and "id" not in message:
            session.notify(message["method"], message["params"])
        return False

    @property
    def related(self) -> Message:
        """The `_meta` of messages that belong to the task (2025-11-25)."""
        return {RELATED: {"taskId": self.id}}

    def wait_for_result(self, call: Call) -> Message:
        """Serve a `tasks/result`: block until the task or the request has ended."""
        call.add_done_callback(lambda _: self._wake())
        with self:
            self._result_calls.append(call)
        with self.changed:
            self.changed.wait_for(lambda: self.ended or not call.open)
            self._result_calls.remove(call)
        if isinstance(self.answer, RpcError):
            raise self.answer
        if self.answer is None:
            raise RpcError(wire.INVALID_PARAMS, f"The task is {self.status}")
        return {**self.answer, "_meta": {**wire.meta_of(self.answer), **self.related}}

    def channel(self, timeout: float) -> Call:
        """Wait for a `tasks/result` on whose stream a question can be sent."""
        with self.changed:
            if not self.changed.wait_for(lambda: self._result_calls or self.ended, timeout):
                raise TimeoutError(f"nobody waited for the result within {timeout} s")
            if self.ended:
                raise Withdrawn("the task has ended")
            return self._result_calls[-1]

    def ask(self, questions: Mapping[str, Asked], timeout: float) -> dict[str, Any]:
        """Ask by `inputRequests` and wait for all answers, by key (2026-07-28)."""
        with self.changed:
            keys = {}
            for key, (method, params) in questions.items():
                self._keys += 1
                keys[key] = f"{key}-{self._keys}"
                self._input_requests[keys[key]] = wire.given(method=method, params=params)
        self.set_status("input_required")
        with self.changed:
            done = self.changed.wait_for(
                lambda: self.ended or self._answers.keys() >= set(keys.values()), timeout
            )
            for key in keys.values():
                self._input_requests.pop(key, None)
        if self.ended:
            raise Withdrawn("the task has ended")
        if not done:
            raise TimeoutError(f"no answer within {timeout} s")
        self.set_status("working")
        return {key: self._answers[unique] for key, unique in keys.items()}

    def update(self, responses: Mapping[str, Any]) -> list[str]:
        """Accept answers; return their violations of the protocol."""
        with self:
            faults = [
                f"tasks/update answers {key!r}, which was answered before"
                if key in self._answers
                else f"tasks/update answers {key!r}, which was not asked"
                for key in responses
                if key in self._answers or key not in self._input_requests
            ]
            for key in responses.keys() & self._input_requests.keys():
                self._answers.setdefault(key, responses[key])
        return faults


class _TaskContext(ToolContext):
    """Asks while a task runs: on the stream of `tasks/result`, or by `inputRequests`."""

    def __init__(self, task: Task, rounds: Rounds) -> None:
        super().__init__(task.call, rounds)
        self._task = task

    def describe_task(self, message: str) -> None:
        self._task.set_status("working", message)

    def _round(self, questions: Mapping[str, Asked], timeout: float) -> Mapping[str, Any]:
        with self._rounds.stats as stats:
            stats.questions.update(method for method, _ in questions.values())
        return self._task.ask(questions, timeout)

    def _ask_by_requests(
        self, questions: Mapping[str, Asked], timeout: float, progress: Progress | None
    ) -> dict[str, Message]:
        self._task.set_status("input_required")
        answers = {
            key: self._ask_on_channel(asked, timeout, progress) for key, asked in questions.items()
        }
        self._task.set_status("working")
        return answers

    def _ask_on_channel(self, asked: Asked, timeout: float, progress: Progress | None) -> Message:
        method, params = asked
        params = {**(params or {}), "_meta": {**wire.meta_of(params or {}), **self._task.related}}
        end = time.monotonic() + timeout
        while True:
            channel = self._task.channel(max(end - time.monotonic(), 0.0))
            try:
                answer = channel.question(method, params, progress).result(timeout)
            except Withdrawn:
                if self._task.ended:
                    raise
                continue  # The `tasks/result` has ended: ask on the stream of the next one.
            if wire.meta_of(answer).get(RELATED) != self._task.related[RELATED]:
                self._rounds.stats.blame(f"{method}: the answer does not name its task")
            return self._checked(asked, answer)


class Tasks:
    """The tasks of all clients of one server.

    Attributes:
        poll_interval_ms: The poll interval that is sent to clients, in milliseconds.
        ttl_ms: The time to live that is sent to clients, in milliseconds, unless the client asks
            for another. It is not enforced.
        notify: Whether clients are notified of changes: by `notifications/tasks/status`
            (2025-11-25), or by `notifications/tasks` if they listen for the task (2026-07-28).
    """

    def __init__(
        self,
        features: Features,
        rounds: Rounds,
        run: Callable[[Callable[[], None]], None],
        notify_listeners: Callable[[str, Message, str, str], None],
    ) -> None:
        self.poll_interval_ms: int | None = 20
        self.ttl_ms: int | None = 60_000
        self.notify = False
        self.stats = rounds.stats
        self._features = features
        self._rounds = rounds
        self._run_on_worker = run
        self._notify_listeners = notify_listeners
        self._tasks: dict[str, Task] = {}

    @property
    def all(self) -> list[Task]:
        """Every task, oldest first."""
        return list(self._tasks.copy().values())

    def forget(self, task: Task) -> None:
        """Cancel and remove a task, as if its time to live had passed."""
        task.cancel()
        self._tasks.pop(task.id, None)

    def close(self) -> None:
        for task in self.all:
            task.cancel()

    def notify_changed(self, task: Task) -> None:
        """Notify the client of a change, if `notify` is set."""
        if not self.notify:
            return
        session = task.call.session
        if task.call.revision in wire.STATELESS:
            described = task.describe_detailed()
            self._notify_listeners("notifications/tasks", described, TASK_IDS, task.id)
        elif session is not None:
            session.notify("notifications/tasks/status", task.describe())

    def known_tasks(self, ids: list[Any], call: Call) -> list[str]:
        """Return which of these tasks a client may listen for (2026-07-28); raise `RpcError`."""
        _require_extension(call)
        known = {task.id for task in self.all} if self.notify else set()
        return [id for id in ids if id in known]

    def call_tool(self, params: Message, context: ToolContext) -> Message:
        tool = self._features.tools.get(str(params.get("name")))
        runs = tool is not None and tool.runs_as_task
        only = tool is not None and tool.task_support == "required"
        if context.revision in wire.STATELESS:
            if "task" in params:
                self.stats.blame("tools/call: task, which the extension does not have")
            if only:
                _require_extension(context)
            wanted = runs and _declares(context)
        else:
            wanted = context.revision == TASKS_REVISION and "task" in params
            if wanted and not runs:
                self.stats.blame(f"{params.get('name')} was called as a task")
                raise RpcError(wire.METHOD_NOT_FOUND, "The tool does not run as a task")
            if only and not wanted:
                raise RpcError(wire.METHOD_NOT_FOUND, "The tool runs only as a task")
        if tool is None or not wanted:
            return self._features.call_tool(params, context)
        return self._start(tool, context)

    def _start(self, tool: Tool, context: ToolContext) -> Message:
        wish = context.params.get("task")
        ttl = wish.get("ttl") if isinstance(wish, dict) else None
        task = Task(self, context.call, ttl if isinstance(ttl, int) else self.ttl_ms)
        self._tasks[task.id] = task
        self.stats._count(tasks=1)
        # A client that cancels the request never learns the task's id (2026-07-28).
        context.call.add_done_callback(lambda call: call.cancelled.is_set() and task.cancel())
        described = task.describe()  # Before the tool can change it.
        self._run_on_worker(lambda: self._run(tool, task))
        if context.revision in wire.STATELESS:
            return {"resultType": "task", **described}
        return {"task": described}

    def _run(self, tool: Tool, task: Task) -> None:
        arguments = task.params.get("arguments", {})
        answer: Message | RpcError
        try:
            answer = tool.call(arguments, _TaskContext(task, self._rounds))
        except RpcError as error:
            answer = error
        task.finish(answer)

    def get(self, params: Message, context: ToolContext) -> Message:
        task = self._find(params, context)
        task.polls += 1
        self.stats._wake()  # Tests may wait for `polls`.
        return task.describe_detailed() if context.revision in wire.STATELESS else task.describe()

    def result(self, params: Message, context: ToolContext) -> Message:
        return self._find(params, context).wait_for_result(context.call)

    def cancel(self, params: Message, context: ToolContext) -> Message:
        task = self._find(params, context)
        cancelled = task.cancel()
        if context.revision in wire.STATELESS:
            return {}
        if not cancelled:
            raise RpcError(wire.INVALID_PARAMS, f"The task is {task.status}")
        return task.describe()

    def update(self, params: Message, context: ToolContext) -> Message:
        task = self._find(params, context)
        responses = params.get("inputResponses")
        if not isinstance(responses, dict):
            raise RpcError(wire.INVALID_PARAMS, "params.inputResponses must be an object")
        for fault in task.update(responses):
            self.stats.blame(fault)
        return {}

    def list_tasks(self, params: Message, context: ToolContext) -> Message:
        _check_era(context)
        return self._features.paginate("tasks", [task.describe() for task in self.all], params)

    def _find(self, params: Message, context: ToolContext) -> Task:
        _check_era(context)
        task = self._tasks.get(wire.string_member(params, "taskId"))
        if task is None:
            raise RpcError(wire.INVALID_PARAMS, "There is no such task")
        return task


def _check_era(context: ToolContext) -> None:
    if context.revision in wire.STATELESS:
        _require_extension(context)
    elif context.revision != TASKS_REVISION:
        raise RpcError(wire.METHOD_NOT_FOUND, f"{context.revision} has no tasks")


def _declares(asking: ToolContext | Call) -> bool:
    extensions = asking.client_capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS in extensions


def _require_extension(asking: ToolContext | Call) -> None:
    if not _declares(asking):
        raise RpcError(
            wire.MISSING_CAPABILITY,
            f"The client did not declare {TASKS}",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
