"""Keeps `python -m syncmcp` from importing modules of the current folder.

Python puts that folder first on its path, and it may contain a ``logging.py`` or a ``typer.py``.
This is the package's first import after ``__future__``, and imports only modules that Python has
loaded. The path does not change in a program that imports the library, or with ``python -P``.
"""

from __future__ import annotations

import os
import sys


def leave_out_current_folder() -> None:
    """Remove the current folder from the path if the program is a module of this package."""
    # Until Python has found the module of -m, "-m" replaces the name of the program.
    if sys.argv[:1] != ["-m"] or getattr(sys.flags, "safe_path", False):
        return
    module = sys.orig_argv[-len(sys.argv)]  # "syncmcp", or "-msyncmcp"
    if module.startswith("-"):
        module = module.partition("m")[2]
    if module.partition(".")[0] != "syncmcp":
        return
    try:
        here = os.getcwd()
    except OSError:  # the folder no longer exists, so Python did not add it
        return
    if sys.path[:1] == [here]:
        del sys.path[0]


leave_out_current_folder()
