"""The entry of the command ``syncmcp``, which needs the extra `cli`.

It is outside of the package, and imports nothing at its top. So Ctrl-C ends the command in the same
way while Python loads the package as it does later.
"""

from __future__ import annotations

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The command line without the program name; by default that of this process.
    """
    try:
        import sys

        from syncmcp.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as missing:
        if missing.name not in ("prompt_toolkit", "questionary", "rich", "typer"):
            raise
        message = f"the command needs the package {missing.name}"
        return _end("UsageError", message, 2, "install syncmcp-client[cli]")
    except KeyboardInterrupt:
        return _end("Interrupted", "interrupted", 130)


def _end(kind: str, message: str, code: int, hint: str | None = None) -> int:
    """Print an error in the command's format, without the package, which may not be loaded."""
    import json
    import sys

    if sys.stderr.isatty():
        text = f"error: {message}" if hint is None else f"error: {message}\n  {hint}"
    else:
        error = {"kind": kind, "message": message, "exit_code": code}
        text = json.dumps({"error": error if hint is None else {**error, "hint": hint}})
    print(text, file=sys.stderr)
    return code
