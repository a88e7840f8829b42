"""Mutants of calls that become tasks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.steps import Pause, Send
from syncmcp._protocol.tasks import AUGMENTED, EXTENSION_TASKS
from syncmcp.errors import InvalidQuestion, ProtocolError, RequestCancelled
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, effects, result

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tests.contract.mutant_switches.change import Function

TASKS = "syncmcp._protocol.tasks"
CALLS = "syncmcp._connection.task_calls:TaskCallTracker"
STATELESS = "syncmcp._protocol.stateless:Stateless"


def _returning(value: Any) -> Function:
    """Steps that do nothing and return this."""

    def steps(*_: Any) -> Generator[Any, Any, Any]:
        return value
        yield

    return lambda original: steps


def _refuses_tasks(original: Function) -> Function:
    def read(method: str, params: dict[str, Any], *rest: Any) -> Any:
        if "task" in params:
            raise InvalidQuestion("no tasks here", method=method)
        return original(method, params, *rest)

    return read


def _without_end(effect: Any) -> list[Any]:
    return [effect._replace(seconds=math.inf) if isinstance(effect, Pause) else effect]


def _lower_cursors(effect: Any) -> list[Any]:
    if isinstance(effect, Send) and effect.params and "cursor" in effect.params:
        return [effect._replace(params={"cursor": effect.params["cursor"].lower()})]
    return [effect]


def _kind_of_task(said: Any) -> bool:
    return isinstance(said, dict) and said.get("resultType") == "task"


def _never_a_task(original: Function) -> Function:
    def read_result(self: Any, method: str, said: Any) -> Any:
        if _kind_of_task(said):
            raise ProtocolError("a task", method=method)
        return original(self, method, said)

    return read_result


def _a_task_of_anything(original: Function) -> Function:
    def read_result(self: Any, method: str, said: Any) -> Any:
        if _kind_of_task(said) and self.tasks is not None:
            return self.tasks.read(method, said)
        return original(self, method, said)

    return read_result


def _kinds_that_nobody_offered(original: Function) -> Function:
    def read_result(self: Any, method: str, said: Any) -> Any:
        if _kind_of_task(said) and self.tasks is None:
            return EXTENSION_TASKS.read(method, said)
        return original(self, method, said)

    return read_result


def _answers_for_itself(original: Function) -> Function:
    def answer(self: Any, questions: Mapping[str, Any], within: float | None = None) -> Any:
        agreed = {"action": "accept", "content": {"name": "nobody"}}
        responses = dict.fromkeys(questions, agreed)
        yield Send("tasks/update", {"taskId": self.id, "inputResponses": responses})

    return answer


def _asks_again(original: Function) -> Function:
    def answer(self: Any, *args: Any, **options: Any) -> Any:
        self._answered.clear()
        return original(self, *args, **options)

    return answer


def _by_notification(original: Function) -> Function:
    def post(core: Any, method: str, params: Any, undeclared: Any) -> None:
        connection, error = core.live_connection(), RequestCancelled("cancelled")
        connection.notifier.cancelled(connection.next_id - 1, AUGMENTED, error)

    return post


def _unnamed(original: Function) -> Function:
    def headers(self: Any, method: str, params: Any) -> Any:
        made = dict(original(self, method, params))
        if method.startswith("tasks/"):
            made.pop("Mcp-Name", None)
        return made

    return headers


def _undeclared(original: Function) -> Function:
    def request(self: Any, method: str, *rest: Any) -> Any:
        sent, made = original(self, method, *rest)
        if method.startswith("tasks/"):
            key = "io.modelcontextprotocol/clientCapabilities"
            made["_meta"] = {**made["_meta"], key: {}}
        return sent, made

    return request


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "tasks-not-offered",
        "calls become tasks on servers that do not offer it",
        "syncmcp._protocol.stateful:CORE_TASKS",
        lambda original: original._replace(required_capability=()),
        ("TSK-02",),
    ),
    Mutant(
        "every-tool-a-task",
        "every tool is run as a task",
        "syncmcp._client.tool_calls:task_support",
        _returning("required"),
        ("TSK-03",),
    ),
    Mutant(
        "no-tool-a-task",
        "a tool that runs as a task only is called plainly",
        "syncmcp._client.operations:ask_for_task",
        _returning(None),
        ("TSK-04",),
    ),
    Mutant(
        "questions-as-tasks-refused",
        "a question that wants to be a task is refused",
        "syncmcp._connection.answering:read_question",
        _refuses_tasks,
        ("TSK-05",),
    ),
    Mutant(
        "tasks-after-news",
        "a task is looked at only when the server says that it has changed",
        "syncmcp._protocol.exchange:TaskPoller.poll_until_done",
        effects(_without_end),
        ("TSK-06",),
    ),
    Mutant(
        "answers-name-no-task",
        "answers to the questions of a task do not name it",
        "syncmcp._connection.server_requests:with_related_task",
        lambda original: lambda message, task: message,
        ("TSK-07",),
    ),
    Mutant(
        "task-cursors-changed",
        "cursors of the task list go back in lower case",
        "syncmcp.tasks:pages",
        effects(_lower_cursors),
        ("TSK-08",),
    ),
    Mutant(
        "tasks-looked-at-all-the-time",
        "the interval that a server wants between two looks is not kept",
        f"{TASKS}:TaskRules.read",
        result(lambda state: state._replace(interval=0.01)),
        ("TSK-09", "TSX-04"),
    ),
    Mutant(
        "tasks-not-understood",
        "a task is a result of an unknown kind, extension or not",
        f"{STATELESS}.read_result",
        _never_a_task,
        ("TSX-01",),
    ),
    Mutant(
        "anything-a-task",
        "any request may become a task",
        f"{STATELESS}.read_result",
        _a_task_of_anything,
        ("TSX-02",),
    ),
    Mutant(
        "tasks-unasked",
        "tasks are taken from servers though the extension is not switched on",
        f"{STATELESS}.read_result",
        _kinds_that_nobody_offered,
        ("RPC-17",),
    ),
    Mutant(
        "task-questions-agreed-to",
        "what a task asks is agreed to, and nobody sees it",
        "syncmcp._protocol.exchange:TaskPoller.answer_questions",
        _answers_for_itself,
        ("SEC-09", "TSX-03"),
    ),
    Mutant(
        "task-questions-repeated",
        "what a task asks is asked at each look that finds it",
        "syncmcp._protocol.exchange:TaskPoller.answer_questions",
        _asks_again,
        ("TSX-04",),
    ),
    Mutant(
        "task-requests-cancelled",
        "a call that asks to become a task is cancelled by a notification",
        "syncmcp._connection.task_calls:asks_for_task",
        always(False),
        ("CAN-03",),
    ),
    Mutant(
        "tasks-cancelled-by-notification",
        "a task that is given up is cancelled by a notification",
        "syncmcp._client.background:send_and_forget",
        _by_notification,
        ("CAN-03", "TSX-05"),
    ),
    Mutant(
        "task-header-missing",
        "requests about tasks do not name them in a header",
        f"{STATELESS}.headers",
        _unnamed,
        ("TSX-06",),
    ),
    Mutant(
        "task-extension-undeclared",
        "requests about tasks do not declare the extension",
        f"{STATELESS}.request",
        _undeclared,
        ("TSX-07",),
    ),
    Mutant(
        "task-tokens-forgotten",
        "the token of a call is forgotten when it has become a task",
        f"{CALLS}.progress_owner",
        always(None),
        ("PRG-05",),
    ),
)
