"""asyncio: a coroutine awaits calls, cancels them, and answers a question of the server."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import syncmcp
from syncmcp.handlers import HandlerContext
from syncmcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


async def call_tool(client: syncmcp.Client, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """Call a tool without blocking the loop. Cancelling the task cancels the call at the server."""
    result = await asyncio.wrap_future(client.call_tool.future(name, arguments))
    return result.raise_for_error()


async def fill_in(request: ElicitRequestFormParams) -> ElicitResult:
    """Answer a form after a delay, as a person would."""
    await asyncio.sleep(0.1)
    print(f"the server asks: {request.message}")
    return ElicitResult.accept({"name": "Ada", "email": "ada@example.com"})


async def main() -> None:
    """Open a client, make several calls, and close it, without blocking the loop."""
    loop = asyncio.get_running_loop()

    def handle_form(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
        # The client runs this on another thread, which waits for a coroutine on the loop.
        answer = asyncio.run_coroutine_threadsafe(fill_in(request), loop)

        def stop() -> None:
            answer.cancel()

        context.cancel.on_cancel(stop)  # the server needs no answer any more
        return answer.result()

    # Opening and closing block, so they run on another thread.
    client = await asyncio.to_thread(syncmcp.connect, SERVER, elicitation=handle_form)
    try:
        sums = [call_tool(client, "add", {"a": n, "b": n}) for n in range(5)]
        print([result.text for result in await asyncio.gather(*sums)])

        try:
            await asyncio.wait_for(call_tool(client, "sleep", {"seconds": 60}), timeout=0.2)
        except asyncio.TimeoutError:
            print("timed out, and the call is cancelled")

        print((await call_tool(client, "signup_math_facts", {})).text)
    finally:
        await asyncio.to_thread(client.close)


if __name__ == "__main__":
    asyncio.run(main())
