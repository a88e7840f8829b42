"""The interface of a side of the comparison; everything that is timed goes through it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, NamedTuple

ROOT = Path(__file__).parents[2]

SideName = Literal["syncmcp", "official", "floor", "singles"]
SIDES: tuple[SideName, ...] = ("syncmcp", "official", "floor")
"""The sides of a row by default."""

Wire = Literal["stdio", "json", "sse"]


class Target(NamedTuple):
    """The server to connect to.

    Attributes:
        wire: The transport.
        revision: The revision that the server speaks.
        port: The port of the server, over HTTP.
    """

    wire: Wire
    revision: str
    port: int = 0

    @property
    def command(self) -> list[str]:
        """The command line of the server over stdio, to be started in `ROOT`."""
        return [sys.executable, "-m", "benchmarks.servers.stdio_server", self.revision]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.wire}/{self.revision}"


class Reply(NamedTuple):
    """The parts of a result that every side reads."""

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
        """Call a tool and wait for its result; may be called from any thread."""

    @abstractmethod
    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        """Make `count` calls at once from this thread, and wait for all results."""

    @abstractmethod
    def notified(self, count: int) -> int:
        """Call the tool that reports progress `count` times; return how many reports came."""


class FutureSide(Side):
    """A side whose calls are futures."""

    @abstractmethod
    def start(self, tool: str, arguments: dict[str, Any]) -> Future[Any]:
        """Start a call."""

    @abstractmethod
    def stirred(self, count: int) -> int:
        """Call the tool that sends `count` change events, while a listener waits for them.

        Returns how many events the listener got: a side may merge equal events that the listener
        has not read yet.
        """

    @abstractmethod
    def listed(self) -> int:
        """List all tools; return how many there are."""

    @abstractmethod
    def read(self, result: Any) -> Reply:
        """Return the reply in a future's result."""

    @abstractmethod
    def time_out(self, tool: str, arguments: dict[str, Any], timeout: float) -> None:
        """Make a call that is not answered within `timeout` seconds, and catch its error.

        Raises:
            AssertionError: The call raised no error.
        """

    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        futures = [self.start(tool, arguments) for _ in range(count)]
        return [self.read(future.result()) for future in futures]
