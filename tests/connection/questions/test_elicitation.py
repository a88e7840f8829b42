"""Forms: which are asked, what is filled in, and what never leaves."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import syncmcp
from syncmcp import Elicitation, HandlerContext, Mode
from syncmcp.approval import Approval, DenyAll, Question, Verdict
from syncmcp.types import ElicitRequestFormParams, ElicitResult
from tests.connection.questions.asking import (
    ELICITATION,
    FORM,
    SCHEMA,
    URL,
    asked,
    asker,
    asking_server,
    demanded,
    fault,
    person,
    question,
    visitor,
)
from tests.support.people import nobody
from tests.support.scripts import NEW, OLD
from tests.support.stage import Wire, every_wire, rotated, rotated_with

BOTH = pytest.mark.parametrize("revision", [OLD, NEW])
WITH_FORMS = pytest.mark.parametrize("revision", ["2025-06-18", OLD, NEW])


def form(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"message": "Please", "requestedSchema": schema}


@every_wire
@pytest.mark.requirement("ELI-03", "M-06")
def test_a_request_without_a_mode_is_a_form(wire: Wire) -> None:
    requests: list[ElicitRequestFormParams] = []

    def handler(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
        requests.append(request)
        return person(request, context)

    params = {name: value for name, value in FORM.items() if name != "mode"}
    server = asking_server()
    with wire.connect(server, elicitation=Elicitation(handler, nobody)) as client:
        answer = asked(client, ELICITATION, params)["result"]
        assert answer == {"action": "accept", "content": {"name": "Ann", "loud": True}}
    assert requests[0].message == "Who are you?"
    assert requests[0].requested_schema == SCHEMA
    with server.stats as stats:
        assert stats.violations == []


@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.requirement("ELI-03")
def test_without_a_mode_not_even_a_url_makes_a_request_one_to_visit_it(revision: Mode) -> None:
    params = {name: value for name, value in URL.items() if name != "mode"}
    both = Elicitation(nobody, nobody)
    with asker(revision, elicitation=both) as client:
        code, _ = fault(client, ELICITATION, {**params, "elicitationId": "e-1"})
        assert code == -32602


@pytest.mark.parametrize(
    ("given", "params"),
    [
        (Elicitation(form=nobody), URL),
        (Elicitation(url=nobody), FORM),
        (Elicitation(url=nobody), form({})),
        (Elicitation(nobody, nobody), {**FORM, "mode": "voice"}),
        (Elicitation(nobody, nobody), {**FORM, "mode": 7}),
        (Elicitation(nobody, nobody), {**FORM, "mode": ["form"]}),
    ],
)
@pytest.mark.requirement("ELI-04", "ELI-02")
def test_a_mode_that_was_not_declared_is_invalid_params(given: Any, params: Any) -> None:
    with asker(OLD, elicitation=given) as client:
        assert demanded(client, ELICITATION, params)["error"][0] == -32602


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
@pytest.mark.requirement("RPC-19")
def test_a_revision_without_elicitation_has_none_whatever_there_is_a_handler_for(
    revision: Mode,
) -> None:
    with asker(revision, elicitation=nobody) as client:
        assert demanded(client, ELICITATION, FORM)["error"][0] == -32601


def test_a_revision_without_links_refuses_one() -> None:
    both = Elicitation(nobody, nobody)
    with asker("2025-06-18", elicitation=both) as client:
        assert demanded(client, ELICITATION, URL)["error"][0] == -32602


@rotated_with("action", ["decline", "cancel"])
@pytest.mark.requirement("ELI-06", "M-06")
def test_who_declines_or_leaves_sends_no_content(action: Any, wire: Wire) -> None:
    result = ElicitResult(action=action, content={"name": "secret"})
    server = asking_server()
    with wire.connect(server, elicitation=lambda *_: result) as client:
        assert asked(client, ELICITATION, FORM) == {"result": {"action": action}}
    with server.stats as stats:
        assert stats.violations == []


@WITH_FORMS
@pytest.mark.requirement("M-06")
def test_the_no_of_a_policy_is_a_decline(revision: Mode) -> None:
    with asker(revision, elicitation=nobody, approval=DenyAll()) as client:
        assert asked(client, ELICITATION, form({})) == {"result": {"action": "decline"}}


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
@pytest.mark.requirement("ELI-07")
def test_what_a_program_answers_is_read_over_and_changed_before_it_is_sent(revision: Mode) -> None:
    editor = Editor()
    with asker(revision, elicitation=person, approval=Approval(reviewer=editor)) as client:
        answer = asked(client, ELICITATION, question(ELICITATION, revision))["result"]
    assert [seen.content for seen in editor.seen] == [{"name": "Ann", "loud": True}]
    assert answer == {"action": "accept", "content": {"name": "Eve", "loud": False}}


DEFAULTS: dict[str, Any] = {
    "text": {"type": "string", "default": "x"},
    "empty": {"type": "string", "default": ""},
    "number": {"type": "number", "default": 1.5},
    "integer": {"type": "integer", "default": 0},
    "off": {"type": "boolean", "default": False},
    "one": {"type": "string", "enum": ["a", "b"], "default": "b"},
    "titled": {
        "type": "string",
        "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}],
        "default": "a",
    },
    "named": {"type": "string", "enum": ["a"], "enumNames": ["A"], "default": "a"},
    "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
    "several": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "default": []},
}


@rotated
@pytest.mark.requirement("ELI-14", "M-06")
def test_what_an_accepted_answer_leaves_out_gets_the_default_of_its_field(wire: Wire) -> None:
    server = asking_server()
    with wire.connect(server, elicitation=lambda *_: ElicitResult.accept()) as client:
        content = asked(client, ELICITATION, form(DEFAULTS, *DEFAULTS))["result"]["content"]
        assert content == {name: field["default"] for name, field in DEFAULTS.items()}
    with server.stats as stats:
        assert stats.violations == []


@BOTH
@pytest.mark.requirement("ELI-14")
def test_what_was_answered_wins_over_the_default_and_the_rest_stays_out(revision: Mode) -> None:
    fields = {"a": {"type": "string", "default": "x"}, "b": {"type": "integer"}}
    answer = ElicitResult.accept({"a": ""})
    with asker(revision, elicitation=lambda *_: answer) as client:
        assert asked(client, ELICITATION, form(fields))["result"]["content"] == {"a": ""}
    assert answer.content == {"a": ""}


STRICT = form(
    {
        "name": {"type": "string", "minLength": 2, "maxLength": 8},
        "mail": {"type": "string", "format": "email"},
        "age": {"type": "integer", "minimum": 18},
        "half": {"type": "number", "maximum": 0.5},
        "yes": {"type": "boolean"},
        "one": {"type": "string", "enum": ["a", "b"]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 1},
    },
    "name",
)
GOOD: dict[str, Any] = {
    "name": "Ann",
    "mail": "ann@example.org",
    "age": 18,
    "half": 0.5,
    "yes": False,
}
CANARY = "swordfish"
# What fits a field is in `tests/handlers/test_forms.py`.
UNFIT: dict[str, dict[str, Any]] = {
    "a required field is missing": {"age": 20},
    "no address": {**GOOD, "mail": CANARY},
    "no number": {**GOOD, "half": float("nan")},
    "an object": {**GOOD, "name": object()},
    "a text in a list": {**GOOD, "yes": [3, CANARY]},
    "a field that was not asked for": {**GOOD, "password": CANARY},
}


@BOTH
@pytest.mark.parametrize("case", UNFIT)
@pytest.mark.requirement("ELI-14", "M-06")
def test_content_that_does_not_fit_the_form_never_leaves(
    case: str, revision: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    server = asking_server()
    answer = ElicitResult.model_construct(action="accept", content=UNFIT[case])
    told: list[BaseException] = []
    with (
        syncmcp.connect(
            server,
            mode=revision,
            elicitation=lambda *_: answer,
            on_handler_error=lambda error, context: told.append(error),
        ) as client,
        caplog.at_level(logging.ERROR, "syncmcp.handlers"),
    ):
        if revision == OLD:
            code, text, data = asked(client, ELICITATION, STRICT)["error"]
            assert (code, data) == (-32603, None)
            assert CANARY not in text
        else:
            with pytest.raises(syncmcp.InvalidAnswer) as caught:
                asked(client, ELICITATION, STRICT)
            assert caught.value.problems
            assert CANARY not in f"{caught.value} {caught.value.problems}"
    (error,) = told
    assert isinstance(error, syncmcp.InvalidAnswer)
    assert error.method == ELICITATION
    assert error.problems
    assert "does not fit the form" in caplog.text
    assert CANARY not in caplog.text
    with server.stats as stats:
        assert stats.violations == []


@BOTH
def test_content_that_fits_arrives_as_it_was_given(revision: Mode) -> None:
    answer = ElicitResult.accept({**GOOD, "one": "b", "many": ["a"]})
    with asker(revision, elicitation=lambda *_: answer) as client:
        assert asked(client, ELICITATION, STRICT)["result"]["content"] == answer.content


# The rules of forms themselves are in `tests/handlers/test_forms.py`.
OUTSIDE: dict[str, Any] = {
    "nested": form({"address": {"type": "object", "properties": {}}}),
    "no object": {"message": "Please", "requestedSchema": {"type": "array"}},
    "no schema": {"message": "Please"},
    "a schema that is none": {"message": "Please", "requestedSchema": "x"},
    "no message": {"requestedSchema": SCHEMA},
}


@BOTH
@pytest.mark.parametrize("case", OUTSIDE)
@pytest.mark.requirement("M-06")
def test_a_schema_outside_the_subset_is_refused_and_nobody_is_asked(
    case: str, revision: Mode
) -> None:
    handlers = Elicitation(nobody, visitor)
    with asker(revision, elicitation=handlers) as client:
        code, text = fault(client, ELICITATION, OUTSIDE[case])
        assert code == -32602
        assert ("address" if case == "nested" else "") in text
