"""`info`, `ping` and `listen`: what a server is, how fast it answers, what changes there."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp.cli.failures import CommandError
from syncmcp.cli.options import speaks_to_server
from syncmcp.cli.session import Session
from syncmcp.errors import NotSupported

if TYPE_CHECKING:
    from syncmcp.handlers.server import ConnectedServer
    from syncmcp.types import ServerCapabilities

__all__ = ["capability_names", "info", "listen", "ping", "round_trips"]


@speaks_to_server
def info(session: Session) -> None:
    """Show what a server says of itself: name, revision, capabilities, instructions."""
    server = session.client.server
    if session.out.json:
        session.out.result(_stated(server))
        return
    rows = [("revision", server.revision)]
    if server.info is not None:
        rows.insert(0, ("name", f"{server.info.title or server.info.name} {server.info.version}"))
        if server.info.website_url:
            rows.append(("website", server.info.website_url))
    rows.append(("capabilities", ", ".join(capability_names(server.capabilities)) or "none"))
    session.out.table(("Server", ""), rows)
    if server.instructions:
        session.out.heading("Its instructions, which are meant for a model")
        session.out.text(server.instructions)


@speaks_to_server
def ping(
    session: Session,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many times.")] = 1,
) -> None:
    """Ask a server whether it is there, and say how long the answer took."""
    times = list(round_trips(session, count))
    if session.out.json:
        for _ in times:
            session.out.result({})
        return
    for taken in times:
        session.out.text(f"{taken * 1000:.1f} ms")
    if count > 1:
        session.out.note(f"median {statistics.median(times) * 1000:.1f} ms of {count}")


@speaks_to_server
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
        typer.Option("--count", "-n", min=1, metavar="NUMBER", help="End after so many changes."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="The longest time without a change."),
    ] = None,
) -> None:
    """Print each change that a server tells of, until Ctrl-C; without options, of all lists."""
    client = session.client
    if not (uris or tools or prompts or resources):
        offers = client.server.capabilities
        tools = offers.tools is not None and bool(offers.tools.list_changed)
        prompts = offers.prompts is not None and bool(offers.prompts.list_changed)
        resources = offers.resources is not None and bool(offers.resources.list_changed)
        if not (tools or prompts or resources):
            raise CommandError(
                "the server tells of no changes to its lists", hint="name a resource to watch"
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
        session.out.note(f"listening to {watched}")
        for event in changes:
            if session.out.json:
                session.out.result(event._asdict())
            else:
                what = event.uri or f"the list of {event.kind}"
                session.out.text(f"{what} {'may have ' if event.missed else ''}changed")


def round_trips(session: Session, count: int) -> Iterator[float]:
    """Have the server answer so many times; yield how long each took, in seconds.

    Where the revision has no ping, it is asked what it can do.

    Raises:
        McpError: What can go wrong with a request.
    """
    client = session.client
    for _ in range(count):
        begun = perf_counter()
        try:
            client.ping(**session.options)
        except NotSupported:
            client.request("server/discover", **session.options)
        yield perf_counter() - begun


def capability_names(capabilities: ServerCapabilities) -> list[str]:
    """What a server says it can do, in words such as ``tools (changes)``."""
    names = []
    for name, settings in capabilities.to_wire().items():
        if settings is None:
            continue
        details = [key for key, on in settings.items() if on is True]
        if name in ("extensions", "experimental"):
            details = list(settings)
        names.append(f"{name} ({', '.join(details)})" if details else name)
    return names


def _stated(server: ConnectedServer) -> dict[str, Any]:
    stated: dict[str, Any] = {
        "protocolVersion": server.revision,
        "capabilities": server.capabilities.to_wire(),
    }
    if server.info is not None:
        stated["serverInfo"] = server.info.to_wire()
    if server.instructions is not None:
        stated["instructions"] = server.instructions
    return stated
