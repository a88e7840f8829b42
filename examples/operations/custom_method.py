"""Custom methods: requests of the client and of the server, and a notification."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

import syncmcp
from syncmcp.testing import Server, ToolContext


class Stock(BaseModel):
    """The result of the method `acme/count`."""

    item: str
    pieces: int


def warehouse() -> Server:
    """A server with a custom method, which sends a request to the client before it answers."""
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
    """Count the lamps in the warehouse, and answer the request of the server."""
    client = syncmcp.Client(warehouse(), mode="legacy")  # a revision in which servers send requests
    client.on_request("acme/badge", badge)
    client.on_notification("acme/counted", lambda params: print(f"counted by badge {params['by']}"))
    with client:
        stock = client.request("acme/count", {"item": "lamp"}, result=Stock)
        print(f"{stock.item}: {stock.pieces} pieces")


def badge(params: dict[str, Any], context: syncmcp.HandlerContext) -> dict[str, Any]:
    """Answer the request `acme/badge` of the server."""
    if params["door"] != 7:
        raise syncmcp.Refused(1, "not my door")
    return {"number": 42}


if __name__ == "__main__":
    main()
