"""Several servers as one: merged tools, one that is broken, servers that come and go."""

from __future__ import annotations

import syncmcp
from syncmcp import ClientGroup, HandlerContext
from syncmcp.group import Source
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitRequestFormParams, ElicitResult


def shop(name: str, stock: dict[str, int]) -> Server:
    """A server that sells something, and asks before it does."""
    server = Server(name)

    @server.tool()
    def search(word: str) -> str:
        """Find what is in stock."""
        return ", ".join(sorted(thing for thing in stock if word in thing))

    @server.tool(name=f"buy_{name}")
    def buy(thing: str, context: ToolContext) -> str:
        """Buy something."""
        answer = context.elicit(
            f"{thing}, for {stock[thing]}?", {"type": "object", "properties": {}}
        )
        return f"{thing}: {answer['action']}"

    server.resource(f"{name}://hours")(lambda: "from nine to five")
    return server


def agree(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """One handler for all: the context says who asks."""
    print(f"[{context.server.name}] asks: {request.message}")
    return ElicitResult.accept({})


def main() -> None:
    """Open three servers of which one is broken, use the others, and let one join."""
    servers: dict[str, Source] = {
        "market": shop("fish", {"eel": 9, "carp": 4}),
        "library": shop("books", {"all about eels": 20}),
        "attic": syncmcp.Stdio("no-such-program"),
    }
    with ClientGroup(servers, elicitation=agree) as group:
        for name, status in group.status.items():
            print(f"{name} is {status.state}" + (f": {status.error}" if status.error else ""))
        print("tools:", ", ".join(group.tools))
        print("resources:", ", ".join(group.resources))

        print(group.call_tool("library_search", {"word": "eel"}).text)
        print(group.call_tool("buy_fish", {"thing": "eel"}).text)
        print(group.read_resource("books://hours").text)

        wrong = group.ping(timeout=10)
        print("answering:", ", ".join(name for name, error in wrong.items() if error is None))

        group.add("harbour", shop("boats", {"eel trap": 30}))
        group.remove("attic")
        print("now:", ", ".join(group.tools))
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
