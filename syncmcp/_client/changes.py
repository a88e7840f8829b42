"""The methods of a client that are about changes at the server: events, or lists fetched again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp._base.checks import text
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.errors import SubscriptionLost, UsageError

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp._client.subscriptions import Listener, Subscription
    from syncmcp.types import Prompt, ReadResourceResult, Resource, Tool

V = TypeVar("V")

DEBOUNCE = 0.1
"""So long, in seconds, a change waits for others before the list is fetched again."""


def listen(
    self: HasCore,
    *,
    tools: bool = False,
    prompts: bool = False,
    resources: bool = False,
    uris: Iterable[str] = (),
    timeout: float | None = None,
    stop_after: int | None = None,
    undeclared: Undeclared | None = None,
) -> Subscription:
    """Ask the server to tell of changes; iterate over what it tells.

    Returns when the server has agreed, within the client's `timeout`: nothing that changes
    after that is missed. Opens the client if it is `lazy`.

    Args:
        tools: Tell when the list of tools changes.
        prompts: Tell when the list of prompts changes.
        resources: Tell when the list of resources or of their templates changes.
        uris: Tell when one of these resources changes.
        timeout: The longest time, in seconds, to wait for the next event; `None` for any.
        stop_after: End after so many events; `None` for never.
        undeclared: Whether the server is asked for what it does not declare, ``"refuse"`` or
            ``"try"``; the client's `undeclared` by default. See `CallOptions`.

    Raises:
        UsageError: Nothing is wanted, or an argument makes no sense.
        NotSupported: The server does not declare that it tells of this, or agrees to none of
            it, or has no stream for it.
        McpError: The server could not be asked.
    """
    from syncmcp._client.subscriptions import subscribe

    if isinstance(uris, str):
        raise UsageError("uris is a list of URIs, not one")
    each = tuple(dict.fromkeys(uris))
    for uri in each:
        text(uri, "uri")
    wanted = ChangeFilter(bool(tools), bool(prompts), bool(resources), each)
    return subscribe(
        self,
        wanted,
        timeout=timeout,
        stop_after=stop_after,
        undeclared=undeclared,
    )


def on_tools_changed(
    self: HasCore,
    handler: Callable[[list[Tool]], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Have the list of tools fetched when it has changed, and `handler` called with it.

    Args:
        handler: Called on a pool thread, one call at a time; it may block and may call the
            client. What it raises is logged.
        debounce: How long, in seconds, a change waits for others, so that many changes at
            once are one call.
        on_error: Called on a pool thread with the `SubscriptionLost` that ends it.
        undeclared: See `listen`; it counts for fetching, too.

    Returns:
        What to stop it with; it also ends when the client is closed.

    Raises:
        NotSupported: The server does not declare that it tells of this.
        McpError: The server could not be asked.
    """
    return _refresh(
        self._core,
        ChangeFilter(tools=True),
        lambda client: client.list_tools(undeclared=undeclared).tools,
        handler,
        debounce,
        on_error,
        undeclared=undeclared,
    )


def on_prompts_changed(
    self: HasCore,
    handler: Callable[[list[Prompt]], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Have the list of prompts fetched when it has changed; see `on_tools_changed`."""
    return _refresh(
        self._core,
        ChangeFilter(prompts=True),
        lambda client: client.list_prompts(undeclared=undeclared).prompts,
        handler,
        debounce,
        on_error,
        undeclared=undeclared,
    )


def on_resources_changed(
    self: HasCore,
    handler: Callable[[list[Resource]], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Have the list of resources fetched when it has changed; see `on_tools_changed`.

    It is also called when only the templates have changed, for servers do not tell which.
    """
    return _refresh(
        self._core,
        ChangeFilter(resources=True),
        lambda client: client.list_resources(undeclared=undeclared).resources,
        handler,
        debounce,
        on_error,
        undeclared=undeclared,
    )


def on_resource_updated(
    self: HasCore,
    uri: str,
    handler: Callable[[ReadResourceResult], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Have a resource read again when it has changed; see `on_tools_changed`.

    A change of something below it is one of it, too.
    """
    text(uri, "uri")
    return _refresh(
        self._core,
        ChangeFilter(uris=(uri,)),
        lambda client: client.read_resource(uri, undeclared=undeclared),
        handler,
        debounce,
        on_error,
        undeclared=undeclared,
    )


def _refresh(
    core: ClientCore,
    wanted: ChangeFilter,
    fetch: Callable[[Any], V],
    handler: Callable[[V], object],
    debounce: float,
    on_error: Callable[[SubscriptionLost], object] | None,
    undeclared: Undeclared | None,
) -> Listener:
    from syncmcp._client.subscriptions import refresh

    return refresh(core, wanted, fetch, handler, debounce, on_error, undeclared=undeclared)
