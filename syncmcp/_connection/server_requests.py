"""Requests that a server sends: refused, answered at once, or given to a handler."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.rate_limit import SlidingWindow
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
    known_handler,
)
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.tasks import related_task_id, with_related_task
from syncmcp.errors import InvalidQuestion, Refused, UsageError
from syncmcp.handlers import CausingCall, offer_of

if TYPE_CHECKING:
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.notifier import Notifier
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.jsonrpc import RequestTable
    from syncmcp.handlers import HandlerContext, RequestHandler
    from syncmcp.transports.base import Outgoing

_log = logging.getLogger("syncmcp.connection")


# How many questions of a server may be open at one time, even if their handlers only wait.
MAX_OPEN = 256


class QuestionDispatcher:
    """Answers the requests of one server: a ping at once, others by handlers on a pool.

    Args:
        registry: The open questions of the connection.
        table: The open requests of both sides.
        lock: Guards `table`.
        notifier: Sends answers and progress.
        on_release: Called with a call whose deadlines run again after they were held.
        max_queued: How many questions may wait for a free handler thread.
        interceptors: Shows questions and answers to the program's interceptors.
    """

    def __init__(
        self,
        registry: QuestionRegistry,
        table: RequestTable[PendingRequest, OpenQuestion],
        lock: AbstractContextManager[object],
        notifier: Notifier,
        on_release: Callable[[PendingRequest], object],
        max_queued: int,
        interceptors: InterceptorChain | None = None,
    ) -> None:
        self._registry = registry
        self._services = registry.services
        self._table = table
        self._lock = lock
        self._notifier = notifier
        self._on_release = on_release
        self._max_queued = max_queued
        self._interceptors = interceptors
        # Whether the refusal of too many questions was logged, which happens once.
        self._overflow_logged = False
        # Questions that arrived before the client was open; handlers may call the client.
        self._queued: list[Callable[[], None]] | None = []

    def open(self) -> None:
        """The client is open: handlers may run from now on."""
        with self._lock:
            queued, self._queued = self._queued, None
        for start in queued or ():
            start()

    def dispatch(
        self,
        request: jsonrpc.Request | jsonrpc.MalformedRequest,
        dialect: Dialect,
        owner: PendingRequest | None,
        *,
        certain: bool,
        out: Outgoing | None,
    ) -> None:
        """Answer a request, now or when its handler returns. Never blocks.

        Args:
            request: The server's request.
            dialect: The dialect of the connection.
            owner: Our request that caused it, if that is known.
            certain: Whether it certainly belongs to `owner`; otherwise no other request was open.
            out: Our request on whose HTTP stream it came, if that is known.
        """
        if isinstance(request, jsonrpc.MalformedRequest):
            self._refuse(request, jsonrpc.INVALID_PARAMS, request.reason)
            return
        if request.method == "ping":
            self._notifier.post(jsonrpc.encode_result(request.id, {}))
            self._show_request(request, result={})
            return
        handlers = self._services.handlers.for_call(
            None if owner is None else owner.options.handlers
        )
        custom = self._services.handlers.request(request.method)
        if self._queued is not None:
            # While the client opens, questions belong to no call and hold no deadline.
            owner = None
        if custom is not None:
            make: Callable[[dict[str, Any]], AnswerFunction] = partial(_custom_handler, custom)
        else:
            try:
                check_offered(request.method, offer_of(handlers), dialect)
            except InvalidQuestion as error:
                self._refuse(request, error.code, error.message)
                return
            make = partial(known_handler, request.method, handlers=handlers, dialect=dialect)
        if self._interceptors is None:
            answer = make(request.params)
        else:
            answer = self._interceptors.intercept_handler(request, make)
        hold = None
        if owner is not None:
            patience = self._services.human_timeout
            hold = DeadlineHold(owner, self._lock, self._on_release, patience, certain=certain)
        self._open_question(request, answer, owner, hold)

    def cancel(self, params: dict[str, Any]) -> None:
        """Cancel the question that a ``notifications/cancelled`` of the server names."""
        with self._lock:
            question = self._table.remove_question(params.get("requestId"))
        if question is None:
            _log.debug("[%s] cancelled nothing that is open", self._services.label)
            return
        reason = params.get("reason")
        question.cancel(reason if type(reason) is str else None)

    def _open_question(
        self,
        request: jsonrpc.Request,
        answer: AnswerFunction,
        owner: PendingRequest | None,
        hold: DeadlineHold | None,
    ) -> None:
        # The answer must follow the last progress notification, and those must be in order.
        post = self._notifier.ordered_post(self._services.callback_pool)
        reports = _ProgressReports.for_request(request.params, partial(self._report, post))
        question = OpenQuestion(
            self._registry,
            request.method,
            answer,
            partial(self._answered, request, answer, post, reports, hold),
            params=request.params,
            cause=None if owner is None else CausingCall(owner.method, owner.params),
            context=None if owner is None else owner.options.context,
            progress=None if reports is None else reports.send,
            elicitation_ids=elicitation_ids(request.method, request.params),
        )
        with self._lock:
            full = self._registry.queued >= self._max_queued or self._table.open_questions >= max(
                MAX_OPEN, self._max_queued
            )
            known = not full and not self._table.add_question(request.id, question)
            accepted = not full and not known and self._registry.add(question)
            queued = self._queued
            if accepted and queued is not None:
                queued.append(question.start)
            if accepted and hold is not None:
                hold.hold(question)
        if full:
            self._refuse(request, jsonrpc.INTERNAL_ERROR, "too many requests")
            if not self._overflow_logged:
                self._overflow_logged = True
                _log.warning(
                    "[%s] too many open questions (option max_questions); refused: %s",
                    self._services.label,
                    request.method,
                )
        elif known:
            _log.warning("[%s] used the id %r twice", self._services.label, request.id)
        elif accepted:
            if reports is not None:
                reports.keep_alive()
            if queued is None:
                question.start()

    def _answered(
        self,
        request: jsonrpc.Request,
        answer: AnswerFunction,
        post: Callable[[bytes], object],
        reports: _ProgressReports | None,
        hold: DeadlineHold | None,
        question: OpenQuestion,
        outcome: Outcome,
    ) -> None:
        """Send the answer, on the thread that settled the question."""
        with self._lock:
            # The server may have cancelled the question and reused its id.
            wanted = self._table.remove_question(request.id, question) is not None
        if reports is not None:
            reports.close(answered=wanted and outcome is not None)
        fault: ValueError | None = None
        if wanted and outcome is not None:
            frame, fault = self._encode_answer(request, outcome)
            post(frame)
            if isinstance(answer, InterceptedHandler) and not answer.produced(outcome):
                # The library refused the question: it expired, or its call ended.
                what = "error" if isinstance(outcome, BaseException) else "result"
                self._show_answer(request, **{what: outcome})
        if hold is not None:  # last: the deadlines run once the server has its answer
            hold.release(question)
        if fault is not None:  # last: this is user code, and the question has ended
            question.report_error(fault)

    def _encode_answer(
        self, request: jsonrpc.Request, outcome: dict[str, Any] | BaseException
    ) -> tuple[bytes, ValueError | None]:
        """The response to send, and the error if the handler's answer cannot be encoded."""
        try:
            if isinstance(outcome, dict):
                result = with_related_task(outcome, related_task_id(request.params))
                return jsonrpc.encode_result(request.id, result), None
            return jsonrpc.encode_error(request.id, *refusal(request.method, outcome)), None
        except ValueError as error:
            _log.exception("the answer of the handler of %s is no JSON", request.method)
            return jsonrpc.encode_error(request.id, *refusal(request.method, error)), error

    def _refuse(
        self, request: jsonrpc.Request | jsonrpc.MalformedRequest, code: int, reason: str
    ) -> None:
        self._notifier.post(jsonrpc.encode_error(request.id, code, reason))
        if isinstance(request, jsonrpc.Request):
            self._show_request(request, error=Refused(code, reason))

    def _report(self, post: Callable[[bytes], object], params: dict[str, Any]) -> None:
        method = "notifications/progress"
        post(jsonrpc.encode_notification(method, params))
        if self._interceptors is not None:
            self._interceptors.show_settled("outgoing", "notification", method, params=params)

    def _show_request(self, request: jsonrpc.Request, **answer: Any) -> None:
        """Show interceptors a request that no handler gets, and its answer."""
        if self._interceptors is not None:
            id, method, params = request
            self._interceptors.show_settled("incoming", "request", method, id=id, params=params)
            self._show_answer(request, **answer)

    def _show_answer(self, request: jsonrpc.Request, **answer: Any) -> None:
        assert self._interceptors is not None
        id, method, params = request
        self._interceptors.show_settled(
            "outgoing", "response", method, id=id, params=params, **answer
        )


class _ProgressReports:
    """Progress notifications of one answer for the server that asked (spec: "Progress")."""

    def __init__(
        self, token: str | int, post: Callable[[dict[str, Any]], object], task: str | None
    ) -> None:
        self._token = token
        self._post = post
        self._task = task
        # Guards what follows, and the order: each progress must be greater than the one before.
        self._lock = threading.RLock()
        self._last = 0.0
        self._closed = False
        self._keep_alive_timer: TimerEntry | None = None
        # The newest report that exceeded the rate, and the timer entry of its retry.
        self._rate = SlidingWindow(_MAX_REPORTS, None, _REPORT_WINDOW)
        self._pending: dict[str, Any] | None = None
        self._retry_timer: TimerEntry | None = None

    @classmethod
    def for_request(
        cls, params: dict[str, Any], post: Callable[[dict[str, Any]], object]
    ) -> _ProgressReports | None:
        """The reports for a question that has a progress token; `None` if it has none."""
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if type(token) is not int and type(token) is not str:
            return None
        return cls(token, post, related_task_id(params))

    def send(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Post a report, unless the answer was sent.

        Of too many, only the newest is posted, a little later (spec: "Both parties SHOULD implement
        rate limiting").
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
            self._pending = with_related_task(params, self._task)
            if self._rate.take(1, 0):
                self._post_pending()
            elif self._retry_timer is None:
                self._retry_timer = timer.after(_REPORT_WINDOW, self._retry)

    def _post_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._post(pending)

    def _retry(self) -> None:
        with self._lock:
            self._retry_timer = None
            if self._closed or self._pending is None:
                return
            if self._rate.take(1, 0):
                self._post_pending()
            else:
                self._retry_timer = timer.after(_REPORT_WINDOW, self._retry)

    def keep_alive(self) -> None:
        """Send progress regularly, so that the server does not expire its request."""
        with self._lock:
            if not self._closed:
                self._keep_alive_timer = timer.after(_KEEP_ALIVE_SECONDS, self._send_keep_alive)

    def _send_keep_alive(self) -> None:
        self.send(0.0, message="waiting for an answer")
        self.keep_alive()

    def close(self, *, answered: bool) -> None:
        """Post the last report if there is an answer; nothing is posted after that."""
        with self._lock:
            if answered and not self._closed:
                self._post_pending()
            self._closed = True
            for entry in (self._keep_alive_timer, self._retry_timer):
                if entry is not None:
                    entry.cancel()


# The seconds between progress notifications while a handler runs.
_KEEP_ALIVE_SECONDS = 10.0

# The rate limit: so many reports on one answer in any window of so many seconds.
_MAX_REPORTS = 20
_REPORT_WINDOW = 1.0


def _custom_handler(handler: RequestHandler, params: dict[str, Any]) -> AnswerFunction:
    def answer(context: HandlerContext) -> dict[str, Any]:
        result = handler(params, context)
        if result is None:
            return {}
        to_wire = getattr(result, "to_wire", None)
        if to_wire is not None:
            result = to_wire()
        if not isinstance(result, dict):
            raise UsageError(f"a handler returns a dict or a model, not {type(result).__name__}")
        return result

    return answer
