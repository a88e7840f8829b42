"""`python -m syncmcp`: the command `syncmcp`, for where scripts are not on the path."""

from __future__ import annotations

from syncmcp.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
