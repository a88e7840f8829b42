"""asyncio: a coroutine awaits calls, gives them up, and answers what a server asks."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import syncmcp
from syncmcp.handlers import HandlerContext
from syncmcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


async def call_tool(client: syncmcp.Client, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """Call a tool while other coroutines run. Cancelling this cancels the call at the server."""
    result = await asyncio.wrap_future(client.call_tool.future(name, arguments))
    return result.raise_for_error()


async def fill_in(request: ElicitRequestFormParams) -> ElicitResult:
    """Answer a form, as slowly as a person would."""
    await asyncio.sleep(0.1)
    print(f"the server asks: {request.message}")
    return ElicitResult.accept({"name": "Ada", "email": "ada@example.com"})


async def main() -> None:
    """Do many things at once on one thread."""
    loop = asyncio.get_running_loop()

    def on_a_worker(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
        # Handlers run on threads of the client: this one waits there for a coroutine here.
        asked = asyncio.run_coroutine_threadsafe(fill_in(request), loop)

        def give_up() -> None:
            asked.cancel()

        context.cancel.on_cancel(give_up)  # nobody wants to know any more
        return asked.result()

    # Opening and closing block; on another thread they do not hold up the loop.
    client = await asyncio.to_thread(syncmcp.connect, SERVER, elicitation=on_a_worker)
    try:
        sums = [call_tool(client, "add", {"a": n, "b": n}) for n in range(5)]
        print([result.text for result in await asyncio.gather(*sums)])

        try:
            await asyncio.wait_for(call_tool(client, "sleep", {"seconds": 60}), timeout=0.2)
        except asyncio.TimeoutError:
            print("not waited for, and the server knows")

        print((await call_tool(client, "signup_math_facts", {})).text)
    finally:
        await asyncio.to_thread(client.close)


if __name__ == "__main__":
    asyncio.run(main())
