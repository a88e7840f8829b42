"""How often people are asked to sign in, whatever a server demands."""

from __future__ import annotations

import threading

from syncmcp._concurrency import timing
from syncmcp.errors import LoginRequired

__all__ = ["SignIns"]

# Sign-ins in a row after which the server let nothing through.
_MOST_IN_VAIN = 3

# Sign-ins in all: a server may let a request through now and then.
_MOST = 20

# Either holds within so many seconds; older ones are forgotten.
_WITHIN = 3600.0


class SignIns:
    """Counts how often people were asked, and whether it was good for anything.

    A server that refuses every token would otherwise open a browser for each request. Used from any
    thread.
    """

    def __init__(self) -> None:
        # Guards what follows: when people were asked, by `time.monotonic()`.
        self._lock = threading.RLock()
        self._all: list[float] = []
        self._in_vain: list[float] = []

    def check(self) -> None:
        """Make sure that somebody may be asked now.

        Raises:
            LoginRequired: That was done often enough.
        """
        since = timing.monotonic() - _WITHIN
        with self._lock:
            self._all = [when for when in self._all if when > since]
            self._in_vain = [when for when in self._in_vain if when > since]
            if len(self._in_vain) >= _MOST_IN_VAIN:
                raise _enough(f"the last {len(self._in_vain)} sign-ins led to nothing")
            if len(self._all) >= _MOST:
                raise _enough(f"the server wanted {len(self._all)} sign-ins")

    def begin(self) -> None:
        """Somebody is asked now."""
        now = timing.monotonic()
        with self._lock:
            self._all.append(now)
            self._in_vain.append(now)

    def let_in(self) -> None:
        """The server let a request with a token through."""
        if self._in_vain:
            with self._lock:
                self._in_vain = []

    def reset(self) -> None:
        """Everybody may be asked again."""
        with self._lock:
            self._all, self._in_vain = [], []


def _enough(why: str) -> LoginRequired:
    return LoginRequired(
        f"somebody has to sign in, but {why} within {_WITHIN / 60:.0f} minutes: nobody is asked"
        " again for now, unless by login()"
    )
