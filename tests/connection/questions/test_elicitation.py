"""Forms: which are asked, what is filled in, and what never leaves."""

from __future__ import annotations

from typing import Any

import pytest

import syncmcp
from syncmcp import Elicitation, Mode
from syncmcp.approval import Approval, DenyAll, Question, Verdict
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import (
    BOTH,
    ELICITATION,
    FORM,
    SCHEMA,
    URL,
    asked,
    asker,
    asking_server,
    fault,
    person,
    question,
    visitor,
)
from tests.support.people import Person, nobody
from tests.support.scripts import NEW, OLD
from tests.support.stage import Wire, rotated, rotated_with

WITH_FORMS = pytest.mark.parametrize("revision", ["2025-06-18", OLD, NEW])


def form(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"message": "Please", "requestedSchema": schema}


def without_mode(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "mode"}


@rotated
@pytest.mark.requirement("ELI-03", "M-06")
def test_a_request_without_a_mode_is_a_form(wire: Wire) -> None:
    server, ann = asking_server(), Person()
    with wire.connect(server, elicitation=Elicitation(ann, nobody)) as client:
        answer = asked(client, ELICITATION, without_mode(FORM))["result"]
        assert answer == {"action": "accept", "content": {"name": "Ann", "loud": True}}
    (request,) = ann.requests
    assert (request.message, request.requested_schema) == ("Who are you?", SCHEMA)
    with server.stats as stats:
        assert stats.violations == []


EITHER = Elicitation(nobody, nobody)
LINK_WITHOUT_MODE = without_mode({**URL, "elicitationId": "e-1"})


@pytest.mark.parametrize(
    ("revision", "given", "params", "expected"),
    [
        ("2024-11-05", nobody, FORM, -32601),
        ("2025-03-26", nobody, FORM, -32601),
        ("2025-06-18", EITHER, URL, -32602),  # it has no links
        # Not even a URL makes a request one to visit it.
        (OLD, EITHER, LINK_WITHOUT_MODE, -32602),
        (NEW, EITHER, LINK_WITHOUT_MODE, -32602),
        (OLD, Elicitation(form=nobody), URL, -32602),
        (OLD, Elicitation(url=nobody), FORM, -32602),
        (OLD, Elicitation(url=nobody), form({}), -32602),
        *((OLD, EITHER, {**FORM, "mode": mode}, -32602) for mode in ("voice", 7, ["form"])),
    ],
)
@pytest.mark.requirement("ELI-02", "ELI-03", "ELI-04", "RPC-19")
def test_what_the_revision_lacks_or_nobody_declared_is_an_error(
    revision: Mode, given: Any, params: Any, expected: int
) -> None:
    with asker(revision, elicitation=given) as client:
        assert fault(client, ELICITATION, params)[0] == expected


@rotated_with("action", ["decline", "cancel"])
@pytest.mark.requirement("ELI-06", "M-06")
def test_who_declines_or_leaves_sends_no_content(action: Any, wire: Wire) -> None:
    result = ElicitResult(action=action, content={"name": "secret"})
    server = asking_server()
    with wire.connect(server, elicitation=lambda *_: result) as client:
        assert asked(client, ELICITATION, FORM) == {"result": {"action": action}}
    with server.stats as stats:
        assert stats.violations == []


class Editor:
    """Lets a program answer, and puts the name in the answer right."""

    def __init__(self) -> None:
        self.seen: list[ElicitResult] = []

    def review(self, question: Question, /) -> Verdict:
        if not isinstance(question.answer, ElicitResult):
            return Verdict.allow()
        self.seen.append(question.answer)
        return Verdict.allow(answer=ElicitResult.accept({"name": "Eve", "loud": False}))


@WITH_FORMS
@pytest.mark.requirement("ELI-07", "M-06")
def test_a_reviewer_may_change_an_answer_and_the_no_of_a_policy_is_a_decline(
    revision: Mode,
) -> None:
    editor = Editor()
    with asker(revision, elicitation=person, approval=Approval(reviewer=editor)) as client:
        answer = asked(client, ELICITATION, question(ELICITATION, revision))["result"]
    assert [seen.content for seen in editor.seen] == [{"name": "Ann", "loud": True}]
    assert answer == {"action": "accept", "content": {"name": "Eve", "loud": False}}
    with asker(revision, elicitation=nobody, approval=DenyAll()) as client:
        assert asked(client, ELICITATION, form({})) == {"result": {"action": "decline"}}


STRICT = form(
    {
        "name": {"type": "string", "minLength": 2, "maxLength": 8},
        "mail": {"type": "string", "format": "email"},
        "half": {"type": "number", "maximum": 0.5},
        "yes": {"type": "boolean"},
        "many": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["a"]},
        "bare": {"type": "integer"},
    },
    "name",
    "many",
)
GOOD: dict[str, Any] = {"name": "Ann", "mail": "ann@example.org", "half": 0.5, "yes": False}


@rotated
@pytest.mark.requirement("ELI-14", "M-06")
def test_content_that_fits_arrives_as_it_was_given_with_the_defaults_of_what_it_leaves_out(
    wire: Wire,
) -> None:
    answer = ElicitResult.accept(GOOD)
    server = asking_server()
    with wire.connect(server, elicitation=lambda *_: answer) as client:
        content = asked(client, ELICITATION, STRICT)["result"]["content"]
        assert content == {**GOOD, "many": ["a"]}
    assert answer.content == GOOD
    with server.stats as stats:
        assert stats.violations == []


CANARY = "swordfish"
# What fits a field is in `tests/handlers/test_forms.py`.
UNFIT: dict[str, dict[str, Any]] = {
    "a required field is missing": {"half": 0.1},
    "no address": {**GOOD, "mail": CANARY},
    "no number": {**GOOD, "half": float("nan")},
    "an object": {**GOOD, "name": object()},
    "a field that was not asked for": {**GOOD, "password": CANARY},
}


@BOTH
@pytest.mark.parametrize("case", UNFIT)
@pytest.mark.requirement("ELI-14", "M-06")
def test_content_that_does_not_fit_the_form_never_leaves(
    case: str, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    answer = ElicitResult.model_construct(action="accept", content=UNFIT[case])
    with asker(revision, elicitation=lambda *_: answer) as client:
        if revision == OLD:
            error = asked(client, ELICITATION, STRICT)["error"]
            assert error == [-32603, "the client failed to answer", None]
        else:
            with pytest.raises(syncmcp.InvalidAnswer) as caught:
                asked(client, ELICITATION, STRICT)
            assert CANARY not in f"{caught.value} {caught.value.problems}"
    assert "does not fit the form" in caplog.text
    assert CANARY not in caplog.text


# The rules of forms themselves are in `tests/handlers/test_forms.py`.
OUTSIDE: dict[str, Any] = {
    "nested": form({"address": {"type": "object", "properties": {}}}),
    "no object": {"message": "Please", "requestedSchema": {"type": "array"}},
    "no schema": {"message": "Please"},
    "no message": {"requestedSchema": SCHEMA},
}


@BOTH
@pytest.mark.requirement("M-06")
def test_a_schema_outside_the_subset_is_refused_and_nobody_is_asked(revision: Mode) -> None:
    with asker(revision, elicitation=Elicitation(nobody, visitor)) as client:
        for case, params in OUTSIDE.items():
            code, text = fault(client, ELICITATION, params)
            assert code == -32602
            assert ("address" if case == "nested" else "") in text
