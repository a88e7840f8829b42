"""Four interceptors: metrics, a log, a rate limit and simulated faults.

An `Interceptor` receives the messages of a client in both directions, with every transport. It may
change, delay or refuse them.
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
    """Counts the outcomes of requests, and adds up the seconds from request to response."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # hooks run on many threads
        self.outcomes: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def ended(self, answer: Message) -> None:
        """Count a request that has ended, with a result or an error."""
        how = "done" if answer.error is None else type(answer.error).__name__
        with self._lock:
            self.outcomes[f"{answer.method} {how}"] += 1
            self.seconds[answer.method] += answer.elapsed or 0.0


class Log(Interceptor):
    """Prints the method and id of each request and response, but none of their contents."""

    def outgoing(self, message: Message) -> None:
        """Print a request."""
        if message.kind == "request":
            print("->", message.method, message.id)

    def incoming(self, message: Message) -> None:
        """Print a response."""
        if message.kind == "response":
            print("<-", message.method, message.id)


class RateLimit(Interceptor):
    """Limits the rate of tool calls, for all threads together.

    Args:
        per_second: The most calls that are sent in a second.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1.0 / per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def outgoing(self, message: Message) -> None:
        """Delay a tool call until its turn. `pause` raises if the call ends before that."""
        if (message.kind, message.method) != ("request", "tools/call"):
            return
        with self._lock:
            now = time.monotonic()
            turn = self._next = max(now, self._next + self._interval)
        message.pause(turn - now)


class Faults(Interceptor):
    """Makes some of the `tools/list` requests fail, as a bad network would.

    Args:
        share: The fraction of requests that fail, from 0 to 1.
        seed: The seed of the random numbers: the same requests fail in every run.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._random = random.Random(seed)

    def outgoing(self, message: Message) -> None:
        """Raise an error for some requests; the client retries them."""
        if message.method == "tools/list" and self._random.random() < self._share:
            raise syncmcp.ConnectFailed("simulated fault")


def shop() -> Server:
    """A server with a tool."""
    server = Server("shop")

    @server.tool()
    def price(item: str) -> int:
        """Return the price of an item."""
        return {"apple": 30, "pear": 45}[item]

    return server


def main() -> None:
    """List tools and get prices through all four interceptors, and print the metrics."""
    metrics, faults = Metrics(), Faults(0.3, seed=4)
    # Outgoing messages pass the list in order, incoming messages in reverse order.
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
