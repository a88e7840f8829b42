"""Mutants of what a person sees and decides: at a terminal, and whatever the interface."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from syncmcp import types
from syncmcp.approval import Verdict, _memory_key
from syncmcp.handlers.forms import ABSENT
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.mutant_switches.change import Function

ANSWER = "syncmcp._connection.answering"
APPROVAL = "syncmcp.approval:Approval"
TERMINAL = "syncmcp.ui.terminal:Terminal"
SAMPLING_PROMPTS = "syncmcp.ui.terminal.cards"
SCREEN = "syncmcp.ui.terminal.screen:Screen"
PROMPTS = "syncmcp.ui.terminal.cards"
REVIEWS = "syncmcp.ui.terminal.cards"


# -- the library's own rules ---------------------------------------------------------------------


def _hints(edit: Callable[[list[Any]], list[Any]]) -> Callable[[Function], Function]:
    """Change the hints that a model is chosen by."""

    def change(original: Function) -> Function:
        def preferred_model(self: Any, names: Any) -> Any:
            preferences = self.model_preferences
            if preferences is not None:
                hints = edit(list(preferences.hints or ()))
                preferences = preferences.model_copy(update={"hints": hints})
            return original(self.model_copy(update={"model_preferences": preferences}), names)

        return preferred_model

    return change


def _take_the_servers_word(original: Function) -> Function:
    def init(self: Any, negotiated: Any, **named: Any) -> None:
        original(self, negotiated, **named)
        if self.info is not None:
            self.name = self.info.title or self.info.name

    return init


def _no_is_leaving(answer: dict[str, Any]) -> dict[str, Any]:
    return {"action": "cancel"} if answer["action"] == "decline" else answer


def _pass_answers(kind: str) -> Callable[[Function], Function]:
    def change(original: Function) -> Function:
        def review_answer(self: Any, question: Any) -> Any:
            return question.answer if question.kind == kind else original(self, question)

        return review_answer

    return change


def _allow_unasked(original: Function) -> Function:
    def ask(self: Any, question: Any) -> Any:
        return type(original(self, question))(Verdict.allow(), "person")

    return ask


def _trust_everybody(original: Function) -> Function:
    def only_reads(question: Any) -> Any:
        server = SimpleNamespace(trusted=True)
        return original(replace(question, server=server))

    return only_reads


def _remember_links(original: Function) -> Function:
    def conclude(self: Any, question: Any, ruling: Any, failure: Any) -> Any:
        verdict = original(self, question, ruling, failure)
        if ruling.by == "person" and verdict.remember:
            self._remembered[_memory_key(question)] = verdict.allowed
        return verdict

    return conclude


def _pass_links(original: Function) -> Function:
    def request(review: Any) -> Any:
        link = isinstance(review._request, types.ElicitRequestURLParams)
        return review._request if link else original(review)

    return request


def _hand_on_without_query(original: Function) -> Function:
    def send_to(request: Any, *args: Any) -> Any:
        return original(request.model_copy(update={"url": request.url.partition("?")[0]}), *args)

    return send_to


def _read_without_query(original: Function) -> Function:
    def read(cls: Any, url: str) -> Any:
        link = original.__func__(cls, url)
        return replace(link, url=link.url.partition("?")[0])

    return classmethod(read)


LIBRARY = (
    Mutant(
        "hints-backwards",
        "of the models that a server hints at, the one it wants least is chosen",
        "syncmcp.types.client_features:CreateMessageRequestParams.preferred_model",
        _hints(lambda hints: hints[::-1]),
        ("SAMP-03",),
    ),
    Mutant(
        "one-hint-alone",
        "where the first hint fits no model, the others are not tried",
        "syncmcp.types.client_features:CreateMessageRequestParams.preferred_model",
        _hints(lambda hints: hints[:1]),
        ("SAMP-03",),
    ),
    Mutant(
        "models-answers-unreviewed",
        "what a model wrote is sent without a look at it",
        f"{APPROVAL}.review_answer",
        _pass_answers("sampling"),
        ("M-17", "M-26", "SAMP-09"),
    ),
    Mutant(
        "person-overruled",
        "what a person says of a question changes nothing, nor does it that there is nobody",
        f"{APPROVAL}._ask",
        _allow_unasked,
        ("M-17", "ROOT-05", "SAMP-09"),
    ),
    Mutant(
        "annotations-believed",
        "what any server says of its tools is believed",
        "syncmcp.approval:_only_reads",
        _trust_everybody,
        ("M-14", "TOOL-01"),
    ),
    Mutant(
        "servers-name-themselves",
        "a server is shown under the name that it gives itself",
        "syncmcp.handlers.context:ConnectedServer.__init__",
        _take_the_servers_word,
        ("ELI-05",),
    ),
    Mutant(
        "no-is-leaving",
        "a person's no to a form is told as if the person had left",
        f"{ANSWER}:_fill_in",
        result(_no_is_leaving),
        ("ELI-06", "M-06", "M-28"),
    ),
    Mutant(
        "no-to-a-link-is-leaving",
        "a person's no to a link is told as if the person had left",
        f"{ANSWER}:_send_to",
        result(_no_is_leaving),
        ("ELI-06",),
    ),
    Mutant(
        "programs-answers-unreviewed",
        "what a program answers to a form is sent without a look at it",
        f"{APPROVAL}.review_answer",
        _pass_answers("form"),
        ("ELI-07",),
    ),
    Mutant(
        "links-unapproved",
        "a link reaches its handler though nobody was asked to allow it",
        f"{ANSWER}:_Review.request",
        _pass_links,
        ("ELI-08",),
    ),
    Mutant(
        "links-remembered",
        "a yes to one link, meant to be kept, is a yes to the next",
        f"{APPROVAL}._apply_ruling",
        _remember_links,
        ("ELI-08", "M-33"),
    ),
    Mutant(
        "visits-never-done",
        "who has been where a link leads cannot say that it is done",
        "syncmcp.handlers:HandlerContext.completed",
        always(None),
        ("ELI-17",),
    ),
    Mutant(
        "links-handed-on-cut",
        "a link loses its query before anybody sees it",
        f"{ANSWER}:_send_to",
        _hand_on_without_query,
        ("ELI-11",),
    ),
    Mutant(
        "links-read-cut",
        "a link loses its query when it is read to be shown",
        "syncmcp.handlers.links:Link.read",
        _read_without_query,
        ("ELI-11",),
    ),
)


# -- the terminal --------------------------------------------------------------------------------


def _name_nobody(original: Function) -> Function:
    def banner(self: Any, server: Any, wants: str) -> None:
        original(self, SimpleNamespace(name="A server", info=server.info), wants)

    return banner


def _without_choice(value: str) -> Callable[[Function], Function]:
    def change(original: Function) -> Function:
        def choose(self: Any, message: str, options: Any, **named: Any) -> Any:
            left = [(each, words) for each, words in options if each != value]
            return original(self, message, left, **named)

        return choose

    return change


def _leave_empty(original: Function) -> Function:
    def typed(screen: Any, field: Any, message: str, current: Any) -> Any:
        return original(screen, field, message, ABSENT if current == field.default else current)

    return typed


def _edit_in_vain(original: Function) -> Function:
    def edit(screen: Any, spoken: Any) -> Any:
        original(screen, spoken)
        return spoken

    return edit


def _quoting(quote: Callable[[Any, str, str, int], None]) -> Callable[[Function], Function]:
    """Change how a link, and what belongs to it, is quoted: screen, URL, words and limit."""

    def change(original: Function) -> Function:
        def show_link(screen: Any, url: str) -> Any:
            changed = SimpleNamespace(
                say=screen.say,
                warn=screen.warn,
                quote=lambda words, *, limit: quote(screen, url, words, limit),
            )
            return original(changed, url)

        return show_link

    return change


def _quote_no_host(screen: Any, url: str, words: str, limit: int) -> None:
    if words == url:
        screen.quote(words, limit=limit)


def _quote_the_beginning(screen: Any, url: str, words: str, limit: int) -> None:
    screen.quote(words, limit=min(limit, 1000))


def _open_before_asking(original: Function) -> Function:
    def url(self: Any, screen: Any, request: Any, context: Any) -> Any:
        self._open_in_browser(request.url)
        return original(self, screen, request, context)

    return url


def _visit(url: str) -> bool:
    if url.startswith("http://127.0.0.1"):
        urllib.request.urlopen(url, timeout=5).close()
    return True


def _visit_by_default(original: Function) -> Function:
    def init(self: Any, *streams: Any, open_url: Callable[[str], bool] = _visit) -> None:
        original(self, *streams, open_url=open_url)

    return init


AT_A_TERMINAL = (
    Mutant(
        "terminal-names-nobody",
        "a terminal does not say which server is asking, only what it says of itself",
        f"{SCREEN}.banner",
        _name_nobody,
        ("ELI-05",),
    ),
    Mutant(
        "terminal-without-no",
        "nobody can say no at a terminal, only answer or leave",
        f"{SCREEN}.choose",
        _without_choice("decline"),
        ("ELI-06",),
    ),
    Mutant(
        "terminal-without-leaving",
        "leaving is no choice at a terminal, only answering and saying no",
        f"{SCREEN}.choose",
        _without_choice("cancel"),
        ("ELI-06",),
    ),
    Mutant(
        "terminal-sends-at-once",
        "what is filled in at a terminal is sent with the last field",
        f"{PROMPTS}:review_answers",
        lambda original: lambda screen, form, answers: answers,
        ("ELI-07",),
    ),
    Mutant(
        "terminal-shows-no-answers",
        "a terminal asks whether the answers are right, and does not show them",
        f"{PROMPTS}:show_answers",
        always(None),
        ("ELI-07",),
    ),
    Mutant(
        "terminal-without-changes",
        "an answer that was given at a terminal cannot be changed any more",
        f"{SCREEN}.choose",
        _without_choice("edit"),
        ("ELI-07",),
    ),
    Mutant(
        "terminal-edits-in-vain",
        "a request to a model goes on as it was, whatever the person made of it at a terminal",
        f"{SAMPLING_PROMPTS}:edit_request",
        _edit_in_vain,
        ("M-17",),
    ),
    Mutant(
        "terminal-without-defaults",
        "a text or a number is asked for at a terminal without its default standing there",
        f"{PROMPTS}:_ask_text",
        _leave_empty,
        ("M-18",),
    ),
    Mutant(
        "terminal-without-host",
        "a terminal shows a link without its host on a line of its own",
        f"{REVIEWS}:show_link",
        _quoting(_quote_no_host),
        ("ELI-08", "ELI-13"),
    ),
    Mutant(
        "terminal-waits-for-ever",
        "who has agreed to a link at a terminal cannot go on before it is done",
        f"{SCREEN}.choose",
        _without_choice("later"),
        ("ELI-17",),
    ),
    Mutant(
        "terminal-opens-first",
        "a link is opened while the person is still asked",
        f"{TERMINAL}._ask_url",
        _open_before_asking,
        ("ELI-08", "ELI-10"),
    ),
    Mutant(
        "terminal-cuts-links",
        "of a long link a terminal shows the beginning",
        f"{REVIEWS}:show_link",
        _quoting(_quote_the_beginning),
        ("ELI-11",),
    ),
    Mutant(
        "program-visits-links",
        "a link that was agreed to is fetched by the program, not opened in the person's browser",
        f"{TERMINAL}._open_in_browser",
        lambda original: lambda self, url: _visit(url),
        ("ELI-12",),
    ),
    Mutant(
        "program-visits-by-default",
        "a program that says nothing of how to open links fetches them itself",
        f"{TERMINAL}.__init__",
        _visit_by_default,
        ("ELI-12",),
    ),
)

MUTANTS = LIBRARY + AT_A_TERMINAL
