"""Ready-made policies alone: which servers they are for, and what a budget is spent on."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from syncmcp.approval import AutoApprove, Decision, Question, Rule, Verdict
from syncmcp.handlers.context import ConnectedServer
from syncmcp.types import ElicitRequestURLParams
from tests.approval.test_approval import completion, form, question, server, written


def by_default() -> ConnectedServer:
    """A server whose default name is the one that the program gave another one."""
    unnamed = copy.copy(server())
    unnamed.identity = dataclasses.replace(unnamed.identity, given_name=None)
    return unnamed


def test_a_verdict_has_what_it_was_made_with() -> None:
    assert Verdict.allow(reason="r", remember=True) == Verdict(True, None, None, "r", True)
    assert Verdict.deny("r", remember=True) == Verdict(False, None, None, "r", True)
    assert [Verdict.allow().remember, Verdict.deny().remember] == [False, False]


@pytest.mark.parametrize(
    ("decision", "fits"), [(Decision.ALLOW, False), (Decision.DENY, True), (Decision.ASK, True)]
)
def test_a_rule_that_allows_is_for_names_that_the_program_gave(
    decision: Decision, fits: bool
) -> None:
    rule = Rule(decision=decision, server="files")
    assert rule.fits(question())
    assert rule.fits(question(of=by_default())) is fits


def test_a_budget_is_for_a_name_that_the_program_gave() -> None:
    policy = AutoApprove(server="files", calls=5, per=60, otherwise=Decision.DENY)
    assert policy.decide(question(of=by_default())) is Decision.DENY


def reason(policy: AutoApprove, asked: Question) -> str | None:
    """Why a policy allows; `None` if it does not."""
    verdict = policy.decide(asked)
    return verdict.reason if isinstance(verdict, Verdict) else None


def test_a_budget_says_why_it_allows_and_spends_tokens_on_models_only() -> None:
    policy = AutoApprove(server="files", calls=3, tokens=1, per=60)
    asked = question(request=completion(1))
    request = form(size={"type": "integer", "default": 3})
    assert [
        reason(policy, question("roots")),
        reason(policy, question("form", request=request)),
        reason(policy, asked),
        reason(policy, dataclasses.replace(asked, answer=written())),
        reason(policy, question("roots")),
    ] == [
        "within the budget",
        "the form's defaults, within the budget",
        "within the budget",
        "the request was within the budget",
        None,
    ]


def test_a_policy_that_was_pickled_has_its_budget() -> None:
    policy = AutoApprove(server="files", calls=2, tokens=10, per=60, otherwise=Decision.DENY)
    again = pickle.loads(pickle.dumps(policy))
    for each in (policy, again):
        assert each.decide(question(request=completion(11))) is Decision.DENY
        assert each.decide(question(of="web")) is Decision.DENY
        assert reason(each, question(request=completion(10))) == "within the budget"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://{'a' * 90}/", f"url: host '{'a' * 79}"),
        ("https://[", "url: host unreadable"),
        ("/path", "url: host ''"),
    ],
    ids=["long", "broken", "none"],
)
def test_the_record_of_a_link_has_its_host(url: str, shown: str) -> None:
    asked = question("url", request=ElicitRequestURLParams(message="go", url=url))
    assert asked.summary == shown
