"""A model calls tools until it has an answer: two calls at once, then one that fails.

The model here is a function that looks only at the last results. Replace it with a real model.
"""

from __future__ import annotations

import syncmcp
from syncmcp.testing import Server
from syncmcp.tools import ModelTurn, Step, ToolFinished, ToolStarted
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)


def shop() -> Server:
    """Create a server with two tools."""
    server = Server("shop")

    @server.tool()
    def price(fruit: str) -> dict[str, int]:
        """Return the price of one piece."""
        return {"cents": {"apples": 30, "pears": 45}[fruit]}

    @server.tool()
    def order(fruit: str, pieces: int) -> str:
        """Order some."""
        if pieces % 6:
            raise ValueError("sold in sixes")
        return f"{pieces} {fruit} are on their way"

    return server


def model(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    """Request both prices, order the cheaper fruit, and order again if that failed."""
    results = [item for item in request.messages[-1].blocks if isinstance(item, ToolResultContent)]
    if not results:
        return request_tools(("price", {"fruit": "apples"}), ("price", {"fruit": "pears"}))
    if len(results) == 2:
        apples, pears = (result.structured_content["cents"] for result in results)
        fruit = "apples" if apples < pears else "pears"
        return request_tools(("order", {"fruit": fruit, "pieces": 5}))
    if results[0].is_error:
        return request_tools(("order", {"fruit": "apples", "pieces": 6}))
    text = TextContent(text="Apples cost less; six are on their way.")
    return CreateMessageResult(role="assistant", content=text, model="demo", stop_reason="endTurn")


def request_tools(*calls: tuple[str, dict[str, str | int]]) -> CreateMessageResult:
    """Return a turn in which the model requests tools."""
    uses: list[SamplingMessageContentBlock] = [
        ToolUseContent(id=f"call-{number}", name=name, input=arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    return CreateMessageResult(role="assistant", content=uses, model="demo", stop_reason="toolUse")


def show(step: Step) -> None:
    """Print a step of the loop. Called on the thread that runs the loop."""
    if isinstance(step, ModelTurn):
        print(f"turn {step.iteration}: {step.result.text or step.result.stop_reason}")
    elif isinstance(step, ToolStarted):
        print(f"  {step.use.name} {step.use.input}")
    elif isinstance(step, ToolFinished):
        print(f"  {step.use.name} -> {step.result.to_wire()['content'][0]['text']}")


def main() -> None:
    """Let the model order fruit."""
    with syncmcp.connect(shop()) as client:
        loop = syncmcp.ToolLoop(model, client, max_iterations=5, timeout=30, on_step=show)
        result = loop.run("Order five of what costs less.")
        print(f"{result.text} {len(result.messages)} messages")


if __name__ == "__main__":
    main()
