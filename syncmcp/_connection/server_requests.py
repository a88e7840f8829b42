"""Requests that a server sends: refused, answered at once, or passed to a handler."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._base.text import MOST_QUOTED, cut, logger
from syncmcp._concurrency import timing
from syncmcp._concurrency.rate_limit import SlidingWindow
from syncmcp._concurrency.timing import Alarm, Hold
from syncmcp._connection.answering import (
    AnswerFunction,
    answered_by_library,
    check_offered,
    elicitation_ids,
    known_handler,
    refusal,
)
from syncmcp._connection.questions import InboundRequest, Outcome, QuestionRegistry
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.tasks import related_task_id, with_related_task
from syncmcp.errors import InvalidQuestion, LimitExceeded, Refused, UsageError
from syncmcp.handlers import CausingCall, offer_of

if TYPE_CHECKING:
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.notifier import Notifier
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.dialect import Dialect
    from syncmcp.handlers import HandlerContext, RequestHandler

_log = logger("syncmcp.connection")


# The most questions of a server that are open at the same time, waiting handlers included.
MAX_OPEN = 256


class QuestionDispatcher:
    """Answers the requests of one server: a ping at once, others by handlers on a pool.

    Args:
        lock: The lock of the connection, which guards its calls.
        on_resume: Called with a call whose deadlines run again after they were held.
        on_excess: Ends a call that caused too many questions of the server. Never blocks.
        max_waiting: How many requests may wait for a free handler thread.
    """

    def __init__(
        self,
        registry: QuestionRegistry,
        lock: AbstractContextManager[object],
        notifier: Notifier,
        on_resume: Callable[[PendingRequest], object],
        on_excess: Callable[[PendingRequest, LimitExceeded], object],
        max_waiting: int,
        interceptors: InterceptorChain | None = None,
    ) -> None:
        self.services = registry.services
        self.lock = lock
        self.notifier = notifier
        self.on_resume = on_resume
        self._on_excess = on_excess
        self.interceptors = interceptors
        self._registry = registry
        self._max_waiting = max_waiting
        # Requests that arrived before the client was open; handlers may call the client.
        self._early: list[InboundRequest] | None = []

    def open(self) -> None:
        """Run the handlers of early requests, and of all later ones: the client is open."""
        with self.lock:
            early, self._early = self._early, None
        for each in early or ():
            each.start()

    def dispatch(
        self,
        request: jsonrpc.Request | jsonrpc.MalformedRequest,
        dialect: Dialect,
        owner: PendingRequest | None,
        *,
        certain: bool,
    ) -> None:
        """Answer a request, now or when its handler returns. Never blocks.

        `owner` is our request that caused it, if known. If that is not `certain`, it was the only
        open request.
        """
        if isinstance(request, jsonrpc.MalformedRequest):
            self._refuse(request, jsonrpc.INVALID_PARAMS, request.reason)
            return
        if request.method == "ping":
            self.notifier.post(jsonrpc.encode_result(request.id, {}))
            self._show_both(request, result={})
            return
        own = None if owner is None else owner.options.handlers
        handlers = self.services.handlers.for_call(own)
        custom = self.services.handlers.requests.get(request.method)
        if custom is not None:
            make: Callable[[dict[str, Any]], AnswerFunction] = partial(_custom_handler, custom)
        else:
            try:
                check_offered(request.method, offer_of(handlers), dialect)
            except InvalidQuestion as error:
                self._refuse(request, error.code, error.message)
                return
            make = partial(known_handler, request.method, handlers=handlers, dialect=dialect)
        if self._early is not None:
            # While the client opens, questions belong to no call and hold no deadline.
            owner = None
        reply = _FrameReply(self, request, owner)
        if self.interceptors is None:
            answer = make(request.params)
        else:
            answer = self.interceptors.intercept_handler(request, make)
        hold = None
        if owner is not None:
            with self.lock:
                allowed = owner.options.may_ask(1, self.services.max_questions_per_call)
            if not allowed:
                self._refuse(request, jsonrpc.INTERNAL_ERROR, "too many questions for one call")
                self._on_excess(owner, self.services.too_many_questions(owner.method))
                return
            if self.interceptors is not None or not answered_by_library(request.method, handlers):
                hold = Hold(owner.deadline, self.services.human_timeout)
        self._begin(request, answer, reply, hold, certain=certain)

    def cancel(self, params: dict[str, Any]) -> None:
        """Cancel the request that a ``notifications/cancelled`` of the server names."""
        question = self._registry.get(params.get("requestId"))
        if question is None:
            self.services.note(_log, logging.DEBUG, "[%s] cancelled a request that is not open")
            return
        reason = params.get("reason")
        # Cut: the token stores the reason for as long as the handler runs.
        question.cancel(cut(reason, MOST_QUOTED) if type(reason) is str else None)

    def _begin(
        self,
        request: jsonrpc.Request,
        answer: AnswerFunction,
        reply: _FrameReply,
        hold: Hold | None,
        *,
        certain: bool,
    ) -> None:
        registry, most = self._registry, self._max_waiting
        owner, reports = reply.owner, reply.reports
        question = InboundRequest(
            registry,
            request.method,
            request.params,
            answer,
            reply.deliver,
            id=request.id,
            cause=None if owner is None else CausingCall(owner.method, owner.params),
            context=None if owner is None else owner.options.context,
            progress=None if reports is None else reports.send,
            elicitation_ids=elicitation_ids(request.method, request.params),
            hold=hold,
            size=jsonrpc.size_of(request.params, request.method, request.id),
        )
        with self.lock:
            full = registry.waiting >= most or len(registry) >= max(MAX_OPEN, most)
            full = full or not registry.fits(question.size)
            accepted = not full and registry.add(question)
            early = self._early
            if accepted and early is not None:
                self._early = [*(each for each in early if each.state == "waiting"), question]
            if accepted and owner is not None:
                owner.add_question(question, certain=certain)
        if accepted:
            if reports is not None:
                reports.keep_alive()
            if early is None:
                question.start()
        elif full:
            self._refuse(request, jsonrpc.INTERNAL_ERROR, "too many requests")
            text = (
                "[%s] the client refused %s: the open questions are too many or too large"
                " (option max_questions)"
            )
            self.services.note(_log, logging.WARNING, text, request.method)
        elif registry.close_error is None:
            self.services.note(_log, logging.WARNING, "[%s] used the id %r twice", request.id)

    def _refuse(
        self, request: jsonrpc.Request | jsonrpc.MalformedRequest, code: int, reason: str
    ) -> None:
        self.notifier.post(jsonrpc.encode_error(request.id, code, reason))
        if isinstance(request, jsonrpc.Request):
            self._show_both(request, error=Refused(code, reason))

    def _show_both(self, request: jsonrpc.Request, **answer: Any) -> None:
        """Show interceptors a request that no handler gets, and its answer."""
        if self.interceptors is not None:
            id, method, params = request
            self.interceptors.show_settled("incoming", "request", method, id=id, params=params)
            self.show_answer(request, **answer)

    def show_answer(self, request: jsonrpc.Request, **answer: Any) -> None:
        """Show interceptors an answer that no handler gave."""
        if self.interceptors is not None:
            id, method, params = request
            self.interceptors.show_settled(
                "outgoing", "response", method, id=id, params=params, **answer
            )


class _FrameReply:
    """Sends the outcome of one request of the server as a response, and its progress before.

    Attributes:
        owner: Our request that caused it, if that is known.
        reports: Sends the progress of the answer; `None` if the server did not ask for it.
    """

    def __init__(
        self,
        dispatcher: QuestionDispatcher,
        request: jsonrpc.Request,
        owner: PendingRequest | None,
    ) -> None:
        self.owner = owner
        self._dispatcher = dispatcher
        self._request = request
        # The answer must follow the last progress notification, and those must be in order.
        notifier = dispatcher.notifier
        post = self._post = notifier.ordered_post()
        self.reports: _ProgressReports | None = None
        token = _progress_token(request.params)
        if token is not None:
            report = partial(notifier.post_notification, "notifications/progress", post=post)
            self.reports = _ProgressReports(token, report, related_task_id(request.params))

    def deliver(self, request: InboundRequest, outcome: Outcome) -> None:
        """Send the answer, if the server waits for one."""
        dispatcher, owner = self._dispatcher, self.owner
        if self.reports is not None:
            self.reports.close(answered=outcome is not None)
        fault: ValueError | None = None
        if outcome is not None:
            frame, fault = self._encode(outcome)
            self._post(frame)
            if outcome is not request.handled:
                # The library refused the request: it expired, or its call ended.
                what = "error" if isinstance(outcome, BaseException) else "result"
                dispatcher.show_answer(self._request, **{what: outcome})
        if owner is not None:  # last: the deadlines run once the server has its answer
            with dispatcher.lock:
                resumed = owner.resume(request)
            if resumed:
                dispatcher.on_resume(owner)
        if fault is not None:  # last: this is user code, and the request has ended
            request.report_error(fault)

    def _encode(self, outcome: dict[str, Any] | BaseException) -> tuple[bytes, ValueError | None]:
        """The response to send, and the error if the handler's answer cannot be encoded."""
        id, method, params = self._request
        try:
            if isinstance(outcome, dict):
                result = with_related_task(outcome, related_task_id(params))
                return jsonrpc.encode_result(id, result), None
            return jsonrpc.encode_error(id, *refusal(method, outcome)), None
        except ValueError as error:
            text = "the answer of the %s handler cannot be sent as JSON"
            log = self._dispatcher.services.log
            log.log(_log, logging.ERROR, text, method, exc_info=True)
            return jsonrpc.encode_error(id, *refusal(method, error)), error


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
        self._rate = SlidingWindow(_MAX_REPORTS, None, _REPORT_WINDOW)
        # The newest report, if it exceeded the rate.
        self._pending: dict[str, Any] | None = None
        self._alarm = Alarm(self._lock, self._ring)

    def send(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Post a report, unless the answer was sent.

        If there are too many, only the newest is posted, with a delay (spec: "Both parties SHOULD
        implement rate limiting").
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
            else:
                self._alarm.set(timing.monotonic() + _REPORT_WINDOW)

    def _post_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._post(pending)

    def keep_alive(self) -> None:
        """Send progress regularly, so that the server does not expire its request."""
        with self._lock:
            if not self._closed:
                self._alarm.set(timing.monotonic() + _KEEP_ALIVE_SECONDS)

    def _ring(self) -> None:
        with self._lock:
            if self._closed or self._pending is None:
                self.send(0.0, message="waiting for an answer")
            elif self._rate.take(1, 0):
                self._post_pending()
            else:
                self._alarm.set(timing.monotonic() + _REPORT_WINDOW)
            self.keep_alive()

    def close(self, *, answered: bool) -> None:
        """Post the last report if there is an answer; nothing is posted after that."""
        with self._lock:
            if answered and not self._closed:
                self._post_pending()
            self._closed = True
            self._alarm.cancel()


def _progress_token(params: dict[str, Any]) -> str | int | None:
    """Return the progress token of a server's request, if it has a valid one."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if type(token) is int or type(token) is str else None


# The seconds between progress notifications while a handler runs.
_KEEP_ALIVE_SECONDS = 10.0

# The rate limit: the most reports on one answer in a window, and its length in seconds.
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
            raise UsageError(
                f"a handler must return a dict or a model, not {type(result).__name__}"
            )
        return result

    return answer
