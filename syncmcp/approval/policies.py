"""Questions and verdicts, the protocols of policies and reviewers, and built-in policies."""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, Union, get_args

from syncmcp import types
from syncmcp._base.checks import check_object, flag
from syncmcp._base.origin import split_url
from syncmcp._base.text import counted
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.rate_limit import SlidingWindow
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.handlers.context import ConnectedServer, HandlerContext
    from syncmcp.types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
        ListRootsRequestParams,
        Tool,
        ToolAnnotations,
    )

Kind = Literal["sampling", "form", "url", "roots", "tool"]
"""The kind of a question: sampling, a form, a visit to a URL, the roots, or a tool call."""

By = Literal["policy", "person", "remembered", "limit", "timeout", "withdrawn", "nobody", "error"]
"""Who or what decided. ``"nobody"`` means that a person was needed, and there was no reviewer."""


class ToolCall(NamedTuple):
    """A tool call that a `ToolLoop` wants to make.

    Attributes:
        tool: The name of the tool.
        arguments: The arguments of the call, by name.
        annotations: The server's annotations of the tool. They mean nothing unless the server is
            trusted.
        definition: The tool as the server lists it, for display. Do not rely on it.
    """

    tool: str
    arguments: Mapping[str, Any]
    annotations: ToolAnnotations | None
    definition: Tool | None = None

    def __repr__(self) -> str:  # arguments may be confidential
        return f"ToolCall({self.tool!r}, {len(self.arguments)} arguments)"


Request: TypeAlias = Union[
    "CreateMessageRequestParams",
    "ElicitRequestFormParams",
    "ElicitRequestURLParams",
    "ListRootsRequestParams",
    ToolCall,
]
Answer: TypeAlias = "CreateMessageResult | ElicitResult"


@dataclass(frozen=True)
class Question:
    """The subject of a decision.

    Attributes:
        kind: The kind of the question.
        server: The server that asks; for a tool call, the server to be called. Only the
            `given_name` and the `identity` of a server are facts.
        request: The parameters of the server's request: `CreateMessageRequestParams` for sampling,
            `ElicitRequestFormParams`, `ElicitRequestURLParams` or `ListRootsRequestParams`. For a
            tool call, the `ToolCall`.
        context: The context of the handler that would answer, if there is one.
        answer: The answer to review, in the second review: `CreateMessageResult` or `ElicitResult`.
            `None` in the first review.
        roots: The roots that the server would get, if the question asks for roots.
    """

    kind: Kind
    server: ConnectedServer
    request: Request = field(repr=False)
    context: HandlerContext | None = field(default=None, repr=False)
    answer: Answer | None = field(default=None, repr=False)
    roots: tuple[types.Root, ...] = field(default=(), repr=False)

    @property
    def summary(self) -> str:
        """One line without texts of the request: only counts, a host or the name of a tool."""
        request = self.request
        if isinstance(request, types.CreateMessageRequestParams):
            messages = counted(len(request.messages), "messages")
            tools = counted(len(request.tools or ()), "tools")
            return f"sampling: {messages}, {tools}, at most {request.max_tokens} tokens"
        if isinstance(request, types.ElicitRequestFormParams):
            fields = request.requested_schema.get("properties")
            return f"form: {counted(len(fields) if isinstance(fields, dict) else 0, 'fields')}"
        if isinstance(request, types.ElicitRequestURLParams):
            return f"url: host {_host(request.url)}"
        if isinstance(request, ToolCall):
            count = counted(len(request.arguments), "arguments")
            return f"tool: {ascii(request.tool)[:80]}, {count}"
        return "roots: the list of them"


class Decision(enum.Enum):
    """The decision of a policy."""

    ALLOW = "allow"
    """Allow the handler to answer, the answer to be sent, or the tool to be called."""
    DENY = "deny"
    """Refuse the question.

    For a tool call, `Approval.before_call` raises `Denied`. For sampling, the server gets an error;
    in 2026-07-28, the call of this client raises `Denied` instead. For a form or a link, the server
    gets ``decline``, or ``cancel`` if nobody decided. For roots, the server gets an empty list.
    """
    ASK = "ask"
    """Let a person decide."""


@dataclass(frozen=True)
class Verdict:
    """The decision of a person, or of a policy that returns more than a `Decision`.

    Attributes:
        allowed: Whether the request, or the answer under review, is allowed.
        request: The edited request, for sampling only; `None` to leave it unchanged.
        answer: In the second review, the edited answer. In the first review, an answer to send
            without calling the handler.
        reason: The reason, for the log and the audit. A server never sees the reason.
        remember: Whether to decide later questions of the same kind from the same server in the
            same way, without asking. Edits are not repeated. Verdicts on requests and on answers
            are remembered separately, and verdicts on tool calls by the name of the tool. For URLs,
            `remember` is ignored.

    Raises:
        UsageError: `allowed` is neither `True` nor `False`.
    """

    allowed: bool
    request: Request | None = field(default=None, repr=False)
    answer: Answer | None = field(default=None, repr=False)
    reason: str | None = None
    remember: bool = False

    def __post_init__(self) -> None:
        flag(self.allowed, "allowed")
        flag(self.remember, "remember")

    @classmethod
    def allow(
        cls,
        request: Request | None = None,
        answer: Answer | None = None,
        *,
        reason: str | None = None,
        remember: bool = False,
    ) -> Verdict:
        """Make a verdict that allows, with edits if there are any."""
        return cls(True, request, answer, reason, remember)

    @classmethod
    def deny(cls, reason: str | None = None, *, remember: bool = False) -> Verdict:
        """Make a verdict that denies."""
        return cls(False, None, None, reason, remember)


class Policy(Protocol):
    """Decides without asking a person.

    An exception is logged and denies the question.
    """

    def decide(self, question: Question, /) -> Decision | Verdict:
        """Allow, deny or have a person asked; a `Verdict` can also edit, answer or explain."""
        ...


class Reviewer(Protocol):
    """Asks a person, through any user interface.

    A reviewer is called on the threads of the questions, several at the same time if there are
    several questions. An interface that shows one question at a time has to queue the others. An
    exception is logged and denies the question.

    A reviewer may have a method ``update(question, text)``, called with a model's partial text.
    """

    def review(self, question: Question, /) -> Verdict:
        """Block until the person decides or ``question.context.cancel`` is cancelled.

        Raises:
            Denied: Nobody can be asked here. Its `by` is ``"nobody"``, as in the record.
        """
        ...


@dataclass(frozen=True)
class AuditRecord:
    """The audit record of one decision.

    A record contains no text of a request or an answer.

    Attributes:
        time: The time of the decision, in UTC.
        server: The name that the program gave the server.
        kind: The kind of the question.
        review: Which was reviewed, the request or the answer.
        question: `Question.summary`: counts, a host or the name of a tool.
        decision: ``Decision.ALLOW`` or ``Decision.DENY``.
        by: Who or what decided.
        reason: The reason, if one was given.
        edited: Whether the verdict changed the request or the answer.
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


NOT_NAMED = (
    "a rule can allow only a server that the program named: Client(name=...), or a key of a group"
    " that differs from the name in a guarded servers file"
)


class AllowAll:
    """Allows everything that has a handler, without asking and without a limit."""

    def __repr__(self) -> str:
        return "AllowAll()"

    def decide(self, question: Question, /) -> Decision:
        """Allow."""
        return Decision.ALLOW


class DenyAll:
    """Denies everything."""

    def __repr__(self) -> str:
        return "DenyAll()"

    def decide(self, question: Question, /) -> Decision:
        """Deny."""
        return Decision.DENY


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A decision for all questions that match.

    >>> from syncmcp.approval import Decision, Rule
    >>> Rule(decision=Decision.ALLOW, server="books", kind="sampling")
    Rule(decision=<Decision.ALLOW: 'allow'>, server='books', kind='sampling')

    Attributes:
        decision: The decision.
        server: The name that the program gave the server; `None` matches every server. A rule that
            allows never matches the default name of a server, which other servers may have, too.
            Nor does it match a name from a servers file that needs approval. Other rules match such
            names.
        kind: The kind of question; `None` matches every kind.

    Raises:
        UsageError: There is no such kind or decision.
    """

    decision: Decision
    server: str | None = None
    kind: Kind | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.decision, Decision):
            known = ", ".join(map(str, Decision))
            raise UsageError(f"a rule's decision must be one of {known}, not {self.decision!r}")
        if self.kind is not None and self.kind not in get_args(Kind):
            raise UsageError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")

    def fits(self, question: Question) -> bool:
        """Return whether the rule matches `question`."""
        server = question.server
        name = server.given_name if self.decision is Decision.ALLOW else server.name
        return self.server in (None, name) and self.kind in (None, question.kind)


def _check_otherwise(given: object) -> None:
    check_object(given, "otherwise")
    if not isinstance(given, Decision) and not callable(getattr(given, "decide", None)):
        raise UsageError(
            f"otherwise must be a Decision, such as Decision.DENY, or a policy, not {given!r}"
        )


class Rules:
    """A list of rules of which the first match decides.

    >>> from syncmcp.approval import Approval, Decision, Rule, Rules
    >>> rules = Rules([Rule(decision=Decision.ALLOW, kind="roots")], otherwise=Decision.DENY)
    >>> with syncmcp.connect(server, roots=["."], approval=Approval(rules)) as client:
    ...     print(client.call_tool("count_files", {"path": "."}).data["inside"])
    True

    Args:
        rules: The rules, in order.
        otherwise: Decides if no rule matches.

    Raises:
        UsageError: One of `rules` is not a `Rule`, or `otherwise` is neither a policy nor a
            decision.
    """

    def __init__(
        self, rules: Iterable[Rule] = (), otherwise: Policy | Decision = Decision.ASK
    ) -> None:
        given = () if isinstance(rules, Rule) else tuple(rules)
        if isinstance(rules, Rule) or not all(isinstance(rule, Rule) for rule in given):
            raise UsageError("rules must be a list of Rule objects")
        _check_otherwise(otherwise)
        self._rules = given
        self._otherwise = otherwise

    def __repr__(self) -> str:
        return f"Rules({list(self._rules)!r}, {self._otherwise!r})"

    def decide(self, question: Question, /) -> Decision | Verdict:
        """See `Policy`."""
        for rule in self._rules:
            if rule.fits(question):
                return rule.decision
        return _decide_otherwise(self, self._otherwise, question)


class AutoApprove:
    """Allows the questions of one server within a budget, without asking a person.

    The policy allows sampling, both the request and the answer, and the list of roots. A form is
    not shown, but answered with the defaults of its schema, if the defaults are a valid answer.
    Visits to URLs and tool calls are never allowed. Forms and roots are allowed only if there is a
    budget of `calls`.

    Args:
        server: The name that the program gave the server. The policy matches neither a default
            name, which other servers may have, too, nor a name from a servers file that needs
            approval.
        per: The length of the sliding window of the budget, in seconds.
        calls: The maximum number of questions in `per` seconds; `None` for no limit.
        tokens: The maximum number of tokens (`max_tokens` of requests) in `per` seconds; `None` for
            no limit.
        otherwise: Decides on everything else: other servers, other kinds, and questions beyond the
            budget.

    Raises:
        UsageError: Neither `calls` nor `tokens` is passed, a number is out of range, or `otherwise`
            is neither a policy nor a decision.
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
        _check_otherwise(otherwise)
        self._server = server
        self._budget = SlidingWindow(calls, tokens, per)
        self._otherwise = otherwise
        # Guards the allowed sampling requests, by identity: their answers are allowed as well.
        self._lock = threading.Lock()
        self._allowed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<AutoApprove for {self._server!r}: {self._budget}>"

    def decide(self, question: Question, /) -> Decision | Verdict:
        """See `Policy`."""
        verdict = self._approve(question) if question.server.given_name == self._server else None
        return verdict or _decide_otherwise(self, self._otherwise, question)

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


def _decide_otherwise(
    policy: Policy, otherwise: Policy | Decision, question: Question
) -> Decision | Verdict:
    decided = otherwise if isinstance(otherwise, Decision) else otherwise.decide(question)
    reason = why_undecided(policy, question) if decided is Decision.DENY else None
    return decided if reason is None else Verdict.deny(reason=reason)


def why_undecided(policy: Policy | Decision, question: Question) -> str | None:
    """Return why a policy for the question's server did not allow it; `None` if unknown."""
    server = question.server
    if isinstance(policy, Rules):
        allowed = [rule for rule in policy._rules if rule.decision is Decision.ALLOW]
        kinds = {rule.kind for rule in allowed if rule.server == server.name}
        if not kinds.isdisjoint((None, question.kind)):
            return NOT_NAMED
        return why_undecided(policy._otherwise, question)
    if not isinstance(policy, AutoApprove) or policy._server != server.name:
        return None
    if question.answer is not None and question.kind != "sampling":
        return None  # AutoApprove reviews no answers of this kind
    if policy._server != server.given_name:
        return NOT_NAMED
    if question.kind == "form" and _default_answer(question.request) is None:
        return "AutoApprove answers only a form whose defaults are a valid answer"
    if question.kind in ("sampling", "form", "roots"):
        return f"the request exceeds the budget of AutoApprove: {policy._budget}"
    return None


def _default_answer(request: Request) -> ElicitResult | None:
    """Return the answer made of a form's defaults, if it is complete and valid."""
    with delaying_forks():
        from syncmcp.handlers.forms import Form, UnsupportedForm

    if not isinstance(request, types.ElicitRequestFormParams):
        return None
    try:
        form = Form.read(request.requested_schema)
    except UnsupportedForm:
        return None
    content = form.defaults()
    valid = bool(content) and not form.problems(content)
    # A form without any default asks for plain consent, which only a person can give.
    return types.ElicitResult(action="accept", content=content) if valid else None


def tokens_of(request: Request) -> int:
    """Return the number of tokens of a request that count for a budget."""
    if not isinstance(request, types.CreateMessageRequestParams):
        return 0
    # At least 1: a negative number would refill the budget.
    return max(1, request.max_tokens)


def _host(url: str) -> str:
    try:
        return ascii(split_url(url).hostname or "")[:80]
    except ValueError:
        return "unreadable"
