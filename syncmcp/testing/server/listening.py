"""Open `subscriptions/listen` requests (2026-07-28) and the events they receive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from syncmcp.testing.server import wire
from syncmcp.testing.server.call import Call
from syncmcp.testing.server.wire import INVALID_PARAMS, Message, RpcError

if TYPE_CHECKING:
    from syncmcp.testing.server.server import Server

_KINDS = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
_URIS = "resourceSubscriptions"
_TASKS = "taskIds"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Listeners:
    """Every open listen request of one server, over all its transports."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stats = server.stats
        self._lock = threading.Lock()  # Guards what follows.
        self._open: dict[Call, Message] = {}
        # Events of those that are not acknowledged yet.
        self._early: dict[Call, list[tuple[str, Message]]] = {}

    def open(self, call: Call) -> None:
        """Acknowledge a listen request and keep it open until it is cancelled or ended."""
        wanted = call.params.get("notifications")
        if not isinstance(wanted, dict):
            error = RpcError(INVALID_PARAMS, "params.notifications must be an object")
            call.answer(wire.failure(call.request_id, error))
            return
        honoured: Message = {kind: True for kind in _KINDS if wanted.get(kind) is True}
        if isinstance(wanted.get(_URIS), list):
            honoured[_URIS] = wanted[_URIS]
        if isinstance(wanted.get(_TASKS), list):
            try:
                honoured[_TASKS] = self._server.tasks.told_of(wanted[_TASKS], call)
            except RpcError as error:
                call.answer(wire.failure(call.request_id, error))
                return
        with self._lock:
            self._open[call] = honoured
            self._early[call] = []
        with self._stats as stats:
            stats.listeners += 1
        call.at_end(self._close)
        # The acknowledgement goes first, and what changes from then on is told after it.
        call.notify(_ACKNOWLEDGED, {"notifications": honoured, **_tag(call)})
        while True:
            with self._lock:
                early = self._early.pop(call, [])
                if early:
                    self._early[call] = []
            if not early:
                return
            for method, params in early:
                call.notify(method, params)

    def changed(self, kind: str, method: str) -> None:
        """Tell everyone who listens for `kind` that a list has changed."""
        for call, honoured in self._snapshot():
            if honoured.get(kind):
                self._tell(call, method, _tag(call))

    def updated(self, uri: str) -> None:
        """Tell everyone who listens for `uri` that the resource has changed."""
        for call, honoured in self._snapshot():
            if uri in honoured.get(_URIS, ()):
                params = {"uri": uri, **_tag(call)}
                self._tell(call, "notifications/resources/updated", params)

    def task_changed(self, task: Message) -> None:
        """Tell everyone who listens for a task where it stands."""
        for call, honoured in self._snapshot():
            if task["taskId"] in honoured.get(_TASKS, ()):
                self._tell(call, "notifications/tasks", {**task, **_tag(call)})

    def end(self) -> None:
        """End every subscription in good order: each gets its result."""
        for call, _ in self._snapshot():
            result: Message = {"resultType": "complete", **_tag(call)}
            call.answer(wire.reply(call.request_id, result))

    def _tell(self, call: Call, method: str, params: Message) -> None:
        with self._lock:
            if call in self._early:
                self._early[call].append((method, params))
                return
        call.notify(method, params)

    def _snapshot(self) -> list[tuple[Call, Message]]:
        with self._lock:
            return list(self._open.items())

    def _close(self, call: Call) -> None:
        with self._lock:
            known = self._open.pop(call, None) is not None
            self._early.pop(call, None)
        if known:
            with self._stats as stats:
                stats.listeners -= 1


def _tag(call: Call) -> Message:
    return {"_meta": {wire.SUBSCRIPTION_ID: call.request_id}}
