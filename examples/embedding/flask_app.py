"""Flask: one client for the whole application, called by the threads of all requests.

    flask --app flask_app run
    curl --json '{"a": 1, "b": 2}' http://127.0.0.1:5000/tools/add

A real application would not let its visitors choose the tool.
"""

from __future__ import annotations

import sys
from typing import Any

from flask import Flask, request

import syncmcp

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


def create_app(client: syncmcp.Client | None = None) -> Flask:
    """Make the application; the first request that needs the server starts it."""
    app = Flask(__name__)
    mcp = client or syncmcp.Client(SERVER, lazy=True, timeout=30.0)

    @app.post("/tools/<name>")
    def call_tool(name: str) -> dict[str, Any]:
        """Call a tool with the arguments in the body. Blocks the thread of this request alone."""
        result = mcp.call_tool(name, request.get_json())
        return {"text": result.raise_for_error().text}

    @app.errorhandler(syncmcp.McpError)
    def failed(error: syncmcp.McpError) -> tuple[dict[str, Any], int]:
        """Tell the cause by the status: the request, a late server, or the connection."""
        if isinstance(error, (syncmcp.UsageError, syncmcp.ToolError, syncmcp.ServerError)):
            status = 422
        elif isinstance(error, syncmcp.RequestTimeout):
            status = 504
        else:
            status = 502
        return {"error": str(error)}, status

    return app
