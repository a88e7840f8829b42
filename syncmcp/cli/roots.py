"""`roots list`, `add` and `remove`: the directories that servers are told of."""

from __future__ import annotations

from typing import Annotated

import typer

from syncmcp.cli.completing import root_paths
from syncmcp.cli.options import show_help
from syncmcp.cli.output import Output
from syncmcp.cli.remembered_roots import keep, remembered

__all__ = ["app"]

app = typer.Typer(
    help="The directories that servers are told to work in, if they ask and you agree.",
    invoke_without_command=True,
    callback=show_help,
    rich_markup_mode=None,
)

_Json = Annotated[bool, typer.Option("--json", help="Print them as the protocol has them.")]
_PATH = "A directory, or a file: URI."
_Path = Annotated[str, typer.Argument(metavar="PATH", help=_PATH)]
_Known = Annotated[str, typer.Argument(metavar="PATH", help=_PATH, autocompletion=root_paths)]


@app.command("list")
def show(json: _Json = False) -> None:
    """List the roots. One that is not there at the moment is not shown to servers."""
    out = Output(json=json)
    statuses = remembered().list()
    if json:
        out.result({"roots": [status.root.to_wire() for status in statuses]})
    else:
        out.table(("Root", "State"), [(str(each.path), each.status) for each in statuses])


@app.command()
def add(path: _Path, json: _Json = False) -> None:
    """Add a root."""
    roots = remembered()
    root = roots.add(path)
    keep(roots)
    out = Output(json=json)
    out.result(root.to_wire()) if json else out.text(root.uri)


@app.command()
def remove(path: _Known, json: _Json = False) -> None:
    """Remove a root, which need not be there any more."""
    roots = remembered()
    root = roots.remove(path)
    keep(roots)
    out = Output(json=json)
    out.result(root.to_wire()) if json else out.text(root.uri)
