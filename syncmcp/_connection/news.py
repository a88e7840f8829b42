"""Whom a notification concerns: a call, or those who listen for changes."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from syncmcp._connection.listen_call import ListenCall
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.subscription import LISTEN, NEWS, subscription_id
from syncmcp._protocol.tasks import STATUS
from syncmcp.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncmcp._connection.call import Call
    from syncmcp._connection.notifications import TaskCalls
    from syncmcp._connection.questions import Asked, Desk
    from syncmcp._protocol.peer import Peer
    from syncmcp._protocol.revisions import Dialect
    from syncmcp.errors import McpError
    from syncmcp.transports.base import Outgoing

_COMPLETE: Final = "notifications/elicitation/complete"

HEARD = NEWS | {STATUS, _COMPLETE}
"""The notifications that concern others than the program's own callbacks."""

_log = logging.getLogger("syncmcp.connection")


class News:
    """Finds who is meant. Nothing here blocks: it runs on the thread that reads.

    Args:
        desk: Knows the client, as long as that is there.
        peer: The open requests of the connection.
        lock: The connection's, which guards them.
        tasks: The calls that have become tasks.
    """

    def __init__(
        self, desk: Desk, peer: Peer[Call, Asked], lock: threading.RLock, tasks: TaskCalls
    ) -> None:
        self._desk = desk
        self._peer = peer
        self._lock = lock
        self._tasks = tasks
        self.heard = True
        """Whether what the server says outside of requests can reach us."""

    def owner(self, method: str, params: dict[str, Any], out: Outgoing | None) -> Call | None:
        """The call that a notification belongs to, where that can be known."""
        with self._lock:
            if method == "notifications/progress":
                token = params.get("progressToken")
                return self._peer.get(token) or self._tasks.reporter(token)
            if out is not None:
                return self._peer.get(out.id)
            return self._peer.only()

    def take(
        self, method: str, params: dict[str, Any], dialect: Dialect | None, out: Outgoing | None
    ) -> None:
        """Pass on what is about a visit, a subscription or a task."""
        if method == _COMPLETE:
            self._desk.visits.complete(params.get("elicitationId"))
            return
        if method == STATUS:
            self._tasks.news(params)
            return
        if method == "notifications/tools/list_changed":
            # First: whoever hears of it may list the tools at once.
            self._desk.table.schemas.forget()
        client = self._desk.client()
        if client is not None and client._kept is not None:
            client._kept.heard(method, params)
        if dialect is None or dialect.stateful:
            if client is not None:
                client._standing.news(method, params)
            return
        own = None if out is None else out.id
        with self._lock:
            call = self._peer.get(subscription_id(params, own))
        if isinstance(call, ListenCall) and own in (None, call.id):
            call.take(call, method, params)
        else:
            _log.debug("[%s] %s for no listener of ours", self._desk.label, method)

    def interrupted(self, error: McpError) -> None:
        """The connection, or the session, is lost.

        Whoever only listens makes no call that would open another one, and whoever waits for a
        visit none that would find the loss.
        """
        self._desk.visits.close("the session is lost")
        client = self._desk.client()
        if client is not None:
            client._interrupted(error)

    def over(
        self, dead: McpError | None, when_empty: Callable[[Callable[[], object]], object] | None
    ) -> None:
        """The server will not tell anything outside of requests any more; or all is `dead`.

        Args:
            dead: Why the connection is over, if it is.
            when_empty: Has something done whenever no call is in flight. `None` where the server
                never had a stream for this: then it tells of visits on the streams of calls.
        """
        self.heard = False
        if dead is not None:
            return
        if when_empty is not None:
            # The server counts on the stream that is gone, but a call in flight has its own one.
            when_empty(partial(self._desk.visits.lose, "the server cannot be heard any more"))
        client = self._desk.client()
        if client is not None:
            client._standing.lost(ConnectionLost("the stream of events is closed"))

    def ended(self, params: dict[str, Any], dialect: Dialect | None) -> jsonrpc.Result | None:
        """What a server's ``notifications/cancelled`` means for a request of ours, if anything.

        In 2026-07-28 it may end a subscription, and nothing else (basic/patterns/cancellation,
        "Behavior Requirements"). It means the same as the answer that it may send instead.
        """
        if dialect is None or dialect.stateful:
            return None
        with self._lock:
            call = self._peer.get(params.get("requestId"))
        return jsonrpc.Result(call.id, {}) if call is not None and call.method == LISTEN else None
