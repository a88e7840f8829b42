"""Ready-made policies: everything, nothing, by rules, or within a budget."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from syncmcp._concurrency.rate_limit import SlidingWindow
from syncmcp.approval.consent import Decision, Kind, Policy, Question, Verdict, tokens_of
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.approval.consent import Request
    from syncmcp.types import ElicitResult


class AllowAll:
    """Allows everything that a handler is there for. Nobody is asked, nothing is limited."""

    def decide(self, question: Question, /) -> Decision:
        """Allow."""
        return Decision.ALLOW


class DenyAll:
    """Denies everything."""

    def decide(self, question: Question, /) -> Decision:
        """Deny."""
        return Decision.DENY


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A decision for the questions it fits.

    Attributes:
        decision: What to decide.
        server: The name the program gave the server; `None` fits every server.
        kind: What is to be allowed; `None` fits everything.

    Raises:
        UsageError: There is no such kind or decision.
    """

    decision: Decision
    server: str | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.decision, Decision):
            raise UsageError(f"a rule's decision is a Decision, not {self.decision!r}")
        if self.kind is not None and self.kind not in get_args(Kind):
            raise UsageError(f"there is no kind {self.kind!r}")

    def fits(self, question: Question) -> bool:
        """Whether the rule says something about `question`."""
        return self.server in (None, question.server.name) and self.kind in (None, question.kind)


class Rules:
    """The first rule that fits decides.

    Args:
        rules: In order.
        otherwise: Decides where no rule fits.
    """

    def __init__(
        self, rules: Iterable[Rule] = (), otherwise: Policy | Decision = Decision.ASK
    ) -> None:
        self._rules = tuple(rules)
        self._otherwise = otherwise

    def decide(self, question: Question, /) -> Decision | Verdict:
        """See `Policy`."""
        for rule in self._rules:
            if rule.fits(question):
                return rule.decision
        return _decide(self._otherwise, question)


class AutoApprove:
    """Allows what one server asks for, within a budget, without anybody being asked.

    Sampling is allowed, request and answer, and so is the list of roots. A form is not shown but
    answered with the defaults of its schema, if these make a valid answer. URLs and calls of tools
    are never approved. Questions that ask no model need a budget of `calls`.

    Args:
        server: The name the program gave the server.
        per: The length of the budget's stretch, in seconds.
        calls: The most questions in `per` seconds; `None` for any number.
        tokens: The most tokens (`max_tokens` of requests) in `per` seconds; `None` for any number.
        otherwise: Decides on everything else: other servers, other kinds, what is beyond the
            budget.

    Raises:
        UsageError: Neither `calls` nor `tokens` is given, or a number makes no sense.
    """

    def __init__(
        self,
        *,
        server: str,
        per: float,
        calls: int | None = None,
        tokens: int | None = None,
        otherwise: Policy | Decision = Decision.ASK,
    ) -> None:
        self._server = server
        self._budget = SlidingWindow(calls, tokens, per)
        self._otherwise = otherwise
        # Guards the requests allowed here (by identity), whose answers are then allowed as well.
        self._lock = threading.Lock()
        self._allowed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def decide(self, question: Question, /) -> Decision | Verdict:
        """See `Policy`."""
        verdict = self._approve(question) if question.server.name == self._server else None
        return verdict or _decide(self._otherwise, question)

    def __reduce__(self) -> tuple[Any, ...]:
        budget = self._budget
        again = partial(
            AutoApprove,
            server=self._server,
            per=budget.per,
            calls=budget.calls,
            tokens=budget.tokens,
            otherwise=self._otherwise,
        )
        return again, ()

    def _approve(self, question: Question) -> Verdict | None:
        request = question.request
        if question.kind == "sampling":
            with self._lock:
                known = self._allowed.get(id(request)) is request
            if question.answer is not None:
                return Verdict.allow(reason="the request was within the budget") if known else None
            if not self._budget.take(1, tokens_of(request)):
                return None
            with self._lock:
                self._allowed[id(request)] = request
            return Verdict.allow(reason="within the budget")
        if question.answer is not None or self._budget.calls is None:
            return None
        if question.kind == "roots" and self._budget.take(1, 0):
            return Verdict.allow(reason="within the budget")
        if question.kind == "form":
            answer = _answer_of_defaults(request)
            if answer is not None and self._budget.take(1, 0):
                return Verdict.allow(answer=answer, reason="the form's defaults, within the budget")
        return None


def _decide(policy: Policy | Decision, question: Question) -> Decision | Verdict:
    return policy if isinstance(policy, Decision) else policy.decide(question)


def _answer_of_defaults(request: Request) -> ElicitResult | None:
    """The answer that a form's defaults make, if they are a whole and valid one."""
    from syncmcp.handlers.forms import Form, UnsupportedForm
    from syncmcp.types import ElicitRequestFormParams, ElicitResult

    if not isinstance(request, ElicitRequestFormParams):
        return None
    try:
        form = Form.read(request.requested_schema)
    except UnsupportedForm:
        return None
    content = form.defaults()
    whole = bool(content) and not form.problems(content)
    # A form without any default asks for a mere yes; that is a person's to say.
    return ElicitResult(action="accept", content=content) if whole else None
