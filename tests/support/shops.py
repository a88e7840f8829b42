"""Servers for tests of many at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from syncmcp import Stdio
from syncmcp.testing import Server
from tests.support.stage import PATIENCE

DEMO = Stdio(sys.executable, "-m", "syncmcp.testing")
CHILD = {"command": sys.executable, "args": ["-m", "syncmcp.testing"]}
MISSING = Stdio("/nowhere/at-all")
DYING = Stdio(sys.executable, "-c", "raise SystemExit(7)")
REFUSING = "http://127.0.0.1:1/mcp"


def shop(name: str, *tools: str) -> Server:
    """A server with these tools, each of which says whose it is, a resource and a prompt."""
    server = Server(name)
    for tool in tools:
        server.add_tool(lambda tool=tool: f"{tool} of {name}", name=tool, input_schema={})
    server.resource(f"shop://{name}/hours", name="hours")(lambda: f"hours of {name}")
    server.resource_template(f"shop://{name}/goods/{{article}}", name="goods")(
        lambda article: f"{article} of {name}"
    )
    server.prompt(name="order")(lambda what: f"order {what} at {name}")
    return server


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
