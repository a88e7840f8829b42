"""Mutants of what answers a server's questions: sampling, elicitation, roots."""

from __future__ import annotations

import math
import urllib.request
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from syncmcp.errors import InvalidQuestion
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result, without

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

ANSWER = "syncmcp._connection.answering"
ASKED = "syncmcp._connection.questions"
QUESTIONS = "syncmcp._connection.server_requests"
OFFER = "syncmcp._protocol.capabilities"
ROOTS = "syncmcp.handlers.roots"
VISITS = "syncmcp.handlers.url_completion"


def _inflate(capabilities: dict[str, Any]) -> dict[str, Any]:
    if "sampling" in capabilities:
        return {**capabilities, "sampling": {"tools": {}, "context": {}}}
    return capabilities


def _forget_modes(capabilities: dict[str, Any]) -> dict[str, Any]:
    return {**capabilities, "elicitation": {}} if "elicitation" in capabilities else capabilities


def _admit_tools(original: Function) -> Function:
    return lambda params, offer: original(params, offer._replace(sampling_tools=True))


def _raise_the_limit(request: Any) -> Any:
    return request.model_copy(update={"max_tokens": 100_000})


def _insist_on_a_mode(original: Function) -> Function:
    return lambda params, offer: original({"mode": "none", **params}, offer)


def _admit_every_mode(original: Function) -> Function:
    return lambda params, offer: original(params, offer._replace(form=True, url=True))


def _fetch(original: Function) -> Function:
    def send_to(request: Any, *args: Any) -> Any:
        if request.url.startswith("http://127.0.0.1"):
            urllib.request.urlopen(request.url, timeout=5).close()
        return original(request, *args)

    return send_to


def _complete_everything(original: Function) -> Function:
    def complete(self: Any, elicitation_id: Any) -> None:
        for visit in list(self._visits):
            visit.settle(done=True)

    return complete


def _end_with_the_consent(original: Function) -> Function:
    def agree(self: Any, token: Any) -> None:
        original(self, token)
        self.settle(done=False)

    return agree


def _tidy_the_id(original: Function) -> Function:
    return lambda self, stated: original(
        self, stated.strip() if isinstance(stated, str) else stated
    )


def _take_any_scheme(original: Function) -> Function:
    def path_of(uri: str, flavour: type[PurePath] = PurePath) -> PurePath:
        path: PurePath = original(uri if uri.startswith("file:") else "file:///", flavour)
        return path

    return path_of


def _let_progress_shrink(original: Function) -> Function:
    def send(self: Any, *args: Any, **named: Any) -> None:
        self._last = -math.inf
        original(self, *args, **named)

    return send


def _know_every_method(original: Function) -> Function:
    def check_offered(*args: Any) -> None:
        try:
            original(*args)
        except InvalidQuestion as error:
            error.code = -32603
            raise

    return check_offered


def _tell_why(original: Function) -> Function:
    def refusal(method: str, error: BaseException) -> tuple[int, str, Any]:
        code, _, data = original(method, error)
        return code, str(error), data

    return refusal


SAMPLING = (
    Mutant(
        "sampling-inflated",
        "whoever lets a model answer is declared to do so with tools and context",
        f"{OFFER}:client_capabilities",
        result(_inflate),
        ("SAMP-01", "M-08"),
    ),
    Mutant(
        "tools-admitted",
        "a server that sends tools is answered though they were not declared",
        f"{ANSWER}:_read_sampling",
        _admit_tools,
        ("SAMP-02", "M-04"),
    ),
    Mutant(
        "tokens-unlimited",
        "the handler is not told how many tokens it may use",
        f"{ANSWER}:_read_sampling",
        result(_raise_the_limit),
        ("SAMP-04",),
    ),
    Mutant(
        "tool-results-unchecked",
        "tool uses without results, and results without uses, reach the handler",
        f"{ANSWER}:check_tool_results",
        always(None),
        ("SAMP-05", "SAMP-06"),
    ),
    Mutant(
        "failures-told",
        "the text of what goes wrong in a handler goes to the server",
        f"{ANSWER}:refusal",
        _tell_why,
        ("SAMP-08",),
    ),
)

ELICITATION = (
    Mutant(
        "elicitation-undeclared",
        "forms and links are answered but not declared",
        f"{OFFER}:client_capabilities",
        without("elicitation"),
        ("ELI-01",),
    ),
    Mutant(
        "modes-undeclared",
        "elicitation is declared without its modes",
        f"{OFFER}:client_capabilities",
        result(_forget_modes),
        ("ELI-02",),
    ),
    Mutant(
        "modes-required",
        "a form without a mode is refused",
        f"{ANSWER}:_read_elicitation",
        _insist_on_a_mode,
        ("ELI-03",),
    ),
    Mutant(
        "modes-admitted",
        "a mode that was not declared is taken for one that was",
        f"{ANSWER}:_read_elicitation",
        _admit_every_mode,
        ("ELI-04",),
    ),
    Mutant(
        "links-fetched",
        "what is behind a link is fetched before anybody agreed",
        f"{ANSWER}:_send_to",
        _fetch,
        ("ELI-09",),
    ),
    Mutant(
        "links-unchecked",
        "a person is sent to any URL, a script too",
        "syncmcp.handlers.links:Link.read",
        lambda original: classmethod(lambda cls, url: None),
        ("ELI-10",),
    ),
    Mutant(
        "forms-unchecked",
        "an answer that does not fit its form is sent",
        "syncmcp.handlers.forms:Form.problems",
        always({}),
        ("ELI-14", "M-06"),
    ),
    Mutant(
        "defaults-left-out",
        "what an answer leaves out stays out though the form has a default",
        "syncmcp.handlers.forms:Form.with_defaults",
        lambda original: lambda self, content: dict(content),
        ("ELI-14",),
    ),
    Mutant(
        "completions-for-all",
        "one completion notice completes every link that is waited for",
        f"{VISITS}:UrlVisits.complete",
        _complete_everything,
        ("ELI-15",),
    ),
    Mutant(
        "completion-ids-tidied",
        "the id of a completed link is stripped before it is compared",
        f"{VISITS}:UrlVisits.complete",
        _tidy_the_id,
        ("ELI-16",),
    ),
    Mutant(
        "completions-forgotten",
        "that a link is completed is forgotten before its id is asked about again",
        f"{VISITS}:UrlVisits._touch",
        always(False),
        ("ELI-15",),
    ),
    Mutant(
        "visits-end-with-consent",
        "who has agreed to a link does not hear any more that it is completed",
        f"{VISITS}:UrlVisit.agree",
        _end_with_the_consent,
        ("M-07",),
    ),
    Mutant(
        "visits-never-forgotten",
        "a server can have a client remember any number of visits",
        f"{VISITS}:UrlVisits._evict_oldest",
        always(None),
        ("M-07",),
    ),
)

ROOT_LISTS = (
    Mutant(
        "roots-undeclared",
        "a client that has roots does not say so (2026-07-28)",
        f"{OFFER}:client_capabilities",
        without("roots"),
        ("ROOT-01",),
    ),
    Mutant(
        "roots-of-any-scheme",
        "a root may be a URI of any scheme",
        f"{ROOTS}:path_of",
        _take_any_scheme,
        ("ROOT-02",),
    ),
    Mutant(
        "roots-unannounced",
        "a change of the roots is not announced",
        "syncmcp._connection.notifier:Notifier.roots_changed",
        always(None),
        ("ROOT-03",),
    ),
    Mutant(
        "roots-unseen",
        "a root need not exist, nor be readable",
        f"{ROOTS}:_status",
        always("ok"),
        ("ROOT-04",),
    ),
    Mutant(
        "unknown-is-internal",
        "a question that nobody offered to answer is an internal error",
        f"{ANSWER}:check_offered",
        _know_every_method,
        ("ROOT-06",),
    ),
)

COURSE = (
    Mutant(
        "withdrawals-ignored",
        "a question that the server withdraws is answered all the same",
        f"{QUESTIONS}:QuestionDispatcher.cancel",
        always(None),
        ("CAN-06", "M-02"),
    ),
    Mutant(
        "reports-shrink",
        "progress of an answer is sent as the handler says, smaller than before too",
        f"{QUESTIONS}:_ProgressReports.send",
        _let_progress_shrink,
        ("PRG-03",),
    ),
    Mutant(
        "reports-after-the-answer",
        "progress goes on after the answer",
        f"{QUESTIONS}:_ProgressReports.close",
        always(None),
        ("PRG-03",),
    ),
    Mutant(
        "time-without-end",
        "a question that nobody answers is waited for without end",
        f"{ASKED}:InboundRequest.expire",
        always(None),
        ("M-20",),
    ),
)

MUTANTS = SAMPLING + ELICITATION + ROOT_LISTS + COURSE
