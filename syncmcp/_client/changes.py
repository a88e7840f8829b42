"""The methods of a client for changes at the server: events, and lists that are fetched again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from syncmcp import types
from syncmcp._base.checks import flag, seconds, text, whole_number
from syncmcp._client.core import ClientCore, HasCore
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.errors import SubscriptionLost, UsageError

if TYPE_CHECKING:
    from syncmcp._client.subscriptions import Listener, Subscription

DEBOUNCE = 0.1
"""How long, in seconds, to wait for more changes before a list is fetched again."""


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
    """Subscribe to changes at the server, and return an iterator of change events.

    The call returns when the server has accepted the subscription, within the client's `timeout`.
    No later change is missed. A client that is `lazy` is opened first, if necessary.

    >>> with client.listen(tools=True, stop_after=1) as changes:
    ...     server.remove_tool("fail")  # any change at the server
    ...     for event in changes:
    ...         print(event.kind, "fail" in [tool.name for tool in client.list_tools().tools])
    tools False

    Args:
        tools: Whether to subscribe to changes of the list of tools.
        prompts: Whether to subscribe to changes of the list of prompts.
        resources: Whether to subscribe to changes of the lists of resources and resource templates.
        uris: The URIs of resources to whose changes to subscribe.
        timeout: The longest time, in seconds, to wait for the next event; `None` for no limit.
        stop_after: The number of events after which the subscription ends; `None` for no limit.
        undeclared: What to do if the server does not declare these changes: ``"refuse"`` raises
            `NotSupported`, ``"try"`` asks the server. The default is the client's `undeclared`. See
            `CallOptions`.

    Raises:
        UsageError: No kind of change was requested, or an argument is invalid.
        NotSupported: The server does not declare these changes, or accepts none of them, or has no
            stream for them.
        McpError: The request failed.
    """
    with delaying_forks():
        from syncmcp._client.subscriptions import Subscription, open_subscription
        from syncmcp._concurrency.event_queue import EventQueue

    if isinstance(uris, str):
        raise UsageError("uris must be a list of URIs, not a single URI")
    each = tuple(dict.fromkeys(uris))
    for uri in each:
        text(uri, "uri")
    timeout = seconds(timeout, "timeout")
    if stop_after is not None:
        whole_number(stop_after, "stop_after")
    wanted = ChangeFilter(
        flag(tools, "tools"), flag(prompts, "prompts"), flag(resources, "resources"), each
    )
    inbox = EventQueue(limit=stop_after)
    backend = open_subscription(self._core, wanted, inbox, undeclared=undeclared)
    return Subscription(self, backend, timeout)


def on_tools_changed(
    self: HasCore,
    handler: Callable[[list[types.Tool]], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Fetch the list of tools whenever it has changed, and call `handler` with it.

    Args:
        handler: A function that is called with the list on a pool thread, one call at a time. It
            may block and may call the client. Its exceptions are logged.
        debounce: How long, in seconds, to wait for more changes before the list is fetched. All
            changes within this time lead to one call.
        on_error: A function that is called on a pool thread with the `SubscriptionLost` that ends
            the listener. Without `on_error`, that error is logged.
        undeclared: See `listen`. The requests that fetch the list have this option, too.

    Returns:
        A listener that can be stopped; closing the client also ends it.

    Raises:
        NotSupported: The server does not declare these changes.
        McpError: The request failed.
    """
    return _refresh_list(self._core, "tools", handler, debounce, on_error, undeclared)


def on_prompts_changed(
    self: HasCore,
    handler: Callable[[list[types.Prompt]], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Fetch the list of prompts whenever it has changed; see `on_tools_changed`."""
    return _refresh_list(self._core, "prompts", handler, debounce, on_error, undeclared)


def on_resources_changed(
    self: HasCore,
    handler: Callable[[list[types.Resource]], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Fetch the list of resources whenever it has changed; see `on_tools_changed`.

    `handler` is also called when only the templates have changed, because the notification is the
    same.
    """
    return _refresh_list(self._core, "resources", handler, debounce, on_error, undeclared)


def on_resource_updated(
    self: HasCore,
    uri: str,
    handler: Callable[[types.ReadResourceResult], object],
    *,
    debounce: float = DEBOUNCE,
    on_error: Callable[[SubscriptionLost], object] | None = None,
    undeclared: Undeclared | None = None,
) -> Listener:
    """Read a resource again whenever it has changed; see `on_tools_changed`.

    A change of a resource below `uri` counts as a change of `uri`, too.
    """
    text(uri, "uri")
    with delaying_forks():
        from syncmcp._client.subscriptions import refresh

    def fetch(client: Any) -> Any:
        return client.read_resource(uri, undeclared=undeclared)

    wanted = ChangeFilter(uris=(uri,))
    return refresh(self._core, wanted, fetch, handler, debounce, on_error, undeclared=undeclared)


def _refresh_list(
    core: ClientCore,
    kind: str,
    handler: Callable[[Any], object],
    debounce: float,
    on_error: Callable[[SubscriptionLost], object] | None,
    undeclared: Undeclared | None,
) -> Listener:
    with delaying_forks():
        from syncmcp._client.subscriptions import refresh

    def fetch(client: Any) -> Any:
        return getattr(getattr(client, f"list_{kind}")(undeclared=undeclared), kind)

    wanted = ChangeFilter(kind == "tools", kind == "prompts", kind == "resources")
    return refresh(core, wanted, fetch, handler, debounce, on_error, undeclared=undeclared)
