"""`python -m syncmcp`: the command `syncmcp`, for where scripts are not on the path."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

if __name__ == "__main__":
    # The entry beside this package, which may be in the current folder: that is not on the path.
    spec = PathFinder.find_spec("syncmcp_command", [str(Path(__file__).parents[1])])
    assert spec is not None and spec.loader is not None  # noqa: PT018
    command = module_from_spec(spec)
    spec.loader.exec_module(command)
    raise SystemExit(command.main())
