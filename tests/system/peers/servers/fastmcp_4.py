"""A server on FastMCP 4: ``fastmcp_4 stdio`` or ``fastmcp_4 json|sse PORT``."""

from __future__ import annotations

import sys
from datetime import timedelta

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # in its own environment
from fastmcp.utilities.tasks import TaskConfig  # type: ignore[import-not-found]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]

from tests.system.peers.servers import tools
from tests.system.peers.servers.questions import context_tools

how, *port = sys.argv[1:]
server = FastMCP("fastmcp")
for tool in (*tools.TOOLS, tools.fail, *context_tools(Context, same_stream=how != "json")):
    server.tool(tool)

SOON = timedelta(milliseconds=50)


async def add_later(a: int, b: int) -> str:
    """Add two numbers; as a task, if the client supports tasks."""
    return str(a + b)


async def fail_later(reason: str) -> str:
    """Fail; the call must be a task."""
    raise ValueError(reason)


server.add_extension(TasksExtension())
server.tool(add_later, task=TaskConfig(mode="optional", poll_interval=SOON))
server.tool(fail_later, task=TaskConfig(mode="required", poll_interval=SOON))

quiet = {"show_banner": False, "log_level": "WARNING"}
if how == "stdio":
    server.run("stdio", **quiet)
else:
    server.run("http", port=int(port[0]), json_response=how == "json", **quiet)
