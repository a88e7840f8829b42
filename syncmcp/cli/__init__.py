"""The command ``syncmcp``: MCP servers from a shell. Needs the extra `cli`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

__all__ = ["main"]

_NEEDED = ("prompt_toolkit", "questionary", "rich", "typer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The command line without the program name; by default that of this process.
    """
    try:
        from syncmcp.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in _NEEDED:
            raise
        message = f"the command needs the package {missing.name}"
        error = {
            "kind": "UsageError",
            "message": message,
            "exit_code": 2,
            "hint": "install syncmcp-client[cli]",
        }
        print(json.dumps({"error": error}), file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # loading takes a moment
        return 130
    return run(sys.argv[1:] if arguments is None else arguments)
