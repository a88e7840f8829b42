"""Tasks: handles of long-running calls, which outlive connections and processes."""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._base.checks import seconds, text, validate
from syncmcp._base.text import visible
from syncmcp._client.background import FutureDrive
from syncmcp._client.driver import run
from syncmcp._client.operation import operation
from syncmcp._client.pages import ALL_PAGES, AllPages, iterate, pages
from syncmcp._client.tool_calls import (
    check_input,
    checked_result,
    get_negotiated,
    learn_headers,
    suggest_tools,
    task_support,
    tool_params,
)
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, reaper
from syncmcp._connection.options import CallOptions, ResolvedOptions, unknown_tool
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.exchange import TaskPoller, exchange
from syncmcp._protocol.steps import Send, Steps
from syncmcp._protocol.tasks import AUGMENTED, CANCEL, GET, TaskState
from syncmcp._protocol.tasks import EXTENSION as _EXTENSION
from syncmcp.errors import (
    HeaderMismatch,
    InvalidParams,
    McpError,
    NotSupported,
    UsageError,
    fresh,
)

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp._concurrency.futures import RequestFuture
    from syncmcp.types import CallToolResult, ListTasksResult, Task

__all__ = ["EXTENSION", "TaskUpdate", "ToolTask"]

EXTENSION: Final = _EXTENSION
"""The identifier of the tasks extension (since 2026-07-28), which
``Client(extensions={tasks.EXTENSION: {}})`` switches on."""

_INHERITED_OPTIONS = ("handlers", "headers", "meta", "undeclared")


class TaskUpdate(NamedTuple):
    """The status of a task; see `ToolTask`.

    Attributes:
        status: ``"working"``, ``"input_required"``, ``"completed"``, ``"failed"`` or
            ``"cancelled"``.
        message: The status message of the server, for people.
    """

    status: str
    message: str | None


class ToolTask:
    """A call that runs at the server as a task, with or without a connection.

    ::

        task = client.start_task("render", {"pictures": 3}, ttl=3600)
        for update in task:
            print(update.status, update.message)
        print(task.result(timeout=60).text)

    `Client.start_task` makes a handle. The first `wait`, `result` or iteration starts to follow the
    task: the client polls the task at the interval that the server asks for, and passes each of its
    questions to the handlers once. Following needs no separate thread, and continues while no
    thread waits. Following ends with the task, with the client, or when the handle is
    garbage-collected. The task itself goes on until it ends or `cancel` is called. Any thread may
    use the handle.

    Attributes:
        id: The id of the task. `Client.task` makes another handle from it, also in another process.
            Keep it secret like a password: with the id, anybody may get the result. `None` if the
            server returned the result at once, so that there is no task.
        tool: The tool's name; `None` if `Client.task` was called without a name.
    """

    def __init__(self, follower: _TaskFollower) -> None:
        self._follower = follower
        self.id = None if follower.poller is None else follower.poller.id
        self.tool = follower.tool
        reaper.start()
        self._finalizer = weakref.finalize(self, reaper.put, follower.cancel_following)
        self._finalizer.atexit = False

    @property
    def status(self) -> str | None:
        """The last status; see `TaskUpdate`. `None` at first for a handle of `Client.task`."""
        update = self._follower.update
        return None if update is None else update.status

    @property
    def done(self) -> bool:
        """True if the task is known to have ended, in any way."""
        poller = self._follower.poller
        return poller is None or poller.ended

    @property
    def state(self) -> Task | None:
        """The state that the server returned last; `None` at first for a handle of `Client.task`.

        Raises:
            InvalidOutput: The server returned something that is not a task.
        """
        poller = self._follower.poller
        if poller is None or poller.state is None:
            return None
        return validate(types.Task, poller.state.raw, GET)

    def refresh(self, **options: Unpack[CallOptions]) -> str:
        """Poll the task once, now, and return its status, without answering its questions.

        Raises:
            InvalidParams: The server does not know the task, or has deleted it.
            McpError: The request failed in another way.
        """
        follower, poller = self._follower, self._follower.poller
        if poller is not None:
            resolved = follower.resolve(options)
            run(poller.poll(), follower.core, resolved, Deadline(resolved.timeout))
            if poller.ended:
                follower.withdraw_questions(poller)
        assert self.status is not None
        return self.status

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task has ended, at most `timeout` seconds.

        Returns:
            True if the task has ended, in any way.

        Raises:
            InvalidParams: The server does not know the task, or has deleted it.
            McpError: The task cannot be followed: the connection broke, or one of its questions was
                refused.
        """
        limit = seconds(timeout, "timeout")
        if self._follower.poller is None:
            return True
        future = self._follower.ensure_running()
        try:
            error = future.exception(limit)
        except (TimeoutError, concurrent.futures.TimeoutError):
            return False
        if error is not None and not self.done:
            raise _error_for_caller(error)
        return True

    def result(self, timeout: float | None = None) -> CallToolResult:
        """Wait until the task has ended, at most `timeout` seconds, and return the tool's result.

        A tool that ran and failed returns a result with `is_error`; see `Client.call_tool`.

        Raises:
            TimeoutError: The task did not end in time. The task goes on, and is still followed.
            RequestCancelled: The task was cancelled.
            ServerError: The call failed.
            McpError: See `wait`.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the task has not ended within {timeout:g} s")
        if self._follower.result is not None:
            return self._follower.result
        future = self._follower.ensure_running()
        error = future.exception()
        if error is not None:
            raise _error_for_caller(error)
        return future.result()

    def cancel(self, **options: Unpack[CallOptions]) -> None:
        """Ask the server to cancel the task, unless the task has ended.

        The open questions of the task are withdrawn: the `HandlerContext.cancel` of their handlers
        is cancelled, and the questions are not asked again. The server may take some time, or
        finish the work anyway. Use `wait` to see which.

        Raises:
            NotSupported: The server cannot cancel tasks.
            McpError: The request failed.
        """
        follower, poller = self._follower, self._follower.poller
        if poller is None or poller.ended:
            return
        resolved = follower.resolve(options)
        deadline = Deadline(resolved.timeout)
        try:
            run(_cancel(poller), follower.core, resolved, deadline)
        except InvalidParams:
            # The task may have ended already: servers refuse to cancel an ended task.
            run(poller.poll(), follower.core, resolved, deadline)
            if not poller.ended:
                raise
        # Even if the server continues the task: a cancelled task must ask no more questions.
        follower.withdraw_questions(poller)

    def __iter__(self) -> Iterator[TaskUpdate]:
        """Iterate over the status of the task: the present one, then each change until it ends.

        If the status changes several times between two steps, only the newest one is returned.

        Raises:
            McpError: See `wait`.
        """
        follower = self._follower
        seen: TaskUpdate | None = None
        while True:
            future = None if follower.poller is None else follower.ensure_running()
            with lending_handler(), follower.lock:
                while follower.update is seen and not (future is None or future.done()):
                    follower.changed.wait()
                update = follower.update
            if update is not None and update is not seen:
                seen = update
                yield update
                continue
            error = None if future is None else future.exception()
            if error is not None and not self.done:
                raise _error_for_caller(error)
            return

    def __repr__(self) -> str:
        return visible(f"<ToolTask {self.tool or 'of some tool'} {self.status or 'not looked at'}>")


class _TaskFollower:
    """Follows a task for a handle. Has no reference to the handle, so that it can be collected."""

    def __init__(
        self,
        client: HasCore,
        poller: TaskPoller | None,
        tool: str | None,
        options: ResolvedOptions,
        result: CallToolResult | None = None,
    ) -> None:
        # A strong reference: a handle keeps its client alive.
        self._client = client
        self.core = client._core
        self.tool = tool
        self.poller = poller
        self.result = result
        self._options = options
        # Guards the state and the update.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)  # wakes the iterating threads
        self.update: TaskUpdate | None = None if result is None else TaskUpdate("completed", None)
        # Guards the start of following; the callbacks for states never take it.
        self._start_lock = threading.RLock()
        self._future: RequestFuture[CallToolResult] | None = None
        # Cancelled to withdraw the questions that the task has asked so far.
        self._questions_token = CancelToken()
        if poller is not None:
            poller.withdraw_on = partial(call_when_cancelled, self._questions_token)
            poller.lock = self.lock
            poller.on_state = self._on_state
            if poller.state is not None:
                self._on_state(poller.state)

    def _on_state(self, state: TaskState) -> None:
        """Store a polled state. Runs on the thread that polled."""
        message = state.raw.get("statusMessage")
        update = TaskUpdate(state.status, message if isinstance(message, str) else None)
        with self.lock:
            if update != self.update:
                self.update = update
                self.changed.notify_all()

    def ensure_running(self) -> RequestFuture[CallToolResult]:
        """Start to follow the task, unless it is followed already; restart after a failure."""
        with self._start_lock:
            future = self._future
            assert self.poller is not None
            if future is None or (future.done() and not self.poller.ended):
                drive = FutureDrive(
                    self._steps(self.poller), self.core, self._options, Deadline(None)
                )
                self._future = future = drive.future
                future.add_done_callback(self._on_future_done)
            return future

    def _on_future_done(self, _: object) -> None:
        with self.lock:
            self.changed.notify_all()

    def _steps(self, poller: TaskPoller) -> Steps[CallToolResult]:
        # No limit for the task; each poll has the timeout of a call.
        raw = yield from poller.poll_until_done(self._options.timeout)
        if self.tool is None:
            return validate(types.CallToolResult, raw, AUGMENTED)
        return (yield from checked_result(self.core, self.tool, raw, self.core.validation))

    def cancel_following(self) -> None:
        """Stop following the task; the task goes on. Never blocks."""
        future = self._future
        if future is not None:
            future.cancel()

    def resolve(self, given: CallOptions) -> ResolvedOptions:
        return self.core.resolve({"undeclared": self._options.undeclared, **given})

    def withdraw_questions(self, poller: TaskPoller) -> None:
        """Withdraw the open questions, and poll the task at once if it is followed.

        Never blocks, and calls no code of the program.
        """
        with self.lock:
            questions_token, self._questions_token = self._questions_token, CancelToken()
            # The next poll may return questions that were asked before this moment.
            poller.withdraw_on, poller.next_withdraw_on = (
                partial(call_when_cancelled, questions_token),
                partial(call_when_cancelled, self._questions_token),
            )
        questions_token.cancel()


def _error_for_caller(error: BaseException) -> BaseException:
    """Return a copy of a task's error: each waiting thread raises its own exception."""
    return fresh(error) if isinstance(error, McpError) else error


def _cancel(poller: TaskPoller) -> Steps[None]:
    reply: Reply = yield Send(CANCEL, {"taskId": poller.id})
    shape, result = reply.dialect.tasks, reply.dialect.read_result(CANCEL, reply.result)
    # In the extension the result is an acknowledgement without a task.
    if shape is not None and isinstance(result, dict) and "taskId" in result:
        poller.update(shape.read(CANCEL, result))


class StartTask:
    """`client.start_task`: call it to block until the task has started, or use its `future`."""

    def __init__(self, client: HasCore) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<start_task of {self._client!r}>"

    @property
    def _core(self) -> ClientCore:
        return self._client._core  # looked up each time: a core cannot be pickled

    def __call__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolTask:
        """Call a tool, and return a handle as soon as the server has started the task.

        Args:
            name: The tool's name.
            arguments: The tool's arguments.
            ttl: How long, in seconds, the server should keep the task and its result. Since
                2026-07-28 the server alone decides this, and whether there is a task at all.
            options: See `CallOptions`. Timeouts and `cancel` apply only to the start. `handlers`
                answer the questions of the task, and `on_progress` is called with its progress
                (2025-11-25; since 2026-07-28 tasks report no progress).

        Raises:
            NotSupported: The server, its revision or the tool has no tasks, or the extension is not
                switched on; nothing was started.
            McpError: See `Client.call_tool`.
        """
        core = self._core
        resolved, inherited = (core.resolve(each) for each in (options, _inherited(options)))
        steps = _start(self._client, name, arguments, ttl, inherited)
        return run(steps, core, resolved, Deadline(resolved.timeout))

    def future(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[ToolTask]:
        """Start a task, as the blocking call does, and return a future of the handle at once.

        Returns:
            A `RequestFuture`, which is a `concurrent.futures.Future`. Its ``result()`` returns the
            result of the blocking call: the handle.

        Raises:
            UsageError: An argument is invalid. Other errors are raised by ``result()``.
        """
        core = self._core
        resolved, inherited = (core.resolve(each) for each in (options, _inherited(options)))
        # A task reports progress for longer than the future lasts. Reports to the future would keep
        # the future alive, and with it the handle.
        resolved.observer = lambda _: None
        steps = _start(self._client, name, arguments, ttl, inherited)
        deadline = Deadline(resolved.timeout)
        return FutureDrive(steps, core, resolved, deadline, self._client).future


def _start(
    client: HasCore,
    name: str,
    arguments: Mapping[str, Any] | None,
    ttl: float | None,
    options: ResolvedOptions,
) -> Steps[ToolTask]:
    core = client._core
    params = tool_params(name, arguments)
    keep = seconds(ttl, "ttl")
    shape = (yield from get_negotiated(core)).check_tasks(options.undeclared)
    if shape.requested_by_client:
        if (yield from task_support(core, name)) not in ("optional", "required"):
            if name in core.schemas.absent:
                raise unknown_tool(name, core.schemas.by_name, core.label)
            raise NotSupported(f"the tool {name!r} does not run as a task", server=core.label)
        params["task"] = {} if keep is None else {"ttl": int(keep * 1000)}
    if core.validation.input:
        yield from check_input(core, name, arguments)
    most = core.settings.max_rounds
    call = partial(exchange, AUGMENTED, params, max_rounds=most, polls_task=False)
    outcome: Any
    try:
        outcome = yield from call()
    except HeaderMismatch as mismatch:
        yield from learn_headers(core, mismatch)
        outcome = yield from call()
    except InvalidParams as error:
        suggest_tools(core, name, error)
        raise
    if isinstance(outcome, TaskState):
        poller = TaskPoller(outcome.id, params, outcome, most)
        return ToolTask(_TaskFollower(client, poller, name, options))
    result = yield from checked_result(core, name, outcome, core.validation)
    return ToolTask(_TaskFollower(client, None, name, options, result))


def _inherited(options: CallOptions) -> CallOptions:
    """Return the options of a call that also apply to later requests about its task."""
    inherited = {name: given for name, given in options.items() if name in _INHERITED_OPTIONS}
    return cast("CallOptions", inherited)


def task(
    self: HasCore, id: str, tool: str | None = None, **options: Unpack[CallOptions]
) -> ToolTask:
    """Make a handle of a task that was started before, perhaps in another process.

    Nothing is sent. Servers return a task only to the client that it belongs to.

    Args:
        id: The `id` of the first handle.
        tool: The tool's name. If it is passed, the result is checked against the output schema.
        options: `handlers`, `meta`, `headers` and `undeclared` of all requests about the task.

    Raises:
        TypeError: There is no such option.
        UsageError: An argument is invalid, or an option belongs to the handle's calls.
    """
    text(id, "id")
    if tool is not None:
        text(tool, "tool")
    core = self._core
    inherited = core.resolve(options)
    if others := options.keys() - _INHERITED_OPTIONS:
        raise UsageError(f"{min(others)} is an option of the calls of the handle, not of task")
    return ToolTask(
        _TaskFollower(self, TaskPoller(id, None, None, core.settings.max_rounds), tool, inherited)
    )


@operation
def list_tasks(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[ListTasksResult]:
    """List the tasks of this client at the server (2025-11-25 only); see `list_tools`."""
    return (yield from pages("tasks/list", types.ListTasksResult, core, cursor, max_pages))


def iter_tasks(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[Task]:
    """Iterate over the tasks of this client at the server, page by page; see `iter_tools`."""
    return iterate("tasks/list", types.ListTasksResult, self, max_pages, options)
