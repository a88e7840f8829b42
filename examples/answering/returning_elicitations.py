"""A form of a server's, filled in by a person at the terminal, who may also say no, or nothing.

``python examples/answering/returning_elicitations.py``  you are asked
``python examples/answering/returning_elicitations.py --unattended``
    three functions answer, each its way
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

import syncmcp
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from syncmcp.ui.terminal import Terminal


def accept(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Fill the form in. What is not required may be left out."""
    return ElicitResult.accept({"name": "Ada", "email": "ada@example.com"})


def decline(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Say no: the server had better not ask again."""
    return ElicitResult.decline()


def cancel(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Decide nothing, as somebody who closes the window does."""
    return ElicitResult.cancel()


def sign_up(elicitation: Terminal | syncmcp.FormHandler) -> str:
    """Call the tool, which asks back, and return what came of it."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server, name="maths club", elicitation=elicitation) as client:
        answer = json.loads(client.call_tool("signup_math_facts").raise_for_error().text)
    if answer["action"] != "accept":
        return f"not signed up: {answer['action']}"
    return f"signed up: {json.dumps(answer['content'])}"


def main() -> None:
    """Sign up for a maths fact a day."""
    parser = argparse.ArgumentParser(description="Sign up for a maths fact a day.")
    parser.add_argument("--unattended", action="store_true", help="do not ask")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")  # says so if there is no terminal to ask on
    for elicitation in (accept, decline, cancel) if options.unattended else (Terminal(),):
        print(sign_up(elicitation))


if __name__ == "__main__":
    main()
