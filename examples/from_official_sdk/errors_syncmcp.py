"""Handle errors, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp
from syncmcp.errors import InvalidParams

SERVER = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
)

with syncmcp.connect(SERVER) as client:
    result = client.call_tool("fail")
    if result.is_error:  # or raise_for_error()
        print("the tool failed")

    try:
        client.call_tool("no_such_tool")
    except InvalidParams:
        print("the server refused")

try:
    with syncmcp.connect("http://127.0.0.1:9/mcp"):
        pass
except syncmcp.ConnectFailed:
    print("cannot connect")
