"""What a server says of its tools: shown to a person as its word, believed only if it is trusted.

A person is asked about each tool that a model wants to use. About one that only reads, nobody is
asked where the program trusts the server that says so.
"""

from __future__ import annotations

import syncmcp
from syncmcp.approval import Question, ToolCall, Verdict
from syncmcp.testing import Server
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent
from syncmcp.types import ToolUseContent as Use


def archive() -> Server:
    """A server with a tool that reads and one that destroys, and says so."""
    server = Server("archive")

    @server.tool(annotations={"readOnlyHint": True})
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: about eels"

    @server.tool(annotations={"readOnlyHint": False, "destructiveHint": True})
    def burn(page: int) -> str:
        """Burn a page."""
        return f"page {page} is no more"

    return server


class Person:
    """Decides on calls; this one lets nothing be destroyed."""

    def review(self, question: Question) -> Verdict:
        """Show the call and what the server says of its tool."""
        call = question.request
        if not isinstance(call, ToolCall) or call.annotations is None:
            return Verdict.deny("unknown")
        burns = call.annotations.destructive_hint is True
        says = "destroys" if burns else "only reads"
        print(f"  {call.tool} {dict(call.arguments)}, which {question.server.name} says {says}")
        return Verdict.deny("nothing is destroyed here") if burns else Verdict.allow()


def model(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    """Read a page and burn it, and say what came of it."""
    if len(request.messages) == 1:
        uses = [Use(id=tool, name=tool, input={"page": 7}) for tool in ("read", "burn")]
        return CreateMessageResult(
            role="assistant", content=[*uses], model="demo", stop_reason="toolUse"
        )
    results = [result.to_wire() for result in request.messages[-1].blocks]
    said = "; ".join(result["content"][0]["text"] for result in results)
    content = TextContent(text=said)
    return CreateMessageResult(role="assistant", content=content, model="demo")


def main() -> None:
    """Have the model at work, on a server that is trusted and on one that is not."""
    for trusted in (False, True):
        print(f"trusted: {trusted}")
        with syncmcp.connect(archive(), name="archive", trusted=trusted) as client:
            loop = syncmcp.ToolLoop(model, client, approval=syncmcp.Approval(reviewer=Person()))
            print(f"  {loop.run('Tidy up.').text}")


if __name__ == "__main__":
    main()
