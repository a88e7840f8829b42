"""The pages that ask for a yes or no: to a link, and to whatever a policy wants a person for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from syncmcp.approval import Question, ToolCall, Verdict
from syncmcp.handlers.forms import Form
from syncmcp.handlers.links import Link
from syncmcp.types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult
from syncmcp.ui.browser.message import as_json
from syncmcp.ui.browser.questions import Answers, Card

if TYPE_CHECKING:
    from syncmcp.types import ToolAnnotations
    from syncmcp.ui.browser.questions import Past

_AUTHORITY = re.compile(r"(https?://)([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)


class LinkParts(NamedTuple):
    """A link as it is shown, the part that says where it leads set apart."""

    before: str
    host: str
    after: str
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, link: Link) -> LinkParts:
        """Take a link apart."""
        match = _AUTHORITY.fullmatch(link.url)
        before, host, after = match.groups() if match else ("", link.url, "")
        return cls(before, host, after, tuple(link.warnings))


class LinkCard(Card[ElicitResult]):
    """A server wants to send the person somewhere.

    Raises:
        UnsafeLink: The URL is none that may be shown.
    """

    template: ClassVar[str] = "link.html"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = "A link to open"
        request = cast("ElicitRequestURLParams", question.request)
        self.message = request.message
        self.link = Link.read(request.url)
        self.parts = LinkParts.of(self.link)

    @property
    def page_state(self) -> str:
        """See `Card`. The server may say at any time that the visit is done."""
        done = self.context is not None and self.context.wait_completed(0)
        return "waiting-visited" if done else super().page_state

    def act(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Consent, decline or cancel."""
        del answers  # a yes or a no is all there is
        if action == "consent":
            self.settle(ElicitResult.accept(), "You agreed to open this page:")
        elif action == "decline":
            self.settle(ElicitResult.decline(), "You declined; nothing was opened.")
        else:
            self.settle(ElicitResult.cancel(), "You cancelled; nothing was opened.")
        return {}

    def past(self) -> Past:
        """What to remember; of a link that may be opened, the link."""
        past, context = super().past(), self.context
        if context is None or self.answer is None or self.answer.action != "accept":
            return past
        return past._replace(visit=context._visit_now(), url=self.link.url)


class ConsentCard(Card[Verdict]):
    """Whether something may go on that has no page of its own."""

    template: ClassVar[str] = "consent.html"

    _TITLES: ClassVar = {
        "form": "May a program answer this form for you?",
        "url": "May a program deal with this link?",
        "roots": "May the server know your directories?",
        "tool": "A tool is about to be called",
        "sampling": "A request to your model",
    }

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = self._TITLES[question.kind]
        if question.answer is not None:
            self.title = "A program agreed to this for you: may the server know?"
        self.may_remember = question.kind != "url"
        self.link: LinkParts | None = None
        self.facts = list(self._facts())

    def act(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Allow or deny."""
        del answers  # a yes or a no is all there is
        if action in ("approve", "remember"):
            self.settle(Verdict.allow(remember=action == "remember"), "You allowed it.")
        else:
            self.settle(Verdict.deny("a person said no"), "You said no.")
        return {}

    def _facts(self) -> Iterator[tuple[str, str]]:
        request = self.question.request
        if isinstance(request, ToolCall):
            yield "Tool", request.tool
            yield "Arguments", as_json(dict(request.arguments))
            if request.annotations is not None:
                who = "The server" if self.server.trusted else "The server, unchecked,"
                yield f"{who} says", _claims(request.annotations)
        elif isinstance(request, ElicitRequestFormParams):
            yield "Message", request.message
            for field in Form.read(request.requested_schema).fields:
                yield field.label, field.description or field.kind
        elif isinstance(request, ElicitRequestURLParams):
            self.link = LinkParts.of(Link.read(request.url))
            yield "Message", request.message


def _claims(annotations: ToolAnnotations) -> str:
    if annotations.read_only_hint:
        return "it only reads"
    claims = ["it changes things"]
    claims.append("may destroy" if annotations.destructive_hint is not False else "only adds")
    if annotations.open_world_hint is not False:
        claims.append("deals with the world outside")
    return ", ".join(claims)
