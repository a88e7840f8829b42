"""Test against a server in the same process, with syncmcp."""

from __future__ import annotations

import syncmcp
from syncmcp.testing import Server

server = Server("shop")


@server.tool()
def price(item: str) -> dict[str, int]:
    return {"price": 30 if item == "apple" else 45}


with syncmcp.connect(server) as client:
    result = client.call_tool("price", {"item": "pear"})
    print(result.structured_content)
