"""The roots that a person gave once, for all servers that ask the command for some."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from syncmcp.cli.failures import CommandError
from syncmcp.cli.places import home
from syncmcp.handlers.roots import Roots
from syncmcp.handlers.roots import _copy as restored
from syncmcp.types import Root

__all__ = ["keep", "remembered"]


def remembered() -> Roots:
    """Them, whether or not they are still on the disk.

    Raises:
        CommandError: What is kept cannot be read.
    """
    path = _file()
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        kept = []
    except (OSError, ValueError) as error:
        raise CommandError(f"the roots in {str(path)!r} cannot be read: {error}") from error
    if not isinstance(kept, list) or not all(isinstance(uri, str) for uri in kept):
        raise CommandError(f"{str(path)!r} holds no list of roots")
    return restored([Root(uri=uri) for uri in kept], None)


def keep(roots: Roots) -> None:
    """Replace what is kept, as a whole, so that a crash leaves the old roots or the new ones.

    Raises:
        CommandError: It cannot be written.
    """
    path = _file()
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(json.dumps([status.root.uri for status in roots.list()], indent=1), "utf-8")
        os.replace(new, path)
    except OSError as error:
        raise CommandError(f"the roots cannot be kept in {str(path)!r}: {error}") from error


def _file() -> Path:
    return home() / "roots.json"
