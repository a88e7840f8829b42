"""The server over stdin and stdout: one message a line."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncmcp.testing.server.server import Server


def run(server: Server) -> None:
    """Serve until stdin ends or stdout breaks; running calls are cancelled then.

    stdout is taken over: what other code prints goes to stderr, for it would not be JSON-RPC.
    """
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    lock = threading.Lock()  # Keeps lines whole.

    def deliver(frame: bytes) -> None:
        # The bare descriptor: a buffered writer is locked for ever when the interpreter ends
        # while a daemon thread is writing.
        data = memoryview(frame + b"\n")
        with lock:
            while data:
                data = data[os.write(output, data) :]

    session = server.connect(deliver)
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                session.receive(line)
    except BrokenPipeError:
        pass  # The client has gone; there is nobody left to tell.
    finally:
        session.close()
