"""Get notified of changes: in a loop, on another thread, and with the new list of tools."""

from __future__ import annotations

import threading

import syncmcp
from syncmcp.testing import Server
from syncmcp.types import Tool

FRUIT = "stock://fruit"


def shop(stock: list[str]) -> Server:
    """A server with a stock as a resource, which notifies its clients of changes."""
    server = Server("shop")

    @server.resource(FRUIT)
    def fruit() -> str:
        return ", ".join(stock)

    @server.tool()
    def sell(item: str) -> str:
        """Sell one item."""
        stock.remove(item)
        server.resource_updated(FRUIT)
        return f"one {item} is sold"

    return server


def main() -> None:
    """Sell fruit, and follow the changes in three ways."""
    stock = ["apple", "pear", "plum"]
    server = shop(stock)
    with syncmcp.connect(server) as client:
        # In a loop. After two events, the loop and the subscription end.
        with client.listen(uris=[FRUIT], timeout=10, stop_after=2) as events:
            client.call_tool("sell", {"item": "pear"})
            for event in events:
                fruit = client.read_resource(FRUIT).text
                print(f"{event.uri} has changed: {fruit}")
                if fruit == "apple, plum":
                    client.call_tool("sell", {"item": "plum"})

        # In a function on another thread, until `stop` is called.
        notified = threading.Event()
        listener = client.listen(uris=[FRUIT]).run_in_thread(lambda event: notified.set())
        client.call_tool("sell", {"item": "apple"})
        print(f"notified on another thread: {notified.wait(10)}, stopped: {listener.stop(10)}")

        # After a change, the client fetches the new list and calls the function.
        fetched = threading.Event()

        def show(tools: list[Tool]) -> None:
            print("the tools are now:", ", ".join(tool.name for tool in tools))
            fetched.set()

        client.on_tools_changed(show)
        server.add_tool(lambda: "closed", name="come_again")
        fetched.wait(10)


if __name__ == "__main__":
    main()
