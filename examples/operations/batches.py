"""Many calls at once: in one frame where the revision has batches, one by one elsewhere."""

from __future__ import annotations

import syncmcp
from syncmcp import Mode
from syncmcp.testing import Server, ToolContext

PRICES = {"apple": 2, "pear": 3, "plum": 1}


def shop() -> Server:
    """A server that says in which place of a frame each question came."""
    server = Server("shop")

    @server.tool()
    def price(item: str, context: ToolContext) -> str:
        """What one costs."""
        place = context.batch
        came = "alone" if place is None else f"as {place[0] + 1} of {place[1]}"
        return f"{item}: {PRICES[item]} (asked {came})"

    return server


def ask(server: Server, revision: Mode) -> None:
    """Ask for all prices, and for one that there is not."""
    with syncmcp.connect(server, mode=revision) as client:
        with client.batch(timeout=10) as batch:
            prices = [batch.call_tool("price", {"item": item}) for item in [*PRICES, "melon"]]
            tools = batch.list_tools()
        # The block has been left: everything is on its way.
        print(revision, "with", len(batch), "calls")
        for future in prices:
            result = future.result()
            print("  failed" if result.is_error else f"  {result.text}")
        print("  tools:", ", ".join(tool.name for tool in tools.result().tools))


def main() -> None:
    """Ask in both ways, then in turn."""
    server = shop()
    ask(server, "2025-03-26")
    ask(server, "2026-07-28")

    with syncmcp.connect(server) as client:
        with client.batch(parallel=False) as batch:
            for item in PRICES:
                batch.call_tool("price", {"item": item})
        print("in turn:", [future.result().text for future in batch.futures])


if __name__ == "__main__":
    main()
