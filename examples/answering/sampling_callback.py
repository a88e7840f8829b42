"""A server asks a model, and a person reviews both the request and the model's answer.

``python examples/answering/sampling_callback.py "12 * 7"``  reviewed at the terminal
``python examples/answering/sampling_callback.py "12 * 7" --ui browser``  reviewed in the browser
``python examples/answering/sampling_callback.py "12 * 7" --unattended``
    approves everything without a review
"""

from __future__ import annotations

import argparse
import re
import sys

import syncmcp
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent


def tutor(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    """Answer in place of a model. A real one also needs `request.system_prompt`, for example."""
    found = re.search(r"(\d+)\s*([*+])\s*(\d+)", request.messages[-1].text)
    if found is None:
        raise syncmcp.Refused(1, "this model knows only sums and products")
    first, sign, second = int(found[1]), found[2], int(found[3])
    if sign == "+":
        lines = [f"Start at {first}.", f"Go {second} further.", f"{first + second}"]
    else:
        lines = [f"Write {first} down {second} times.", "Add it all up.", f"{first * second}"]
    for number in range(len(lines)):
        context.show("\n".join(lines[: number + 1]))  # the reviewer sees partial text
    content = TextContent(text="\n".join(lines))
    return CreateMessageResult(role="assistant", content=content, model="tutor")


def reviewer(ui: str) -> syncmcp.Approval:
    """Return the approval for the chosen user interface."""
    if ui == "browser":
        from syncmcp.ui.browser import AskInBrowser

        return AskInBrowser()
    if ui == "terminal":
        from syncmcp.ui.terminal import AskOnTerminal

        return AskOnTerminal()
    return syncmcp.Approval(syncmcp.AllowAll())


def main() -> None:
    """Let the tutor explain a problem."""
    parser = argparse.ArgumentParser(description="Let a model explain a problem.")
    parser.add_argument("problem", nargs="?", default="12 * 7")
    parser.add_argument("--ui", choices=("terminal", "browser"), default="terminal")
    parser.add_argument("--unattended", dest="ui", action="store_const", const="none")
    options = parser.parse_args()
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(
        server, name="school", sampling=tutor, approval=reviewer(options.ui)
    ) as client:
        try:
            result = client.call_tool("explain_math", {"problem": options.problem})
            print(result.raise_for_error().text)
        except (syncmcp.Denied, syncmcp.Refused) as error:
            print(f"not explained: {error}")


if __name__ == "__main__":
    main()
