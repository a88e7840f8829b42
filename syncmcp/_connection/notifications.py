"""The calls of one connection that have become tasks: what still comes for them, and from them."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.jsonrpc import Request
from syncmcp._protocol.peer import own_id
from syncmcp._protocol.tasks import AUGMENTED, CANCEL, GET, RESULT, created, related
from syncmcp.errors import RequestCancelled, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._concurrency.delivery import Delivery
    from syncmcp._connection.agreed import Agreed
    from syncmcp._connection.call import Call
    from syncmcp._connection.questions import Asked, Desk
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.peer import Peer
    from syncmcp.transports.base import Outgoing

_GIVEN_UP = (RequestCancelled, RequestTimeout)

_CONCERNED = frozenset((AUGMENTED, CANCEL, GET, RESULT))

LINGER = 30.0
"""So long, in seconds, a call that was given up is heard to the end, if it may become a task."""

MOST = 1024
"""So many calls that became tasks are remembered, and so many that were given up."""


class TaskCalls:
    """Knows them until their tasks have ended. Nothing here blocks: the thread that reads is here.

    Args:
        desk: Knows the client, as long as that is there.
        peer: The open requests of the connection.
        agreed: What was agreed with the server.
        lock: The connection's, which guards all of it.
        blocking: Whether answers come only as long as a thread waits for them, as over HTTP.
    """

    def __init__(
        self,
        desk: Desk,
        peer: Peer[Call, Asked],
        agreed: Agreed,
        lock: threading.RLock,
        blocking: bool,
    ) -> None:
        self._desk = desk
        self._peer = peer
        self._agreed = agreed
        self._lock = lock
        self._blocking = blocking
        # By task, the call that became it: its progress goes on (2025-11-25).
        self._begun: dict[str, Call] = {}
        # Calls that may have become one after they were given up.
        self._given_up: dict[int, Undeclared] = {}

    def answered(self, call: Call, result: Any) -> list[Delivery]:
        """Take note of an answer; return what has to be delivered before it."""
        before = [] if call.delivery is None else [call.delivery]
        if call.method not in _CONCERNED or not isinstance(result, dict):
            return before
        with self._lock:
            if _asks(call):
                task = created(result)
                if task is not None:
                    _remember(self._begun, task, call)
                return before
            # After any other end the result is fetched, which comes after the last report.
            cancelled = result.get("status") == "cancelled"
            task = (call.params or {}).get("taskId") if cancelled or call.method == RESULT else None
            began = self._begun.pop(task, None) if task is not None else None
            asked = self._asked(task) if cancelled else []
        if began is not None and began.delivery is not None:
            before.append(began.delivery)
        for question in asked:  # a server need not withdraw them
            question.give_up("the task was cancelled")
        return before

    def _asked(self, task: object) -> list[Asked]:
        """What a task asks at the moment (2025-11-25); called with the lock held."""
        return [
            asked
            for call in self._peer.open_calls()
            if call.method == RESULT and (call.params or {}).get("taskId") == task
            for asked, owned in call.asked.items()
            if owned.certain
        ]

    def reporter(self, token: object) -> Call | None:
        """The call whose task may still report by this token; called with the lock held."""
        for call in self._begun.values():
            if call.id == token and type(token) is int:
                return call
        return None

    def cause(self, message: object, out: Outgoing | None) -> tuple[Call | None, bool]:
        """The call that a question belongs to, and whether that is certain.

        Called with the lock held.
        """
        task = related(message.params) if isinstance(message, Request) else None
        if task is not None:
            for call in self._peer.open_calls():
                if call.method == RESULT and (call.params or {}).get("taskId") == task:
                    return call, True
            if task in self._begun:
                return self._begun[task], True
        if out is None:
            return self._peer.only(), False
        return self._peer.get(out.id), True

    def begin(self, call: Call, out: Outgoing) -> None:
        """A call is about to be sent as `out`."""
        client = self._desk.client() if self._blocking and _asks(call) else None
        if client is not None:
            out.lingers, call.carrier = LINGER, client._pools.carriers

    def settled(self, out: Outgoing) -> bool:
        """Whether nothing more is to be heard for what is in `out`; called with the lock held."""
        if not out.ids or any(map(self._peer.get, out.ids)):
            return False
        return not out.lingers or self._given_up.keys().isdisjoint(out.ids)

    def taken(self, call: Call) -> None:
        """A call has ended; called with the lock held.

        If it was given up before it was answered, and becomes a task all the same, nobody will ever
        wait for that.
        """
        if call.method == AUGMENTED and isinstance(call.outcome, _GIVEN_UP):
            # Ours alone counts: a server may make a task though it does not declare that.
            spoken = self._agreed.spoken
            tasks = None if spoken is None else spoken.tasks
            if _asks(call) or (tasks is not None and not tasks.asked_for):
                _remember(self._given_up, call.id, call.options.undeclared)

    def given_up(self, call: Call) -> bool:
        """Whether a notification may cancel it: not if it asks to become a task (2025-11-25)."""
        return not _asks(call)

    def late(self, id: object, result: Any) -> None:
        """An answer came that nobody waits for: if it is a task, nobody ever will."""
        key = own_id(id)
        with self._lock:
            undeclared = None if key is None else self._given_up.pop(key, None)
        if undeclared is None or not isinstance(result, dict):
            return
        task, client = created(result), self._desk.client()
        if task is not None and client is not None:
            post = partial(client._post, CANCEL, {"taskId": task}, undeclared)
            client._pools.workers.run(post)

    def news(self, params: dict[str, Any]) -> None:
        """The server says that a task has changed."""
        task, client = params.get("taskId"), self._desk.client()
        if isinstance(task, str) and client is not None:
            client._pools.naps.news(task)


def _asks(call: Call) -> bool:
    """Whether a call asks to become a task."""
    return call.method == AUGMENTED and "task" in (call.params or {})


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry; the oldest makes room."""
    table[key] = value
    if len(table) > MOST:
        del table[next(iter(table))]
