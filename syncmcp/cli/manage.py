"""`servers` and `roots`: what the files of editors name and who approved it; roots remembered."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from syncmcp._base.text import redact
from syncmcp.cli import options
from syncmcp.cli.options import root_paths, show_help
from syncmcp.cli.output import CommandError, Output, describe
from syncmcp.cli.session import entry, files, somebody
from syncmcp.cli.state import keep, remembered
from syncmcp.errors import McpError
from syncmcp.servers_file import NotApproved

if TYPE_CHECKING:
    from syncmcp.servers_file import ServerEntry

__all__ = ["roots_app", "servers_app"]


class _Listing(TyperGroup):
    """A group of commands that by itself is its `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``list`` before options that are none of the group's."""
        lists = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if lists and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


servers_app = typer.Typer(
    cls=_Listing,
    help="The servers that files name: of Claude Desktop, VS Code and Cursor. Alone, it is list.",
    rich_markup_mode=None,
)

_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Look into this file alone."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print them as JSON.")]
_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name.", autocompletion=options.servers),
]


@servers_app.command("list")
def show_servers(config: _Config = None, json: _Json = False) -> None:
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


@servers_app.command()
def approve(
    name: _Name,
    config: _Config = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: you know it.")] = False,
    json: _Json = False,
) -> None:
    """Agree to a server that a file in the working tree names, as it stands there.

    Nothing is started or contacted. Whatever changes of it has to be agreed to again.
    """
    found = entry(name, config)
    out = Output(json=json)
    if not found.approved:
        _ask(found, out, yes=yes)
        found.approve()
    _say(found, out)


@servers_app.command()
def forget(name: _Name, config: _Config = None, json: _Json = False) -> None:
    """Take back that somebody agreed to a server: who uses it next is asked again."""
    found = entry(name, config)
    found.forget()
    _say(found, Output(json=json))


def _ask(found: ServerEntry, out: Output, *, yes: bool) -> None:
    """Show a person what there is to approve.

    Raises:
        CommandError: Nobody can be asked.
        NotApproved: They do not want it.
    """
    review = found.review()
    if yes:
        out.note(str(review))
        return
    person = somebody()
    if person is None:
        raise CommandError(
            f"nobody can be asked about {found.name!r}", hint="--yes approves it unasked"
        )
    if not person.approve(review):
        raise NotApproved(
            "this server was not approved",
            server=found.name,
            kind="server",
            by="person",
            review=review,
        )


def _say(found: ServerEntry, out: Output) -> None:
    facts = _facts(found)
    out.result(facts) if out.json else out.text(f"{found.name}: {facts['state']}")


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


# `roots list`, `add` and `remove`: the directories that servers are told of.


roots_app = typer.Typer(
    help="The directories that servers are told to work in, if they ask and you agree.",
    invoke_without_command=True,
    callback=show_help,
    rich_markup_mode=None,
)

_AsRoots = Annotated[bool, typer.Option("--json", help="Print them as the protocol has them.")]
_PATH = "A directory, or a file: URI."
_Path = Annotated[str, typer.Argument(metavar="PATH", help=_PATH)]
_Known = Annotated[str, typer.Argument(metavar="PATH", help=_PATH, autocompletion=root_paths)]


@roots_app.command("list")
def show_roots(json: _AsRoots = False) -> None:
    """List the roots. One that is not there at the moment is not shown to servers."""
    out = Output(json=json)
    statuses = remembered().list()
    if json:
        out.result({"roots": [status.root.to_wire() for status in statuses]})
    else:
        out.table(("Root", "State"), [(str(each.path), each.status) for each in statuses])


@roots_app.command()
def add(path: _Path, json: _AsRoots = False) -> None:
    """Add a root."""
    roots = remembered()
    root = roots.add(path)
    keep(roots)
    out = Output(json=json)
    out.result(root.to_wire()) if json else out.text(root.uri)


@roots_app.command()
def remove(path: _Known, json: _AsRoots = False) -> None:
    """Remove a root, which need not be there any more."""
    roots = remembered()
    root = roots.remove(path)
    keep(roots)
    out = Output(json=json)
    out.result(root.to_wire()) if json else out.text(root.uri)
