"""Several people on one connection: each sees the questions of their own call, and no others.

``python examples/answering/per_call_ui.py [NAME ...]``
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import syncmcp
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitRequestFormParams, ElicitResult


def restaurant() -> Server:
    """A server that asks each guest something."""
    server = Server("restaurant")

    @server.tool()
    def book(context: ToolContext, guest: str) -> str:
        """Book a table."""
        people = {"type": "integer", "title": "How many of you?", "minimum": 1}
        schema = {"type": "object", "properties": {"people": people}, "required": ["people"]}
        answer = context.elicit(f"A table for {guest}", schema)
        if answer["action"] != "accept":
            return "no table"
        return f"a table for {answer['content']['people']}"

    return server


class Window:
    """What one person sees; a real one would open a dialogue."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.seen: list[str] = []

    def __call__(
        self, request: ElicitRequestFormParams, context: syncmcp.HandlerContext
    ) -> ElicitResult:
        """Show a form, and answer with as many people as the name has letters."""
        self.seen.append(request.message)
        return ElicitResult.accept({"people": len(self.owner)})


def nobody(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Answer for calls that brought no window, and where the call is not known (until 2025)."""
    return ElicitResult.decline()


def main() -> None:
    """Book tables for everybody at the same time."""
    windows = [Window(name) for name in sys.argv[1:] or ["Ann", "Boris", "Chandra"]]
    with syncmcp.connect(restaurant(), elicitation=nobody) as client:

        def book(window: Window) -> str:
            handlers = syncmcp.Handlers(elicitation=window)
            result = client.call_tool("book", {"guest": window.owner}, handlers=handlers)
            return result.raise_for_error().text

        with ThreadPoolExecutor(len(windows)) as pool:
            for window, booked in zip(windows, pool.map(book, windows), strict=True):
                print(f"{window.owner} saw {window.seen} and has {booked}")
        alone = client.call_tool("book", {"guest": "Nobody"})
        print(f"without a window: {alone.raise_for_error().text}")


if __name__ == "__main__":
    main()
