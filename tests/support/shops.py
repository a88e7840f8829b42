"""Small servers, for tests that need any server, or many at the same time.

`shop(name, *tools)` has one tool for each name, a resource, a template and a prompt. `Shop` counts
the runs of its tool. `Silent` does not answer some requests. `Gated` blocks connections. `DEMO` is
the demo server as a child process. Clients of `MISSING`, `DYING` and `REFUSING` cannot open.
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
    """Return a server with these tools, whose texts contain `name`; with resources, a prompt."""
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
    """A server with a tool that is not idempotent, and a resource.

    Attributes:
        server: The server.
        stats: Its statistics.
        sold: The number of times that the tool ran.
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
    """A server that does not answer requests of some methods until the client cancels them.

    Attributes:
        asked: Set once such a request has arrived.
    """

    def __init__(self, name: str = "silent", **options: Any) -> None:
        super().__init__(name, **options)
        self.asked = threading.Event()

    def leave(self, method: str) -> Silent:
        """Stop answering requests of this method; return the server."""

        def hold(_: object, context: ToolContext) -> dict[str, Any]:
            self.asked.set()
            context.cancelled.wait(3 * PATIENCE)
            return {}

        self.on_request(method, hold)
        return self

    def was_asked(self) -> None:
        """Wait until a request that the server does not answer has arrived."""
        assert self.asked.wait(PATIENCE)


class Gated:
    """A server that blocks each connection until `gate` is set; `reached`: a client connects."""

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
    """Poll until `check` returns True, for a condition that no event reports."""
    never = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if check():
            return
        never.wait(0.01)
    raise AssertionError("it did not come to be so")
