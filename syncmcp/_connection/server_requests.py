"""The requests that a server sends: who answers them, and what has no answer yet."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.budget import SlidingWindow
from syncmcp._concurrency.timing import TimerEntry, timer
from syncmcp._connection.answering import check_offered, refusal
from syncmcp._connection.intercepting import InterceptedHandler
from syncmcp._connection.pending_request import DeadlineHold
from syncmcp._connection.questions import (
    AnswerFunction,
    OpenQuestion,
    Outcome,
    QuestionRegistry,
    elicitation_ids,
    known_question,
)
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.tasks import relate, related
from syncmcp.errors import InvalidQuestion, Refused, UsageError
from syncmcp.handlers import CausingCall, offer_of

if TYPE_CHECKING:
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.notifier import Notifier
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.request_table import RequestTable
    from syncmcp._protocol.revisions import Dialect
    from syncmcp.handlers import HandlerContext, RequestHandler
    from syncmcp.transports.base import Outgoing

_log = logging.getLogger("syncmcp.connection")


# Questions of a server that may be open at one time, whatever their handlers wait for.
MAX_OPEN = 256


class QuestionDispatcher:
    """The requests of one server. A ping is answered at once, the rest by handlers on a pool.

    Args:
        registry: Keeps them while they are open.
        peer: Where open requests are kept.
        lock: Guards `peer`.
        notifier: Sends answers and reports of progress.
        resumed: Told of a call whose clocks go on after they stood still.
        max_waiting: How many may wait for a handler to be free.
        interception: Shows questions and answers to interceptors.
    """

    def __init__(
        self,
        registry: QuestionRegistry,
        peer: RequestTable[PendingRequest, OpenQuestion],
        lock: AbstractContextManager[object],
        notifier: Notifier,
        resumed: Callable[[PendingRequest], object],
        max_waiting: int,
        interception: InterceptorChain | None = None,
    ) -> None:
        self._registry = registry
        self._services = registry.services
        self._peer = peer
        self._lock = lock
        self._notifier = notifier
        self._resumed = resumed
        self._max_waiting = max_waiting
        self._interception = interception
        # Whether a refusal for want of room was logged: one line tells it, a flood hides it.
        self._overrun = False
        # What comes before the client is open; handlers may want to use it.
        self._early: list[Callable[[], None]] | None = []

    def open(self) -> None:
        """The client is open: handlers may run from now on."""
        with self._lock:
            early, self._early = self._early, None
        for start in early or ():
            start()

    def take(
        self,
        request: jsonrpc.Request | jsonrpc.BadRequest,
        dialect: Dialect,
        owner: PendingRequest | None,
        *,
        certain: bool,
        out: Outgoing | None,
    ) -> None:
        """Answer a request, now or when its handler is done. Never blocks.

        Args:
            request: What came.
            dialect: What it came in.
            owner: The request of ours that it belongs to, if that is known.
            certain: Whether it came on the stream of `owner`, and not just while no other request
                was in flight.
            out: The exchange on whose stream it came, if that is known.
        """
        if isinstance(request, jsonrpc.BadRequest):
            self._refuse(request, jsonrpc.INVALID_PARAMS, request.reason)
            return
        if request.method == "ping":
            self._notifier.post(jsonrpc.encode_result(request.id, {}))
            self._settled(request, result={})
            return
        if owner is None and out is not None and out.lingers:
            self._refuse(request, jsonrpc.INTERNAL_ERROR, "the call behind it was given up")
            return
        handlers = self._services.handlers.for_call(
            None if owner is None else owner.options.handlers
        )
        custom = self._services.handlers.request(request.method)
        if self._early is not None:
            # While the client opens, what a server asks belongs to no call, and stops no clock.
            owner = None
        if custom is not None:
            make: Callable[[dict[str, Any]], AnswerFunction] = partial(_custom_question, custom)
        else:
            try:
                check_offered(request.method, offer_of(handlers), dialect)
            except InvalidQuestion as error:
                self._refuse(request, error.code, error.message)
                return
            make = partial(known_question, request.method, handlers=handlers, dialect=dialect)
        if self._interception is None:
            answering = make(request.params)
        else:
            answering = self._interception.answering(request, make)
        owned = None
        if owner is not None:
            patience = self._services.human_timeout
            owned = DeadlineHold(owner, self._lock, self._resumed, patience, certain=certain)
        self._hand_over(request, answering, owner, owned)

    def withdraw(self, params: dict[str, Any]) -> None:
        """The server no longer wants an answer."""
        with self._lock:
            asked = self._peer.finish(params.get("requestId"))
        if asked is None:
            _log.debug("[%s] cancelled nothing that is open", self._services.label)
            return
        reason = params.get("reason")
        asked.withdraw(reason if type(reason) is str else None)

    def _hand_over(
        self,
        request: jsonrpc.Request,
        answering: AnswerFunction,
        owner: PendingRequest | None,
        owned: DeadlineHold | None,
    ) -> None:
        # The answer comes after the last report, and reports come in their order.
        post = self._notifier.line(self._services.callbacks)
        reports = _Reports.wanted_by(request.params, partial(self._report, post))
        asked = OpenQuestion(
            self._registry,
            request.method,
            answering,
            partial(self._answered, request, answering, post, reports, owned),
            params=request.params,
            cause=None if owner is None else CausingCall(owner.method, owner.params),
            context=None if owner is None else owner.options.context,
            progress=None if reports is None else reports.send,
            elicitation_ids=elicitation_ids(request.method, request.params),
        )
        with self._lock:
            full = self._registry.waiting >= self._max_waiting or self._peer.open_questions >= max(
                MAX_OPEN, self._max_waiting
            )
            known = not full and not self._peer.receive(request.id, asked)
            accepted = not full and not known and self._registry.admit(asked)
            early = self._early
            if accepted and early is not None:
                early.append(asked.start)
            if accepted and owned is not None:
                owned.hold(asked)
        if full:
            self._refuse(request, jsonrpc.INTERNAL_ERROR, "too many requests")
            if not self._overrun:
                self._overrun = True
                _log.warning(
                    "[%s] asks more at one time than may wait (option max_questions); refused: %s",
                    self._services.label,
                    request.method,
                )
        elif known:
            _log.warning("[%s] used the id %r twice", self._services.label, request.id)
        elif accepted:
            if reports is not None:
                reports.keep_alive()
            if early is None:
                asked.start()

    def _answered(
        self,
        request: jsonrpc.Request,
        answering: AnswerFunction,
        post: Callable[[bytes], object],
        reports: _Reports | None,
        owned: DeadlineHold | None,
        asked: OpenQuestion,
        outcome: Outcome,
    ) -> None:
        """On whatever thread settled the question."""
        with self._lock:
            # The server may have withdrawn it, and used its id for another one.
            wanted = self._peer.finish(request.id, asked) is not None
        if reports is not None:
            reports.close(answered=wanted and outcome is not None)
        fault: ValueError | None = None
        if wanted and outcome is not None:
            frame, fault = self._frame(request, outcome)
            post(frame)
            if isinstance(answering, InterceptedHandler) and not answering.gave(outcome):
                # A refusal of the library's: nobody answered in time, or the call behind it ended.
                what = "error" if isinstance(outcome, BaseException) else "result"
                self._answer_settled(request, **{what: outcome})
        if owned is not None:  # last: while the server goes on, there is time for it
            owned.let_go(asked)
        if fault is not None:  # after all: no limit of the question counts any more
            asked.report(fault)

    def _frame(
        self, request: jsonrpc.Request, outcome: dict[str, Any] | BaseException
    ) -> tuple[bytes, ValueError | None]:
        """The answer for the wire, and why it is not the handler's."""
        try:
            if isinstance(outcome, dict):
                result = relate(outcome, related(request.params))
                return jsonrpc.encode_result(request.id, result), None
            return jsonrpc.encode_error(request.id, *refusal(request.method, outcome)), None
        except ValueError as error:
            _log.exception("the answer of the handler of %s is no JSON", request.method)
            return jsonrpc.encode_error(request.id, *refusal(request.method, error)), error

    def _refuse(
        self, request: jsonrpc.Request | jsonrpc.BadRequest, code: int, reason: str
    ) -> None:
        self._notifier.post(jsonrpc.encode_error(request.id, code, reason))
        if isinstance(request, jsonrpc.Request):
            self._settled(request, error=Refused(code, reason))

    def _report(self, post: Callable[[bytes], object], params: dict[str, Any]) -> None:
        method = "notifications/progress"
        post(jsonrpc.encode_notification(method, params))
        if self._interception is not None:
            self._interception.settled("outgoing", "notification", method, params=params)

    def _settled(self, request: jsonrpc.Request, **answer: Any) -> None:
        """Show a question that no handler gets, and its answer."""
        if self._interception is not None:
            id, method, params = request
            self._interception.settled("incoming", "request", method, id=id, params=params)
            self._answer_settled(request, **answer)

    def _answer_settled(self, request: jsonrpc.Request, **answer: Any) -> None:
        assert self._interception is not None
        id, method, params = request
        self._interception.settled("outgoing", "response", method, id=id, params=params, **answer)


class _Reports:
    """Progress of one answer, on its way to the server that asked (spec: "Progress")."""

    def __init__(
        self, token: str | int, post: Callable[[dict[str, Any]], object], task: str | None
    ) -> None:
        self._token = token
        self._post = post
        self._task = task
        # Guards what follows, and the order: each report must be greater than the one before.
        self._lock = threading.RLock()
        self._last = 0.0
        self._closed = False
        self._beat: TimerEntry | None = None
        # The newest one for which there was no room, and when it is tried again.
        self._room = SlidingWindow(_MOST_REPORTS, None, _STRETCH)
        self._held: dict[str, Any] | None = None
        self._later: TimerEntry | None = None

    @classmethod
    def wanted_by(
        cls, params: dict[str, Any], post: Callable[[dict[str, Any]], object]
    ) -> _Reports | None:
        """The reports that a question asks for with a token, if it does."""
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if type(token) is not int and type(token) is not str:
            return None
        return cls(token, post, related(params))

    def send(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Post a report, unless the answer is out; of too many, the newest a little later.

        (Spec: "Both parties SHOULD implement rate limiting".)
        """
        params: dict[str, Any] = {"progressToken": self._token}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        with self._lock:
            if self._closed:
                return
            if progress <= self._last:
                progress = math.nextafter(self._last, math.inf)
            self._last = params["progress"] = progress
            self._held = relate(params, self._task)
            if self._room.take(1, 0):
                self._post_held()
            elif self._later is None:
                self._later = timer.after(_STRETCH, self._try_again)

    def _post_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._post(held)

    def _try_again(self) -> None:
        with self._lock:
            self._later = None
            if self._closed or self._held is None:
                return
            if self._room.take(1, 0):
                self._post_held()
            else:
                self._later = timer.after(_STRETCH, self._try_again)

    def keep_alive(self) -> None:
        """Let the server see, from now on, that somebody is still thinking."""
        with self._lock:
            if not self._closed:
                self._beat = timer.after(_BEAT, self._tick)

    def _tick(self) -> None:
        self.send(0.0, message="waiting for an answer")
        self.keep_alive()

    def close(self, *, answered: bool) -> None:
        """The answer goes out, behind the last report, or there is none: not a word more."""
        with self._lock:
            if answered and not self._closed:
                self._post_held()
            self._closed = True
            for entry in (self._beat, self._later):
                if entry is not None:
                    entry.cancel()


# How often a server is told that an answer is being thought about, in seconds.
_BEAT = 10.0

# So many reports on one answer a server gets in any stretch of so many seconds.
_MOST_REPORTS = 20
_STRETCH = 1.0


def _custom_question(handler: RequestHandler, params: dict[str, Any]) -> AnswerFunction:
    def answering(context: HandlerContext) -> dict[str, Any]:
        result = handler(params, context)
        if result is None:
            return {}
        to_wire = getattr(result, "to_wire", None)
        if to_wire is not None:
            result = to_wire()
        if not isinstance(result, dict):
            raise UsageError(f"a handler returns a dict or a model, not {type(result).__name__}")
        return result

    return answering
