"""The questions on pages: forms, sampling requests and answers, links, and other consent."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

from markupsafe import Markup, escape
from pydantic import TypeAdapter

from syncmcp.approval import Question, ToolCall, Verdict
from syncmcp.handlers.context import visit_of
from syncmcp.handlers.forms import ABSENT, Field, Form
from syncmcp.handlers.links import Link
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from syncmcp.ui import visible
from syncmcp.ui.browser import message
from syncmcp.ui.browser.message import Answers, breakable, editable_text
from syncmcp.ui.browser.questions import Card
from syncmcp.ui.browser.tool_call import ShownCall
from syncmcp.ui.calls import RUN, wants_word
from syncmcp.ui.everything import everything, roots_text
from syncmcp.ui.grants import grant_for

if TYPE_CHECKING:
    from syncmcp.handlers.forms import Absent, Value
    from syncmcp.ui.browser.questions import ClosedQuestion


A = TypeVar("A")

_DATETIME = TypeAdapter(datetime)

_INPUT_TYPES = {"email": "email", "uri": "url", "date": "date", "date-time": "datetime-local"}

# A choice with more options is shown as a drop-down list.
_MAX_RADIO_BUTTONS = 6
# A text that may be longer gets an input of several lines.
_MAX_ONE_LINE = 200
# A one-line input or a drop-down list would cut off a longer text, in characters.
_MAX_ROW = 40


class Input(NamedTuple):
    """A form field on a page. Its values are texts, or the indexes of its options."""

    name: str
    field: Field
    widget: str
    """``text``, ``lines``, ``number``, ``tick``, ``yes-no``, ``radio``, ``list``, ``ticks``."""
    type: str
    """The ``type`` of an HTML input."""
    values: list[str]

    @property
    def may_be_empty(self) -> bool:
        """Whether the field can be omitted: it is optional, and no default takes its place."""
        return not self.field.required and self.field.default is ABSENT

    @property
    def hints(self) -> list[str]:
        """The constraints of the field as text."""
        return list(_hints(self.field))


class _FormCard(Card[A]):
    """The base of cards with a form: filling it in, and reviewing the answers.

    Raises:
        UnsupportedForm: The schema is not that of a form.
    """

    template: ClassVar[str] = "form.html"
    send: ClassVar[str]
    """The label of the button that sends."""

    def __init__(
        self,
        question: Question,
        human_timeout: float | None,
        content: Mapping[str, Value] | None = None,
    ) -> None:
        super().__init__(question, human_timeout)
        request = cast("ElicitRequestFormParams", question.request)
        self.message = request.message
        self.form = Form.read(request.requested_schema)
        self._shown = self.form.defaults() if content is None else content

    def inputs(self, answers: Answers | None) -> list[Input]:
        """Return the fields with submitted values; if `answers` is `None`, with initial values."""
        return [
            _make_input(number, field, self._shown.get(field.name, ABSENT), answers)
            for number, field in enumerate(self.form.fields)
        ]

    def parse_answers(self, answers: Answers) -> tuple[dict[str, Value], dict[str, str]]:
        """Parse the submitted values; return the content, and errors by the names of inputs."""
        content: dict[str, Value] = {}
        unread: dict[str, str] = {}
        for number, field in enumerate(self.form.fields):
            try:
                shown = self._shown.get(field.name, ABSENT)
                value = _parse_field(field, shown, answers.getlist(f"field-{number}"))
            except ValueError as error:
                unread[field.name] = str(error)
                continue
            if value is not ABSENT:
                content[field.name] = value
        wrong = self.form.problems(content) | unread
        named = enumerate(field.name for field in self.form.fields)
        return content, {f"field-{number}": wrong[name] for number, name in named if name in wrong}


class FillCard(_FormCard[ElicitResult]):
    """A form to fill in."""

    send = "Send these answers"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = "A form to fill in"

    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Send, decline or cancel."""
        if action == "send":
            content, problems = self.parse_answers(answers)
            if problems:
                return problems
            self.settle(ElicitResult.accept(content), "Your answers were sent.")
        elif action == "decline":
            self.settle(ElicitResult.decline(), "You declined; no answers were sent.")
        else:
            self.settle(ElicitResult.cancel(), "You cancelled; no answers were sent.")
        return {}


class ReviewFormCard(_FormCard[Verdict]):
    """A review of the answers that a program gave to a form."""

    send = "Send these answers"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        given = cast("ElicitResult", question.answer)
        super().__init__(question, human_timeout, given.content or {})
        self.title = "Answers from this program, before they are sent"

    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Send the answers as edited on the page, or deny."""
        if action != "send":
            self.settle(Verdict.deny("a person said no"), "You said no; no answers were sent.")
            return {}
        content, problems = self.parse_answers(answers)
        if problems:
            return problems
        self.settle(Verdict.allow(answer=ElicitResult.accept(content)), "The answers were sent.")
        return {}


def _make_input(number: int, field: Field, shown: Value | Absent, answers: Answers | None) -> Input:
    name = f"field-{number}"
    widget, kind = _widget(field, shown)
    # Text of the person stays unchanged; in other text, Jinja makes hidden characters visible.
    if answers is None:
        return Input(name, field, widget, kind, _input_texts(field, shown))
    return Input(name, field, widget, kind, [escape(text) for text in answers.getlist(name)])


def _widget(field: Field, shown: Value | Absent) -> tuple[str, str]:
    """Return the widget and the ``type`` of the input that shows all of a value."""
    if field.kind == "boolean":
        # Without a default, "no" differs from "no answer", which a checkbox cannot express.
        return ("tick" if field.required or field.default is not ABSENT else "yes-no"), "checkbox"
    if field.kind == "choices":
        return "ticks", "checkbox"
    if field.kind == "choice":
        few = len(field.options) <= _MAX_RADIO_BUTTONS
        wide = any(len(visible(option.title)) > _MAX_ROW for option in field.options)
        return ("radio" if few or wide else "list"), "radio"
    texts = _input_texts(field, shown)
    if any("\n" in text or len(text) > _MAX_ROW for text in texts):
        return "lines", "text"
    if field.kind in ("number", "integer"):
        return "number", "number"
    if field.format is not None:
        return "text", _INPUT_TYPES[field.format]
    if field.secret and shown is ABSENT:  # only what the person types is hidden
        return "text", "password"
    return ("lines" if (field.bounds.maximum or 0) > _MAX_ONE_LINE else "text"), "text"


def _input_texts(field: Field, value: Value | Absent) -> list[str]:
    """Return a value as texts for HTML inputs."""
    if value is ABSENT:
        return []
    if field.kind in ("choice", "choices"):
        chosen = value if isinstance(value, list) else [value]
        return [str(n) for n, option in enumerate(field.options) if option.value in chosen]
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if field.format == "date-time" and isinstance(value, str):
        return [_local_time(value)]
    return [editable_text(str(value))]


def _local_time(text: str) -> str:
    """A time in the time zone of this computer, without an offset, as HTML inputs need it."""
    try:
        moment = _DATETIME.validate_python(text).astimezone().replace(tzinfo=None)
    except (ValueError, OverflowError):  # a leap second, the end of the calendar
        return ""
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _shows(field: Field, value: Value, text: str) -> bool:
    """Whether the page shows `value` as `text`; browsers may write times in another notation."""
    (shown,) = _input_texts(field, value)
    if field.format != "date-time" or not shown:
        return text == shown
    try:
        return _DATETIME.validate_python(text) == _DATETIME.validate_python(shown)
    except ValueError:
        return False


def _parse_field(field: Field, shown: Value | Absent, sent: list[str]) -> Value | Absent:
    """Parse a field that showed the value `shown`; a `ValueError` has a sentence for a person."""
    if field.kind == "boolean":
        if _widget(field, shown)[0] == "tick":
            return "yes" in sent
        return ABSENT if sent in ([], [""]) else sent == ["yes"]
    if field.kind in ("choice", "choices"):
        chosen = [_parse_option(field, number) for number in sent if number]
        if field.kind == "choice":
            return chosen[0] if chosen else ABSENT
        return chosen if chosen or field.required or field.default is not ABSENT else ABSENT
    text = "".join(sent).replace("\r\n", "\n")
    if not text:
        return shown if shown == "" else ABSENT
    if shown is not ABSENT and _shows(field, shown, text):
        return shown  # unedited: the input may show it in another notation
    return field.parse(text)


def _parse_option(field: Field, number: str) -> str:
    if not (number.isascii() and number.isdigit() and int(number) < len(field.options)):
        raise ValueError("This is not one of the options.")
    return field.options[int(number)].value


def _hints(field: Field) -> list[str]:
    # The inputs of dates show dates in the notation of the browser.
    hints = [] if field.format in ("date", "date-time") else [field.hint]
    if field.format == "date-time":
        hints.append("In this computer's time zone.")
    if field.pattern is not None:
        hints.append(f"Must match “{field.pattern}”")
    if field.default is not ABSENT and field.kind in ("string", "number", "integer"):
        hints.append(f"If you leave it empty, “{field.default}” is sent.")
    return list(filter(None, hints))


# Sampling: the request to a model, and its answer.


class RequestCard(Card[Verdict]):
    """The first review, of the request, before a model is asked."""

    template: ClassVar[str] = "sampling.html"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = "A request to your model"
        self.request = cast("CreateMessageRequestParams", question.request)
        self.messages = [
            message.render_message(one, f"message-{number}")
            for number, one in enumerate(self.request.messages[: message.MOST_MESSAGES])
        ]
        self.left_out = len(self.request.messages) - len(self.messages)
        self.everything = message.whole(everything(self.request))
        self.system = message.editable_text(self.request.system_prompt or "")
        self.grant = grant_for(question)

    def facts(self) -> list[tuple[str, str]]:
        """The other parameters of the request: their names and texts, without empty ones."""
        request = self.request
        wishes = request.model_preferences
        hints = [] if wishes is None else [hint.name or "" for hint in wishes.hints or ()]
        priorities = (
            ()
            if wishes is None
            else (
                ("cost", wishes.cost_priority),
                ("speed", wishes.speed_priority),
                ("intelligence", wishes.intelligence_priority),
            )
        )
        stop = [repr(text) for text in request.stop_sequences or ()]
        facts = [
            ("Messages", str(len(request.messages))),
            ("Preferred models", ", ".join(hints)),
            ("Priorities", ", ".join(f"{what} {n:g}" for what, n in priorities if n is not None)),
            ("Stop sequences", ", ".join(stop)),
            ("Context from other servers", request.include_context or ""),
            ("Tool use", (request.tool_choice.mode or "auto") if request.tool_choice else ""),
            ("For the provider", message.as_json(request.metadata) if request.metadata else ""),
        ]
        return [(name, value) for name, value in facts if value]

    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Approve the request as edited on the page, or deny."""
        if action not in ("approve", "remember"):
            self.settle(Verdict.deny("a person said no"), "You said no; no model was asked.")
            return {}
        wire = self.request.to_wire()
        problems = self._apply_edits(wire, answers)
        if problems:
            return problems
        changed = wire != self.request.to_wire()
        request = CreateMessageRequestParams.from_wire(wire) if changed else None
        verdict = Verdict.allow(request, remember=action == "remember")
        self.settle(verdict, "You approved it; the model is at work.")
        return {}

    @property
    def goes_on(self) -> bool:
        """See `Card`. The page of an approved request continues with the model's text."""
        return self.answer is not None and self.answer.allowed

    def _apply_edits(self, wire: dict[str, Any], answers: Answers) -> dict[str, str]:
        instructions = self.request.system_prompt or ""
        if (sent := message.edited_text("system", instructions, answers)) != instructions:
            wire["systemPrompt"] = sent
        for number, one in enumerate(wire["messages"][: len(self.messages)]):
            message.apply_edits(one, f"message-{number}", answers)
        problems: dict[str, str] = {}
        most = answers.get("max-tokens") or str(self.request.max_tokens)
        if not (most.isascii() and most.isdigit() and 0 < len(most) < 10):
            problems["max-tokens"] = "This must be a whole number."
        elif int(most) > self.request.max_tokens:
            problems["max-tokens"] = f"The server asked for at most {self.request.max_tokens}."
        else:
            wire["maxTokens"] = int(most)
        warmth = answers.get("temperature")
        if warmth == "":
            wire.pop("temperature", None)
        elif warmth is not None and warmth != str(self.request.temperature):
            try:
                wire["temperature"] = _finite_number(warmth)
            except ValueError:
                problems["temperature"] = "This must be a number."
        return problems


class AnswerCard(Card[Verdict]):
    """The second review, of the answer, before it is sent to the server."""

    template: ClassVar[str] = "answer.html"

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = "An answer from your model"
        self.result = cast("CreateMessageResult", question.answer)
        self.shown = message.render_message(self.result, "answer")
        self.grant = grant_for(question)
        self.everything = message.whole(everything(self.result))

    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Send the answer as edited on the page, or deny."""
        if action not in ("approve", "remember"):
            self.settle(Verdict.deny("a person said no"), "You said no; nothing was sent.")
            return {}
        wire = self.result.to_wire()
        message.apply_edits(wire, "answer", answers)
        changed = wire != self.result.to_wire()
        answer = CreateMessageResult.from_wire(wire) if changed else None
        self.settle(
            Verdict.allow(answer=answer, remember=action == "remember"), "The answer was sent."
        )
        return {}


def _finite_number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


# Consent: to a link, and to other requests for which a policy requires a person.


_AUTHORITY = re.compile(r"(https?://)([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)


class LinkParts(NamedTuple):
    """A link for display, split so that its host can be highlighted."""

    before: str
    host: str
    after: str
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, link: Link) -> LinkParts:
        """Split a link."""
        match = _AUTHORITY.fullmatch(link.url)
        before, host, after = match.groups() if match else ("", link.url, "")
        return cls(before, host, after, tuple(link.warnings))


class LinkCard(Card[ElicitResult]):
    """A link that a server asks the person to open.

    Raises:
        UnsafeLink: The URL may not be shown.
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
        """See `Card`. The server may notify at any time that the visit is completed."""
        done = self.context is not None and self.context.wait_completed(0)
        return "waiting-visited" if done else super().page_state

    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Consent, decline or cancel."""
        del answers  # there are no fields
        if action == "consent":
            self.settle(ElicitResult.accept(), "You agreed to open this page.")
        elif action == "decline":
            self.settle(ElicitResult.decline(), "You declined; nothing was opened.")
        else:
            self.settle(ElicitResult.cancel(), "You cancelled; nothing was opened.")
        return {}

    @property
    def goes_on(self) -> bool:
        """See `Card`. After the consent, the page has the link."""
        return self.answer is not None and self.answer.action == "accept"

    def to_closed(self) -> ClosedQuestion:
        """See `Card`. After the consent, the record has the link and its visit."""
        closed, context = super().to_closed(), self.context
        if context is None or self.answer is None or self.answer.action != "accept":
            return closed
        return closed._replace(visit=visit_of(context), url=self.link.url)


class ConsentCard(Card[Verdict]):
    """Consent to a request that has no page of its own."""

    template: ClassVar[str] = "consent.html"

    _TITLES: ClassVar = {
        "form": "May this program answer the form for you?",
        "url": "May this program handle the link for you?",
        "roots": "May the server know your directories?",
        "tool": "May this program call this tool?",
        "sampling": "A request to your model",
    }

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        super().__init__(question, human_timeout)
        self.title = self._TITLES[question.kind]
        if question.answer is not None:
            self.title = "This program agreed for you: tell the server?"
        self.grant = grant_for(question)
        self.word = RUN if wants_word(question) else ""
        self.link: LinkParts | None = None
        self.call: ShownCall | None = None
        if isinstance(question.request, ToolCall):
            self.call = ShownCall.of(question.request)
            self.about = message.named(question.request.tool)
        self.facts = list(self._facts())

    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Allow or deny; to allow a call that may change something, a word must be typed."""
        what = "the call" if self.call else "this"
        if action in ("approve", "remember"):
            if self.word and (answers.get("word") or "").strip() != self.word:
                return {"word": f"Type {self.word}, or choose Deny."}
            remember = action == "remember" and self.grant is not None
            outcome = f"You allowed {what}{', and all later ones' if remember else ''}."
            self.settle(Verdict.allow(remember=remember), outcome)
        else:
            self.settle(Verdict.deny("a person said no"), f"You denied {what}.")
        return {}

    def _facts(self) -> Iterator[tuple[str, str]]:
        request = self.question.request
        if isinstance(request, ElicitRequestFormParams):
            yield "Message", request.message
            fields = Form.read(request.requested_schema).fields
            yield (
                "Its fields",
                "\n".join(
                    f"{visible(field.label)}: {field.description or field.kind}" for field in fields
                ),
            )
        elif isinstance(request, ElicitRequestURLParams):
            self.link = LinkParts.of(Link.read(request.url))
            yield "Message", request.message
        elif not isinstance(request, ToolCall):
            text = breakable(roots_text(self.question))
            yield "Directories", Markup("<code>{}</code>").format(text)
