"""Servers with something to sell, for tests that need any server, or many at once.

`shop(name, *tools)` has one tool for each name, a resource, a template and a prompt. `Shop` has a
tool that must not run twice and counts how often it ran. `Silent` leaves requests without an
answer. `Gated` lets nobody in before its gate is open. `DEMO` is the demo server as a child
process; `MISSING`, `DYING` and `REFUSING` are targets that cannot be opened.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from syncmcp import Stdio
from syncmcp.testing import Server, ToolContext
from tests.support.stage import PATIENCE

DEMO = Stdio(sys.executable, "-m", "syncmcp.testing")
CHILD = {"command": sys.executable, "args": ["-m", "syncmcp.testing"]}
MISSING = Stdio("/nowhere/at-all")
DYING = Stdio(sys.executable, "-c", "raise SystemExit(7)")
REFUSING = "http://127.0.0.1:1/mcp"


def shop(name: str = "shop", *tools: str, **options: Any) -> Server:
    """A server with these tools, each of which says whose it is, a resource and a prompt."""
    server = Server(name, **options)
    for tool in tools:
        server.add_tool(lambda tool=tool: f"{tool} of {name}", name=tool, input_schema={})
    server.resource(f"shop://{name}/hours", name="hours")(lambda: f"hours of {name}")
    server.resource_template(f"shop://{name}/goods/{{article}}", name="goods")(
        lambda article: f"{article} of {name}"
    )
    server.prompt(name="order")(lambda what: f"order {what} at {name}")
    return server


class Shop:
    """A server with a tool that must not run twice, and something to read.

    Attributes:
        server: The server.
        stats: What it has seen.
        sold: How often the tool ran.
    """

    def __init__(self, **options: Any) -> None:
        self.server = Server("shop", **options)
        self.stats = self.server.stats
        self.sold = 0
        self._lock = threading.Lock()
        self.server.add_tool(self.buy)
        self.server.resource("shop://prices")(lambda: "pears: 45")

    def buy(self) -> str:
        """Buy one."""
        with self._lock:
            self.sold += 1
        return "sold"


class Silent(Server):
    """A server that leaves some requests without an answer.

    Attributes:
        asked: Set once such a request has come.
    """

    def __init__(self, name: str = "silent", **options: Any) -> None:
        super().__init__(name, **options)
        self.asked = threading.Event()

    def leave(self, method: str) -> Silent:
        """Do not answer requests of this method any more."""

        def hold(_: object, context: ToolContext) -> dict[str, Any]:
            self.asked.set()
            context.cancelled.wait(3 * PATIENCE)
            return {}

        self.on_request(method, hold)
        return self

    def was_asked(self) -> None:
        """Wait until such a request has come."""
        assert self.asked.wait(PATIENCE)


class Gated:
    """A server that lets nobody in until `gate` is set."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.gate, self.reached = threading.Event(), threading.Event()

    @property
    def name(self) -> str:
        return self.server.name

    def connect(self, deliver: Callable[[bytes], None], on_close: Callable[[], None]) -> Any:
        self.reached.set()
        assert self.gate.wait(PATIENCE)
        return self.server.connect(deliver, on_close)


def known(check: Callable[[], bool]) -> None:
    """Wait until something is so, which nobody tells."""
    never = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if check():
            return
        never.wait(0.01)
    raise AssertionError("it did not come to be so")
