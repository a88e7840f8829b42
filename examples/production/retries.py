"""A remote server behind a network that breaks: what is sent again, and what is not.

The network is a `FaultProxy` of `syncmcp.testing`, which cuts the connection when the server has a
request and before its answer comes through. Nobody can tell then whether it was carried out.
"""

from __future__ import annotations

import syncmcp
from syncmcp.testing import Cut, FaultProxy, Server, serve_http


def shop() -> Server:
    """A server with a tool that does something, and one that only says something."""
    server = Server("shop")

    @server.tool()
    def order(item: str) -> str:
        """Order one."""
        return f"one {item} is on its way"

    @server.tool()
    def price(item: str) -> int:
        """Say what an item costs."""
        return {"apple": 30, "pear": 45}[item]

    return server


def main() -> None:
    """Lose an answer three times."""
    retry = syncmcp.Retry(attempts=3, budget=10.0, pause=0.05)
    with serve_http(shop()) as http, FaultProxy(http.url) as network:
        target = syncmcp.Http(network.url, headers={"X-Customer": "42"})
        with syncmcp.connect(target, name="shop", retry=retry) as client:
            network.queue(Cut("sent"), method="tools/list")
            tools = client.list_tools().tools
            print(f"{len(tools)} tools, asked for {network.sends('tools/list')} times")

            # Only we know that asking for a price twice does no harm.
            network.queue(Cut("sent"), method="tools/call")
            price = client.call_tool.future("price", {"item": "pear"}, idempotent=True)
            print(f"a pear costs {price.result().text}, asked for {price.attempts} times")

            network.queue(Cut("sent"), method="tools/call")
            try:
                client.call_tool("order", {"item": "pear"})
            except syncmcp.OutcomeUnknown as error:
                print(f"ordered {error.attempts} time: {error.delivery} whether it arrived")


if __name__ == "__main__":
    main()
