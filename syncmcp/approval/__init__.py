"""A human in the loop: who decides what a server may have, and what is kept of the decision.

An `Approval` stands between servers and what answers them. Its policy allows, denies, or has a
person asked through a reviewer. Nothing is ever allowed by default: where the policy wants a person
and there is none, the question is denied.

Everything here may be used from any thread. Policies, reviewers and audit callbacks are called on
the thread of the question (a pool thread), several at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from syncmcp._base.checks import refuse_coroutines
from syncmcp._concurrency.rate_limit import RateLimit
from syncmcp.approval.consent import (
    AuditRecord,
    By,
    Decision,
    Kind,
    Policy,
    Question,
    Reviewer,
    ToolCall,
    Verdict,
    tokens_of,
)
from syncmcp.approval.policies import AllowAll, AutoApprove, DenyAll, Rule, Rules
from syncmcp.errors import Denied, UsageError

if TYPE_CHECKING:
    from syncmcp.approval.consent import Answer, Request
    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.server import ConnectedServer
    from syncmcp.types import ToolAnnotations

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

_log = logging.getLogger("syncmcp.approval")


class _Ruling(NamedTuple):
    verdict: Verdict
    by: By


class Approval:
    """Decides on questions: by policy, by a person, within limits; and keeps a record.

    What a person wants remembered is remembered as long as this object lives. One object may
    serve any number of clients; what is remembered and counted is kept apart by the servers' names.
    It can be pickled if its parts can; the copy remembers nothing and counts anew.

    Args:
        policy: Decides first; by default a person is asked always.
        reviewer: Asks a person. Without one, what would need a person is denied.
        limit: The most that each server may have; beyond it, everything is denied. What the policy
            denies does not count.
        audit: Gets a record of every decision. Called on the thread of the question; for one that
            was withdrawn or ran out of time while a person was asked, on the thread that ended it.
            What it raises is logged and changes nothing.

    Raises:
        UsageError: A part is not what it should be.
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
        if audit is not None:
            refuse_coroutines(audit, "audit")
        self._reviewer = reviewer
        self._limit = limit
        self._audit = audit
        self._begin()

    def _begin(self) -> None:
        # Guards what is remembered. Never held while a policy, a person or an audit is at work.
        self._lock = threading.Lock()
        self._remembered: dict[tuple[str, ...], bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"], state["_remembered"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def review_request(self, question: Question, *, asks_person: bool = False) -> Request | Answer:
        """Decide whether `question` may be answered.

        Blocks while a person is asked.

        Args:
            question: What a server asks.
            asks_person: The handler shows it to a person anyway: where the policy wants a person,
                that is the one, and the reviewer is left out.

        Returns:
            The request to go on with, as edited; or, where policy or person answered already,
            the answer, which needs no second review.

        Raises:
            Denied: It may not, it was withdrawn, or its time ran out.
        """
        verdict = self._review(question, asks_person=asks_person)
        return verdict.answer or verdict.request or question.request

    def review_answer(self, question: Question) -> Answer:
        """Decide whether ``question.answer`` may be sent: the second review.

        For what a model or a function wrote; what a person entered was reviewed by that person.
        A form that is declined or cancelled tells the server nothing and is not reviewed. Blocks
        while a person is asked.

        Returns:
            The answer to send, as edited.

        Raises:
            Denied: It may not, the question was withdrawn, or its time ran out.
            UsageError: `question` has no answer.
        """
        answer = question.answer
        if answer is None:
            raise UsageError("there is no answer to review")
        if question.kind != "sampling" and getattr(answer, "action", None) != "accept":
            return answer
        return self._review(question).answer or answer

    def record_answer(self, question: Question) -> None:
        """Put into the record what a person said who answered ``question.answer`` directly.

        For handlers that ask a person by themselves, whom nobody has to review.

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
    ) -> None:
        """Decide whether a tool may be called.

        Blocks while a person is asked. Nobody is asked about a tool that only reads, where a
        trusted server says so; such a call does not count for the limit either.

        Args:
            tool: Its name.
            arguments: What it would be called with.
            annotations: What the server says of it.
            server: Who would be called.
            context: Of the question in whose course the call is made; its end ends this one.

        Raises:
            Denied: It may not; nothing was sent.
        """
        call = ToolCall(tool, {} if arguments is None else arguments, annotations)
        self._review(Question("tool", server, call, context))

    def update(self, question: Question, text: str) -> None:
        """Show the person who reviews what a model has written so far, if the reviewer can."""
        update = getattr(self._reviewer, "update", None)
        if update is None:
            return
        try:
            update(question, text)
        except Exception:  # only a display; the model's work goes on
            _log.exception("[%s] a reviewer failed to show partial text", question.server.name)

    def _review(self, question: Question, *, asks_person: bool = False) -> Verdict:
        # Whoever acquires it settles the question; it is never released.
        settled = threading.Lock()

        def end() -> None:
            # A person may never come back to the reviewer; the record must not wait for that.
            gone = _gone(question)
            if gone is not None and settled.acquire(blocking=False):
                self._record(question, gone)

        context = question.context
        unsubscribe = None if context is None else context.cancel.on_cancel(end)
        failure: BaseException | None = None
        try:
            ruling = _gone(question) or self._rule(question, asks_person=asks_person)
        except BaseException as error:  # sys.exit() too is a decision that has to be recorded
            failure = error
            ruling = _Ruling(Verdict.deny("the review failed, see the log"), "error")
        finally:
            if unsubscribe is not None:
                unsubscribe()
        ruling = _gone(question) or ruling
        if settled.acquire(blocking=False):
            self._record(question, ruling)
        else:
            ruling = _gone(question) or ruling
        return self._conclude(question, ruling, failure)

    def _rule(self, question: Question, *, asks_person: bool) -> _Ruling:
        decided = self._policy.decide(question)
        ruling: _Ruling | None = None
        if isinstance(decided, Verdict):
            ruling = _Ruling(decided, "policy")
        elif decided is Decision.ALLOW:
            ruling = _Ruling(Verdict.allow(), "policy")
        elif decided is Decision.DENY:
            ruling = _Ruling(Verdict.deny("the policy says no"), "policy")
        elif decided is not Decision.ASK:
            raise TypeError(f"a policy decided {decided!r}, which is no Decision")
        elif _only_reads(question):
            return _Ruling(Verdict.allow(reason="it only reads, says a trusted server"), "policy")
        elif asks_person:
            ruling = _Ruling(Verdict.allow(reason="the handler asks a person"), "policy")
        else:
            ruling = self._recall(question)
        if ruling is not None and not ruling.verdict.allowed:
            return ruling
        # An answer belongs to a question that has been counted.
        first = question.answer is None
        tokens = tokens_of(question.request)
        if first and not self._within_limit(question, 1, tokens):
            return self._beyond_limit()
        ruling = ruling or self._ask(question)
        if ruling.verdict.allowed:
            _check(question, ruling)
            more = tokens_of(ruling.verdict.request or question.request) - tokens
            if first and more > 0 and not self._within_limit(question, 0, more):
                return self._beyond_limit()
        return ruling

    def _ask(self, question: Question) -> _Ruling:
        if self._reviewer is None:
            reason = (
                "there is nobody to ask; the option approval changes that: with a reviewer, as "
                "AskOnTerminal() and AskInBrowser() have, or with a policy that decides"
            )
            return _Ruling(Verdict.deny(reason), "nobody")
        verdict = self._reviewer.review(question)
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a reviewer returned {type(verdict).__name__}, not a Verdict")
        return _Ruling(verdict, "person")

    def _recall(self, question: Question) -> _Ruling | None:
        with self._lock:
            allowed = self._remembered.get(_memory_key(question))
        if allowed is None:
            return None
        return _Ruling(Verdict(allowed, reason="a person said so before"), "remembered")

    def _within_limit(self, question: Question, calls: int, tokens: int) -> bool:
        return self._limit is None or self._limit.take(
            question.server.name, calls=calls, tokens=tokens
        )

    def _beyond_limit(self) -> _Ruling:
        reason = f"beyond the limit of {self._limit} for a server; the option limit changes that"
        return _Ruling(Verdict.deny(reason), "limit")

    def _conclude(
        self, question: Question, ruling: _Ruling, failure: BaseException | None
    ) -> Verdict:
        verdict, by = ruling
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        name = question.server.name
        if by == "person" and verdict.remember and question.kind != "url":
            with self._lock:
                self._remembered[_memory_key(question)] = verdict.allowed
        if verdict.allowed:
            return verdict
        if by == "error":
            _log.error("[%s] a review of %s failed", name, question.kind, exc_info=failure)
        elif by in ("limit", "nobody"):  # a question's time is watched, and logged, elsewhere
            _log.warning("[%s] %s denied: %s", name, question.kind, verdict.reason)
        raise Denied(
            f"{question.kind} was denied",
            kind=question.kind,
            reason=verdict.reason,
            by=by,
            server=name,
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
        except Exception:  # who watches must not change what is decided
            _log.exception("[%s] an audit callback failed", question.server.name)


def as_approval(given: Approval | Policy) -> Approval:
    """Return `given` itself, or an approval by that policy, without a reviewer.

    Raises:
        UsageError: It is neither.
    """
    return given if isinstance(given, Approval) else Approval(given)


def _check_method(given: object, name: str, what: str) -> None:
    method = getattr(given, name, None)
    if method is None or isinstance(given, type):
        raise UsageError(f"{given!r} is not {what}: an object with a method {name}(question)")
    refuse_coroutines(method, f"{name} of {what}")


def _gone(question: Question) -> _Ruling | None:
    """The end of a question that no longer waits for an answer."""
    context = question.context
    if context is None:
        return None
    left = context.time_left()
    if left is not None and left <= 0:
        reason = "nobody answered in time; the option human_timeout changes that"
        return _Ruling(Verdict.deny(reason), "timeout")
    if context.cancel.cancelled:
        return _Ruling(Verdict.deny("withdrawn"), "withdrawn")
    return None


def _check(question: Question, ruling: _Ruling) -> None:
    """Refuse a verdict that cannot be carried out, before something else is done instead."""
    from syncmcp.types import CreateMessageResult, ElicitResult

    verdict, by = ruling
    if verdict.request is not None and verdict.request != question.request:
        if question.kind != "sampling" or question.answer is not None:
            raise TypeError("only what goes to a model can be edited, and before it is there")
        if type(verdict.request) is not type(question.request):
            raise TypeError(f"{type(verdict.request).__name__} does not fit {question.kind}")
    if verdict.answer is not None:
        if question.kind in ("roots", "tool"):
            raise TypeError(f"a verdict cannot answer for {question.kind}")
        if question.kind == "url" and by == "policy":
            raise TypeError("only a person can answer whether to visit a URL")
        expected = CreateMessageResult if question.kind == "sampling" else ElicitResult
        if not isinstance(verdict.answer, expected):
            raise TypeError(f"{type(verdict.answer).__name__} does not answer {question.kind}")


def _is_edited(question: Question, verdict: Verdict) -> bool:
    if not verdict.allowed:
        return False
    return (verdict.request is not None and verdict.request != question.request) or (
        question.answer is not None
        and verdict.answer is not None
        and verdict.answer != question.answer
    )


def _memory_key(question: Question) -> tuple[str, ...]:
    # Yes to one request is no yes to every answer, nor is yes to one tool a yes to all of them.
    tool = question.request.tool if isinstance(question.request, ToolCall) else ""
    review = "request" if question.answer is None else "answer"
    return question.server.name, question.kind, review, tool


def _only_reads(question: Question) -> bool:
    """Whether a trusted server says that the tool changes nothing (others may say anything)."""
    call = question.request
    return (
        isinstance(call, ToolCall)
        and question.server.trusted
        and call.annotations is not None
        and call.annotations.read_only_hint is True
    )
