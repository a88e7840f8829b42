"""A stock that changes: follow it in a loop, have a function called, have a list fetched again."""

from __future__ import annotations

import threading

import syncmcp
from syncmcp.testing import Server
from syncmcp.types import Tool

FRUIT = "stock://fruit"


def shop(stock: list[str]) -> Server:
    """A server whose stock can be read, and which tells when it changes."""
    server = Server("shop")

    @server.resource(FRUIT)
    def fruit() -> str:
        return ", ".join(stock)

    @server.tool()
    def sell(item: str) -> str:
        """Sell one."""
        stock.remove(item)
        server.resource_updated(FRUIT)
        return f"one {item} is sold"

    return server


def main() -> None:
    """Sell fruit until there is none."""
    stock = ["apple", "pear", "plum"]
    server = shop(stock)
    with syncmcp.connect(server) as client:
        # In a loop: it ends after two events, and the server is told.
        with client.listen(uris=[FRUIT], timeout=10, stop_after=2) as events:
            client.call_tool("sell", {"item": "pear"})
            for event in events:
                left = client.read_resource(FRUIT).contents[0].to_wire()["text"]
                print(f"{event.uri} has changed: {left}")
                if left == "apple, plum":
                    client.call_tool("sell", {"item": "plum"})

        # On a thread of its own, until it is stopped.
        told = threading.Event()
        listener = client.listen(uris=[FRUIT]).run_in_thread(lambda event: told.set())
        client.call_tool("sell", {"item": "apple"})
        print(f"told on another thread: {told.wait(10)}, and stopped: {listener.stop(10)}")

        # The new list, a moment after it has changed.
        fetched = threading.Event()

        def show(tools: list[Tool]) -> None:
            print("the tools are now:", ", ".join(tool.name for tool in tools))
            fetched.set()

        client.on_tools_changed(show)
        server.add_tool(lambda: "closed", name="come_again")
        fetched.wait(10)


if __name__ == "__main__":
    main()
