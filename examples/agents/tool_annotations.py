"""A server's annotations of its tools: shown to a person, believed only if the server is trusted.

A person decides on each tool call of a model. If the program trusts the server, a call of a tool
that the server marks as read-only needs no decision.
"""

from __future__ import annotations

import syncmcp
from syncmcp.approval import Question, ToolCall, Verdict
from syncmcp.testing import Server
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent
from syncmcp.types import ToolUseContent as Use


def archive() -> Server:
    """Create a server with two tools: their annotations say that one reads and one destroys."""
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
    """A reviewer in place of a person; it denies calls that destroy something."""

    def review(self, question: Question) -> Verdict:
        """Print the call and the server's claim about the tool, and decide."""
        call = question.request
        if not isinstance(call, ToolCall) or call.annotations is None:
            return Verdict.deny("unknown")
        destroys = call.annotations.destructive_hint is True
        claim = "it destroys" if destroys else "it only reads"
        print(f"  {call.tool} {dict(call.arguments)}: {question.server.name} claims that {claim}")
        return Verdict.deny("nothing is destroyed here") if destroys else Verdict.allow()


def model(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    """Request both tools, then answer with their results."""
    if len(request.messages) == 1:
        uses = [Use(id=tool, name=tool, input={"page": 7}) for tool in ("read", "burn")]
        return CreateMessageResult(
            role="assistant", content=[*uses], model="demo", stop_reason="toolUse"
        )
    results = [result.to_wire() for result in request.messages[-1].blocks]
    text = "; ".join(result["content"][0]["text"] for result in results)
    content = TextContent(text=text)
    return CreateMessageResult(role="assistant", content=content, model="demo")


def main() -> None:
    """Run the tool loop with an untrusted and with a trusted server."""
    for trusted in (False, True):
        print(f"trusted: {trusted}")
        with syncmcp.connect(archive(), name="archive", trusted=trusted) as client:
            loop = syncmcp.ToolLoop(model, client, approval=syncmcp.Approval(reviewer=Person()))
            print(f"  {loop.run('Tidy up.').text}")


if __name__ == "__main__":
    main()
