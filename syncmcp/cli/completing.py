"""What Tab offers in the person's own shell: from files alone, no server is started or contacted.

What is offered gets onto a command line, and a file in the working tree may be anybody's: names
that a shell would take for more than a word are left to be typed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from syncmcp._protocol.revisions import REVISIONS
from syncmcp.cli.failures import CommandError
from syncmcp.cli.model import PROVIDERS
from syncmcp.cli.named import files
from syncmcp.cli.remembered_roots import remembered
from syncmcp.errors import McpError

__all__ = ["providers", "revisions", "root_paths", "servers"]


def servers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names that files have for servers."""
    # One that begins with - would be an option, of which --trust asks nobody.
    return _plain((name for name in _names(ctx) if name[:1] != "-"), incomplete)


def providers(incomplete: str) -> list[str]:
    """The providers of models."""
    return _plain((f"{name}:" for name in PROVIDERS), incomplete)


def revisions(incomplete: str) -> list[str]:
    """What ``--revision`` takes."""
    return _plain(("auto", "legacy", *REVISIONS), incomplete)


def root_paths(incomplete: str) -> list[str]:
    """The roots that there are."""
    try:
        return _plain((str(status.path) for status in remembered().list()), incomplete)
    except CommandError:
        return []  # Tab is no place for an error; the command itself will meet it


def _names(ctx: typer.Context) -> Iterator[str]:
    config: Any = ctx.params.get("config")
    for _, read in files(None if config is None else Path(config)):
        if not isinstance(read, McpError):
            yield from read


def _plain(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and shlex.quote(word) == word]
