"""`list` and `tools`: what a server has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any, NamedTuple

import typer

from syncmcp.cli.options import speaks_to_server
from syncmcp.cli.session import Session
from syncmcp.cli.tool_help import claims_of, signature_of
from syncmcp.ui.text import shorten

__all__ = ["list_all", "list_tools"]

_MOST_WORDS = 300


class What(str, Enum):
    """What can be listed."""

    TOOLS = "tools"
    RESOURCES = "resources"
    TEMPLATES = "templates"
    PROMPTS = "prompts"


class _Kind(NamedTuple):
    """How one kind is listed: its operation, its member in the result, and what people see."""

    operation: str
    member: str
    columns: Sequence[str]
    row: Callable[[Any], Sequence[str]]


@speaks_to_server
def list_all(
    session: Session,
    what: Annotated[
        list[What] | None,
        typer.Argument(
            metavar="WHAT",
            help="tools, resources, templates, prompts; else all.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List what a server has: tools, resources, templates of resources, prompts."""
    client = session.client
    # What was asked for by name is asked of the server, be it to hear that it has none.
    wanted = list(dict.fromkeys(what or _offered(session)))
    found = {
        each: getattr(client, _KINDS[each].operation)(**session.options).to_wire()
        for each in wanted
    }
    if session.out.json:
        whole = {_KINDS[each].member: wire[_KINDS[each].member] for each, wire in found.items()}
        session.out.result(found[wanted[0]] if what and len(wanted) == 1 else whole)
        return
    for each in wanted:
        _show(session, each, found[each][_KINDS[each].member], headed=len(wanted) > 1)


@speaks_to_server
def list_tools(session: Session) -> None:
    """List a server's tools: what each is called with, and what the server says of it."""
    result = session.client.list_tools(**session.options)
    if session.out.json:
        session.out.result(result.to_wire())
    else:
        _show(session, What.TOOLS, result.to_wire()["tools"], headed=False)


def _offered(session: Session) -> list[What]:
    capabilities = session.client.server.capabilities
    offers = {
        What.TOOLS: capabilities.tools,
        What.RESOURCES: capabilities.resources,
        What.TEMPLATES: capabilities.resources,
        What.PROMPTS: capabilities.prompts,
    }
    return [what for what, offer in offers.items() if offer is not None]


def _show(session: Session, what: What, items: Sequence[Any], *, headed: bool) -> None:
    kind = _KINDS[what]
    if headed:
        session.out.heading(f"{what.value}: {len(items)}")
    rows = [kind.row(item) for item in items]
    if headed and not session.out.terminal:
        rows = [(what.value, *row) for row in rows]  # a heading for each line
    session.out.table(kind.columns, rows)


def _words(item: dict[str, Any]) -> str:
    said = item.get("description") or item.get("title") or ""
    return shorten(str(said).strip().partition("\n\n")[0].replace("\n", " "), _MOST_WORDS)


def _prompt_arguments(item: dict[str, Any]) -> str:
    return ", ".join(
        f"{argument['name']}{'' if argument.get('required') else '?'}"
        for argument in item.get("arguments") or ()
    )


_KINDS = {
    What.TOOLS: _Kind(
        "list_tools",
        "tools",
        ("Tool", "Arguments", "Claims to be", "Description"),
        lambda item: (
            item["name"],
            signature_of(item["inputSchema"]),
            claims_of(item.get("annotations")),
            _words(item),
        ),
    ),
    What.RESOURCES: _Kind(
        "list_resources",
        "resources",
        ("Resource", "Name", "Type", "Description"),
        lambda item: (item["uri"], item["name"], item.get("mimeType") or "", _words(item)),
    ),
    What.TEMPLATES: _Kind(
        "list_resource_templates",
        "resourceTemplates",
        ("Template", "Name", "Type", "Description"),
        lambda item: (item["uriTemplate"], item["name"], item.get("mimeType") or "", _words(item)),
    ),
    What.PROMPTS: _Kind(
        "list_prompts",
        "prompts",
        ("Prompt", "Arguments", "Description"),
        lambda item: (item["name"], _prompt_arguments(item), _words(item)),
    ),
}
