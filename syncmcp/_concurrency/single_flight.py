"""Single flight: one thread does the work, every thread that needs its result waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from syncmcp._concurrency import timing
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import McpError, RequestTimeout, UsageError, fresh

__all__ = ["Caller", "SharedAttempt", "SingleFlight"]


T = TypeVar("T")


class Caller(Protocol):
    """The call on the current thread, which ends by its own deadline, or is aborted.

    Attributes:
        deadline: When the call ends; its clock may be held and released during the call.
        aborted: Whether another thread has aborted the call.
        sent: Whether bytes of the call's request may have been sent.
    """

    deadline: Deadline
    aborted: bool
    sent: bool

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait for an event, at most `seconds`; return True if it was set.

        May raise an exception of its own if the call is aborted.
        """
        ...


@dataclass(eq=False)
class SharedAttempt(Generic[T]):
    """One run of the work, and the threads that wait for it.

    Attributes:
        detached: Whether the work continues when no thread waits for it.
        worker: The id of the thread that does the work; `None` before it starts.
        done: Set when the work has ended, for any reason.
        completed: Whether the work returned. Without an error, `False` means that the worker's own
            call ended first.
        outcome: What the work returned.
        error: What the work raised.
    """

    detached: bool
    worker: int | None = None
    done: threading.Event = field(default_factory=threading.Event)
    completed: bool = False
    outcome: T | None = None
    error: BaseException | None = None
    # Guards the fields below.
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _waiting_deadlines: list[Deadline] = field(default_factory=list["Deadline"])
    _paused: bool = False

    @contextmanager
    def paused_deadlines(self, own: Deadline | None) -> Iterator[None]:
        """Stop the clocks of all waiting threads, and `own`, while a person signs in."""
        if own is not None:
            own.hold()
        with self._lock:
            self._paused = True
            for deadline in self._waiting_deadlines:
                deadline.hold()
        try:
            yield
        finally:
            with self._lock:
                self._paused = False
                for deadline in self._waiting_deadlines:
                    deadline.release()
            if own is not None:
                own.release()

    def wait(self, caller: Caller | None, late: str) -> None:
        """Wait until the work has ended; `late` is the message of the caller's `RequestTimeout`."""
        if caller is None:
            self.done.wait()
            return
        deadline = caller.deadline
        with self._lock:
            self._waiting_deadlines.append(deadline)
            if self._paused:
                deadline.hold()
        try:
            # The deadline may have been paused and extended during the wait: compute it again.
            while not caller.wait(self.done, deadline.remaining()):
                if deadline.expired:
                    raise RequestTimeout(
                        late,
                        seconds=deadline.seconds,
                        delivery="refused" if caller.sent else "not_sent",
                    )
        finally:
            with self._lock:
                self._waiting_deadlines.remove(deadline)
                if self._paused:
                    deadline.release()


class SingleFlight(Generic[T]):
    """Runs one attempt at a time and shares its outcome. Used from any thread.

    Args:
        current: Returns the call on the current thread; `None` for a thread without a time limit.
        thread_name: The name of the threads for detached work.
        late: The message of the error for a call whose deadline passes while it waits.
        reentered: The message of the error for work that would wait for itself.
    """

    def __init__(
        self, current: Callable[[], Caller | None], thread_name: str, *, late: str, reentered: str
    ) -> None:
        self._current = current
        self._thread_name = thread_name
        self._late = late
        self._reentered = reentered
        self._reset()

    def _reset(self) -> None:
        # Guards the current attempt.
        self._lock = threading.RLock()
        self._attempt: SharedAttempt[T] | None = None
        self._generation = timing.fork_generation

    def run(
        self,
        ready: Callable[[], T | None],
        work: Callable[[SharedAttempt[T]], T | None],
        *,
        detached: bool,
    ) -> T | None:
        """Return a ready value, or the outcome of the work, done by this thread or another one.

        `ready` returns a value that makes the work unnecessary, or `None`; it must not block.
        `work` may raise, or return `None`. If it is `detached`, it runs on a separate thread, and
        continues when no thread waits for it. A thread that waited for an attempt with the other
        value of `detached` starts over.

        Raises:
            McpError: The work failed. Each waiting thread gets its own copy of the error.
            UsageError: The work calls this method on its own thread, and would wait for itself.
            RequestTimeout: The deadline of the call on this thread passed.
        """
        if self._generation != timing.fork_generation:  # the worker is in the parent process
            self._reset()
        while True:
            own: SharedAttempt[T] | None = None
            try:
                with self._lock:
                    value = ready()
                    if value is not None:
                        return value
                    attempt = self._attempt
                    if attempt is None:
                        own = attempt = self._attempt = SharedAttempt(detached)
                if own is not None:
                    if detached and self._start_thread(own, work):
                        own = None
                    else:
                        self._execute(own, work)
            finally:
                if own is not None:  # after Ctrl-C at any point, too
                    self._finish(own)
            if attempt.worker == threading.get_ident() and not attempt.done.is_set():
                raise UsageError(self._reentered)
            attempt.wait(self._current(), self._late)
            error = attempt.error
            if error is not None:
                raise fresh(error) if isinstance(error, McpError) else error
            if attempt.completed and attempt.detached == detached:
                return attempt.outcome

    def _start_thread(
        self, attempt: SharedAttempt[T], work: Callable[[SharedAttempt[T]], T | None]
    ) -> bool:
        """Run the work on a new thread; return `False` if no thread can be started."""

        def run() -> None:
            try:
                self._execute(attempt, work)
            except BaseException as error:  # raised in the waiting threads
                attempt.error = error
            finally:
                self._finish(attempt)

        try:
            threading.Thread(target=run, name=self._thread_name, daemon=True).start()
        except RuntimeError:  # the interpreter is about to exit
            return False
        return True

    def _execute(
        self, attempt: SharedAttempt[T], work: Callable[[SharedAttempt[T]], T | None]
    ) -> None:
        attempt.worker = threading.get_ident()
        try:
            attempt.outcome = work(attempt)
            attempt.completed = True
        except McpError as error:
            caller = self._current()
            if caller is not None and (caller.aborted or caller.deadline.expired):
                raise  # only this thread's call ended: the waiting threads may have more time
            attempt.error = error

    def _finish(self, attempt: SharedAttempt[T]) -> None:
        with self._lock:
            if self._attempt is attempt:
                self._attempt = None
        attempt.done.set()
