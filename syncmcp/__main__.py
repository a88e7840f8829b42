"""`python -m syncmcp` runs the command `syncmcp`, also if the script is not on the `PATH`."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

if __name__ == "__main__":
    # Search next to this package: it may be in the current folder, which is not on the path.
    spec = PathFinder.find_spec("syncmcp_command", [str(Path(__file__).parents[1])])
    assert spec is not None and spec.loader is not None  # noqa: PT018
    command = module_from_spec(spec)
    spec.loader.exec_module(command)
    raise SystemExit(command.main())
