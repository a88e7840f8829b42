"""Fan-out on executors: many calls on threads, on processes or on the workers of a cluster.

The configuration of a client is pickled, not its connection. Each process opens one client of its
own at its first call, and closes this client when the process ends.
"""

from __future__ import annotations

import os
import pickle
import platform
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import Unpack

from syncmcp._base.checks import check_callable, kind_of, whole_number
from syncmcp._base.text import logger, redact
from syncmcp._client.client import Client, Target, twin
from syncmcp._client.core import core_of
from syncmcp._concurrency.futures import done_futures
from syncmcp._connection.options import CallOptions, ResolvedOptions
from syncmcp._protocol.steps import Send
from syncmcp.errors import ConnectionLost, OutcomeUnknown, UsageError
from syncmcp.handlers import ProgressHandler
from syncmcp.handlers.context import PROGRESS_ARGUMENTS

__all__ = ["Call", "Outcome", "fan_out"]

_log = logger("syncmcp.executors")

# The operations that can run in another process, because their result can be pickled.
_METHODS = {
    "call_tool": "tools/call",
    "complete": "completion/complete",
    "get_prompt": "prompts/get",
    "list_prompts": "prompts/list",
    "list_resource_templates": "resources/templates/list",
    "list_resources": "resources/list",
    "list_tools": "tools/list",
    "ping": "ping",
    "read_resource": "resources/read",
    "request": "",  # the first argument is the method
}


class Call:
    """One call for `fan_out`: the name of an operation of a client, and its arguments.

    ``Call("read_resource", "file:///a.txt", timeout=5)`` stands for
    ``client.read_resource("file:///a.txt", timeout=5)``.

    Args:
        operation: `call_tool`, `read_resource`, `get_prompt`, `complete`, `ping`, `request`, or
            one of the list operations.
        args: The positional arguments of the operation.
        options: The keyword arguments and options of the operation.

    Raises:
        UsageError: There is no such operation.
    """

    def __init__(self, operation: str, /, *args: Any, **options: Any) -> None:
        if operation not in _METHODS:
            raise UsageError(f"operation must be one of {', '.join(_METHODS)}, not {operation!r}")
        self.operation = operation
        self.args = args
        self.options = options

    def __repr__(self) -> str:
        return f"<Call {self.operation}{f' {self.args[0]!r:.80}' if self.args else ''}>"


@dataclass(frozen=True, repr=False)
class Outcome:
    """The outcome of one call of `fan_out`.

    Attributes:
        index: The index of the call among all calls, from 0.
        call: The call.
        error: The error of the call; `None` if there is a result.
        worker: The host and process that made the call, as ``host:pid``; empty if unknown.
        attempts: How often the call was submitted to the executor.
    """

    index: int
    call: Call
    error: Exception | None
    worker: str
    attempts: int
    _value: Any

    def result(self) -> Any:
        """Return the result of the operation.

        Raises:
            McpError: The `error` of the outcome: that of the operation, or the loss of its worker.
        """
        if self.error is not None:
            raise self.error
        return self._value

    def __repr__(self) -> str:
        became = "done" if self.error is None else type(self.error).__name__
        return f"<Outcome {self.index} of {self.call!r}: {became}>"


def fan_out(
    config: Client | Target,
    calls: Iterable[Call | tuple[str, Mapping[str, Any] | None]],
    executor: Executor,
    *,
    max_in_flight: int = 64,
    on_done: ProgressHandler | None = None,
    **options: Unpack[CallOptions],
) -> Iterator[Outcome]:
    """Make many calls on an executor, and iterate over their outcomes as they are done.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> calls = [("add", {"a": 1, "b": number}) for number in range(3)]
    >>> with ThreadPoolExecutor() as executor:
    ...     outcomes = syncmcp.fan_out(client, calls, executor)  # in the order in which they end
    ...     print(sorted((outcome.index, outcome.result().text) for outcome in outcomes))
    [(0, '1'), (1, '2'), (2, '3')]

    On a `ThreadPoolExecutor` all calls share one client, which is opened for them and closed after
    the last call. On any other executor the configuration is pickled. Each process opens one
    client, and keeps it open for later calls until the process ends. A call that fails gives an
    `Outcome` with an `error`; the other calls continue.

    The client of a worker retries failed requests as its `Retry` says. If a worker is lost, its
    call is submitted again, as often as `Retry.attempts` allows, but only if the call is
    idempotent: it reads or lists, or has the option `idempotent`. Otherwise the call fails with an
    `OutcomeUnknown`. Some executors, such as that of Dask, run the jobs of a lost worker again
    themselves, even if a call is not idempotent. Switch this off for calls that have an effect.

    Nothing is sent before the first outcome is requested. Leaving the iteration cancels the calls
    that have not started. Calls that run in other processes run to their end.

    Args:
        config: A client, opened or not, whose configuration is used; or a target.
        calls: Pairs of a tool's name and its arguments, or `Call` objects. Each is taken when it is
            needed.
        executor: Any executor. `fan_out` does not shut it down.
        max_in_flight: The maximum number of calls submitted to the executor at one time.
        on_done: A function that is called after each call, on the thread that iterates. Its
            arguments are the number of calls done, the number of all calls (`None` if `calls` has
            no length) and a text about the last call.
        options: Default options for the calls; see `CallOptions`. Options for other processes have
            to be pickled: callbacks must be functions of a module, and `cancel` is not possible.

    Raises:
        UsageError: An argument is invalid, or the configuration cannot be pickled.
    """
    if not isinstance(executor, Executor):
        raise UsageError(f"executor must be a concurrent.futures.Executor, not {executor!r}")
    limit = whole_number(max_in_flight, "max_in_flight")
    if on_done is not None:
        check_callable(on_done, "on_done", PROGRESS_ARGUMENTS)
    client = config if isinstance(config, Client) else Client(config)
    core_of(client).resolve(options)  # invalid options raise here, not in each call
    return _FanOut(client, executor, options, calls).outcomes(limit, on_done)


class _Done(NamedTuple):
    """The result that a worker returns for a call."""

    value: Any
    error: Exception | None
    worker: str = ""


@dataclass
class _Task:
    """One call, as `given` and with the default options (`call`), and its attempts."""

    index: int
    given: Call
    call: Call
    attempts: int = 0
    refused: bool = False

    def outcome(self, value: Any, error: Exception | None, worker: str = "") -> Outcome:
        return Outcome(self.index, self.given, error, worker, self.attempts, value)


class _FanOut:
    """Submits calls to an executor, and decides about retries.

    It iterates over functions that submit the next call: retries first, then new calls.
    """

    def __init__(
        self, client: Client, executor: Executor, options: CallOptions, calls: Iterable[Any]
    ) -> None:
        self._client = client
        self._executor = executor
        self._options: Mapping[str, Any] = options
        # The client for other processes; `None` for threads of this process.
        self._pickled = None if isinstance(executor, ThreadPoolExecutor) else _pickled(client)
        policy = core_of(client).retry_rules.policy
        self._attempts = 1 if policy is None else policy.attempts
        # The client for threads. It opens on its first call, so it costs nothing if unused.
        self._here = twin(client)
        self._total = len(calls) if isinstance(calls, Sized) else None
        self._new = enumerate(calls)
        self._retries: deque[_Task] = deque()
        self._tasks: dict[Future[_Done], _Task] = {}

    def outcomes(self, limit: int, on_done: ProgressHandler | None) -> Iterator[Outcome]:
        done = 0
        try:
            with closing(done_futures(self, limit)) as futures:
                for future in futures:
                    task = self._tasks.pop(future)
                    outcome = self._end(task, future)
                    if outcome is None:
                        self._retries.append(task)
                        continue
                    done += 1
                    if on_done is not None:
                        on_done(done, self._total, repr(outcome))
                    yield outcome
        finally:
            self._here.close()

    def __iter__(self) -> Iterator[Callable[[], Future[_Done]]]:
        return self

    def __next__(self) -> Callable[[], Future[_Done]]:
        if self._retries:
            return partial(self._submit, self._retries.popleft())
        index, given = next(self._new)
        if isinstance(given, tuple):
            given = Call("call_tool", *given)
        elif not isinstance(given, Call):
            raise UsageError(
                f"a call must be a Call or a pair of name and arguments, not {kind_of(given)}"
            )
        call = Call(given.operation, *given.args, **{**self._options, **given.options})
        return partial(self._submit, _Task(index, given, call))

    def _submit(self, task: _Task) -> Future[_Done]:
        """Submit a call to the executor; never raises."""
        task.attempts += 1
        future: Future[_Done] = Future()
        try:
            if self._pickled is None:
                future = self._executor.submit(_perform, self._here, task.call)
            else:
                # Some executors run equal jobs only once: an id makes them differ.
                job = self._pickled, _call_pickled(task.call), uuid.uuid4().hex
                future = self._executor.submit(_perform_there, *job)
        except UsageError as error:
            future.set_result(_Done(None, error))
        except Exception as error:  # the executor is shut down or broken
            task.refused = True
            future.set_exception(error)
        self._tasks[future] = task
        return future

    def _end(self, task: _Task, future: Future[_Done]) -> Outcome | None:
        """Return the outcome of a call; `None` if the call is to be submitted again."""
        try:
            done = future.result()
        except (Exception, CancelledError) as error:  # an error of the executor, not of the call
            return self._lost(task, error)
        return task.outcome(done.value, done.error, done.worker)

    def _lost(self, task: _Task, cause: BaseException) -> Outcome | None:
        label = core_of(self._client).label
        method = _METHODS[task.call.operation] or None
        facts: dict[str, Any] = {"server": label, "method": method, "attempts": task.attempts}
        why = f"{type(cause).__name__}: {redact(str(cause))}"
        error: ConnectionLost
        if task.refused and task.attempts > 1:  # the lost worker may have sent the call
            error = OutcomeUnknown(f"the executor refused to repeat the call: {why}", **facts)
        elif task.refused:
            error = ConnectionLost(
                f"the executor refused the call: {why}", delivery="not_sent", **facts
            )
        elif (
            isinstance(cause, (BrokenExecutor, CancelledError))
            and task.attempts < self._attempts
            and self._is_idempotent(task.call)
        ):
            _log.warning("[%s] the client repeats %r: %s", label, task.given, why)
            return None
        else:
            error = OutcomeUnknown(f"the worker of the call was lost: {why}", **facts)
        error.__cause__ = cause
        return task.outcome(None, error)

    def _is_idempotent(self, call: Call) -> bool:
        """Whether a call may be made twice."""
        first = call.args[0] if call.args else ""
        method = _METHODS[call.operation] or first
        params = {"name": first or call.options.get("name")}
        options = ResolvedOptions(None, None)
        options.idempotent = call.options.get("idempotent") is True
        return core_of(self._client).retry_rules.is_idempotent(Send(method, params), options)


def _pickled(client: Client) -> bytes:
    data = pickle.dumps(client)
    if b"__main__" in data and "cloudpickle" in sys.modules:
        # The workers of a cluster have another `__main__` module, so the code itself has to be
        # pickled. Executors of clusters depend on cloudpickle, so it is installed.
        from cloudpickle import dumps

        data = dumps(client)
    return data


def _call_pickled(call: Call) -> bytes:
    try:
        return pickle.dumps(call)
    except Exception as error:  # raised by the code that pickles an argument
        raise UsageError(
            f"{call!r} cannot be pickled: {type(error).__name__}: {redact(str(error))}"
        ) from error


# -- in the worker -----------------------------------------------------------------------------


def _perform_there(client: bytes, call: bytes, _id: str) -> _Done:
    """Make a call in a process of the executor, with the client that is unpickled there."""
    try:
        here: Client = pickle.loads(client)  # noqa: S301 - pickled by `_FanOut`
        made: Call = pickle.loads(call)  # noqa: S301 - the same
    except Exception as error:
        return _Done(None, error, _worker())
    return _perform(here, made)


def _perform(client: Client, call: Call) -> _Done:
    try:
        value = getattr(client, call.operation)(*call.args, **call.options)
    except Exception as error:  # becomes `Outcome.error`
        return _Done(None, error, _worker())
    return _Done(value, None, _worker())


def _worker() -> str:
    return f"{platform.node()}:{os.getpid()}"
