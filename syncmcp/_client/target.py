"""What the kinds of targets mean: a name, a transport, a way to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from syncmcp._client.opening import Way
from syncmcp._protocol.revisions import STATELESS
from syncmcp.config import Http, Stdio
from syncmcp.errors import UsageError
from syncmcp.transports.base import TransportSource

if TYPE_CHECKING:
    from syncmcp.servers_file.entry import ServerEntry
    from syncmcp.transports.base import Transport
    from syncmcp.transports.memory import InProcessServer

Target: TypeAlias = Union[Stdio, Http, "InProcessServer", TransportSource]


def settled(
    target: str | Target | ServerEntry, name: str | None
) -> tuple[Target, str | None, float | None]:
    """What a program gave as target: what that is, what it is called, and its own time limit.

    Raises:
        UsageError: It is none, or the entry of a file that cannot be used.
        NotApproved: It is an entry that needs approval and did not get it.
    """
    if isinstance(target, str):
        return Http(target), name, None
    if isinstance(target, (Stdio, Http, TransportSource)):
        return target, name, None
    from syncmcp.servers_file.entry import ServerEntry

    if isinstance(target, ServerEntry):
        return target._settle(name)
    if not hasattr(target, "connect"):
        raise UsageError(f"{target!r} is no URL, Stdio, Http or server")
    return target, name, None


def label_of(target: Target) -> str:
    """What logs and errors call it."""
    return target.label if isinstance(target, (Stdio, Http, TransportSource)) else target.name


def behind(target: Target) -> Stdio | Http | InProcessServer | None:
    """The server itself, whatever stands in front of it; `None` if there is none."""
    return target.behind if isinstance(target, TransportSource) else target


def first_way(target: Target, mode: str) -> Way:
    """Which transport to begin with.

    Raises:
        UsageError: The older one is wanted with a revision that is not spoken over it.
    """
    server = behind(target)
    if not isinstance(server, Http):
        return Way(older=False, fixed=True)
    older = server.transport == "sse"
    if older and mode in STATELESS:
        raise UsageError(f"revision {mode} is not spoken over HTTP+SSE (transport='sse')")
    return Way(older, fixed=server.transport != "auto")


def transport_to(target: Target, *, older: bool, rejoin: bool, max_in_flight: int) -> Transport:
    """A transport that has not been opened.

    Args:
        target: Where to.
        older: Over HTTP+SSE.
        rejoin: In the session that the target names, if it does.
        max_in_flight: How many requests may run at once.
    """
    if isinstance(target, TransportSource):
        if target.behind is None:
            return target.transport(None)
        inner = transport_to(target.behind, older=older, rejoin=rejoin, max_in_flight=max_in_flight)
        return target.transport(inner)
    if isinstance(target, Stdio):
        from syncmcp.transports.stdio import StdioTransport

        return StdioTransport(target)
    if isinstance(target, Http) and older:
        from syncmcp.transports.sse import SseTransport

        return SseTransport(target, max_in_flight=max_in_flight)
    if isinstance(target, Http):
        from syncmcp.transports.http import HttpTransport

        return HttpTransport(target, max_in_flight, rejoin=rejoin)
    from syncmcp.transports.memory import MemoryTransport

    return MemoryTransport(target)
