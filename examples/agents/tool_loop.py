"""A model uses a server's tools until it has an answer: two at once, then one that is refused.

The model is a function here, which goes by what it was told last. Call yours in its place.
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
    """A server with two tools."""
    server = Server("shop")

    @server.tool()
    def price(fruit: str) -> dict[str, int]:
        """Say what one costs."""
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
    """Ask for both prices, order what costs less, and order again if that was refused."""
    told = [block for block in request.messages[-1].blocks if isinstance(block, ToolResultContent)]
    if not told:
        return wants(("price", {"fruit": "apples"}), ("price", {"fruit": "pears"}))
    if len(told) == 2:
        apples, pears = (result.structured_content["cents"] for result in told)
        fruit = "apples" if apples < pears else "pears"
        return wants(("order", {"fruit": fruit, "pieces": 5}))
    if told[0].is_error:
        return wants(("order", {"fruit": "apples", "pieces": 6}))
    text = TextContent(text="Apples cost less; six are on their way.")
    return CreateMessageResult(role="assistant", content=text, model="demo", stop_reason="endTurn")


def wants(*calls: tuple[str, dict[str, str | int]]) -> CreateMessageResult:
    """Return a turn in which the model asks for tools."""
    uses: list[SamplingMessageContentBlock] = [
        ToolUseContent(id=f"call-{number}", name=name, input=arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    return CreateMessageResult(role="assistant", content=uses, model="demo", stop_reason="toolUse")


def show(step: Step) -> None:
    """Print a step, on the thread that runs the loop."""
    if isinstance(step, ModelTurn):
        print(f"turn {step.iteration}: {step.result.text or step.result.stop_reason}")
    elif isinstance(step, ToolStarted):
        print(f"  {step.use.name} {step.use.input}")
    elif isinstance(step, ToolFinished):
        print(f"  {step.use.name} -> {step.result.to_wire()['content'][0]['text']}")


def main() -> None:
    """Have some fruit ordered."""
    with syncmcp.connect(shop()) as client:
        loop = syncmcp.ToolLoop(model, client, max_iterations=5, timeout=30, on_step=show)
        result = loop.run("Order five of what costs less.")
        print(f"{result.text} {len(result.messages)} messages")


if __name__ == "__main__":
    main()
