"""Servers by their names in the files of editors."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from syncmcp import servers_file
from syncmcp.cli.failures import CommandError
from syncmcp.cli.places import home
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp.servers_file import Approve, ServerEntry, ServersFile

__all__ = ["entry", "files"]


def files(
    config: Path | None, *, approve: Approve | None = None, trust: bool = False
) -> Iterator[tuple[Path, ServersFile | McpError]]:
    """The files to look at, read; or why one cannot be.

    Args:
        config: The only one; without it, those of the editors on this computer.
        approve: Asks a person about a server of a file in the working tree.
        trust: Ask nobody.
    """
    paths = [place.path for place in servers_file.known_files()] if config is None else [config]
    for path in paths:
        try:
            yield (
                path,
                servers_file.read(
                    path,
                    approve=approve,
                    trust=trust,
                    approvals=home() / "approved-servers.json",
                ),
            )
        except McpError as error:
            yield path, error


def entry(
    name: str, config: Path | None, *, approve: Approve | None = None, trust: bool = False
) -> ServerEntry:
    """The server of this name; of several, that of the first file.

    Raises:
        CommandError: No file names it.
        McpError: The file given cannot be read.
    """
    names: list[str] = []
    for _, read in files(config, approve=approve, trust=trust):
        if isinstance(read, McpError):
            if config is not None:
                raise read
            continue  # a broken file of one editor is not in the way of another's; `servers` tells
        if name in read:
            return read[name]
        names.extend(read)
    close = difflib.get_close_matches(name, names, n=3)
    hint = "a URL begins with https:// or http://; a command stands after --"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif names:
        hint += "; `syncmcp servers` lists the names"
    raise CommandError(f"there is no server {name!r}", hint=hint)
