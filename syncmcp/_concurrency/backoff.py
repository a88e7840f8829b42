"""The pause before a server that died is started again."""

from __future__ import annotations

from syncmcp._concurrency.timing import monotonic


class Backoff:
    """How long to wait before a server that died is started again."""

    def __init__(self) -> None:
        self._deaths = 0
        self._since = 0.0

    def opened(self) -> None:
        """The server is there."""
        self._since = monotonic()

    def next(self) -> float:
        """Seconds to wait: nothing after a long life, else more with each death."""
        if monotonic() - self._since > _LONG_LIFE:
            self._deaths = 0
        self._deaths += 1
        return 0.0 if self._deaths == 1 else min(0.1 * 2.0 ** min(self._deaths, 32), _LONGEST)


# A server that lived this long, in seconds, was healthy.
_LONG_LIFE = 30.0
_LONGEST = 10.0
