"""A server and a client of it in one program, with real HTTP between them: how to test a program.

The server is the threaded one of `syncmcp.testing`; it picks a free port on loopback.
"""

from __future__ import annotations

import syncmcp
from syncmcp.testing import Server, serve_http


def shop() -> Server:
    """The server that the program under test would talk to."""
    server = Server("shop", instructions="Prices are in cents.")

    @server.tool()
    def price(item: str) -> int:
        """Say what an item costs."""
        return {"apple": 30, "pear": 45}[item]

    return server


def main() -> None:
    """Ask for two prices."""
    server = shop()
    with serve_http(server) as http, syncmcp.connect(http.url) as client:
        print(f"the server says: {client.server.instructions}")
        print(f"a pear costs {client.call_tool('price', {'item': 'pear'}).text}")

        failed = client.call_tool("price", {"item": "plum"})
        print(f"a plum: is_error={failed.is_error}")
    with server.stats as stats:
        print(f"the server saw {stats.requests['tools/call']} calls")


if __name__ == "__main__":
    main()
