"""A form of a server's, filled in by a person at the terminal.

``python examples/sign_up.py``                                          you are asked
``python examples/sign_up.py --answers '{"name": "Ada", "email": "ada@example.com"}'``   nobody is
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

import syncmcp
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from syncmcp.ui.terminal import Terminal


def sign_up(elicitation: Terminal | syncmcp.FormHandler) -> str:
    """Call the tool, which asks back, and return what came of it."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server, name="maths club", elicitation=elicitation) as client:
        answer = json.loads(client.call_tool("signup_math_facts").raise_for_error().text)
    if answer["action"] != "accept":
        return f"not signed up: {answer['action']}"
    return f"signed up: {json.dumps(answer['content'])}"


def answers(text: str) -> syncmcp.FormHandler:
    """Return a handler that gives these answers without asking anybody."""
    content = json.loads(text)

    def fill_in(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
        return ElicitResult.accept(content)

    return fill_in


def main() -> None:
    """Sign up."""
    parser = argparse.ArgumentParser(description="Sign up for a maths fact a day.")
    parser.add_argument("--answers", metavar="JSON", type=answers, help="do not ask")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")  # says so if there is no terminal to ask on
    print(sign_up(options.answers or Terminal()))


if __name__ == "__main__":
    main()
