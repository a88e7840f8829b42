"""A server on FastMCP 4: ``fastmcp_4 stdio`` or ``fastmcp_4 json|sse PORT``."""

from __future__ import annotations

import sys

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # in its own environment

from tests.peers.servers import tools


async def count(steps: int, context: Context) -> str:
    """Reports progress once for each step."""
    return await tools.count(steps, context.report_progress)


server = FastMCP("fastmcp")
for tool in (tools.add, tools.fail, count, tools.wait, tools.started, tools.cancelled):
    server.tool(tool)

quiet = {"show_banner": False, "log_level": "WARNING"}
if sys.argv[1] == "stdio":
    server.run("stdio", **quiet)
else:
    server.run("http", port=int(sys.argv[2]), json_response=sys.argv[1] == "json", **quiet)
