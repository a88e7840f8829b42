"""What a server asks of the client: who answers, and what has no answer yet."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._answer import answer, method_not_found
from syncmcp._protocol import jsonrpc
from syncmcp.cancellation import CancelToken
from syncmcp.handlers import HandlerContext, Handlers

if TYPE_CHECKING:
    from syncmcp._call import Call
    from syncmcp._protocol.peer import Peer
    from syncmcp._threads import Workers
    from syncmcp.client import Client

_log = logging.getLogger("syncmcp.connection")

# Questions of a server that may wait for an answer at one time.
MAX_QUESTIONS = 64


class Questions:
    """The requests of one server. A ping is answered at once, the rest by handlers on a pool.

    Args:
        label: What logs call the server.
        peer: Where open requests are kept.
        lock: Guards `peer`.
        client: The client that is asked; it may be gone.
        handlers: Who answers.
        workers: Where handlers run.
        post: Sends an answer without blocking.
    """

    def __init__(
        self,
        label: str,
        peer: Peer[Call, CancelToken],
        lock: AbstractContextManager[object],
        client: weakref.ref[Client],
        handlers: Handlers,
        workers: Workers,
        post: Callable[[bytes], object],
    ) -> None:
        self._label = label
        self._peer = peer
        self._lock = lock
        self._client = client
        self._handlers = handlers
        self._workers = workers
        self._post = post

    def take(self, request: jsonrpc.Request | jsonrpc.BadRequest) -> None:
        """Answer a request, now or when its handler is done. Never blocks."""
        if isinstance(request, jsonrpc.BadRequest):
            self._refuse(request.id, jsonrpc.INVALID_PARAMS, request.reason)
        elif request.method == "ping":
            self._post(jsonrpc.encode_result(request.id, {}))
        elif self._handlers.request(request.method) is None:
            self._post(method_not_found(request))
        else:
            self._hand_over(request)

    def withdraw(self, params: dict[str, Any]) -> None:
        """The server no longer wants an answer."""
        with self._lock:
            token = self._peer.finish(params.get("requestId"))
        if token is None:
            _log.debug("[%s] cancelled nothing that is open", self._label)
            return
        reason = params.get("reason")
        # What hangs on the token is user code: it must not run on the thread that reads.
        self._submit(partial(token.cancel, reason if type(reason) is str else None))

    def _hand_over(self, request: jsonrpc.Request) -> None:
        token = CancelToken()
        with self._lock:
            full = self._peer.open_questions >= MAX_QUESTIONS
            known = full or not self._peer.receive(request.id, token)
        if full:
            self._refuse(request.id, jsonrpc.INTERNAL_ERROR, "too many requests")
        elif known:
            _log.warning("[%s] used the id %r twice", self._label, request.id)
        else:
            self._submit(partial(self._serve, request, token))

    def _serve(self, request: jsonrpc.Request, token: CancelToken) -> None:
        """On a pool thread: run the handler and send what it says, unless withdrawn meanwhile."""
        client = self._client()
        if client is None:
            return
        frame = answer(self._handlers, request, HandlerContext(client, token, request.method))
        with self._lock:
            current = self._peer.finish(request.id)
        if current is token:
            self._post(frame)

    def _submit(self, job: Callable[[], object]) -> None:
        try:
            self._workers.submit(job)
        except RuntimeError as error:  # the interpreter is ending, and the connection with it
            _log.debug("[%s] a question stays without an answer: %s", self._label, error)

    def _refuse(self, id: jsonrpc.Id, code: int, reason: str) -> None:
        self._post(jsonrpc.encode_error(id, code, reason))
