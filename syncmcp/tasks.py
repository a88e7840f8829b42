"""Tasks: long-running calls as handles, which outlive connections and processes."""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._base.checks import seconds, text, validate
from syncmcp._client.background import submit
from syncmcp._client.driver import run
from syncmcp._client.operation import operation
from syncmcp._client.pages import ALL_PAGES, AllPages, iterate, pages
from syncmcp._client.tool_calls import (
    check_input,
    check_output,
    meet,
    task_support,
    tool_params,
    with_fresh_marks,
)
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, reaper
from syncmcp._connection.options import CallOptions, ResolvedOptions
from syncmcp._protocol.exchange import exchange_or_task
from syncmcp._protocol.steps import Reply, Send, Steps
from syncmcp._protocol.tasks import AUGMENTED, CANCEL, GET, TaskPoller, TaskState
from syncmcp._protocol.tasks import EXTENSION as _EXTENSION
from syncmcp.errors import InvalidParams, McpError, NotSupported, fresh

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp._concurrency.futures import RequestFuture
    from syncmcp.types import CallToolResult, ListTasksResult, Task

__all__ = ["EXTENSION", "TaskUpdate", "ToolTask"]

EXTENSION: Final = _EXTENSION
"""The identifier of the extension that tasks are since 2026-07-28; switched on by
``Client(extensions={tasks.EXTENSION: {}})``."""

_LASTING = ("handlers", "headers", "meta", "undeclared")


class TaskUpdate(NamedTuple):
    """Where a task stands; see `ToolTask`."""

    status: str
    """``"working"``, ``"input_required"``, ``"completed"``, ``"failed"`` or ``"cancelled"``."""

    message: str | None
    """What the server says to it, for people."""


class ToolTask:
    """A call that goes on at the server, whoever is connected; made by `Client.start_task`.

    Waiting for it follows it: it is looked at as often as the server wants, its questions go to the
    client's handlers, each once, and it is followed further while nobody waits, on no thread of its
    own. That ends with the task, with the client, or when nobody has the handle any more. The task
    itself ends only by itself or by `cancel`. Any thread may use the handle.

    Attributes:
        id: What `Client.task` makes another handle of, also in another process. Whoever knows it
            may get the result: keep it like a password. `None` if the server had the result at
            once, so that there is no task.
        tool: The tool's name; `None` where `Client.task` was not told.
    """

    def __init__(self, following: _Following) -> None:
        self._following = following
        self.id = following.id
        self.tool = following.tool
        reaper.start()
        self._finalizer = weakref.finalize(self, reaper.put, following.stop)
        self._finalizer.atexit = False

    @property
    def status(self) -> str | None:
        """Where it stood when somebody looked last; `None` if nobody has. See `TaskUpdate`."""
        update = self._following.update
        return None if update is None else update.status

    @property
    def done(self) -> bool:
        """Whether it is known to have ended, in whatever way."""
        return self._following.over

    @property
    def state(self) -> Task | None:
        """Everything that the server said of it last.

        Raises:
            InvalidOutput: That does not describe a task.
        """
        state = self._following.state
        return None if state is None else validate(types.Task, state.raw, GET)

    def refresh(self, **options: Unpack[CallOptions]) -> str:
        """Look at it now, once, and return its status. Questions are not answered.

        Raises:
            InvalidParams: The server knows no such task, perhaps no longer.
            McpError: Whatever else can become of a request.
        """
        self._following.look(options)
        assert self.status is not None
        return self.status

    def wait(self, timeout: float | None = None) -> bool:
        """Follow it until it has ended, at most `timeout` seconds.

        Returns:
            Whether it has ended, in whatever way.

        Raises:
            InvalidParams: The server knows no such task, perhaps no longer.
            McpError: It cannot be followed: the connection broke, or a question of its was refused.
        """
        return self._following.wait(seconds(timeout, "timeout"))

    def result(self, timeout: float | None = None) -> CallToolResult:
        """Follow it until it has ended, at most `timeout` seconds, and return what the tool gave.

        A tool that ran and failed is a result with `is_error`; see `Client.call_tool`.

        Raises:
            TimeoutError: It has not ended in time. It goes on, and so does this.
            RequestCancelled: It was cancelled.
            ServerError: The call failed.
            McpError: See `wait`.
        """
        return self._following.result(seconds(timeout, "timeout"))

    def cancel(self, **options: Unpack[CallOptions]) -> None:
        """Ask the server to end it. Does nothing if it has ended.

        What it asks at the moment is withdrawn: a handler's `HandlerContext.cancel` says so, and
        nobody is asked that again. The server may take its time, or finish the work all the same:
        `wait` tells.

        Raises:
            NotSupported: The server cannot cancel tasks.
            McpError: Whatever can become of a request.
        """
        self._following.cancel(options)

    def __iter__(self) -> Iterator[TaskUpdate]:
        """Follow it; begin with where it stands, and go on with each change until it has ended.

        Of changes that come faster than somebody looks, the last one counts.

        Raises:
            McpError: See `wait`.
        """
        return self._following.updates(self)

    def __repr__(self) -> str:
        return f"<ToolTask {self.tool or 'of some tool'} {self.status or 'not looked at'}>"


class _Following:
    """The library's half of a handle, which does not know who has that."""

    def __init__(
        self,
        client: HasCore,
        course: TaskPoller | None,
        tool: str | None,
        options: ResolvedOptions,
        result: CallToolResult | None = None,
    ) -> None:
        self.id = None if course is None else course.id
        self.tool = tool
        # Who has a handle is not done with the client.
        self._client = client
        self._core = client._core
        self._course = course
        self._options = options
        self._result = result
        # Guards the state and the update of it, and tells those who iterate.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.update: TaskUpdate | None = None if result is None else TaskUpdate("completed", None)
        # Guards beginning; those who are told of states never need it.
        self._beginning = threading.RLock()
        self._future: RequestFuture[CallToolResult] | None = None
        # Cancelled when nobody wants answers any more to what the task has asked so far.
        self._asking = CancelToken()
        if course is not None:
            course.until = partial(call_when_cancelled, self._asking)
            course.guard = self._lock
            course.told = self._told
            if course.state is not None:
                self._told(course.state)

    @property
    def state(self) -> TaskState | None:
        return None if self._course is None else self._course.state

    @property
    def over(self) -> bool:
        return self._course is None or self._course.over

    def _told(self, state: TaskState) -> None:
        """On whatever thread looked."""
        message = state.raw.get("statusMessage")
        update = TaskUpdate(state.status, message if isinstance(message, str) else None)
        with self._lock:
            if update != self.update:
                self.update = update
                self._changed.notify_all()

    # -- following -------------------------------------------------------------------------------

    def begin(self) -> RequestFuture[CallToolResult]:
        """Follow the task, if nobody does, or whoever did has failed."""
        with self._beginning:
            future = self._future
            if future is None or (future.done() and not self.over):
                future = submit(self._steps(), self._core, self._options, Deadline(None))
                self._future = future
                future.add_done_callback(self._ended)
            return future

    def _ended(self, _: object) -> None:
        with self._lock:
            self._changed.notify_all()

    def _steps(self) -> Steps[CallToolResult]:
        assert self._course is not None
        # For as long as it takes; but one look takes no longer than any call may.
        raw = yield from self._course.follow(self._options.timeout)
        result = validate(types.CallToolResult, raw, AUGMENTED)
        if self.tool is not None:
            types.set_origin(result, self.tool, self._core.label)
            yield from check_output(self._core, self.tool, result, self._core.checks)
        return result

    def stop(self) -> None:
        """Nobody wants to know any more. Never blocks."""
        future = self._future
        if future is not None:
            future.cancel()

    # -- for the handle --------------------------------------------------------------------------

    def _resolve(self, given: CallOptions) -> ResolvedOptions:
        return self._core.resolve({"undeclared": self._options.undeclared, **given})

    def look(self, given: CallOptions) -> None:
        course = self._course
        if course is None:
            return
        options = self._resolve(given)
        run(course.look(), self._core, options, Deadline(options.timeout))
        if course.over:
            self._withdraw(course)
        # Whoever follows it need not wait to see it.
        self._core.pools.naps.news(course.id)

    def _withdraw(self, course: TaskPoller) -> None:
        """Withdraw what it asks at the moment. Never blocks, and calls no code of the caller's."""
        with self._lock:
            asking, self._asking = self._asking, CancelToken()
            # Also what the next look finds was asked before this.
            course.until, course.until_then = (
                partial(call_when_cancelled, asking),
                partial(call_when_cancelled, self._asking),
            )
        asking.cancel()

    def wait(self, timeout: float | None) -> bool:
        if self._result is not None:
            return True
        future = self.begin()
        try:
            error = future.exception(timeout)
        except (TimeoutError, concurrent.futures.TimeoutError):
            return False
        if error is not None and not self.over:
            raise _own(error)
        return True

    def result(self, timeout: float | None) -> CallToolResult:
        if self._result is not None:
            return self._result
        if not self.wait(timeout):
            raise TimeoutError(f"the task has not ended within {timeout:g} s")
        future = self.begin()
        error = future.exception()
        if error is not None:
            raise _own(error)
        return future.result()

    def cancel(self, given: CallOptions) -> None:
        course = self._course
        if course is None or course.over:
            return
        options = self._resolve(given)
        deadline = Deadline(options.timeout)
        try:
            run(_cancel(course), self._core, options, deadline)
        except InvalidParams:
            # It may have ended a moment ago; the server says no more than that it cannot.
            run(course.look(), self._core, options, deadline)
            if not course.over:
                raise
        # Also where the server may go on: whoever cancels it wants no person to be asked any more.
        self._withdraw(course)
        self._core.pools.naps.news(course.id)

    def updates(self, handle: ToolTask) -> Iterator[TaskUpdate]:
        """`handle` is kept: whoever iterates has it."""
        seen: TaskUpdate | None = None
        while True:
            future = None if self._course is None else self.begin()
            with lending_handler(), self._lock:
                while self.update is seen and not (future is None or future.done()):
                    self._changed.wait()
                update = self.update
            if update is not None and update is not seen:
                seen = update
                yield update
                continue
            error = None if future is None else future.exception()
            if error is not None and not self.over:
                raise _own(error)
            return


def _own(error: BaseException) -> BaseException:
    """The error of a task as one of those who wait for it gets it."""
    return fresh(error) if isinstance(error, McpError) else error


def _cancel(course: TaskPoller) -> Steps[None]:
    reply: Reply = yield Send(CANCEL, {"taskId": course.id})
    shape, result = reply.dialect.tasks, reply.dialect.read_result(CANCEL, reply.result)
    # The extension has the server acknowledge it, no more.
    if shape is not None and isinstance(result, dict) and "taskId" in result:
        course.take(shape.read(CANCEL, result))


class StartTask:
    """`client.start_task`, with its own typing."""

    def __init__(self, client: HasCore) -> None:
        self._client = client

    @property
    def _core(self) -> ClientCore:
        return self._client._core

    def __call__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolTask:
        """Call a tool, and come back with a handle as soon as the server has begun.

        Args:
            name: The tool's name.
            arguments: Its arguments.
            ttl: How long, in seconds, the server should keep the task and its result. Since
                2026-07-28 the server alone decides that, and whether there is a task at all.
            options: See `CallOptions`. Limits and `cancel` are for the start alone; `handlers`
                answer what the task asks, and `on_progress` is told how it goes (2025-11-25; since
                2026-07-28 tasks do not tell).

        Raises:
            NotSupported: The server, its revision or the tool has no tasks, or the extension is not
                switched on; nothing was started.
            McpError: Whatever else `Client.call_tool` raises.
        """
        resolved, lasting = (self._core.resolve(each) for each in (options, _lasting(options)))
        steps = _start(self._client, name, arguments, ttl, lasting)
        return run(steps, self._core, resolved, Deadline(resolved.timeout))

    def future(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[ToolTask]:
        """Like calling it, but returns a future of the handle at once."""
        resolved, lasting = (self._core.resolve(each) for each in (options, _lasting(options)))
        # A task reports for longer than the future lasts, which it must not keep: that has the
        # handle.
        resolved.observer = _unwatched
        steps = _start(self._client, name, arguments, ttl, lasting)
        return submit(steps, self._core, resolved, Deadline(resolved.timeout), owner=self._client)


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
    shape = (yield from meet(core)).check_tasks(options.undeclared)
    if shape.asked_for:
        if (yield from task_support(core, name)) not in ("optional", "required"):
            raise NotSupported(f"the tool {name!r} does not run as a task", server=core.label)
        params["task"] = {} if keep is None else {"ttl": int(keep * 1000)}
    yield from check_input(core, name, arguments, core.checks)
    call = partial(exchange_or_task, AUGMENTED, params, max_rounds=core.settings.max_rounds)
    outcome = yield from with_fresh_marks(call, core)
    if isinstance(outcome, TaskState):
        course = TaskPoller(outcome.id, params, outcome, core.settings.max_rounds)
        return ToolTask(_Following(client, course, name, options))
    result = validate(types.CallToolResult, outcome, AUGMENTED)
    types.set_origin(result, name, core.label)
    yield from check_output(core, name, result, core.checks)
    return ToolTask(_Following(client, None, name, options, result))


def _unwatched(_: object) -> None:
    """What a task reports goes to `on_progress`, and not to who waits for the handle."""


def _lasting(options: CallOptions) -> CallOptions:
    """What of a call's options goes for everything that is asked about its task."""
    given: Any = options
    lasting: Any = {name: given[name] for name in _LASTING if name in given}
    return lasting  # type: ignore[no-any-return]


def task(
    self: HasCore, id: str, tool: str | None = None, **options: Unpack[CallOptions]
) -> ToolTask:
    """Make a handle of a task that was started before, perhaps in another process.

    Nothing is sent. A server gives a task only to whom it belongs.

    Args:
        id: The handle's `id`.
        tool: The tool's name, by whose output schema the result is then checked.
        options: `handlers`, `meta`, `headers` and `undeclared`, for everything that is asked
            about it.
    """
    text(id, "id")
    if tool is not None:
        text(tool, "tool")
    core = self._core
    lasting = core.resolve(_lasting(options))
    return ToolTask(
        _Following(self, TaskPoller(id, None, None, core.settings.max_rounds), tool, lasting)
    )


@operation
def list_tasks(
    core: ClientCore,
    *,
    cursor: str | AllPages | None = ALL_PAGES,
    max_pages: int | None = None,
    **options: Unpack[CallOptions],
) -> Steps[ListTasksResult]:
    """List the tasks that the server has for us (2025-11-25 only); see `list_tools`."""
    return (yield from pages("tasks/list", types.ListTasksResult, "tasks", core, cursor, max_pages))


def iter_tasks(
    self: HasCore, *, max_pages: int | None = None, **options: Unpack[CallOptions]
) -> Iterator[Task]:
    """Iterate over the tasks that the server has for us, page by page; see `iter_tools`."""
    return iterate(
        "tasks/list", types.ListTasksResult, "tasks", "task_id", self, max_pages, options
    )
