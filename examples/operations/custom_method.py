"""Methods of one's own, on both sides and in both directions, with a typed result."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

import syncmcp
from syncmcp.testing import Server, ToolContext


class Stock(BaseModel):
    """What the warehouse answers."""

    item: str
    pieces: int


def warehouse() -> Server:
    """A server with a method that no revision knows, which asks back before it answers."""
    server = Server("warehouse")

    def count(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        badge = context.request("acme/badge", {"door": 7})
        if badge["number"] != 42:
            return {"item": params["item"], "pieces": 0}
        context.notify("acme/counted", {"by": badge["number"]})
        return {"item": params["item"], "pieces": 12}

    server.on_request("acme/count", count)
    return server


def main() -> None:
    """Ask the warehouse for lamps, and answer what it asks."""
    client = syncmcp.Client(warehouse(), mode="legacy")  # where servers may ask, too
    client.on_request("acme/badge", badge)
    client.on_notification("acme/counted", lambda params: print(f"counted by {params['by']}"))
    with client:
        stock = client.request("acme/count", {"item": "lamp"}, result=Stock)
        print(f"{stock.pieces} of {stock.item}")


def badge(params: dict[str, Any], context: syncmcp.HandlerContext) -> dict[str, Any]:
    """Answer the server."""
    if params["door"] != 7:
        raise syncmcp.Refused(1, "not my door")
    return {"number": 42}


if __name__ == "__main__":
    main()
