"""Flask: one client for the application, shared by the threads of all requests.

    flask --app flask_app run
    curl --json '{"a": 1, "b": 2}' http://127.0.0.1:5000/tools/add

A real application would not let visitors choose the tool.
"""

from __future__ import annotations

import sys
from typing import Any

from flask import Flask, request

import syncmcp

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


def create_app(client: syncmcp.Client | None = None) -> Flask:
    """Create the application. The first call of a tool starts the server."""
    app = Flask(__name__)
    mcp = client or syncmcp.Client(SERVER, lazy=True, timeout=30.0)

    @app.post("/tools/<name>")
    def call_tool(name: str) -> dict[str, Any]:
        """Call a tool with the arguments in the body. Blocks only the thread of this request."""
        result = mcp.call_tool(name, request.get_json())
        return {"text": result.raise_for_error().text}

    @app.errorhandler(syncmcp.McpError)
    def failed(error: syncmcp.McpError) -> tuple[dict[str, Any], int]:
        """Return a status for the cause: the request, a slow server, or the connection."""
        if isinstance(error, (syncmcp.UsageError, syncmcp.ToolError, syncmcp.ServerError)):
            status = 422
        elif isinstance(error, syncmcp.RequestTimeout):
            status = 504
        else:
            status = 502
        return {"error": str(error)}, status

    return app
