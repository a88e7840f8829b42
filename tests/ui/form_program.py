"""A program with a terminal: another thread asks, the main thread waits. Prints the outcome."""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
import termios
import threading
from typing import Any, cast

from syncmcp._protocol.negotiate import Negotiated
from syncmcp._protocol.revisions import dialect_for
from syncmcp.handlers import HandlerContext
from syncmcp.handlers.context import ConnectedServer
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from syncmcp.ui.terminal import Terminal

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "email": {"type": "string", "format": "email", "title": "E-mail"},
        "number": {"type": "integer", "minimum": 1, "title": "Favourite number"},
    },
    "required": ["name", "email"],
}


def main(timeout: str, commands: str) -> None:
    """Ask for SCHEMA; meanwhile do what comes on the descriptor `commands`."""
    # The terminal that a shell would have given to this program.
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    server = ConnectedServer(Negotiated(dialect_for("2025-11-25", None), {}), name="math")
    nobody = cast("Any", None)
    context = HandlerContext(nobody, server, "elicitation/create", timeout=float(timeout))
    request = ElicitRequestFormParams(message="Sign up", requested_schema=SCHEMA)
    answers: list[ElicitResult] = []
    asking = threading.Thread(
        target=lambda: answers.append(Terminal().form(request, context)), daemon=True
    )
    try:
        asking.start()
        while asking.is_alive():
            if select.select([int(commands)], [], [], 0.01)[0]:
                obey(os.read(int(commands), 64), context)
    except KeyboardInterrupt:
        sys.exit(4)
    asking.join()
    print(json.dumps(answers[0].to_wire()))


def obey(command: bytes, context: HandlerContext) -> None:
    """Do what the test wants done while the question is open."""
    if command == b"exit":
        sys.exit(3)
    assert command == b"withdraw"
    context.cancel.cancel("the server needs no answer")


if __name__ == "__main__":
    main(*sys.argv[1:])
