"""One conversation that uses all features, and a server for it, on every transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import syncmcp
from syncmcp.testing import Recording, Replay, Server, ToolContext
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from tests.support.stage import Wire


def shop() -> Server:
    """Return a server whose tools report progress, log, ask and fail."""
    server = Server("shop", version="1", page_size=2)

    @server.tool()
    def price(item: str) -> int:
        """What it costs."""
        return {"apple": 30, "pear": 45}[item]

    @server.tool()
    def count(context: ToolContext, shelves: int) -> str:
        """Count what is there."""
        for shelf in range(shelves):
            context.log("info", f"shelf {shelf}")
            context.report_progress(shelf + 1, shelves, f"shelf {shelf}")
        return "counted"

    @server.tool()
    def order(item: str, context: ToolContext) -> str:
        """Order it, if there is somebody who wants it."""
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
        answer = context.elicit(f"How many of {item}?", schema)
        context.report_progress(1)
        return f"{answer.get('action')}: {answer.get('content')} of {item}"

    @server.resource("shelf://all")
    def shelves() -> str:
        """All of them."""
        return "apple, pear"

    return server


class Visit:
    """A program that records what it receives in one conversation."""

    def __init__(self, size: int = 3) -> None:
        self.seen: list[Any] = []
        self._size = size

    def client(self, target: Any, **options: Any) -> syncmcp.Client:
        """Return a client whose handlers record everything."""
        return syncmcp.Client(
            target,
            elicitation=self._answer,
            on_log=lambda log: self.seen.append(("log", log.data)),
            **options,
        )

    def talk(self, client: syncmcp.Client) -> list[Any]:
        """Use each feature; return everything that was received, in order."""
        seen = self.seen
        seen += [client.server.revision, [tool.name for tool in client.list_tools().tools]]
        seen.append(client.call_tool("price", {"item": "pear"}).text)
        seen.append(client.call_tool("price", {"item": "plum"}).is_error)
        counted = client.call_tool(
            "count",
            {"shelves": 2},
            log_level="info",
            on_progress=lambda *step: seen.append(("progress", *step)),
        )
        seen.append(counted.text)
        seen.append(client.call_tool("order", {"item": "pear"}).text)
        seen.append(client.read_resource("shelf://all").text)
        try:
            client.read_resource("shelf://none")
        except syncmcp.ServerError as error:
            seen.append((type(error), error.code, error.message))
        return seen

    def _answer(self, request: ElicitRequestFormParams, context: object) -> ElicitResult:
        self.seen.append(("asked", request.message))
        return ElicitResult(action="accept", content={"size": self._size})


def record(wire: Wire, path: Path) -> list[Any]:
    """Record the conversation with a real server; return what was received."""
    visit = Visit()
    with (
        wire.serve(shop()) as reached,
        visit.client(Recording(reached, path), mode=wire.revision) as client,
    ):
        return visit.talk(client)


def replay(path: Path, mode: Any = "auto", **options: Any) -> list[Any]:
    """Have the conversation with a recording; return what was received."""
    visit = Visit()
    with visit.client(Replay(path, **options), mode=mode) as client:
        return visit.talk(client)
