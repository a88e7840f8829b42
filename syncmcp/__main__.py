"""`python -m syncmcp`: the command `syncmcp`, for where scripts are not on the path."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

if __name__ == "__main__":
    # By its path: it may be in the current folder, from which nothing is imported.
    command = run_path(str(Path(__file__).parents[1] / "syncmcp_command.py"))
    raise SystemExit(command["main"]())
