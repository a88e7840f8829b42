"""What the kinds of targets mean: a name, a transport, a way to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from syncmcp._opening import Way
from syncmcp._protocol.dialect import STATELESS
from syncmcp.config import Http, Stdio
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.transports.base import Transport
    from syncmcp.transports.memory import InProcessServer

Target: TypeAlias = Union[Stdio, Http, "InProcessServer"]


def label_of(target: Target) -> str:
    """What logs and errors call it."""
    return target.label if isinstance(target, (Stdio, Http)) else target.name


def first_way(target: Target, mode: str) -> Way:
    """Which transport to begin with.

    Raises:
        UsageError: The older one is wanted with a revision that is not spoken over it.
    """
    if not isinstance(target, Http):
        return Way(older=False, fixed=True)
    older = target.transport == "sse"
    if older and mode in STATELESS:
        raise UsageError(f"revision {mode} is not spoken over HTTP+SSE (transport='sse')")
    return Way(older, fixed=target.transport != "auto")


def transport_to(target: Target, *, older: bool, rejoin: bool, max_in_flight: int) -> Transport:
    """A transport that has not been opened.

    Args:
        target: Where to.
        older: Over HTTP+SSE.
        rejoin: In the session that the target names, if it does.
        max_in_flight: How many requests may run at once.
    """
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
