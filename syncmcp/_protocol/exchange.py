"""One request and everything that belongs to it, until there is a final result."""

from __future__ import annotations

from typing import Any

from syncmcp._protocol.steps import Send, Steps


def exchange(method: str, params: dict[str, Any] | None = None) -> Steps[dict[str, Any]]:
    """Send a request and return its final result, unvalidated.

    What kind of result it is gets read before any model sees it, so that a tolerant model cannot
    turn a question into a hollow success.

    Raises:
        ProtocolError: The result is no object, or of a kind that nobody agreed on.
    """
    reply = yield Send(method, params)
    return reply.dialect.final_result(method, reply.result)
