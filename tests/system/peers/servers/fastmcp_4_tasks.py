"""A server on FastMCP 4 whose tools run as tasks: ``fastmcp_4_tasks PORT``."""

from __future__ import annotations

import sys
from datetime import timedelta

from fastmcp import FastMCP  # type: ignore[import-not-found]  # in its own environment
from fastmcp.utilities.tasks import TaskConfig  # type: ignore[import-not-found]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]

server = FastMCP("fastmcp")
server.add_extension(TasksExtension())


SOON = timedelta(milliseconds=50)


async def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


async def fail(reason: str) -> str:
    """Fails, always."""
    raise ValueError(reason)


server.tool(add, task=TaskConfig(mode="optional", poll_interval=SOON))
server.tool(fail, task=TaskConfig(mode="required", poll_interval=SOON))
server.run("http", port=int(sys.argv[1]), show_banner=False, log_level="WARNING")
