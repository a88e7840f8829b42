"""Human in the loop: decisions on the questions of servers and on tool calls, with an audit log.

An `Approval` decides before a handler answers a server, and before the answer is sent. The policy
of the `Approval` allows, denies, or has a reviewer ask a person. Nothing is allowed by default: if
a person is needed and there is no reviewer, the question is denied.

Everything here may be used from any thread. Policies, reviewers and audit callbacks run on the
thread of the question, several at the same time. For a question of a server, that is a handler
thread. For a tool call, it is the thread that makes the call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from syncmcp import types
from syncmcp._base.checks import check_callable, check_object, kind_of
from syncmcp._base.text import logger
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.rate_limit import RateLimit
from syncmcp.approval.policies import (
    AllowAll,
    Answer,
    AuditRecord,
    AutoApprove,
    By,
    Decision,
    DenyAll,
    Kind,
    Policy,
    Question,
    Request,
    Reviewer,
    Rule,
    Rules,
    ToolCall,
    Verdict,
    tokens_of,
    why_undecided,
)
from syncmcp.errors import Denied, UsageError

if TYPE_CHECKING:
    from syncmcp.handlers.context import ConnectedServer, HandlerContext
    from syncmcp.types import Tool, ToolAnnotations

__all__ = [
    "AllowAll",
    "Approval",
    "AuditRecord",
    "AutoApprove",
    "By",
    "Decision",
    "DenyAll",
    "Kind",
    "Policy",
    "Question",
    "RateLimit",
    "Reviewer",
    "Rule",
    "Rules",
    "ToolCall",
    "Verdict",
    "as_approval",
]

_log = logger("syncmcp.approval")

_WHAT: Final[Mapping[Kind, str]] = {
    "sampling": "the sampling request",
    "form": "the form",
    "url": "the visit to the link",
    "roots": "the roots request",
    "tool": "the tool call",
}


class _Ruling(NamedTuple):
    verdict: Verdict
    by: By


class Approval:
    """Decides on questions by policy, by a person and by a rate limit, and audits the decisions.

    ::

        limit = syncmcp.RateLimit(calls=20, per=60)
        approval = syncmcp.Approval(reviewer=reviewer, limit=limit, audit=print)
        client = syncmcp.Client(server, sampling=model, approval=approval)

    Verdicts with `remember` are remembered for the lifetime of this object. One object may serve
    any number of clients; verdicts are remembered separately for each server
    (`ConnectedServer.identity`), and counts are kept for each server name. The object can be
    pickled if its parts can be pickled. A copy has no remembered verdicts, and counts from zero.

    Args:
        policy: Decides first; by default a person is always asked.
        reviewer: Asks a person. Without a reviewer, a question that needs a person is denied.
        limit: A rate limit for each server. Beyond the limit, everything that counts is denied.
            Questions that the policy denies do not count. Read-only tools of trusted servers count
            only if the policy itself allows them.
        audit: Called with a record of every decision, on the thread of the question. If the
            question is withdrawn or expires while a person is asked, the call is on the thread that
            ended the question. Exceptions of the callback are logged and have no effect.

    Raises:
        UsageError: The policy or reviewer lacks its method, a callback is a coroutine function, or
            `limit` is not a `RateLimit`.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        reviewer: Reviewer | None = None,
        *,
        limit: RateLimit | None = None,
        audit: Callable[[AuditRecord], object] | None = None,
    ) -> None:
        self._policy: Policy = Rules() if policy is None else policy
        _check_method(self._policy, "decide", "a policy")
        if reviewer is not None:
            _check_method(reviewer, "review", "a reviewer")
        if limit is not None and not isinstance(limit, RateLimit):
            raise UsageError(f"limit must be a RateLimit(calls=..., per=...), not {limit!r}")
        if audit is not None:
            check_callable(audit, "audit", ("decision",))
        self._reviewer = reviewer
        self._limit = limit
        self._audit = audit
        self._reset()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._policy!r}, reviewer {self._reviewer!r}>"

    def _reset(self) -> None:
        # Guards the attributes below. Never held during calls of policy, reviewer or audit.
        self._lock = threading.Lock()
        self._remembered: dict[tuple[Hashable, ...], bool] = {}
        # By server: each may ask at any rate, so its log records are limited.
        self._logs: dict[str, LimitedLog] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"], state["_remembered"], state["_logs"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def review_request(self, question: Question, *, asks_person: bool = False) -> Request | Answer:
        """Decide whether `question` may be answered: the first review.

        The method blocks while a person is asked.

        Args:
            question: The question of a server.
            asks_person: Whether the handler asks a person itself. If so, a question for which the
                policy requires a person is allowed without the reviewer.

        Returns:
            The request for the handler, as edited. If the policy or a person has already answered,
            this is the answer instead, which needs no second review.

        Raises:
            Denied: The question was denied or withdrawn, or it expired.
        """
        verdict = self._review(question, asks_person=asks_person)
        return verdict.answer or verdict.request or question.request

    def review_answer(self, question: Question) -> Answer:
        """Decide whether ``question.answer`` may be sent: the second review.

        Answers of models and functions need this review; answers that a person gave do not. A form
        that was declined or cancelled discloses nothing and is not reviewed. The method blocks
        while a person is asked.

        Returns:
            The answer to send, as edited.

        Raises:
            Denied: The answer was denied, or the question was withdrawn or expired.
            UsageError: `question` has no answer.
        """
        answer = question.answer
        if answer is None:
            raise UsageError("there is no answer to review")
        if question.kind != "sampling" and getattr(answer, "action", None) != "accept":
            return answer
        return self._review(question).answer or answer

    def record_answer(self, question: Question) -> None:
        """Audit ``question.answer``, which a person gave directly.

        This is for handlers that ask a person themselves: their answers need no review.

        Raises:
            UsageError: `question` has no answer to an elicitation.
        """
        action = getattr(question.answer, "action", None)
        if action is None:
            raise UsageError("there is no answer to an elicitation")
        verdict = Verdict.allow() if action == "accept" else Verdict.deny(f"the answer is {action}")
        self._record(question, _Ruling(verdict, "person"))

    def before_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None,
        annotations: ToolAnnotations | None,
        server: ConnectedServer,
        *,
        context: HandlerContext | None = None,
        definition: Tool | None = None,
    ) -> None:
        """Decide whether a tool may be called.

        The method blocks while a person is asked. If the policy requires a person, a tool that a
        trusted server declares read-only is allowed without asking, and does not count for the
        limit.

        Args:
            tool: The name of the tool.
            arguments: The arguments of the call.
            annotations: The server's annotations of the tool.
            server: The server that would be called.
            context: The context of the question during which the call is made. When that question
                ends, this review ends, too.
            definition: The tool as the server lists it, for display.

        Raises:
            Denied: The call was denied; nothing was sent.
        """
        call = ToolCall(tool, {} if arguments is None else arguments, annotations, definition)
        self._review(Question("tool", server, call, context))

    def update(self, question: Question, text: str) -> None:
        """Pass a model's partial text to the reviewer, if it has a method `update`."""
        update = getattr(self._reviewer, "update", None)
        if update is None:
            return
        try:
            update(question, text)
        except Exception as error:  # only the display failed: the model continues
            text = "[%s] a reviewer failed to show partial text"
            self._note(question, logging.ERROR, text, failure=error)

    def _review(self, question: Question, *, asks_person: bool = False) -> Verdict:
        # The thread that acquires it first records the decision; it is never released.
        settled = threading.Lock()

        def record_end() -> None:
            # The reviewer may block for ever; the audit must not wait for that.
            ended = _ended_ruling(question)
            if ended is not None and settled.acquire(blocking=False):
                self._record(question, ended)

        context = question.context
        unsubscribe = None if context is None else context.cancel.on_cancel(record_end)
        failure: BaseException | None = None
        try:
            ruling = _ended_ruling(question) or self._decide(question, asks_person=asks_person)
        except BaseException as error:  # even sys.exit() in a policy has to be audited
            failure = error
            # Only messages of the library: those of other exceptions may contain secrets.
            why = error.message if isinstance(error, UsageError) else type(error).__name__
            ruling = _Ruling(Verdict.deny(f"the review failed, see the log: {why}"), "error")
        finally:
            if unsubscribe is not None:
                unsubscribe()
        ruling = _ended_ruling(question) or ruling
        if settled.acquire(blocking=False):
            self._record(question, ruling)
        else:
            ruling = _ended_ruling(question) or ruling
        return self._apply_ruling(question, ruling, failure)

    def _decide(self, question: Question, *, asks_person: bool) -> _Ruling:
        decided = self._policy.decide(question)
        ruling: _Ruling | None = None
        if isinstance(decided, Verdict):
            ruling = _Ruling(decided, "policy")
        elif decided is Decision.ALLOW:
            ruling = _Ruling(Verdict.allow(), "policy")
        elif decided is Decision.DENY:
            ruling = _Ruling(Verdict.deny("the policy denied it"), "policy")
        elif decided is not Decision.ASK:
            raise UsageError(
                f"a policy returned {kind_of(decided)}, not a Decision:"
                " return Decision.ALLOW, DENY or ASK"
            )
        elif _only_reads(question):
            return _Ruling(
                Verdict.allow(reason="a trusted server marks the tool as read-only"), "policy"
            )
        elif asks_person:
            ruling = _Ruling(Verdict.allow(reason="the handler asks a person"), "policy")
        else:
            ruling = self._remembered_ruling(question)
        if ruling is not None and not ruling.verdict.allowed:
            return ruling
        # Only first reviews count for the limit: the question of an answer was counted before.
        first = question.answer is None
        tokens = tokens_of(question.request)
        if first and not self._within_limit(question, 1, tokens):
            return self._beyond_limit()
        ruling = ruling or self._ask(question)
        if ruling.verdict.allowed:
            _check_applicable(question, ruling)
            more = tokens_of(ruling.verdict.request or question.request) - tokens
            if first and more > 0 and not self._within_limit(question, 0, more):
                return self._beyond_limit()
        return ruling

    def _ask(self, question: Question) -> _Ruling:
        if self._reviewer is None:
            reason = why_undecided(self._policy, question) or (
                "there is nobody to ask: set the option approval to an Approval with a"
                " reviewer, such as "
                "AskOnTerminal() or AskInBrowser(), or to a policy that decides"
            )
            return _Ruling(Verdict.deny(reason), "nobody")
        try:
            verdict = self._reviewer.review(question)
        except Denied as denied:
            if denied.by != "nobody":  # something else that the reviewer did was denied
                raise
            return _Ruling(Verdict.deny(denied.message), "nobody")
        if not isinstance(verdict, Verdict):
            raise UsageError(
                f"a reviewer returned {kind_of(verdict)}, not a Verdict:"
                " return Verdict.allow() or .deny()"
            )
        return _Ruling(verdict, "person")

    def _remembered_ruling(self, question: Question) -> _Ruling | None:
        with self._lock:
            allowed = self._remembered.get(_memory_key(question))
        if allowed is None:
            return None
        return _Ruling(Verdict(allowed, reason="a person decided this before"), "remembered")

    def _within_limit(self, question: Question, calls: int, tokens: int) -> bool:
        return self._limit is None or self._limit.take(
            question.server.name, calls=calls, tokens=tokens
        )

    def _beyond_limit(self) -> _Ruling:
        reason = f"the question exceeds the limit of {self._limit} for one server (option limit)"
        return _Ruling(Verdict.deny(reason), "limit")

    def _apply_ruling(
        self, question: Question, ruling: _Ruling, failure: BaseException | None
    ) -> Verdict:
        verdict, by = ruling
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        if by == "person" and verdict.remember and question.kind != "url":
            with self._lock:
                self._remembered[_memory_key(question)] = verdict.allowed
        if verdict.allowed:
            return verdict
        if by == "error":
            text = "[%s] a review of %s failed"
            self._note(question, logging.ERROR, text, question.kind, failure=failure)
        elif by in ("limit", "nobody"):  # expired questions are logged elsewhere
            text = "[%s] a question (%s) was denied: %s"
            self._note(question, logging.WARNING, text, question.kind, verdict.reason)
        raise Denied(
            f"{_WHAT[question.kind]} was denied",
            kind=question.kind,
            reason=verdict.reason,
            by=by,
            server=question.server.name,
        ) from failure

    def _record(self, question: Question, ruling: _Ruling) -> None:
        if self._audit is None:
            return
        verdict, by = ruling
        try:
            self._audit(
                AuditRecord(
                    time=datetime.now(timezone.utc),
                    server=question.server.name,
                    kind=question.kind,
                    review="request" if question.answer is None else "answer",
                    question=question.summary,
                    decision=Decision.ALLOW if verdict.allowed else Decision.DENY,
                    by=by,
                    reason=verdict.reason,
                    edited=_is_edited(question, verdict),
                )
            )
        except Exception as error:  # an audit must not change the decision
            self._note(question, logging.ERROR, "[%s] an audit callback failed", failure=error)

    def _note(
        self,
        question: Question,
        level: int,
        text: str,
        *args: object,
        failure: BaseException | None = None,
    ) -> None:
        """Log at a limited rate, as a server can provoke this; its name begins the `text`."""
        name = question.server.name
        with self._lock:
            log = self._logs.setdefault(name, LimitedLog())
        log.log(_log, level, text, name, *args, exc_info=failure)


def as_approval(given: Approval | Policy) -> Approval:
    """Return an `Approval` itself, or make one of a policy, without a reviewer.

    Raises:
        UsageError: `given` is neither.
    """
    return given if isinstance(given, Approval) else Approval(given)


def _check_method(given: object, name: str, what: str) -> None:
    check_object(given, what)
    method = getattr(given, name, None)
    if method is None:
        hint = ": write Approval(reviewer=...)" if hasattr(given, "review") else ""
        raise UsageError(
            f"{what} must be an object with a method {name}(question), not {kind_of(given)}{hint}"
        )
    check_callable(method, f"{name} of {what}", ("question",))


def _ended_ruling(question: Question) -> _Ruling | None:
    """Return the ruling for a question that expired or was withdrawn; `None` if it is open."""
    context = question.context
    if context is None:
        return None
    left = context.time_left()
    if left is not None and left <= 0:
        reason = "nobody answered in time (option human_timeout)"
        return _Ruling(Verdict.deny(reason), "timeout")
    if context.cancel.cancelled:
        return _Ruling(Verdict.deny("withdrawn"), "withdrawn")
    return None


def _check_applicable(question: Question, ruling: _Ruling) -> None:
    """Raise `UsageError` for a verdict that does not fit the question."""
    verdict, by = ruling
    if verdict.request is not None and verdict.request != question.request:
        if question.kind != "sampling" or question.answer is not None:
            raise UsageError(
                "a verdict can change only a sampling request, and only before the model answers:"
                " pass an answer as Verdict.allow(answer=...)"
            )
        if type(verdict.request) is not type(question.request):
            raise UsageError(f"{type(verdict.request).__name__} does not fit {question.kind}")
    if verdict.answer is not None:
        if question.kind in ("roots", "tool"):
            raise UsageError(f"a verdict cannot answer for {question.kind}")
        if question.kind == "url" and by == "policy":
            raise UsageError("only a person can answer whether to visit a URL")
        expected = types.CreateMessageResult if question.kind == "sampling" else types.ElicitResult
        if not isinstance(verdict.answer, expected):
            raise UsageError(f"{type(verdict.answer).__name__} does not answer {question.kind}")


def _is_edited(question: Question, verdict: Verdict) -> bool:
    request = verdict.request not in (None, question.request)
    answer = question.answer is not None and verdict.answer not in (None, question.answer)
    return verdict.allowed and (request or answer)


def _memory_key(question: Question) -> tuple[Hashable, ...]:
    # A verdict on a request must not apply to answers, nor a verdict on a tool to other tools.
    tool = question.request.tool if isinstance(question.request, ToolCall) else ""
    review = "request" if question.answer is None else "answer"
    return question.server.identity, question.kind, review, tool


def _only_reads(question: Question) -> bool:
    """Whether a trusted server declares the tool read-only; others' annotations do not count."""
    call = question.request
    return (
        isinstance(call, ToolCall)
        and question.server.trusted
        and call.annotations is not None
        and call.annotations.read_only_hint is True
    )
