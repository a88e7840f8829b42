"""Retries: after a lost answer, the client repeats only idempotent requests.

A `FaultProxy` of `syncmcp.testing` forwards a request to the server, then cuts the connection
before the answer. So the client cannot know whether the server has acted on the request.
"""

from __future__ import annotations

import syncmcp
from syncmcp.testing import Cut, FaultProxy, Server, serve_http


def shop() -> Server:
    """A server with a tool that has an effect, and a tool that only reads."""
    server = Server("shop")

    @server.tool()
    def order(item: str) -> str:
        """Order an item."""
        return f"one {item} is on its way"

    @server.tool()
    def price(item: str) -> int:
        """Return the price of an item."""
        return {"apple": 30, "pear": 45}[item]

    return server


def main() -> None:
    """Lose the answers to three requests. The client repeats the first two."""
    retry = syncmcp.Retry(attempts=3, budget=10.0, pause=0.05)
    with serve_http(shop()) as http, FaultProxy(http.url) as proxy:
        target = syncmcp.Http(proxy.url, headers={"X-Customer": "42"})
        with syncmcp.connect(target, name="shop", retry=retry) as client:
            proxy.queue(Cut("sent"), method="tools/list")
            tools = client.list_tools().tools
            print(f"{len(tools)} tools, after {proxy.sends('tools/list')} requests")

            # The client cannot know that this tool only reads, so the program declares it.
            proxy.queue(Cut("sent"), method="tools/call")
            price = client.call_tool.future("price", {"item": "pear"}, idempotent=True)
            print(f"a pear costs {price.result().text}, after {price.attempts} requests")

            proxy.queue(Cut("sent"), method="tools/call")
            try:
                client.call_tool("order", {"item": "pear"})
            except syncmcp.OutcomeUnknown as error:
                print(f"the order was sent {error.attempts} time (delivery: {error.delivery})")


if __name__ == "__main__":
    main()
