"""Rate limits: the most calls and tokens in a sliding window of time."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import Any

from syncmcp._base.checks import finite_seconds, whole_number
from syncmcp._base.text import counted
from syncmcp._concurrency import timing
from syncmcp.errors import UsageError


class SlidingWindow:
    """Limits the calls and tokens in any period of `per` seconds; see `RateLimit`."""

    def __init__(self, calls: int | None, tokens: int | None, per: float) -> None:
        if calls is None and tokens is None:
            raise UsageError("a RateLimit needs calls=, tokens= or both")
        for name, value in (("calls", calls), ("tokens", tokens)):
            if value is not None:
                whole_number(value, name)
        finite_seconds(per, "per", positive=True)
        self.calls = calls
        self.tokens = tokens
        self.per = per
        # Guards everything below; checking the limits and counting is one step. Reentrant, as is
        # the lock of `RateLimit`: a signal handler may call `take`, too.
        self._lock = threading.RLock()
        self._taken: deque[tuple[float, int, int]] = deque()
        self._calls = 0
        self._tokens = 0

    def take(self, calls: int, tokens: int) -> bool:
        """Count the calls and tokens if they are within the limits; return True if they are."""
        # Calls or tokens without a limit are not counted, which bounds the number of entries.
        calls = 0 if self.calls is None else calls
        tokens = 0 if self.tokens is None else tokens
        with self._lock:
            now = timing.monotonic()
            while self._taken and self._taken[0][0] <= now - self.per:
                _, past_calls, past_tokens = self._taken.popleft()
                self._calls -= past_calls
                self._tokens -= past_tokens
            if self.calls is not None and self._calls + calls > self.calls:
                return False
            if self.tokens is not None and self._tokens + tokens > self.tokens:
                return False
            if calls or tokens:
                self._taken.append((now, calls, tokens))
                self._calls += calls
                self._tokens += tokens
            return True

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process counts separately.
        return SlidingWindow, (self.calls, self.tokens, self.per)

    def __str__(self) -> str:
        limits = [
            counted(limit, name)
            for limit, name in ((self.calls, "calls"), (self.tokens, "tokens"))
            if limit is not None
        ]
        return f"{' and '.join(limits)} in {self.per:g} s"


class RateLimit:
    """A limit on the questions of each server; questions beyond it are denied. Thread-safe.

    A sampling request counts with its `max_tokens`; the tokens that the model then writes are not
    counted. Each server, by its name in the program, has the whole limit to itself.

    Args:
        calls: The maximum number of questions of one server in `per` seconds; `None` for any
            number.
        tokens: The maximum number of tokens of one server in `per` seconds; `None` for any number.
        per: The length of the period, in seconds.

    Raises:
        UsageError: Neither `calls` nor `tokens` is given, or a number makes no sense.
    """

    def __init__(self, *, calls: int | None = None, tokens: int | None = None, per: float) -> None:
        self._limit = SlidingWindow(calls, tokens, per)
        # Guards the table; not held while a window counts.
        self._lock = threading.RLock()
        self._servers: dict[str, SlidingWindow] = {}

    def __repr__(self) -> str:
        return f"<RateLimit {self._limit}>"

    def take(self, server: str, *, calls: int = 1, tokens: int = 0) -> bool:
        """Count a question of `server` if it is within the limit; return True if it is."""
        limit = self._limit
        with self._lock:
            window = self._servers.get(server)
            if window is None:
                window = SlidingWindow(limit.calls, limit.tokens, limit.per)
                self._servers[server] = window
        return window.take(calls, tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        limit = self._limit
        rebuild = partial(RateLimit, calls=limit.calls, tokens=limit.tokens, per=limit.per)
        return rebuild, ()

    def __str__(self) -> str:
        return str(self._limit)
