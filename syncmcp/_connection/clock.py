"""The clocks of a connection's calls: one appointment with the timer for all of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from syncmcp._concurrency.timing import TimerEntry, monotonic, timer
from syncmcp._connection.call import Call
from syncmcp.errors import RequestTimeout


class Clock:
    """Ends the calls of one connection that have run out of time.

    Args:
        lock: The connection's; see there.
        open_calls: Lists the calls that are not answered yet; called with the lock held.
        give_up: Ends such a call; it must not block.
        release: Lets the waiter of an answered call go, though its callbacks have not ended.
    """

    def __init__(
        self,
        lock: threading.RLock,
        open_calls: Callable[[], list[Call]],
        give_up: Callable[[Call, RequestTimeout], object],
        release: Callable[[Call], object],
    ) -> None:
        self._lock = lock
        self._open_calls = open_calls
        self._give_up = give_up
        self._release = release
        # Answered, but their callbacks have not come to an end.
        self._finishing: set[Call] = set()
        self._stopped = False
        # The one appointment with the timer, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf

    def watch(self, call: Call) -> None:
        """End an open call when it is out of time; also to be told when its limits have changed."""
        when = call.next_look()
        if when is not None:
            with self._lock:
                self._wake_at(when)

    def finishing(self, call: Call) -> None:
        """Watch an answered call, too, until `forget`."""
        with self._lock:
            self._finishing.add(call)
            if (when := call.next_look()) is not None:
                self._wake_at(when)

    def forget(self, call: Call) -> None:
        """The call is over; called with the lock held."""
        self._finishing.discard(call)

    def stop(self) -> None:
        """There will be no open calls any more; called with the lock held."""
        self._stopped = True
        if self._appointment is not None and not self._finishing:
            self._appointment.cancel()
            self._next_look = math.inf

    def _wake_at(self, when: float) -> None:
        """Look at `when` at the latest; called with the lock held.

        Most calls have the same limits, so that a later one needs no appointment of its own.
        """
        if when < self._next_look and (not self._stopped or self._finishing):
            if self._appointment is not None:
                self._appointment.cancel()
            self._next_look = when
            self._appointment = timer.at(when, self._look)

    def _look(self) -> None:
        """On the timer thread: end what has run out of time."""
        with self._lock:
            self._next_look = math.inf
            open_calls = self._open_calls()
            finishing = list(self._finishing)
        for call in open_calls:
            error = call.overdue()
            if error is not None:
                self._give_up(call, error)
        for call in finishing:
            if call.overdue() is not None:
                # Its callbacks are late: the result goes out now.
                self._release(call)
        looks = [when for call in (*open_calls, *finishing) if (when := call.next_look())]
        # What is over by now makes for a look too many, and not for one too few.
        with self._lock:
            if looks:
                self._wake_at(max(min(looks), monotonic() + _BREATH))


# The least time, in seconds, between two looks at the clocks of the calls.
_BREATH = 0.001
