"""`info`, `list`, `tools`, `ping` and `listen`: show a server, its lists and their changes."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import typer

from syncmcp.cli.output import CommandError, Exit
from syncmcp.cli.parsing import check_seconds
from syncmcp.cli.session import Session, with_session
from syncmcp.cli.tool_help import barred, describe_claims, signature
from syncmcp.errors import NotSupported
from syncmcp.types import ServerCapabilities
from syncmcp.ui import shorten


@with_session
def info(session: Session) -> None:
    """Show a server's name, revision, capabilities and instructions.

    For example: syncmcp info https://example.com/mcp
    """
    server = session.client.server
    if session.out.json:
        stated: dict[str, Any] = {
            "protocolVersion": server.revision,
            "capabilities": server.capabilities.to_wire(),
        }
        if server.info is not None:
            stated["serverInfo"] = server.info.to_wire()
        if server.instructions is not None:
            stated["instructions"] = server.instructions
        session.out.result(stated)
        return
    rows = [("revision", server.revision)]
    if server.info is not None:
        rows.insert(0, ("name", f"{server.info.title or server.info.name} {server.info.version}"))
        if server.info.website_url:
            rows.append(("website", server.info.website_url))
    rows.append(("capabilities", ", ".join(capability_names(server.capabilities)) or "none"))
    session.out.table(("Server", ""), rows)
    if server.instructions:
        session.out.heading("The server's instructions, which are meant for a model")
        if session.out.terminal:
            session.out.line(barred(server.instructions))
        else:
            session.out.text(server.instructions)


@with_session
def ping(
    session: Session,
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=1, metavar="NUMBER", help="How many times to ping."),
    ] = 1,
) -> None:
    """Measure how long a server takes to answer.

    For example: syncmcp ping https://example.com/mcp --count 5
    """
    times = list(round_trips(session, count))
    for taken in times:
        milliseconds = round(taken * 1000, 1)
        session.out.show({"milliseconds": milliseconds}, f"{milliseconds} ms")
    if count > 1 and not session.out.json:
        session.out.note(f"median {statistics.median(times) * 1000:.1f} ms of {count}")


@with_session
def listen(
    session: Session,
    uris: Annotated[
        list[str] | None,
        typer.Argument(metavar="URI", help="Resources to watch.", show_default=False),
    ] = None,
    tools: Annotated[bool, typer.Option("--tools", help="Watch the list of tools.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Watch the list of prompts.")] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Watch the list of resources.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="NUMBER", help="End after this many changes."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="The longest time to wait for a change.",
            callback=check_seconds,
        ),
    ] = None,
) -> None:
    """Print each change that a server reports, until Ctrl-C.

    Without options and URIs, it watches all lists.

    For example: syncmcp listen https://example.com/mcp --tools --wait 60
    """
    for word in uris or ():
        if ":" not in word:
            hint = "`syncmcp list TARGET resources` shows the URIs"
            if (plural := f"{word.removesuffix('s')}s") in ("tools", "prompts", "resources"):
                hint = f"--{plural} watches the list of {plural}"
            raise CommandError(f"{word!r} is not a URI", hint=hint)
    client = session.client
    if not (uris or tools or prompts or resources):
        offers = client.server.capabilities
        tools = offers.tools is not None and bool(offers.tools.list_changed)
        prompts = offers.prompts is not None and bool(offers.prompts.list_changed)
        resources = offers.resources is not None and bool(offers.resources.list_changed)
        if not (tools or prompts or resources):
            raise CommandError(
                "the server does not advertise changes to its lists",
                hint="name a resource to watch",
            )
    with client.listen(
        tools=tools,
        prompts=prompts,
        resources=resources,
        uris=uris or (),
        timeout=wait,
        stop_after=count,
    ) as changes:
        watched = ", ".join([*(f"the {name}" for name in changes.lists), *changes.uris])
        try:
            session.out.note(f"listening to {watched}")
            for event in changes:
                what = event.uri or f"the list of {event.kind}"
                changed = "may have changed" if event.missed else "changed"
                session.out.show(event._asdict(), f"{what} {changed}")
        except KeyboardInterrupt:  # the usual end, which is not an error
            raise typer.Exit(Exit.INTERRUPTED) from None


def round_trips(session: Session, count: int) -> Iterator[float]:
    """Ping the server `count` times; yield each round-trip time, in seconds.

    Where the revision has no ping, ``server/discover`` is requested instead.
    """
    client = session.client
    for _ in range(count):
        begun = perf_counter()
        try:
            client.ping(**session.request_options())
        except NotSupported:
            client.request("server/discover", **session.request_options())
        yield perf_counter() - begun


def capability_names(capabilities: ServerCapabilities) -> list[str]:
    """Return the declared capabilities of a server, such as ``tools (listChanged)``."""
    names = []
    for name, settings in capabilities.to_wire().items():
        if settings is None:
            continue
        # A capability that the library does not know may have any value.
        stated = settings if isinstance(settings, dict) else {}
        details = [key for key, on in stated.items() if on is True]
        if name in ("extensions", "experimental"):
            details = list(stated)
        names.append(f"{name} ({', '.join(details)})" if details else name)
    return names


# `list` and `tools`: the lists of a server.


_MAX_SUMMARY = 300
_SENTENCE = re.compile(r".+?[.!?](?= |$)|.*")


class ListKind(str, Enum):
    """The lists that a server may have."""

    TOOLS = "tools"
    RESOURCES = "resources"
    TEMPLATES = "templates"
    PROMPTS = "prompts"


class _Listing(NamedTuple):
    """One list: its capability, the client method, the member of its result, and its table.

    The last column has the description, which `row` leaves out.
    """

    capability: str
    operation: str
    member: str
    columns: Sequence[str]
    row: Callable[[Any], Sequence[str]]


_Long = Annotated[
    bool, typer.Option("--long", "-l", help="Show full descriptions, not just first sentences.")
]


@with_session
def list_all(
    session: Session,
    what: Annotated[
        list[ListKind] | None,
        typer.Argument(
            metavar="WHAT",
            help="tools, resources, templates or prompts; all by default.",
            show_default=False,
        ),
    ] = None,
    long: _Long = False,
) -> None:
    """List a server's tools, resources, templates and prompts.

    For example: syncmcp list https://example.com/mcp tools prompts
    """
    _show_lists(session, what, long=long)


@with_session
def list_tools(session: Session, long: _Long = False) -> None:
    """List a server's tools, with arguments and descriptions.

    For example: syncmcp tools -- python server.py
    """
    _show_lists(session, [ListKind.TOOLS], long=long)


def _show_lists(session: Session, what: Sequence[ListKind] | None, *, long: bool) -> None:
    # Lists named on the command line are requested even if the server does not declare them:
    # its error says more than an empty table.
    offers = session.client.server.capabilities
    offered = [
        each for each, one in _LISTINGS.items() if getattr(offers, one.capability) is not None
    ]
    wanted = list(dict.fromkeys(what or offered))
    results = [
        getattr(session.client, _LISTINGS[each].operation)(**session.request_options()).to_wire()
        for each in wanted
    ]
    items = {
        _LISTINGS[each].member: result[_LISTINGS[each].member]
        for each, result in zip(wanted, results, strict=True)
    }
    if session.out.json:
        session.out.result(results[0] if what and len(wanted) == 1 else items)
        return
    if not any(items.values()):
        session.out.note(f"the server has no {', '.join(each.value for each in wanted) or 'lists'}")
        return
    headed = not what or len(wanted) > 1  # also if the server has only one list
    for each in wanted:
        kind = _LISTINGS[each]
        rows = [(*kind.row(item), _summary(item, long=long)) for item in items[kind.member]]
        if headed:
            session.out.heading(f"{each.value}: {len(rows)}")
            if not session.out.terminal:
                rows = [(each.value, *row) for row in rows]  # in place of the heading
        session.out.table(kind.columns, rows)


def _summary(item: dict[str, Any], *, long: bool) -> str:
    """Return the first sentence of an item's description, or all of it (`long`), on one line."""
    said = " ".join(str(item.get("description") or item.get("title") or "").split())
    found = _SENTENCE.match(said)
    if long or found is None:
        return said
    more = " …" if found.end() < len(said) else ""
    return shorten(found[0], _MAX_SUMMARY) + more


def _prompt_arguments(item: dict[str, Any]) -> str:
    return ", ".join(
        f"{argument['name']}{'' if argument.get('required') else '?'}"
        for argument in item.get("arguments") or ()
    )


_LISTINGS = {
    ListKind.TOOLS: _Listing(
        "tools",
        "list_tools",
        "tools",
        ("Tool", "Arguments", "Claims to be", "Description"),
        lambda item: (
            item["name"],
            signature(item["inputSchema"]),
            describe_claims(item.get("annotations")),
        ),
    ),
    ListKind.RESOURCES: _Listing(
        "resources",
        "list_resources",
        "resources",
        ("Resource", "Name", "Type", "Description"),
        lambda item: (item["uri"], item["name"], item.get("mimeType") or ""),
    ),
    ListKind.TEMPLATES: _Listing(
        "resources",
        "list_resource_templates",
        "resourceTemplates",
        ("Template", "Name", "Type", "Description"),
        lambda item: (item["uriTemplate"], item["name"], item.get("mimeType") or ""),
    ),
    ListKind.PROMPTS: _Listing(
        "prompts",
        "list_prompts",
        "prompts",
        ("Prompt", "Arguments", "Description"),
        lambda item: (item["name"], _prompt_arguments(item)),
    ),
}
