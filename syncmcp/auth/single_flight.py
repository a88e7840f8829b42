"""One thread gets a token, all others that need one wait for it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from syncmcp._concurrency import timing
from syncmcp._http.exchange import current
from syncmcp.errors import McpError, RequestTimeout, UsageError, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from syncmcp._concurrency.timing import Deadline
    from syncmcp._http.exchange import Exchange

__all__ = ["Flight", "SingleFlight"]

T = TypeVar("T")


class Flight(Generic[T]):
    """Work that one thread does for all that wait for it.

    Attributes:
        apart: Whether it goes on without anybody waiting.
        worker: The thread that does it.
        done: Set when nobody works at it any more.
        ended: Whether the work came to its end; if not, and without an error, it was given up.
        outcome: What came of it.
        error: Why it failed.
    """

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.worker: int | None = None
        self.done = threading.Event()
        self.ended = False
        self.outcome: T | None = None
        self.error: BaseException | None = None
        # Guards what follows.
        self._lock = threading.RLock()
        self._waiting: list[Deadline] = []
        self._held = False

    @contextmanager
    def person(self, deadline: Deadline | None) -> Iterator[None]:
        """Whoever waits does not pay for the time that a person takes.

        Args:
            deadline: That of the thread that does the work.
        """
        if deadline is not None:
            deadline.hold()
        with self._lock:
            self._held = True
            for one in self._waiting:
                one.hold()
        try:
            yield
        finally:
            with self._lock:
                self._held = False
                for one in self._waiting:
                    one.release()
            if deadline is not None:
                deadline.release()

    def wait(self, exchange: Exchange | None) -> None:
        """Wait for the end of the work.

        Raises:
            RequestTimeout: The deadline of the exchange passed.
            Cut: The exchange was cut.
        """
        if exchange is None:
            self.done.wait()
            return
        deadline = exchange.deadline
        with self._lock:
            self._waiting.append(deadline)
            if self._held:
                deadline.hold()
        try:
            # Its clock may have been stopped in the meantime, so the deadline is looked at again.
            while not exchange.wait(self.done, deadline.remaining()):
                if deadline.expired:
                    raise RequestTimeout(
                        "no token was there in time",
                        seconds=deadline.seconds,
                        delivery="refused" if exchange.sent else "not_sent",
                    )
        finally:
            with self._lock:
                self._waiting.remove(deadline)
                if self._held:
                    deadline.release()


class SingleFlight(Generic[T]):
    """Lets one thread at a time do work, and gives the others what comes of it."""

    def __init__(self) -> None:
        # Guards the flight.
        self._lock = threading.RLock()
        self._flight: Flight[T] | None = None
        self._generation = timing.generation

    def run(
        self, ready: Callable[[], T | None], work: Callable[[Flight[T]], T | None], *, apart: bool
    ) -> T | None:
        """Return what is ready, or what comes of the work, done here or by another thread.

        Args:
            ready: What makes the work needless (by now), or `None`; does not block.
            work: Does it; may fail, or end with `None`.
            apart: Whether the work goes on when nobody waits for it any more; it then has a
                thread of its own. Those who wait for work of the other kind look again after it.

        Raises:
            McpError: The work failed; each who waited for it gets the error.
            UsageError: This thread is at it already: it would wait for itself.
            RequestTimeout: The deadline of the exchange on this thread passed.
            Cut: The exchange on this thread was cut.
        """
        if self._generation != timing.generation:  # whoever was at it is in the parent process
            self.__init__()  # type: ignore[misc]
        while True:
            mine: Flight[T] | None = None
            try:
                with self._lock:
                    value = ready()
                    if value is not None:
                        return value
                    flight = self._flight
                    if flight is None:
                        mine = flight = self._flight = Flight(apart)
                if mine is not None:
                    if apart and self._hand_over(mine, work):
                        mine = None
                    else:
                        self._do(mine, work)
            finally:
                if mine is not None:  # done, or Ctrl-C came at any point
                    self._land(mine)
            if flight.worker == threading.get_ident() and not flight.done.is_set():
                raise UsageError(
                    "what is called to sign in (a receiver, a store) cannot use what it signs in"
                )
            flight.wait(current())
            if flight.error is not None:
                raise fresh(flight.error) if isinstance(flight.error, McpError) else flight.error
            if flight.ended and flight.apart == apart:
                return flight.outcome

    def _hand_over(self, flight: Flight[T], work: Callable[[Flight[T]], T | None]) -> bool:
        def run() -> None:
            try:
                self._do(flight, work)
            except BaseException as error:  # raised by those who wait
                flight.error = error
            finally:
                self._land(flight)

        try:
            threading.Thread(target=run, name="syncmcp-auth", daemon=True).start()
        except RuntimeError:  # the interpreter is about to exit
            return False
        return True

    def _do(self, flight: Flight[T], work: Callable[[Flight[T]], T | None]) -> None:
        flight.worker = threading.get_ident()
        try:
            flight.outcome = work(flight)
            flight.ended = True
        except McpError as error:
            exchange = current()
            if exchange is not None and (exchange.cut or exchange.deadline.expired):
                raise  # it was the time of this thread's own call: others have more
            flight.error = error

    def _land(self, flight: Flight[T]) -> None:
        with self._lock:
            if self._flight is flight:
                self._flight = None
        flight.done.set()
