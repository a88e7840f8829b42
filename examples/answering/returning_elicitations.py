"""A server asks for a form: a person at the terminal fills it in, declines it or cancels it.

``python examples/answering/returning_elicitations.py``  asks you (extra ``terminal``)
``python examples/answering/returning_elicitations.py --unattended``
    asks three functions: one accepts, one declines, one cancels
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
    """Fill in the form. Fields that are not required may be omitted."""
    return ElicitResult.accept({"name": "Ada", "email": "ada@example.com"})


def decline(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Refuse to fill in the form."""
    return ElicitResult.decline()


def cancel(request: ElicitRequestFormParams, context: syncmcp.HandlerContext) -> ElicitResult:
    """Leave the form without a decision, as a person does who closes a window."""
    return ElicitResult.cancel()


def sign_up(elicitation: Terminal | syncmcp.FormHandler) -> str:
    """Call the tool, which asks for the form; return a sentence about the outcome."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server, name="maths club", elicitation=elicitation) as client:
        answer = json.loads(client.call_tool("signup_math_facts").raise_for_error().text)
    if answer["action"] != "accept":
        return f"not signed up: {answer['action']}"
    return f"signed up: {json.dumps(answer['content'])}"


def main() -> None:
    """Sign up for a maths fact a day."""
    parser = argparse.ArgumentParser(description="Sign up for a maths fact a day.")
    parser.add_argument("--unattended", action="store_true", help="let functions answer")
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")  # shows the warning if there is no terminal
    for elicitation in (accept, decline, cancel) if options.unattended else (Terminal(),):
        print(sign_up(elicitation))


if __name__ == "__main__":
    main()
