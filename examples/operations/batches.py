"""Send many calls as a batch: in one frame in 2025-03-26, in parallel in other revisions."""

from __future__ import annotations

import syncmcp
from syncmcp import Mode
from syncmcp.testing import Server, ToolContext

PRICES = {"apple": 2, "pear": 3, "plum": 1}


def shop() -> Server:
    """A server whose tool reports the position of its call in a frame."""
    server = Server("shop")

    @server.tool()
    def price(item: str, context: ToolContext) -> str:
        """Return the price of an item, and the position of the call."""
        position = context.batch
        sent = "alone" if position is None else f"as {position[0] + 1} of {position[1]}"
        return f"{item}: {PRICES[item]} (sent {sent})"

    return server


def send_batch(server: Server, revision: Mode) -> None:
    """Get all prices and the list of tools; also try an unknown item."""
    with syncmcp.connect(server, mode=revision) as client:
        with client.batch(timeout=10) as batch:
            prices = [batch.call_tool("price", {"item": item}) for item in [*PRICES, "melon"]]
            tools = batch.list_tools()
        # The block has sent the calls at its end, without waiting for the results.
        print(revision, "with", len(batch), "calls")
        for future in prices:
            result = future.result()
            print("  failed" if result.is_error else f"  {result.text}")
        print("  tools:", ", ".join(tool.name for tool in tools.result().tools))


def main() -> None:
    """Send a batch in two revisions, then send one call after another."""
    server = shop()
    send_batch(server, "2025-03-26")
    send_batch(server, "2026-07-28")

    with syncmcp.connect(server) as client:
        with client.batch(parallel=False) as batch:
            for item in PRICES:
                batch.call_tool("price", {"item": item})
        print("one after another:", [future.result().text for future in batch.futures])


if __name__ == "__main__":
    main()
