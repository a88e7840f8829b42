"""Which files of servers are a person's own; every other file may have come with a project."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

MARKERS: Final = (
    ".git",
    ".hg",
    ".jj",
    ".svn",
    ".sl",
    ".bzr",
    ".pijul",
    "_darcs",
    ".fslckout",
    "_FOSSIL_",
    "CVS",
)
"""What the root of a work tree of a version control system has in it, as a folder or a file."""


def home_folder() -> Path | None:
    """The home directory of the person, or `None` if it is unknown."""
    home = Path(os.path.expanduser("~"))
    return home if home.is_absolute() else None


def settings_folder(home: Path) -> Path:
    """The folder in which programs keep the settings of the person."""
    # By hand: editors do not follow the XDG variables on macOS, as `platformdirs` does.
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    xdg_config = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(xdg_config) if os.path.isabs(xdg_config) else home / ".config"


def is_own(file: Path) -> bool:
    """Whether a file belongs to the person's settings, so that its servers need no approval.

    That is a file directly in a folder of an editor's or of syncmcp's settings, which no work tree
    contains; both by its path, and with all symbolic links resolved. The working directory of the
    process is of no importance.

    Args:
        file: An absolute path.
    """
    try:
        paths = (file, Path(os.path.realpath(file)))
        return all(_is_in_settings(path) and not work_trees(path) for path in paths)
    except OSError:  # unknown: the file is not trusted
        return False


def work_trees(path: Path) -> list[Path]:
    """The roots of the work trees that contain `path`, the innermost first.

    Raises:
        OSError: A folder above `path` cannot be examined.
    """
    return [folder for folder in path.parents if any(_has(folder, name) for name in MARKERS)]


def _is_in_settings(path: Path) -> bool:
    home = home_folder()
    if home is None:
        return False
    settings = settings_folder(home)
    folders = (
        settings / "Claude",
        settings / "Code" / "User",
        settings / "syncmcp",
        home / ".cursor",
    )
    # By identity: a folder may have several names in a file system.
    return any(folder.is_dir() and os.path.samefile(path.parent, folder) for folder in folders)


def _has(folder: Path, name: str) -> bool:
    try:
        os.lstat(folder / name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
