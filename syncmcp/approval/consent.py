"""The words in which consent is spoken of: questions, decisions, verdicts, and who gives them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing import TypeAlias

    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.server import ConnectedServer
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
