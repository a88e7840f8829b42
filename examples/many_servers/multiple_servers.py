"""A group of servers: merged tools, a server that cannot be opened, and changes at run time."""

from __future__ import annotations

import syncmcp
from syncmcp import ClientGroup, HandlerContext
from syncmcp.group import Source
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitRequestFormParams, ElicitResult


def shop(name: str, stock: dict[str, int]) -> Server:
    """A server that sells things, and asks for confirmation before each sale."""
    server = Server(name)

    @server.tool()
    def search(word: str) -> str:
        """Find things in stock."""
        return ", ".join(sorted(thing for thing in stock if word in thing))

    @server.tool(name=f"buy_{name}")
    def buy(thing: str, context: ToolContext) -> str:
        """Buy something."""
        answer = context.elicit(
            f"Buy {thing} for {stock[thing]}?", {"type": "object", "properties": {}}
        )
        return f"{thing}: {answer['action']}"

    server.resource(f"{name}://hours")(lambda: "from nine to five")
    return server


def agree(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """Answer the questions of all servers; `context.server` is the server that asks."""
    print(f"[{context.server.name}] asks: {request.message}")
    return ElicitResult.accept({})


def main() -> None:
    """Open three servers, of which one fails; use the others; add and remove a server."""
    servers: dict[str, Source] = {
        "market": shop("fish", {"eel": 9, "carp": 4}),
        "library": shop("books", {"all about eels": 20}),
        "attic": syncmcp.Stdio("no-such-program"),
    }
    with ClientGroup(servers, elicitation=agree) as group:
        for name, status in group.status.items():
            print(f"{name}: {status.state}" + (f", {status.error}" if status.error else ""))
        print("tools:", ", ".join(group.tools))
        print("resources:", ", ".join(group.resources))

        print(group.call_tool("library_search", {"word": "eel"}).text)
        print(group.call_tool("buy_fish", {"thing": "eel"}).text)
        print(group.read_resource("books://hours").text)

        errors = group.ping(timeout=10)
        print("answered:", ", ".join(name for name, error in errors.items() if error is None))

        group.add("harbour", shop("boats", {"eel trap": 30}))
        group.remove("attic")
        print("tools now:", ", ".join(group.tools))
        found = {
            name: done.result().text
            for name, done in group.as_completed(
                lambda client: client.call_tool.future("search", {"word": "eel"}, timeout=10)
            )
        }
        for name in sorted(found):
            print(f"{name} has {found[name]}")

    try:
        ClientGroup({"one": servers["market"], "other": servers["market"]}).open()
    except syncmcp.UsageError as error:
        print("refused:", error)


if __name__ == "__main__":
    main()
