"""The command ``syncmcp``: MCP servers from a shell. Needs the extra `cli`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]

_NEEDED = ("prompt_toolkit", "questionary", "rich", "typer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The command line without the program name; by default that of this process.
    """
    try:
        from syncmcp.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as missing:
        if missing.name not in _NEEDED:
            raise
        message = f"the command needs the package {missing.name}"
        error = {"kind": "UsageError", "message": message, "exit_code": 2}
        return _end({**error, "hint": "install syncmcp-client[cli]"})
    except KeyboardInterrupt:  # loading takes a moment
        return _end({"kind": "Interrupted", "message": "interrupted", "exit_code": 130})


def _end(error: dict[str, Any]) -> int:
    """Print an error as the command does, without what could not be loaded."""
    if sys.stderr.isatty():
        hint = f"\n  {error['hint']}" if "hint" in error else ""
        print(f"error: {error['message']}{hint}", file=sys.stderr)
    else:
        print(json.dumps({"error": error}), file=sys.stderr)
    code: int = error["exit_code"]
    return code
