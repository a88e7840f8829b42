"""Several people on one connection: each sees only the questions of their own call.

``python examples/answering/per_call_ui.py [NAME ...]``
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import syncmcp
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitRequestFormParams, ElicitResult


def restaurant() -> Server:
    """Create a server that asks each guest for the number of people."""
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
    """The window of one person; a real one would open a dialogue."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.seen: list[str] = []

    def __call__(
        self, request: ElicitRequestFormParams, context: syncmcp.HandlerContext
    ) -> ElicitResult:
        """Record the message, and answer with the number of letters of the owner's name."""
        self.seen.append(request.message)
        return ElicitResult.accept({"people": len(self.owner)})


def no_window(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Decline: the call has no window, or the client does not know the call (before 2026-07-28)."""
    return ElicitResult.decline()


def main() -> None:
    """Book tables for all people at the same time, then one without a window."""
    windows = [Window(name) for name in sys.argv[1:] or ["Ann", "Boris", "Chandra"]]
    with syncmcp.connect(restaurant(), elicitation=no_window) as client:

        def book(window: Window) -> str:
            handlers = syncmcp.Handlers(elicitation=window)
            result = client.call_tool("book", {"guest": window.owner}, handlers=handlers)
            return result.raise_for_error().text

        with ThreadPoolExecutor(len(windows)) as pool:
            for window, booked in zip(windows, pool.map(book, windows), strict=True):
                print(f"{window.owner} saw {window.seen} and has {booked}")
        declined = client.call_tool("book", {"guest": "Dana"})
        print(f"without a window: {declined.raise_for_error().text}")


if __name__ == "__main__":
    main()
