"""Approvals: who allows the requests of a server, within which limits, and the records."""

from __future__ import annotations

import dataclasses
import gc
import logging
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from syncmcp import CancelToken, Handlers, connect
from syncmcp.approval import (
    AllowAll,
    Approval,
    AuditRecord,
    AutoApprove,
    Decision,
    DenyAll,
    Kind,
    Policy,
    Question,
    RateLimit,
    Rule,
    Rules,
    ToolCall,
    Verdict,
    as_approval,
)
from syncmcp.errors import Denied, UsageError
from syncmcp.handlers.context import ConnectedServer
from syncmcp.testing import demo_server
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsRequestParams,
    ToolAnnotations,
)
from tests.support.parts import connected_server
from tests.support.stage import PATIENCE, Clock, elsewhere, in_threads
from tests.ui import asking

SECRET = "hunter2-c4nary"


def server(name: str = "files", *, trusted: bool = False) -> ConnectedServer:
    return connected_server(name, trusted=trusted, info={"name": "liar"})


def completion(max_tokens: int = 100) -> CreateMessageRequestParams:
    return asking.sampling(SECRET, maxTokens=max_tokens)


def written(text: str = SECRET) -> CreateMessageResult:
    return asking.written(text)


def form(required: tuple[str, ...] = (), **fields: Any) -> ElicitRequestFormParams:
    return asking.form(fields, required, SECRET)


REQUESTS: Mapping[Kind, Callable[[], Any]] = {
    "sampling": completion,
    "form": lambda: form(size={"type": "integer", "default": 3}),
    "url": lambda: ElicitRequestURLParams(message=SECRET, url=f"https://example.com/?t={SECRET}"),
    "roots": ListRootsRequestParams,
    "tool": lambda: ToolCall("write", {"text": SECRET}, None),
}


def question(
    kind: Kind = "sampling",
    of: str | ConnectedServer = "files",
    request: Any = None,
    *,
    cancel: CancelToken | None = None,
    timeout: float | None = None,
    answer: Any = None,
) -> Question:
    who = server(of) if isinstance(of, str) else of
    within = asking.context(who, cancel=cancel, timeout=timeout)
    return asking.question(kind, request or REQUESTS[kind](), answer=answer, within=within)


def answered(asked: Question, text: str = SECRET) -> Question:
    """Return a question that a model has answered."""
    return dataclasses.replace(asked, answer=written(text))


class Person:
    """A reviewer with the verdict that the test gives."""

    def __init__(self, say: Verdict | Callable[[Question], Any]) -> None:
        self.say = say
        self.asked: list[Question] = []

    def review(self, question: Question, /) -> Verdict:
        self.asked.append(question)
        return self.say if isinstance(self.say, Verdict) else cast("Verdict", self.say(question))


def denial(job: Callable[[], object]) -> Denied:
    with pytest.raises(Denied) as caught:
        job()
    return caught.value


def allowed(approval: Approval, asked: Question) -> bool:
    try:
        approval.review_request(asked)
    except Denied:
        return False
    return True


@pytest.fixture
def records() -> list[AuditRecord]:
    """The records of an approval whose `audit` is `records.append`."""
    return []


every_kind = pytest.mark.parametrize("kind", list(REQUESTS))


# -- who decides -----------------------------------------------------------------------------


@every_kind
@pytest.mark.requirement("M-20", "M-33")
def test_nothing_is_allowed_by_default(
    kind: Kind, records: list[AuditRecord], caplog: pytest.LogCaptureFixture
) -> None:
    error = denial(lambda: Approval(audit=records.append).review_request(question(kind)))
    assert (error.kind, error.server) == (kind, "files")
    assert error.reason is not None
    assert "option approval" in error.reason
    assert [(record.decision, record.by) for record in records] == [(Decision.DENY, "nobody")]
    assert "option approval" in caplog.text


@every_kind
@pytest.mark.requirement("M-17", "M-20")
def test_a_policy_decides_alone_where_it_can(kind: Kind) -> None:
    person = Person(Verdict.deny())
    asked = question(kind)
    assert Approval(AllowAll(), person).review_request(asked) is asked.request
    assert denial(lambda: Approval(DenyAll(), person).review_request(asked)).reason
    assert person.asked == []


@every_kind
@pytest.mark.requirement("M-17", "ROOT-05", "SAMP-09")
def test_a_person_is_asked_by_default(kind: Kind) -> None:
    person = Person(Verdict.allow())
    asked = question(kind)
    approval = Approval(reviewer=person)
    assert approval.review_request(asked) is asked.request
    assert person.asked == [asked]
    person.say = Verdict.deny("not today")
    error = denial(lambda: approval.review_request(asked))
    assert (error.kind, error.reason) == (kind, "not today")
    assert "not today" in str(error)
    assert pickle.loads(pickle.dumps(error)).reason == "not today"


def test_the_first_rule_that_fits_decides() -> None:
    rules = Rules(
        [
            Rule(server="files", kind="url", decision=Decision.DENY),
            Rule(server="files", decision=Decision.ALLOW),
            Rule(kind="roots", decision=Decision.ALLOW),
        ],
        otherwise=Rules([Rule(server="web", decision=Decision.DENY)]),
    )
    letters = {Decision.ALLOW: "a", Decision.DENY: "d", Decision.ASK: "?"}
    decided = {
        name: "".join(
            letters[cast("Decision", rules.decide(question(kind, name)))] for kind in REQUESTS
        )
        for name in ("files", "web", "mail")
    }
    assert decided == {"files": "aadaa", "web": "dddad", "mail": "???a?"}


MISTAKES: Mapping[str, Callable[[], object]] = {
    "class as policy": lambda: Approval(cast("Policy", AllowAll)),
    "decision as policy": lambda: Approval(cast("Policy", Decision.ALLOW)),
    "function as reviewer": lambda: Approval(reviewer=cast("Any", print)),
    "path as audit": lambda: Approval(audit=cast("Any", "log.txt")),
    "function as approval": lambda: as_approval(cast("Policy", lambda question: Decision.ALLOW)),
    "limit of nothing": lambda: RateLimit(per=60),
    "no calls": lambda: RateLimit(calls=0, per=60),
    "negative tokens": lambda: RateLimit(tokens=-1, per=60),
    "no time": lambda: RateLimit(calls=1, per=0),
    "endless time": lambda: RateLimit(calls=1, per=float("inf")),
    "approval without a budget": lambda: AutoApprove(server="files", per=60),
    "no answer to review": lambda: Approval(AllowAll()).review_answer(question()),
    "no answer to record": lambda: Approval().record_answer(question("form")),
    "text for a form to record": lambda: Approval().record_answer(
        question("form", answer=written())
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_set_up_is_told_at_once(mistake: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        mistake()


NOT_RULES = "rules must be a list of Rule objects"
NO_DECISION = (
    "a rule's decision must be one of Decision.ALLOW, Decision.DENY, Decision.ASK, not 'x'"
)
NO_KIND = "kind must be one of sampling, form, url, roots, tool, not 'x'"
NO_POLICY = "otherwise must be a Decision, such as Decision.DENY, or a policy, not 'x'"


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        (Rules, {"rules": Rule(decision=Decision.DENY)}, NOT_RULES),
        (Rules, {"rules": [5]}, NOT_RULES),
        (Rules, {"otherwise": "x"}, NO_POLICY),
        (Rules, {"otherwise": DenyAll}, "otherwise is the class DenyAll: write DenyAll(...)"),
        (Rule, {"decision": "x"}, NO_DECISION),
        (Rule, {"decision": Decision.DENY, "kind": "x"}, NO_KIND),
        (Verdict, {"allowed": "x"}, "allowed must be True or False, not 'x'"),
        (Verdict, {"allowed": True, "remember": 1}, "remember must be True or False, not 1"),
    ],
    ids=["rule", "number", "otherwise", "class", "decision", "kind", "verdict", "remember"],
)
def test_a_mistake_with_policies_says_what_is_needed(
    made: Callable[..., object], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        made(**options)
    assert caught.value.message == said


def test_a_spent_budget_says_so_of_what_it_would_have_allowed() -> None:
    policy = AutoApprove(server="files", calls=1, per=60, otherwise=Decision.DENY)
    assert policy.decide(question()) == Verdict(allowed=True, reason="within the budget")
    spent = Verdict.deny("the request exceeds the budget of AutoApprove: 1 call in 60 s")
    unfit = Verdict.deny("AutoApprove answers only a form whose defaults are a valid answer")
    for asked, said in (
        (question(), spent),
        (question(answer=written()), spent),
        (question("form"), spent),
        (question("roots"), spent),
        (question("form", request=form(size={"type": "integer"})), unfit),
        (question("form", answer=ElicitResult.decline()), Decision.DENY),
        (question("url"), Decision.DENY),
        (question("tool"), Decision.DENY),
    ):
        assert policy.decide(asked) == said


def test_a_policy_that_was_pickled_has_its_budget() -> None:
    rest = Rules(otherwise=Decision.DENY)
    policy = AutoApprove(server="files", calls=1, tokens=10, per=60, otherwise=rest)
    again = pickle.loads(pickle.dumps(policy))
    for each in (policy, again):
        spent = Verdict.deny(
            "the request exceeds the budget of AutoApprove: 1 call and 10 tokens in 60 s"
        )
        assert each.decide(question(request=completion(11))) == spent
        assert each.decide(question(of="web")) is Decision.DENY
        allowed = each.decide(question(request=completion(1)))
        assert isinstance(allowed, Verdict)
        assert allowed.allowed
        assert each.decide(question(request=completion(1))) == spent


def test_policies_show_what_they_are_made_of() -> None:
    rule = Rule(decision=Decision.DENY, server="files")
    assert repr(Rules([rule], AllowAll())) == f"Rules([{rule!r}], AllowAll())"
    assert repr(DenyAll()) == "DenyAll()"


@pytest.mark.parametrize(("by", "recorded"), [("nobody", "nobody"), ("person", "error")])
def test_only_a_reviewer_that_can_ask_nobody_is_recorded_so(
    by: str, recorded: str, records: list[AuditRecord]
) -> None:
    def review(_: Question) -> Verdict:
        raise Denied("of another server", by=by)

    approval = Approval(reviewer=Person(review), audit=records.append)
    assert denial(lambda: approval.review_request(question())).by == recorded
    assert [record.by for record in records] == [recorded]


def test_a_coroutine_is_no_reviewer_and_a_policy_enough_for_an_approval() -> None:
    class Later:
        async def review(self, question: Question, /) -> Verdict:
            return Verdict.allow()

    with pytest.raises(UsageError, match="coroutine"):
        Approval(reviewer=cast("Any", Later()))
    with pytest.raises(UsageError, match=r"not Later: write Approval\(reviewer=...\)$"):
        as_approval(cast("Any", Later()))
    approval = Approval(DenyAll())
    assert as_approval(approval) is approval
    assert allowed(as_approval(AllowAll()), question())


@pytest.mark.requirement("M-17", "M-19")
def test_a_handler_that_asks_a_person_itself_needs_no_reviewer() -> None:
    person = Person(Verdict.deny())
    asked = question("form")
    approval = Approval(reviewer=person, limit=RateLimit(calls=1, per=60))
    assert approval.review_request(asked, asks_person=True) is asked.request
    assert person.asked == []
    # `asks_person` overrules neither the denial of a policy nor a limit.
    denial(lambda: approval.review_request(asked, asks_person=True))
    denial(lambda: Approval(DenyAll()).review_request(asked, asks_person=True))


# -- what a person may do --------------------------------------------------------------------


@pytest.mark.requirement("M-17", "SAMP-09")
def test_sampling_is_reviewed_twice_and_edited_or_denied_both_times() -> None:
    person = Person(lambda asked: Verdict.allow(edited if asked.answer is None else None, better))
    edited, better = completion(50), None
    approval = Approval(reviewer=person)
    first = question()
    going_on = approval.review_request(first)
    assert going_on is edited
    better = written("better")
    second = dataclasses.replace(first, request=cast("Any", going_on), answer=written())
    assert approval.review_answer(second) is better
    assert [asked.answer for asked in person.asked] == [None, second.answer]
    # An answer of the person replaces that of the handler.
    person.say = Verdict.allow(answer=better)
    assert approval.review_request(question()) is better
    person.say = Verdict.deny()
    assert denial(lambda: approval.review_answer(second)).kind == "sampling"


def test_a_verdict_has_what_it_was_made_with() -> None:
    assert Verdict.allow(reason="r", remember=True) == Verdict(True, None, None, "r", True)
    assert Verdict.deny("r", remember=True) == Verdict(False, None, None, "r", True)
    assert [Verdict.allow().remember, Verdict.deny().remember] == [False, False]


def test_only_a_form_that_is_filled_in_is_reviewed() -> None:
    for action in ("decline", "cancel"):
        answer = ElicitResult(action=cast("Any", action))
        assert Approval().review_answer(question("form", answer=answer)) is answer
    edited = ElicitResult(action="accept", content={"size": 4})
    asked = question("form", answer=ElicitResult(action="accept", content={"size": 3}))
    assert Approval(reviewer=Person(Verdict.allow(answer=edited))).review_answer(asked) is edited
    denial(lambda: Approval().review_answer(asked))


ACCEPTED = ElicitResult(action="accept")


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (question(), Verdict.allow(REQUESTS["form"]())),
        (question(), Verdict.allow(answer=ACCEPTED)),
        *((question(kind), Verdict.allow(answer=written())) for kind in ("form", "roots")),
        (question("form"), Verdict.allow(REQUESTS["url"]())),
        (question("url"), Verdict.allow(REQUESTS["form"]())),
        (question("tool"), Verdict.allow(ToolCall("write", {"text": "b"}, None))),
        (question(answer=written()), Verdict.allow(completion(50))),
        (question(), True),
        (question(), None),
    ],
    ids=[
        *("request of another kind", "no text", "text for a form", "text for roots"),
        *("an edited form", "an edited link", "a call", "request after the answer"),
        *("no verdict", "nothing"),
    ],
)
def test_a_verdict_that_cannot_be_carried_out_denies(
    asked: Question, verdict: Any, records: list[AuditRecord], caplog: pytest.LogCaptureFixture
) -> None:
    approval = Approval(reviewer=Person(lambda _: verdict), audit=records.append)
    review = approval.review_request if asked.answer is None else approval.review_answer
    error = denial(lambda: review(asked))
    assert isinstance(error.__cause__, UsageError)
    assert error.__cause__.message in str(error)
    assert [record.by for record in records] == ["error"]
    assert "failed" in caplog.text


def test_a_policy_cannot_consent_to_a_visit() -> None:
    eager: Any = SimpleNamespace(decide=lambda question: Verdict.allow(answer=ACCEPTED))
    assert Approval(eager).review_request(question("form")) is ACCEPTED
    denial(lambda: Approval(eager).review_request(question("url")))


@pytest.mark.parametrize("part", ["policy", "reviewer"])
def test_what_fails_denies_and_is_logged(part: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(question: Question, /) -> NoReturn:
        raise OSError("no terminal")

    broken: Any = SimpleNamespace(decide=fail, review=fail)
    error = denial(lambda: Approval(**{part: broken}).review_request(question()))
    assert isinstance(error.__cause__, OSError)
    assert "no terminal" in caplog.text
    assert "no terminal" not in str(error)


def test_an_exit_within_a_review_allows_nothing_and_is_on_record(
    records: list[AuditRecord],
) -> None:
    approval = Approval(reviewer=Person(lambda _: sys.exit(3)), audit=records.append)
    with pytest.raises(SystemExit):
        approval.review_request(question())
    assert [(record.decision, record.by) for record in records] == [(Decision.DENY, "error")]


def test_partial_text_reaches_a_reviewer_that_can_show_it(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[tuple[Question, str]] = []

    class Screen(Person):
        def update(self, question: Question, text: str) -> None:
            if text == "crash":
                raise OSError("screen is gone")
            shown.append((question, text))

    asked = question()
    approval = Approval(reviewer=Screen(Verdict.allow()))
    for text in ("Once upon", "crash"):
        approval.update(asked, text)
    assert shown == [(asked, "Once upon")]
    assert "screen is gone" in caplog.text
    Approval(reviewer=Person(Verdict.allow())).update(asked, "nobody looks")
    Approval().update(asked, "nobody is there")


# -- what is remembered ----------------------------------------------------------------------


@pytest.mark.parametrize("yes", [True, False], ids=["yes", "no"])
@pytest.mark.parametrize("kind", ["sampling", "form", "roots", "tool"])
@pytest.mark.requirement("M-20")
def test_a_decision_is_remembered_for_its_server_and_its_kind_alone(
    yes: bool, kind: Kind, records: list[AuditRecord]
) -> None:
    person = Person(Verdict(allowed=yes, remember=True))
    approval = Approval(reviewer=person, audit=records.append)
    assert [allowed(approval, question(kind)) for _ in range(3)] == 3 * [yes]
    assert len(person.asked) == 1
    assert [record.by for record in records] == ["person", "remembered", "remembered"]
    person.say = Verdict(allowed=not yes)
    assert allowed(approval, question(kind, "web")) is not yes
    other: Kind = "form" if kind == "sampling" else "sampling"
    assert allowed(approval, question(other)) is not yes
    # The approval keeps the decision while it exists, and only if the person chose so.
    anew = Approval(reviewer=person)
    assert [allowed(anew, question(kind)) for _ in range(2)] == 2 * [not yes]
    assert len(person.asked) == 5


@pytest.mark.requirement("M-33")
def test_yes_is_no_yes_to_the_answer_another_tool_or_the_next_url() -> None:
    person = Person(Verdict.allow(remember=True))
    approval = Approval(reviewer=person)
    for asked in (question(), question()):
        approval.review_request(asked)
        approval.review_answer(answered(asked))
    assert [asked.answer is None for asked in person.asked] == [True, False]
    for tool in ("write", "write", "delete"):
        approval.before_call(tool, None, None, server())
    tools = [cast("ToolCall", asked.request).tool for asked in person.asked[2:]]
    assert tools == ["write", "delete"]
    assert [allowed(approval, question("url")) for _ in range(2)] == [True, True]
    assert len(person.asked) == 6


class Agreeable:
    def review(self, question: Question, /) -> Verdict:
        return Verdict.allow(remember=True)


class Terminal(Approval):
    """An approval with its own reviewer."""

    def __init__(self) -> None:
        super().__init__(reviewer=Agreeable(), limit=RateLimit(calls=1, per=60))


@pytest.mark.requirement("M-20")
def test_a_pickled_approval_decides_alike_remembers_nothing_and_counts_anew(
    records: list[AuditRecord],
) -> None:
    spent = Terminal()
    assert [allowed(spent, question()) for _ in range(2)] == [True, False]
    copy = pickle.loads(pickle.dumps(spent))
    assert type(copy) is Terminal
    copy._audit = records.append
    assert [allowed(copy, question()) for _ in range(2)] == [True, False]
    assert [record.by for record in records] == ["person", "limit"]


# -- limits and budgets ----------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of limits, budgets and deadlines."""
    return Clock(monkeypatch, "syncmcp._concurrency.timing")


@pytest.mark.requirement("M-20", "SAMP-09")
def test_a_limit_counts_the_questions_of_each_server_apart_and_asks_nobody_beyond(
    clock: Clock, records: list[AuditRecord], caplog: pytest.LogCaptureFixture
) -> None:
    person = Person(Verdict.allow())
    limit = RateLimit(calls=2, per=60)
    approval = Approval(reviewer=person, limit=limit, audit=records.append)
    assert [allowed(approval, question()) for _ in range(3)] == [True, True, False]
    assert [allowed(approval, question("roots", "web")) for _ in range(3)] == [True, True, False]
    assert len(person.asked) == 4
    assert records[2].by == "limit"
    assert records[2].reason is not None
    assert "2 calls in 60 s" in records[2].reason
    assert "option limit" in records[2].reason
    assert "option limit" in caplog.text
    clock.advance(61)
    assert allowed(approval, question())


class Failing:
    """A policy that asks, and a reviewer and an audit that fail."""

    def decide(self, question: Question, /) -> Decision:
        return Decision.ASK

    def fail(self, *_: object) -> NoReturn:
        raise RuntimeError("broken")

    review = update = audit = fail


def test_no_flood_of_questions_floods_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    failing = Failing()
    approval = Approval(failing, failing, audit=failing.audit)
    for _ in range(100):
        assert not allowed(approval, question())
        approval.update(question(), "some of the text")
    kinds = ["audit", "review of", "partial"]
    assert [kind for text in caplog.messages for kind in kinds if kind in text] == kinds
    assert all(record.exc_info is not None for record in caplog.records)
    assert not allowed(approval, question(of="web"))  # another server has its own log records
    assert [text[:5] for text in caplog.messages[3:]] == ["[web]", "[web]"]
    clock.advance(1)
    assert not allowed(approval, question())
    assert caplog.messages[5].endswith("(and 99 more like it since the last record)")


def test_what_is_denied_for_want_of_a_person_or_a_budget_does_not_flood_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    for approval in (Approval(), Approval(AllowAll(), limit=RateLimit(calls=1, per=3600))):
        asked = [allowed(approval, question()) for _ in range(100)]
        assert sum(asked[1:]) == 0
    assert ["nobody" in text for text in caplog.messages] == [True, False]
    assert "option limit" in caplog.messages[1]


@pytest.mark.requirement("M-20")
def test_no_stretch_of_time_holds_more_than_the_limit(clock: Clock) -> None:
    approval = Approval(AllowAll(), limit=RateLimit(calls=2, per=60))
    assert allowed(approval, question())
    clock.advance(50)
    assert allowed(approval, question())
    clock.advance(20)  # the first is over a minute ago, the second is not
    assert [allowed(approval, question()) for _ in range(2)] == [True, False]


@pytest.mark.requirement("M-20", "SAMP-09")
def test_a_limit_counts_the_tokens_that_a_question_asks_for(clock: Clock) -> None:
    approval = Approval(AllowAll(), limit=RateLimit(tokens=100, per=60))
    asked = [allowed(approval, question(request=completion(size))) for size in (60, 60, 40, 1)]
    assert asked == [True, False, True, False]
    assert allowed(approval, question("form"))
    clock.advance(61)
    assert allowed(approval, question(request=completion(100)))


def test_no_question_or_edit_fills_a_limit_up_again(clock: Clock) -> None:
    for tokens in (0, -1000):
        approval = Approval(AllowAll(), limit=RateLimit(tokens=100, per=60))
        sizes = (99, tokens, tokens)
        asked = [allowed(approval, question(request=completion(size))) for size in sizes]
        assert asked == [True, True, False]
    person = Person(lambda _: Verdict.allow(completion(wanted)))
    approval = Approval(reviewer=person, limit=RateLimit(calls=5, tokens=100, per=60))
    wanted = 101
    assert not allowed(approval, question(request=completion(10)))
    wanted = 90
    assert allowed(approval, question(request=completion(10)))
    assert not allowed(approval, question(request=completion(1)))


def test_the_answer_and_what_the_policy_denies_do_not_count() -> None:
    rules = Rules([Rule(kind="url", decision=Decision.DENY)], otherwise=Decision.ALLOW)
    approval = Approval(rules, limit=RateLimit(calls=1, tokens=100, per=60))
    assert not allowed(approval, question("url"))
    asked = question(request=completion(100))
    assert allowed(approval, asked)
    approval.review_answer(answered(asked))


@pytest.mark.requirement("M-20")
def test_a_budget_approves_one_server_until_it_is_used_up(clock: Clock) -> None:
    person = Person(Verdict.deny())
    approval = Approval(AutoApprove(server="files", calls=2, tokens=100, per=60), person)
    asked = [allowed(approval, question(request=completion(50))) for _ in range(3)]
    assert asked == [True, True, False]
    assert not allowed(approval, question(of="web"))
    assert [asked.server.name for asked in person.asked] == ["files", "web"]
    clock.advance(61)
    assert not allowed(approval, question(request=completion(101)))
    assert allowed(approval, question(request=completion(100)))


def test_beyond_a_budget_the_next_policy_decides() -> None:
    rest = AutoApprove(server="web", calls=1, per=60, otherwise=Decision.DENY)
    approval = Approval(AutoApprove(server="files", calls=1, per=60, otherwise=rest))
    names = 2 * ("files", "web")
    assert [allowed(approval, question(of=name)) for name in names] == [True, True, False, False]


@pytest.mark.requirement("M-20")
def test_the_answer_to_an_approved_request_is_approved_and_no_other_is() -> None:
    person = Person(Verdict.allow())
    approval = Approval(AutoApprove(server="files", calls=1, per=60), person)
    covered, beyond = question(), question()
    for asked in (covered, beyond):
        approval.review_request(asked)
        approval.review_answer(answered(asked))
    assert [asked.request is beyond.request for asked in person.asked] == [True, True]
    assert [asked.answer is None for asked in person.asked] == [True, False]


@pytest.mark.requirement("M-20")
def test_a_budget_answers_a_form_with_its_defaults(records: list[AuditRecord]) -> None:
    approval = Approval(AutoApprove(server="files", calls=1, per=60), audit=records.append)
    request = form(
        required=("size",),
        size={"type": "integer", "default": 3},
        tags={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["b"]},
        note={"type": "string"},
    )
    answer = approval.review_request(question("form", request=request))
    assert isinstance(answer, ElicitResult)
    assert answer.to_wire() == {"action": "accept", "content": {"size": 3, "tags": ["b"]}}
    assert records[0].by == "policy"
    assert not allowed(approval, question("form", request=request))


TEXT: Mapping[str, Any] = {"type": "string"}


@pytest.mark.parametrize(
    "request_",
    [
        form(required=("a",), a=TEXT),
        form(required=("a",), a=TEXT, b={"type": "boolean", "default": True}),
        form(),
        form(a=TEXT),
        form(a={"type": "integer", "default": 9, "maximum": 5}),
        form(a={"type": "object", "default": {}}),
    ],
    ids=["required without", "one with", "no fields", "no defaults", "bad default", "no form"],
)
@pytest.mark.requirement("M-20")
def test_a_form_without_valid_defaults_is_not_answered_by_a_budget(
    request_: ElicitRequestFormParams,
) -> None:
    policy = AutoApprove(server="files", calls=5, per=60)
    assert policy.decide(question("form", request=request_)) is Decision.ASK


@pytest.mark.requirement("M-20", "M-33")
def test_a_budget_says_why_it_allows_and_spends_tokens_on_models_only() -> None:
    policy = AutoApprove(server="files", calls=3, tokens=1, per=60)
    for kind in ("url", "tool"):  # kinds that it never approves
        assert policy.decide(question(kind)) is Decision.ASK
    asked = question(request=completion(1))
    for one, reason in (
        (question("roots"), "within the budget"),
        (question("form"), "the form's defaults, within the budget"),
        (asked, "within the budget"),
        (answered(asked), "the request was within the budget"),
    ):
        verdict = policy.decide(one)
        assert isinstance(verdict, Verdict)
        assert verdict.reason == reason
    assert policy.decide(question("roots")) is Decision.ASK
    approval = Approval(AutoApprove(server="files", tokens=500, per=60))
    asked_for = [allowed(approval, question(kind)) for kind in ("sampling", "form", "roots")]
    assert asked_for == [True, False, False]


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Block the first thread that counts until another thread waits for the lock."""
    crowd = threading.Event()
    first = threading.Lock()

    class Lock:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                crowd.set()
                assert self._lock.acquire(timeout=PATIENCE)

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def now() -> float:
        if first.acquire(blocking=False):
            crowd.wait(PATIENCE)
        return 0.0

    monkeypatch.setattr("syncmcp._concurrency.rate_limit.threading", SimpleNamespace(RLock=Lock))
    monkeypatch.setattr("syncmcp._concurrency.rate_limit.timing", SimpleNamespace(monotonic=now))
    yield
    assert crowd.is_set(), "nobody had to wait for the one who counts"


GUARDS: Mapping[str, Callable[[], Approval]] = {
    "calls": lambda: Approval(AllowAll(), limit=RateLimit(calls=3, per=60)),
    "tokens": lambda: Approval(AllowAll(), limit=RateLimit(tokens=399, per=60)),
    "budget": lambda: Approval(AutoApprove(server="files", calls=3, per=60)),
}


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize(
    ("guard", "kind"),
    [("calls", "sampling"), ("tokens", "sampling"), ("budget", "sampling"), ("budget", "form")],
)
@pytest.mark.requirement("M-20")
def test_threads_that_ask_at_once_do_not_overspend(guard: str, kind: Kind) -> None:
    approval = GUARDS[guard]()
    results = in_threads(*6 * [lambda: allowed(approval, question(kind))])
    assert sorted(results) == 3 * [False] + 3 * [True]


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
def test_the_roots_that_a_person_sees_are_those_that_are_sent(mode: Any, tmp_path: Path) -> None:
    usual, of_call, later = (tmp_path / name for name in ("client", "call", "later"))
    for folder in (usual, of_call, later):
        folder.mkdir()

    def add_another(_: Question) -> Verdict:
        client.roots.add(later)  # while the person reads
        return Verdict.allow()

    def inside(folder: Path, **options: Any) -> bool:
        result = client.call_tool("count_files", {"path": str(folder)}, **options)
        found: bool = result.raise_for_error().data["inside"]
        return found

    person = Person(add_another)
    approval = Approval(reviewer=person)
    with connect(demo_server(), mode=mode, roots=[usual], approval=approval) as client:
        assert inside(of_call, handlers=Handlers(roots=lambda _: [of_call]))
        client.roots.remove(later)
        assert [inside(later), inside(later)] == [False, True]
    assert [[root.uri for root in asked.roots] for asked in person.asked] == [
        [of_call.as_uri()],
        [usual.as_uri()],
        [usual.as_uri(), later.as_uri()],
    ]


# -- calls of the program --------------------------------------------------------------------

READS = ToolAnnotations(read_only_hint=True)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False)


@pytest.mark.parametrize(
    ("trusted", "annotations", "asks"),
    [
        (True, READS, False),
        *((True, annotations, True) for annotations in (WRITES, None, ToolAnnotations())),
        *((False, annotations, True) for annotations in (READS, WRITES, None)),
    ],
)
@pytest.mark.requirement("M-14", "M-33", "TOOL-01", "TOOL-04")
def test_a_call_is_asked_about_unless_a_trusted_server_says_that_it_only_reads(
    trusted: bool, annotations: ToolAnnotations | None, asks: bool, records: list[AuditRecord]
) -> None:
    person = Person(Verdict.deny())
    approval = Approval(reviewer=person, audit=records.append)

    def call() -> None:
        approval.before_call("look", {"at": SECRET}, annotations, server(trusted=trusted))

    if asks:
        assert denial(call).kind == "tool"
        assert person.asked[0].request == ToolCall("look", {"at": SECRET}, annotations)
    else:
        call()
        assert person.asked == []
    assert [record.by for record in records] == ["person" if asks else "policy"]


@pytest.mark.requirement("M-14")
def test_a_policy_can_deny_a_call_that_only_reads_as_can_the_end_of_what_it_is_made_in() -> None:
    denial(lambda: Approval(DenyAll()).before_call("look", {}, READS, server(trusted=True)))
    asked = question()
    assert asked.context is not None
    asked.context.cancel.cancel()
    approval = Approval(AllowAll())
    denial(lambda: approval.before_call("look", {}, None, server(), context=asked.context))
    approval.before_call("look", {}, None, server())


# -- time and withdrawal ---------------------------------------------------------------------


@pytest.mark.requirement("M-20", "M-19")
def test_what_comes_after_the_time_is_up_is_denied(
    clock: Clock, records: list[AuditRecord]
) -> None:
    def late(_: Question) -> Verdict:
        clock.advance(301)
        return Verdict.allow(remember=True)

    person = Person(late)
    approval = Approval(reviewer=person, audit=records.append)
    error = denial(lambda: approval.review_request(question(timeout=300)))
    assert error.reason is not None
    assert "nobody answered in time" in error.reason
    assert "option human_timeout" in error.reason
    assert [record.by for record in records] == ["timeout"]
    # A late verdict is not remembered.
    person.say = Verdict.deny()
    assert not allowed(approval, question(timeout=300))
    assert len(person.asked) == 2


@pytest.mark.parametrize("ending", ["allows", "denies", "raises"])
def test_a_question_withdrawn_under_review_is_denied_whatever_the_person_says(
    ending: str, records: list[AuditRecord]
) -> None:
    def withdrawn(asked: Question) -> Verdict:
        assert asked.context is not None
        asked.context.cancel.cancel("changed my mind")
        if ending == "raises":
            asked.context.cancel.raise_if_cancelled()
        return Verdict(allowed=ending == "allows", remember=True)

    approval = Approval(reviewer=Person(withdrawn), audit=records.append)
    error = denial(lambda: approval.review_request(question()))
    assert error.reason == "withdrawn"
    assert [record.by for record in records] == ["withdrawn"]


def test_nobody_is_asked_about_a_question_that_is_gone(records: list[AuditRecord]) -> None:
    person = Person(Verdict.allow())
    approval = Approval(reviewer=person, audit=records.append)
    cancel = CancelToken()
    cancel.cancel()
    denial(lambda: approval.review_request(question(cancel=cancel)))
    denial(lambda: approval.review_request(question(timeout=0)))
    assert person.asked == []
    assert [record.by for record in records] == ["withdrawn", "timeout"]


@pytest.mark.requirement("M-19")
def test_the_record_does_not_wait_for_a_person_who_never_comes_back(
    records: list[AuditRecord],
) -> None:
    reached, gate = threading.Event(), threading.Event()

    def stuck(_: Question) -> Verdict:
        reached.set()
        assert gate.wait(PATIENCE)
        return Verdict.allow()

    cancel = CancelToken()
    approval = Approval(reviewer=Person(stuck), audit=records.append)
    went_through = elsewhere(lambda: allowed(approval, question(cancel=cancel)))
    assert reached.wait(PATIENCE)
    cancel.cancel()
    assert [record.by for record in records] == ["withdrawn"]
    gate.set()
    assert went_through.result(PATIENCE) is False
    assert [record.by for record in records] == ["withdrawn"]


def test_a_cancel_after_the_verdict_changes_nothing_and_nothing_of_what_was_asked_is_kept(
    records: list[AuditRecord],
) -> None:
    cancel = CancelToken()
    asked = question(cancel=cancel)
    request = weakref.ref(asked.request)
    policy = AutoApprove(server="files", calls=1, per=60)
    assert allowed(Approval(policy, audit=records.append), asked)
    del asked
    gc.collect()
    assert request() is None
    cancel.cancel()
    assert [record.by for record in records] == ["policy"]


@pytest.mark.requirement("M-19")
def test_a_person_who_thinks_holds_up_no_other_question() -> None:
    meeting = threading.Barrier(2)

    def think(_: Question) -> Verdict:
        meeting.wait(PATIENCE)
        return Verdict.allow()

    approval = Approval(reviewer=Person(think), limit=RateLimit(calls=5, per=60))
    assert in_threads(*2 * [lambda: allowed(approval, question())]) == [True, True]


# -- the record ------------------------------------------------------------------------------


@every_kind
@pytest.mark.requirement("M-17", "SAMP-08")
def test_a_record_says_what_was_decided_and_nothing_that_was_written(
    kind: Kind, records: list[AuditRecord], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    approval = Approval(AllowAll(), audit=records.append)
    before = datetime.now(timezone.utc)
    asked = question(kind)
    approval.review_request(asked)
    (record,) = records
    assert before <= record.time <= datetime.now(timezone.utc)
    assert (record.server, record.kind, record.review) == ("files", kind, "request")
    assert (record.decision, record.by, record.edited) == (Decision.ALLOW, "policy", False)
    assert record.question.startswith(kind)
    denial(lambda: Approval().review_request(asked))
    verdict = Verdict.allow(asked.request, written())
    texts = [repr(record), caplog.text, repr(asked), repr(verdict)]
    assert not any(SECRET in text for text in texts)


def test_a_record_names_numbers_hosts_and_tools() -> None:
    assert "1 message, 0 tools, at most 100 tokens" in question().summary
    assert "1 field" in question("form").summary
    assert "'example.com'" in question("url").summary
    assert "'write', 1 argument" in question("tool").summary
    tool = ToolCall("\x1b[2Jwrite", {}, None)
    assert "\x1b" not in question("tool", request=tool).summary
    for url, host in (
        ("https://[", "unreadable"),
        ("/path", "''"),
        (f"https://{'a' * 90}/", f"'{'a' * 79}"),
    ):
        link = ElicitRequestURLParams(message="", url=url)
        assert question("url", request=link).summary == f"url: host {host}"


def test_a_record_says_which_review_it_was_and_whether_something_was_edited(
    records: list[AuditRecord],
) -> None:
    asked = question()
    person = Person(Verdict.allow())
    approval = Approval(reviewer=person, audit=records.append)
    for person.say in (Verdict.allow(completion(5)), Verdict.allow(asked.request)):
        approval.review_request(asked)
    for person.say in (Verdict.allow(answer=written("other")), Verdict.allow()):
        approval.review_answer(answered(asked))
    assert [(record.review, record.edited) for record in records] == [
        *(("request", True), ("request", False)),
        *(("answer", True), ("answer", False)),
    ]


@pytest.mark.parametrize(("policy", "allows"), [(AllowAll(), True), (DenyAll(), False)])
def test_an_audit_that_fails_is_logged_and_changes_nothing(
    policy: Policy, allows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def audit(record: AuditRecord) -> None:
        raise OSError("disk full")

    assert allowed(Approval(policy, audit=audit), question()) is allows
    assert "disk full" in caplog.text
