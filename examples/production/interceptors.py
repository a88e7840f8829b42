"""What stands between a client and its server: a log with figures, a rate limit, faults on purpose.

Each is an `Interceptor`: it sees the messages of a client in both directions, on every transport,
and may change them, hold them up or refuse them.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict

import syncmcp
from syncmcp import Interceptor, Message
from syncmcp.testing import Server, serve_http


class Metrics(Interceptor):
    """Counts what became of the requests, and how long the server took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # hooks run on many threads
        self.outcomes: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def ended(self, answer: Message) -> None:
        """One request is over, whatever became of it."""
        how = "done" if answer.error is None else type(answer.error).__name__
        with self._lock:
            self.outcomes[f"{answer.method} {how}"] += 1
            self.seconds[answer.method] += answer.elapsed or 0.0


class Log(Interceptor):
    """Prints what goes by: names and ids, and nothing of what is said."""

    def outgoing(self, message: Message) -> None:
        """Out it goes."""
        if message.kind == "request":
            print("->", message.method, message.id)

    def incoming(self, message: Message) -> None:
        """In it comes."""
        if message.kind == "response":
            print("<-", message.method, message.id)


class RateLimit(Interceptor):
    """Lets calls of tools through at a rate, all threads together.

    Args:
        per_second: How many calls may leave in a second.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def outgoing(self, message: Message) -> None:
        """Wait for its turn; no longer than the call has time, and not once it is cancelled."""
        if (message.kind, message.method) != ("request", "tools/call"):
            return
        with self._lock:
            now = time.monotonic()
            turn = self._next = max(now, self._next + self._interval)
        message.pause(turn - now)


class Faults(Interceptor):
    """Loses some of the requests that only read, as a bad network would.

    Args:
        share: How many of them, from 0 to 1.
        seed: Makes the same ones every time.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._random = random.Random(seed)

    def outgoing(self, message: Message) -> None:
        """Perhaps there is no connection."""
        if message.method == "tools/list" and self._random.random() < self._share:
            raise syncmcp.ConnectFailed("lost on purpose")


def shop() -> Server:
    """A server with a tool."""
    server = Server("shop")

    @server.tool()
    def price(item: str) -> int:
        """Say what an item costs."""
        return {"apple": 30, "pear": 45}[item]

    return server


def main() -> None:
    """Ask for prices, politely, over a network that is none too good."""
    metrics, faults = Metrics(), Faults(0.3, seed=4)
    # The first one is the outermost: it sees what goes out first, and what comes in last.
    chain = [metrics, Log(), RateLimit(per_second=50), faults]
    retry = syncmcp.Retry(attempts=9, pause=0.01)
    with (
        serve_http(shop()) as http,
        syncmcp.connect(http.url, interceptors=chain, retry=retry) as client,
    ):
        for _ in range(4):
            client.list_tools()
        calls = [client.call_tool.future("price", {"item": "pear"}) for _ in range(5)]
        print("prices:", [call.result().text for call in calls])
    for outcome, count in sorted(metrics.outcomes.items()):
        print(f"{count} x {outcome}")


if __name__ == "__main__":
    main()
