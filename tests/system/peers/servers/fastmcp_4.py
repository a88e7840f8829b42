"""A server on FastMCP 4: ``fastmcp_4 stdio`` or ``fastmcp_4 json|sse PORT``."""

from __future__ import annotations

import sys

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # in its own environment

from tests.system.peers.servers import tools
from tests.system.peers.servers.questions import context_tools

how, *port = sys.argv[1:]
server = FastMCP("fastmcp")
for tool in (*tools.TOOLS, tools.fail, *context_tools(Context, same_stream=how != "json")):
    server.tool(tool)

quiet = {"show_banner": False, "log_level": "WARNING"}
if how == "stdio":
    server.run("stdio", **quiet)
else:
    server.run("http", port=int(port[0]), json_response=how == "json", **quiet)
