"""What a side of the comparison can do; everything that is timed goes through this."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, NamedTuple

ROOT = Path(__file__).parents[2]

SideName = Literal["syncmcp", "official", "floor", "singles"]
SIDES: tuple[SideName, ...] = ("syncmcp", "official", "floor")
"""Those that are compared unless a row says otherwise."""

Wire = Literal["stdio", "json", "sse"]


class Target(NamedTuple):
    """The server to connect to.

    Attributes:
        wire: How.
        revision: What the server is told to speak.
        port: Where the server listens, for HTTP.
    """

    wire: Wire
    revision: str
    port: int = 0

    @property
    def command(self) -> list[str]:
        """Runs the server on stdio, in `ROOT`."""
        return [sys.executable, "-m", "benchmarks.servers.stdio_server", self.revision]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.wire}/{self.revision}"


class Reply(NamedTuple):
    """What every side reads of a result."""

    text: str
    is_error: bool


class Side(ABC):
    """One way to call the server from threads, opened once for all the calls of a row."""

    @abstractmethod
    def open(self, target: Target) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        """Call a tool and block; any thread may."""

    @abstractmethod
    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        """Have `count` calls in flight at once, from this one thread."""

    @abstractmethod
    def notified(self, count: int) -> int:
        """Call the tool that reports progress `count` times; how many reports came."""


class FutureSide(Side):
    """A side whose calls are futures."""

    @abstractmethod
    def start(self, tool: str, arguments: dict[str, Any]) -> Future[Any]:
        """Begin a call."""

    @abstractmethod
    def stirred(self, count: int) -> int:
        """Call the tool that sends `count` change events, while somebody listens to them.

        How many the program heard of: a side may take equal ones that nobody has looked at yet for
        one.
        """

    @abstractmethod
    def listed(self) -> int:
        """List all tools; how many there are."""

    @abstractmethod
    def read(self, result: Any) -> Reply:
        """What a future's result says."""

    @abstractmethod
    def time_out(self, tool: str, arguments: dict[str, Any], timeout: float) -> None:
        """Make a call that is not answered within `timeout` seconds, and take its error.

        Raises:
            AssertionError: There was none.
        """

    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        futures = [self.start(tool, arguments) for _ in range(count)]
        return [self.read(future.result()) for future in futures]
