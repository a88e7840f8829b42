"""`python -m syncmcp` loads nothing of the current folder, which Python puts first on its path.

A checked-out folder may have a ``logging.py`` or a ``typer.py`` in it. Imported first of all by the
package: what it imports itself would come from there, too. A program that imports the library keeps
its path, and so does ``python -P``.
"""

from __future__ import annotations

import os
import sys


def leave_out_current_folder() -> None:
    """Remove the current folder from the path if this process was started as a module of ours."""
    # While Python looks for the module of -m, this stands in the place of the program.
    if sys.argv[:1] != ["-m"] or getattr(sys.flags, "safe_path", False):
        return
    module = sys.orig_argv[-len(sys.argv)]  # "syncmcp", or "-msyncmcp"
    if module.startswith("-"):
        module = module.partition("m")[2]
    if module.partition(".")[0] != "syncmcp":
        return
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone, and Python has put none there
        return
    if sys.path[:1] == [here]:
        del sys.path[0]


leave_out_current_folder()
