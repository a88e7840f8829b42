"""What is decided on, what a decision says, and ready-made policies that decide."""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args
from urllib.parse import urlsplit

from syncmcp._concurrency.budget import SlidingWindow
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from typing import TypeAlias

    from syncmcp.handlers.context import ConnectedServer, HandlerContext
    from syncmcp.types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
        ListRootsRequestParams,
        ToolAnnotations,
    )

Kind = Literal["sampling", "form", "url", "roots", "tool"]
"""What is to be allowed: a model's answer, a form, a visit to a URL, the roots, a call of ours."""

By = Literal["policy", "person", "remembered", "limit", "timeout", "withdrawn", "nobody", "error"]
"""Who or what decided. ``"nobody"``: a person was needed and there was no reviewer."""


class ToolCall(NamedTuple):
    """A call of ours, before it is sent."""

    tool: str
    arguments: Mapping[str, Any]
    annotations: ToolAnnotations | None
    """What the server says of the tool; worth something only if the server is trusted."""

    def __repr__(self) -> str:  # arguments may be nobody's business
        return f"ToolCall({self.tool!r}, {len(self.arguments)} arguments)"


if TYPE_CHECKING:
    Request: TypeAlias = (
        CreateMessageRequestParams
        | ElicitRequestFormParams
        | ElicitRequestURLParams
        | ListRootsRequestParams
        | ToolCall
    )
    Answer: TypeAlias = CreateMessageResult | ElicitResult


@dataclass(frozen=True)
class Question:
    """Something to decide on.

    Attributes:
        kind: What is to be allowed.
        server: Who asks, or for a call of ours, who gets it. Only its `name` is a fact.
        request: What is asked for.
        context: The context of the handler that would answer, if there is one.
        answer: The answer to review, in the second review; `None` in the first.
    """

    kind: Kind
    server: ConnectedServer
    request: Request = field(repr=False)
    context: HandlerContext | None = field(default=None, repr=False)
    answer: Answer | None = field(default=None, repr=False)

    @property
    def summary(self) -> str:
        """One line that gives away nothing of what was written: numbers, a host, a tool's name."""
        from syncmcp.types import (
            CreateMessageRequestParams,
            ElicitRequestFormParams,
            ElicitRequestURLParams,
        )

        request = self.request
        if isinstance(request, CreateMessageRequestParams):
            return (
                f"sampling: {len(request.messages)} messages, {len(request.tools or ())} tools, "
                f"at most {request.max_tokens} tokens"
            )
        if isinstance(request, ElicitRequestFormParams):
            fields = request.requested_schema.get("properties")
            return f"form: {len(fields) if isinstance(fields, dict) else 0} fields"
        if isinstance(request, ElicitRequestURLParams):
            return f"url: host {_host(request.url)}"
        if isinstance(request, ToolCall):
            return f"tool: {ascii(request.tool)[:80]}, {len(request.arguments)} arguments"
        return "roots: the list of them"


class Decision(enum.Enum):
    """What a policy says."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"
    """A person is to decide."""


@dataclass(frozen=True)
class Verdict:
    """What a person says; or a policy that has more to say than a `Decision`.

    Attributes:
        allowed: Whether the question, or the answer under review, may go on.
        request: The request as edited, if it is one for a model; `None` to leave it as it is.
        answer: The answer as edited, in the second review. In the first: an answer, so that
            no handler is asked.
        reason: Why, for the log and the audit; a server never sees it.
        remember: Decide the next question of the same kind from the same server the same way
            without asking. Edits are not repeated; requests and answers are remembered apart, and
            calls of ours by the name of the tool. Never done for URLs.
    """

    allowed: bool
    request: Request | None = field(default=None, repr=False)
    answer: Answer | None = field(default=None, repr=False)
    reason: str | None = None
    remember: bool = False

    @classmethod
    def allow(
        cls,
        request: Request | None = None,
        answer: Answer | None = None,
        *,
        reason: str | None = None,
        remember: bool = False,
    ) -> Verdict:
        """Yes, with what was edited."""
        return cls(True, request, answer, reason, remember)

    @classmethod
    def deny(cls, reason: str | None = None, *, remember: bool = False) -> Verdict:
        """No."""
        return cls(False, None, None, reason, remember)


class Policy(Protocol):
    """Decides without asking anybody. What it raises denies the question and is logged."""

    def decide(self, question: Question, /) -> Decision | Verdict:
        """Allow, deny or have a person asked; a `Verdict` may also edit, answer or say why."""
        ...


class Reviewer(Protocol):
    """Asks a person, through whatever user interface.

    Called on a pool thread, several times at once if servers ask so: an interface that can show one
    question at a time queues them itself. What it raises denies the question and is logged.

    It may have a method ``update(question, text)``, called with what a model has written so far.
    """

    def review(self, question: Question, /) -> Verdict:
        """Block until the person decides or ``question.context.cancel`` is cancelled."""
        ...


@dataclass(frozen=True)
class AuditRecord:
    """What was decided, when, on what and by whom. Holds no text of a request or an answer.

    Attributes:
        time: In UTC.
        server: The name the program gave the server.
        kind: What was to be allowed.
        review: Whether the request or the answer was reviewed.
        question: One line on the request: numbers, a host, a tool's name.
        decision: ``Decision.ALLOW`` or ``Decision.DENY``.
        by: Who or what decided.
        reason: Why, if that was said.
        edited: Whether something else than what was asked for, or answered, was allowed.
    """

    time: datetime
    server: str
    kind: Kind
    review: Literal["request", "answer"]
    question: str
    decision: Decision
    by: By
    reason: str | None
    edited: bool


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
        rebuild = partial(
            AutoApprove,
            server=self._server,
            per=budget.per,
            calls=budget.calls,
            tokens=budget.tokens,
            otherwise=self._otherwise,
        )
        return rebuild, ()

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
            answer = _default_answer(request)
            if answer is not None and self._budget.take(1, 0):
                return Verdict.allow(answer=answer, reason="the form's defaults, within the budget")
        return None


def _decide(policy: Policy | Decision, question: Question) -> Decision | Verdict:
    return policy if isinstance(policy, Decision) else policy.decide(question)


def _default_answer(request: Request) -> ElicitResult | None:
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


def tokens_of(request: Request) -> int:
    """What a request counts for in a budget of tokens."""
    from syncmcp.types import CreateMessageRequestParams

    if not isinstance(request, CreateMessageRequestParams):
        return 0
    # No model writes less than nothing: a negative number would fill a budget up again.
    return max(1, request.max_tokens)


def _host(url: str) -> str:
    try:
        return ascii(urlsplit(url).hostname or "")[:80]
    except ValueError:
        return "unreadable"
