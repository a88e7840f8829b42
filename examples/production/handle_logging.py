"""Write a server's log messages to an audit trail: filtered, one line of JSON each."""

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
    out: TextIO, min_level: str, loggers: set[str]
) -> Callable[[LoggingMessageNotificationParams], None]:
    """Return a function that writes messages of at least this level from these loggers."""
    ignored = LEVELS[: LEVELS.index(min_level)]  # an unknown level is written

    def write(message: LoggingMessageNotificationParams) -> None:
        if message.level in ignored or message.logger not in loggers:
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
    """A server with a tool that logs at every level."""
    server = Server("bank")

    @server.tool()
    def transfer(context: ToolContext, amount: int) -> str:
        """Transfer money."""
        for level in LEVELS:
            context.log(level, {"amount": amount, "step": level}, "bank.audit")
        context.log("emergency", "not for the audit trail", "bank.weather")
        return "done"

    return server


def main() -> None:
    """Make a transfer, and print its audit trail."""
    write = audit_trail(sys.stdout, min_level="warning", loggers={"bank.audit"})
    with syncmcp.connect(bank(), on_log=write) as client:
        client.set_log_level("debug")  # at the server; `write` filters again
        client.call_tool("transfer", {"amount": 100}).raise_for_error()


if __name__ == "__main__":
    main()
