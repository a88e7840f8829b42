"""The threads of one client, and its waits that need none."""

from __future__ import annotations

from syncmcp._concurrency.cancel import Naps
from syncmcp._concurrency.pool import Workers

# Callbacks that may be stuck before others have to wait for them.
_CALLBACKS = 1024


class Pools:
    """The threads of one client: for callbacks, for exchanges, and one that resumes futures."""

    def __init__(self, label: str, max_in_flight: int, max_handlers: int) -> None:
        # Callbacks: one that blocks keeps its thread, and no other callback waits for it. The bound
        # is only there to end a program that never lets one go.
        self.workers = Workers(f"syncmcp-worker[{label}]", max(_CALLBACKS, 4 * max_in_flight))
        # A handler that calls the client lends its seat, so that no number of them is too small.
        self.handlers = Workers(f"syncmcp-handler[{label}]", max_handlers, lends=True)
        self.exchanges = Workers(f"syncmcp-exchange[{label}]", max_in_flight)
        # Exchanges that may go on when nobody waits for them: they take the place of no other.
        self.carriers = Workers(f"syncmcp-carrier[{label}]", max_in_flight)
        # One thread: it continues futures whose steps run code of the caller's.
        self.resumer = Workers(f"syncmcp-resume[{label}]", 1)
        self.naps = Naps()
        self.closed = False

    def facts(self) -> dict[str, int]:
        """How many jobs wait for a thread, and for what; see `Dump`."""
        return {
            "handlers": self.handlers.waiting,
            "callbacks": self.workers.waiting,
            "exchanges": self.exchanges.waiting,
            "futures": self.resumer.waiting,
        }

    def close(self) -> None:
        """Let the threads end once they have nothing to do. Waits for nobody.

        What is submitted later is still done: some futures learn of the end only after it.
        """
        self.closed = True
        self.naps.close()
        self.workers.close()
        self.handlers.close()
        self.exchanges.close()
        self.carriers.close()
        self.resumer.close()
