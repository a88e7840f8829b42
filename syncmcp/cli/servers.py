"""`servers`: what the files of editors name, and whether it can be used."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp._redaction import redact
from syncmcp.cli.failures import describe
from syncmcp.cli.named import files
from syncmcp.cli.output import Output
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp.servers_file import ServerEntry

__all__ = ["servers"]


def servers(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Look into this file alone."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the servers that files name: of Claude Desktop, VS Code and Cursor, or --config.

    Nothing is started or contacted.
    """
    out = Output(json=json)
    found: list[dict[str, Any]] = []
    for path, read in files(config):
        if not isinstance(read, McpError):
            found.extend(_facts(one) for one in read.values())
        elif config is not None:
            raise read
        else:
            found.append({"name": None, "file": str(path), "state": describe(read)["message"]})
    if json:
        out.result({"servers": found})
        return
    rows = [
        (one["name"] or "(none)", one["state"], one.get("target", ""), one["file"]) for one in found
    ]
    out.table(("Name", "State", "Command or URL", "File"), rows)
    if not rows:
        out.note("no file of an editor is here; --config FILE names another one")


def _facts(entry: ServerEntry) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": entry.name, "file": str(entry.file)}
    problem = entry.problem
    if problem is not None:
        return {**facts, "state": str(problem.message)}
    review = entry.review()
    # As the file has it: no placeholder is filled in.
    facts["target"] = redact(shlex.join(review.command) if review.command else review.url or "")
    if entry.disabled:
        facts["state"] = "disabled"
    else:
        facts["state"] = "ready" if entry.approved else "to be approved"
    return facts
