"""Tasks: a call whose result is fetched later, until then a state to be looked at.

Two shapes. In 2025-11-25 they are part of the protocol: the client asks for one, and fetches its
result by a request of its own (basic/utilities/tasks). Since 2026-07-28 they are an extension: the
server alone decides, and question, result and error are part of the state (ext-tasks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from syncmcp._base.text import redact
from syncmcp._protocol.client_capabilities import ELICITATION
from syncmcp._protocol.steps import (
    AnsweredLinks,
    AnswerInput,
    Pause,
    Reply,
    RoundLimit,
    Send,
    SendAndForget,
    Steps,
    Until,
    WatchTask,
    of_begun,
    read_questions,
)
from syncmcp.errors import (
    ClosedError,
    McpError,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    TransportError,
    fresh,
)

if TYPE_CHECKING:
    from syncmcp._protocol.revisions import Dialect

EXTENSION = "io.modelcontextprotocol/tasks"
"""Tasks since 2026-07-28."""

RELATED = "io.modelcontextprotocol/related-task"
"""The key of `_meta` that says which task a message belongs to (2025-11-25)."""

CANCEL, GET, LIST, RESULT, UPDATE = (
    f"tasks/{verb}" for verb in ("cancel", "get", "list", "result", "update")
)

METHODS = frozenset((CANCEL, GET, LIST, RESULT, UPDATE))
"""The requests about tasks."""

AUGMENTED = "tools/call"
"""The one request that may become a task."""

STATUS = "notifications/tasks/status"
"""What a server may tell of a task (2025-11-25). A hint: nobody may rely on it."""

FINAL = frozenset(("cancelled", "completed", "failed"))
"""The states that nothing comes after."""

# Seconds between two looks at a task whose server has no wish; and the limits of such a wish: one
# that means no pause at all would keep both sides busy, one beyond all measure is a mistake.
DEFAULT_INTERVAL = 1.0
SHORTEST_INTERVAL = 0.01
LONGEST_INTERVAL = 3600.0


WORTH_HEARING = 0.5
"""Where at least so many seconds lie between two looks, the server is asked to tell of changes."""


class TaskState(NamedTuple):
    """Where a task stands."""

    id: str
    status: str
    interval: float
    """Seconds to wait before the next look."""

    raw: dict[str, Any]
    """Everything that the server said."""


class TaskProtocol(Protocol):
    """How an era says things about tasks."""

    needs: tuple[str, ...]
    """The path of the server capability without which no call becomes a task."""

    asked_for: bool
    """Whether a call becomes a task because its parameters ask for that."""

    def read(self, method: str, raw: Any) -> TaskState:
        """Read the state of a task, which came in answer to `method`.

        Raises:
            ProtocolError: That is none.
        """
        ...

    def advance(
        self, course: TaskPoller, dialect: Dialect, within: float | None
    ) -> Steps[dict[str, Any] | None]:
        """Do what the state of a task asks for; return the result of the call if there is one.

        Raises:
            McpError: What became of the call instead.
        """
        ...


class TaskPoller:
    """A task on its way to a result, as far as it was followed.

    Args:
        id: The task's id.
        params: The parameters of the call that became the task, if they are known.
        state: Where it stands; `None` if nobody has looked yet.
        max_rounds: How often the server may ask before there is a result.

    Attributes:
        told: Called with every state that is seen, one at a time.
        guard: Entered while that changes, which several who look may do at the same moment.
        until: When the questions that are open are withdrawn, and the task is followed further
            without an answer. Those that a later look finds have what stands here then.
        until_then: What takes its place with the next look, if that is something else.
    """

    def __init__(
        self,
        id: str,
        params: dict[str, Any] | None,
        state: TaskState | None,
        max_rounds: int,
    ) -> None:
        self.id = id
        self.params = params
        self.state = state
        self.told: Callable[[TaskState], object] | None = None
        self.guard: AbstractContextManager[object] = nullcontext()
        self.until: Until | None = None
        self.until_then: Until | None = None
        # What that was before the look that found the questions.
        self._until: Until | None = None
        self._rounds = RoundLimit(AUGMENTED, max_rounds)
        self._links = AnsweredLinks()
        # The keys of questions that somebody has answered, and answers that the server has not got.
        self._answered: set[str] = set()
        self._unsent: dict[str, Any] = {}
        # Why a question was not answered. It is not asked again, so nothing else will come.
        self._refusal: McpError | None = None

    @property
    def over(self) -> bool:
        """Whether the task has come to its end."""
        return self.state is not None and self.state.status in FINAL

    def take(self, state: TaskState) -> None:
        """This is where the task stands now; nothing comes after its end."""
        with self.guard:
            if self.over and state.status not in FINAL:
                return  # that was on its way for longer
            self.state = state
            if self.told is not None:
                self.told(state)

    def became(self, status: str) -> None:
        """The task has come to its end; its last state was not looked at."""
        assert self.state is not None
        self.take(self.state._replace(status=status, raw={**self.state.raw, "status": status}))

    def follow(self, within: float | None = None) -> Steps[dict[str, Any]]:
        """Look at the task again and again, have its questions answered, and return its result.

        May be given up and begun again: no question is asked twice.

        Args:
            within: The longest, in seconds, that one look may take.

        Raises:
            ServerError: The call has failed.
            RequestCancelled: The task was cancelled.
            McpError: Whatever can become of a request, or of a question.
        """
        # What wants something of us, or has come to its end, is looked at without delay.
        waits = self.state is not None and self.state.status not in _URGENT
        hear_no_more: Callable[[], object] | None = None
        try:
            while True:
                if waits:
                    assert self.state is not None
                    if hear_no_more is None and self.state.interval >= WORTH_HEARING:
                        hear_no_more = yield WatchTask(self.id)
                    yield Pause(self.state.interval, self.id)
                with self.guard:
                    self._until, self.until = self.until, self.until_then or self.until
                dialect = yield from self.look(within)
                assert dialect.tasks is not None  # or it could not have been asked
                result = yield from dialect.tasks.advance(self, dialect, within)
                if result is not None:
                    return result
                waits = not self.over  # as it may be by now, if there were questions
        finally:
            if hear_no_more is not None:
                hear_no_more()

    def look(self, within: float | None = None) -> Steps[Dialect]:
        """Look at the task, once; return what the server speaks."""
        reply: Reply = yield Send(GET, {"taskId": self.id}, within=within)
        shape = reply.dialect.tasks
        assert shape is not None  # or it could not have been asked
        self.take(shape.read(GET, reply.dialect.read_result(GET, reply.result)))
        return reply.dialect

    def answer(self, questions: Mapping[str, Any], within: float | None = None) -> Steps[None]:
        """Have new questions answered, and tell the server (2026-07-28).

        Those that are withdrawn meanwhile are not asked again.

        Raises:
            TooManyRounds: There were too many.
            McpError: One was refused, now or before; or the server could not be told.
        """
        if self._refusal is not None:
            raise fresh(self._refusal)
        new = {key: each for key, each in questions.items() if key not in self._answered}
        if new:
            self._rounds.count(new)
            known = self._links.answered(new)
            self._answered.update(known)
            self._unsent.update(known)
            new = {key: each for key, each in new.items() if key not in known}
        if new:
            try:
                answers = yield AnswerInput(AUGMENTED, self.params, new, until=self._until)
            except (RequestCancelled, RequestTimeout):
                raise  # nobody has waited long enough
            except McpError as error:
                self._refusal = fresh(error)
                raise
            self._answered.update(new)
            if answers is None:
                # A server may go on all the same. If it still asks then, it is told that there will
                # be no answer, where there are words for that.
                self._unsent.update(
                    {key: _NOBODY for key, each in new.items() if each.method == ELICITATION}
                )
                yield from self.look(within)
                return
            self._links.remember(new, answers)
            self._unsent.update(answers)
        unsent = {key: each for key, each in self._unsent.items() if key in questions}
        if unsent:
            try:
                yield Send(UPDATE, {"taskId": self.id, "inputResponses": unsent}, within=within)
            except ServerError:
                yield from self.look(within)
                if not self.over:  # then it had no use for answers any more
                    raise
            for key in unsent:
                del self._unsent[key]


def wait_for_task(course: TaskPoller) -> Steps[dict[str, Any]]:
    """Follow a task to its end; if nobody waits for that any more, have it cancelled.

    Raises:
        McpError: What `TaskPoller.follow` raises.
    """
    try:
        return (yield from course.follow())
    except ServerError:
        raise  # the server said so itself
    except McpError as error:
        # It is the call that ends like this, whatever was asked about its task at the moment.
        ended = of_begun(error, AUGMENTED)
        # One that cannot be reached cannot be told, either.
        if not (course.over or isinstance(error, (TransportError, ClosedError))):
            yield SendAndForget(CANCEL, {"taskId": course.id})
        raise ended from error.__cause__


class CoreTasks:
    """The tasks of 2025-11-25. See `TaskProtocol`."""

    needs: tuple[str, ...] = ("tasks", "requests", "tools", "call")
    asked_for = True

    def read(self, method: str, raw: Any) -> TaskState:
        """See `TaskProtocol`."""
        return _read(method, raw, "pollInterval")

    def advance(
        self, course: TaskPoller, dialect: Dialect, within: float | None
    ) -> Steps[dict[str, Any] | None]:
        """See `TaskProtocol`. A task that needs input asks while its result is waited for."""
        assert course.state is not None
        status = course.state.status
        if status == "cancelled":
            raise _cancelled(course.state)
        if status not in _URGENT:
            return None
        try:
            reply: Reply = yield Send(RESULT, {"taskId": course.id})
        except ServerError as error:
            if not course.over:  # when it was looked at; it has ended since, or nobody knows it
                try:
                    yield from course.look(within)
                except ServerError:
                    raise error from None
            if course.state.status == "cancelled":
                raise _cancelled(course.state) from error
            raise
        result = reply.dialect.read_result(RESULT, reply.result)
        assert isinstance(result, dict)
        if not course.over:
            course.became("failed" if result.get("isError") is True else "completed")
        return result


class ExtensionTasks:
    """The tasks of the extension, since 2026-07-28. See `TaskProtocol`."""

    needs: tuple[str, ...] = ("extensions", EXTENSION)
    asked_for = False

    def read(self, method: str, raw: Any) -> TaskState:
        """See `TaskProtocol`."""
        return _read(method, raw, "pollIntervalMs")

    def advance(
        self, course: TaskPoller, dialect: Dialect, within: float | None
    ) -> Steps[dict[str, Any] | None]:
        """See `TaskProtocol`."""
        assert course.state is not None
        _, status, _, raw = course.state
        if status == "cancelled":
            raise _cancelled(course.state)
        if status == "failed":
            raise _failure(raw.get("error"))
        if status == "completed":
            result = dialect.read_result(AUGMENTED, raw.get("result"))
            if not isinstance(result, dict):
                raise ProtocolError("the result of a task is none", method=GET)
            return result
        if status == "input_required":
            questions = raw.get("inputRequests")
            yield from course.answer(read_questions(GET, questions), within)
        return None


def created(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a result tells of; `None` if it tells of none."""
    task = result if result.get("resultType") == "task" else result.get("task")
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def related(params: Mapping[str, Any]) -> str | None:
    """The task that a message belongs to (2025-11-25); `None` if it names none."""
    meta = params.get("_meta")
    task = meta.get(RELATED) if isinstance(meta, dict) else None
    task_id = task.get("taskId") if isinstance(task, dict) else None
    return task_id if isinstance(task_id, str) else None


def relate(message: dict[str, Any], task_id: str | None) -> dict[str, Any]:
    """Say in a result, or in parameters, which task it belongs to, if it does."""
    if task_id is None:
        return message
    return {**message, "_meta": {**(message.get("_meta") or {}), RELATED: {"taskId": task_id}}}


def _read(method: str, raw: Any, interval: str) -> TaskState:
    facts = raw if type(raw) is dict else {}
    task_id, status, pause = facts.get("taskId"), facts.get("status"), facts.get(interval)
    if type(task_id) is not str or not task_id or type(status) is not str:
        raise ProtocolError("the server tells of a task, but not which or how it is", method=method)
    seconds = DEFAULT_INTERVAL
    if isinstance(pause, (int, float)) and pause == pause:  # noqa: PLR0124 - NaN alone is not
        # In this order: some numbers are too large to divide.
        seconds = min(max(pause, SHORTEST_INTERVAL * 1000), LONGEST_INTERVAL * 1000) / 1000
    return TaskState(task_id, status, seconds, facts)


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


_URGENT = FINAL | {"input_required"}

# The answer to a form or a link that nobody gives one to.
_NOBODY = {"action": "cancel"}
