"""Open `subscriptions/listen` requests (2026-07-28) and the events they receive."""

from __future__ import annotations

import threading

from syncmcp.testing import wire
from syncmcp.testing.context import ToolContext
from syncmcp.testing.stats import Stats
from syncmcp.testing.wire import INVALID_PARAMS, Message, RpcError

_KINDS = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_URIS = "resourceSubscriptions"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Listeners:
    """Every open listen request of one server, over all its transports."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._lock = threading.Lock()  # Guards `_open`.
        self._open: dict[ToolContext, Message] = {}

    def open(self, context: ToolContext) -> None:
        """Acknowledge a listen request and keep it open until it is cancelled or ended."""
        wanted = context.params.get("notifications")
        if not isinstance(wanted, dict):
            error = RpcError(INVALID_PARAMS, "params.notifications must be an object")
            context.answer(wire.failure(context.request_id, error))
            return
        honoured: Message = {kind: True for kind in _KINDS if wanted.get(kind) is True}
        if isinstance(wanted.get(_URIS), list):
            honoured[_URIS] = wanted[_URIS]
        context.at_end(self._close)
        # The acknowledgement goes first: an event sent before it would be out of order.
        context.notify(_ACKNOWLEDGED, {"notifications": honoured, **_tag(context)})
        with self._lock:
            self._open[context] = honoured
        with self._stats as stats:
            stats.listeners += 1
        if context.cancelled.is_set():
            self._close(context)

    def changed(self, kind: str, method: str) -> None:
        """Tell everyone who listens for `kind` that a list has changed."""
        for context, honoured in self._snapshot():
            if honoured.get(kind):
                context.notify(method, _tag(context))

    def updated(self, uri: str) -> None:
        """Tell everyone who listens for `uri` that the resource has changed."""
        for context, honoured in self._snapshot():
            if uri in honoured.get(_URIS, ()):
                context.notify("notifications/resources/updated", {"uri": uri, **_tag(context)})

    def end(self) -> None:
        """End every subscription in good order: each gets its result."""
        for context, _ in self._snapshot():
            result: Message = {"resultType": "complete", **_tag(context)}
            context.answer(wire.reply(context.request_id, result))

    def _snapshot(self) -> list[tuple[ToolContext, Message]]:
        with self._lock:
            return list(self._open.items())

    def _close(self, context: ToolContext) -> None:
        with self._lock:
            known = self._open.pop(context, None) is not None
        if known:
            with self._stats as stats:
                stats.listeners -= 1


def _tag(context: ToolContext) -> Message:
    return {"_meta": {wire.SUBSCRIPTION_ID: context.request_id}}
