"""How many Python functions one tool call enters, over all threads, and how many files they are in.

The counts hardly depend on the machine or its load, so that a test can limit them.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import syncmcp
from benchmarks.measure import http_server
from benchmarks.servers.answers import STATEFUL
from benchmarks.sides.base import Target, Wire
from benchmarks.sides.syncmcp_side import SyncmcpSide

LIBRARY = syncmcp.__path__[0]
ARGUMENTS = {"text": "x"}


class Way(NamedTuple):
    """One way to call a tool.

    Attributes:
        title: The name in the output.
        wire: The transport.
        in_flight: The number of futures in flight at a time; 0 for blocking calls.
        calls: The number of calls that are counted.
    """

    title: str
    wire: Wire
    in_flight: int
    calls: int


WAYS = {
    "stdio": Way("stdio, blocking", "stdio", 0, 200),
    "stdio_futures": Way("stdio, 64 futures in flight", "stdio", 64, 640),
    "json": Way("HTTP, JSON, blocking", "json", 0, 100),
    "json_futures": Way("HTTP, JSON, 32 futures in flight", "json", 32, 320),
    "sse": Way("HTTP, event stream, blocking", "sse", 0, 100),
}


class Count(NamedTuple):
    """The functions and files that one way of calling enters.

    Attributes:
        calls: Calls of Python functions for each tool call.
        files: Files of the library with these functions.
    """

    calls: float
    files: int


class _Counter:
    """Counts calls of Python functions, in the calling thread and in threads that start later."""

    def __init__(self) -> None:
        self.counting = False
        self.entered: Counter[str] = Counter()
        threading.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self.counting:
            self.entered[frame.f_code.co_filename] += 1

    def count(self, action: Callable[[], object]) -> None:
        """Run `action` and count its calls."""
        sys.setprofile(self._profile)
        self.counting = True
        try:
            action()
        finally:
            self.counting = False
            sys.setprofile(None)


def _calls(side: SyncmcpSide, way: Way, number: int) -> None:
    if not way.in_flight:
        for _ in range(number):
            side.call("echo", ARGUMENTS)
        return
    for _ in range(number // way.in_flight):
        futures = [side.start("echo", ARGUMENTS) for _ in range(way.in_flight)]
        # In order, the number of calls of `result` that wait would depend on the machine.
        for future in reversed(futures):
            future.result()


def count(way: Way, port: int) -> Count:
    """Count one way, against the server on `port` if it is over HTTP; must run in the main thread.

    The first calls are not counted: they load modules and fill caches.
    """
    counter = _Counter()
    side = SyncmcpSide()
    try:
        side.open(Target(way.wire, STATEFUL, port))
        try:
            _calls(side, way, max(20, way.in_flight))
            counter.count(lambda: _calls(side, way, way.calls))
        finally:
            side.close()
    finally:
        threading.setprofile(None)
    files = [file for file in counter.entered if file.startswith(LIBRARY)]
    return Count(sum(counter.entered.values()) / way.calls, len(files))


def measure() -> Iterator[tuple[str, Count]]:
    """Count all ways; yield each with its key."""
    with http_server() as port:
        for key, way in WAYS.items():
            yield key, count(way, port)


def line(key: str, counted: Count) -> str:
    """Return one way as a line for the terminal."""
    return f"{WAYS[key].title:48}{counted.calls:10.1f} functions in {counted.files} files"


def main() -> dict[str, Any]:
    """Print all ways, and return them as plain values."""
    summary: dict[str, Any] = {}
    for key, counted in measure():
        print(line(key, counted), flush=True)
        summary[key] = {"calls": round(counted.calls, 1), "files": counted.files}
    return summary


if __name__ == "__main__":
    print(json.dumps(main()))
