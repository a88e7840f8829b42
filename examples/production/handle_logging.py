"""An audit trail: what a server logs, filtered by level and logger, one JSON line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TextIO

import syncmcp
from syncmcp.testing import Server, ToolContext
from syncmcp.types import LoggingMessageNotificationParams

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def audit_trail(
    out: TextIO, least: str, loggers: set[str]
) -> Callable[[LoggingMessageNotificationParams], None]:
    """Return a function that writes messages of at least this level from these loggers."""

    def write(message: LoggingMessageNotificationParams) -> None:
        if LEVELS.index(message.level) < LEVELS.index(least) or message.logger not in loggers:
            return
        entry = {
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "level": message.level,
            "logger": message.logger,
            "data": message.data,
        }
        out.write(json.dumps(entry) + "\n")

    return write


def bank() -> Server:
    """A server that logs at every level there is."""
    server = Server("bank")

    @server.tool()
    def transfer(context: ToolContext, amount: int) -> str:
        """Move some money."""
        for level in LEVELS:
            context.log(level, {"amount": amount, "step": level}, "bank.audit")
        context.log("emergency", "not for the trail", "bank.weather")
        return "done"

    return server


def main() -> None:
    """Make a transfer, and print its trail."""
    write = audit_trail(sys.stdout, least="warning", loggers={"bank.audit"})
    with syncmcp.connect(bank(), on_log=write) as client:
        client.set_log_level("debug")  # the server's filter; the trail has its own
        client.call_tool("transfer", {"amount": 100}).raise_for_error()


if __name__ == "__main__":
    main()
