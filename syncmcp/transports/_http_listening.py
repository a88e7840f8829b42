"""The stream on which a server of the stateful era sends what belongs to no request."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from syncmcp._http.errors import WIRE_ERRORS, explain
from syncmcp._http.exchange import Cut, Exchange
from syncmcp._http.session import body_of, finish
from syncmcp.errors import ConnectFailed, ConnectionLost, McpError
from syncmcp.transports import _http_reply as reply
from syncmcp.transports._events import EventStream
from syncmcp.transports._http_endpoint import EVENTS, Endpoint
from syncmcp.transports._reconnecting import Attempts
from syncmcp.transports.base import reader_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncmcp.transports.base import Receiver

__all__ = ["Listener"]

_log = logging.getLogger("syncmcp.http")


class Listener:
    """Keeps the stream open, on a thread of its own."""

    def __init__(
        self,
        endpoint: Endpoint,
        receiver: Receiver,
        label: str,
        events: EventStream,
        session_lost: Callable[[], object],
    ) -> None:
        self._endpoint = endpoint
        self._receiver = receiver
        self._label = label
        self._events = events
        self._session_lost = session_lost
        self._listened = False
        self.answered = threading.Event()
        """Set once the server has said whether there is a stream, or nobody asks any more."""
        # Seconds that the server wants no other attempt.
        self._not_before = 0.0

    def run(self, exchange: Exchange) -> None:
        """Receive what the server sends outside of requests, until `close`."""
        events = self._events
        attempts = Attempts()
        try:
            with exchange:
                while self.once(exchange, events, attempts):
                    pause = attempts.next_pause(events.retry)
                    if pause is None:
                        level = logging.WARNING if self._listened else logging.DEBUG
                        _log.log(level, "%s: gave up listening", self._label)
                        break
                    exchange.sleep(max(pause, self._not_before))
            self._receiver.silent(heard=self._listened)
        except Cut:
            return
        except Exception as error:
            self._receiver.lost(reader_failed(self._label, error))
        finally:
            self.answered.set()

    def once(self, exchange: Exchange, events: EventStream, attempts: Attempts) -> bool:
        """Open the stream and read it to its end. Returns whether to open it again."""
        events.restart()
        self._not_before = 0.0
        try:
            response, _ = self._endpoint.open_events(exchange, events)
            try:
                status = response.status_code
                if status != 200 or reply.content_type(response) != EVENTS:
                    _log.debug("%s: no stream to listen to (HTTP %d)", self._label, status)
                    # From the start, some servers say 404 where they should say 405.
                    if status == 404 and self._listened and self._endpoint.session_id is not None:
                        self._session_lost()
                    self._not_before = reply.retry_after(response) or 0.0
                    if status == 429 or status >= 500:
                        self.answered.set()
                        return True
                    return False
                self.answered.set()
                self._listened = True
                for piece in body_of(exchange, response):
                    attempts.progress()
                    for data in events.feed(piece):
                        self._receiver.receive(data)
            finally:
                finish(exchange, response)
        except WIRE_ERRORS as error:
            if exchange.cut:
                raise Cut from None
            found = error if isinstance(error, McpError) else explain(error, exchange)
            _log.debug("%s: listening was interrupted: %s", self._label, found)
            return isinstance(found, (ConnectFailed, ConnectionLost))
        return True
