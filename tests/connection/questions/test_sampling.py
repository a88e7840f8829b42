"""Sampling: which requests reach the handler, which answers reach the server, and refusals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import Elicitation, HandlerContext, Handlers, Mode, Refused, Sampling
from syncmcp.approval import Approval, AuditRecord, Decision, DenyAll, Question, Verdict
from syncmcp.types import (
    CreateMessageResult,
    ElicitResult,
    TextContent,
    ToolUseContent,
)
from tests.connection.questions.asking import (
    BOTH,
    ELICITATION,
    FORM,
    PROMPT,
    SAMPLING,
    URL,
    asked,
    asker,
    asking_server,
    demanded,
    fault,
    model,
    saying,
    through,
)
from tests.support.people import Interface, Person, nobody, reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import PATIENCE, Wire, rotated, rotated_stateful

TOOL = {"name": "sum", "inputSchema": {"type": "object"}}
USES: list[dict[str, Any]] = [
    {"type": "tool_use", "id": "a", "name": "sum", "input": {"x": 1}},
    {"type": "tool_use", "id": "b", "name": "sum", "input": {}, "_meta": {"k": 1}},
]
RESULTS: list[dict[str, Any]] = [
    {"type": "tool_result", "toolUseId": "b", "content": [{"type": "text", "text": "2"}]},
    {"type": "tool_result", "toolUseId": "a", "content": [], "isError": True},
]
FULL: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "1+1?", "_meta": {"k": "v"}}]},
        {"role": "assistant", "content": USES},
        {"role": "user", "content": RESULTS},
    ],
    "modelPreferences": {
        "hints": [{"name": "first"}, {"name": "second"}],
        "costPriority": 0.1,
        "speedPriority": 0.5,
        "intelligencePriority": 1,
    },
    "systemPrompt": "Be brief.",
    "includeContext": "thisServer",
    "temperature": 0.7,
    "maxTokens": 42,
    "stopSequences": ["END", ""],
    "metadata": {"vendor": {"x": [1]}},
    "tools": [TOOL],
    "toolChoice": {"mode": "required"},
}
SPEECH = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "let me see"},
        {"type": "tool_use", "id": "u", "name": "sum", "input": {"x": [1]}, "_meta": {"m": 1}},
    ],
    "model": "double-1",
    "stopReason": "toolUse",
    "_meta": {"acme.example/k": "v"},
}


@rotated
@pytest.mark.requirement("M-04", "SAMP-01", "SAMP-04")
def test_every_parameter_and_every_part_of_the_answer_arrives(wire: Wire) -> None:
    speaks = Person(CreateMessageResult.from_wire(SPEECH))
    server = asking_server()
    with wire.connect(server, sampling=Sampling(speaks, tools=True, context=True)) as client:
        assert asked(client, SAMPLING, FULL) == {"result": SPEECH}
    (request,) = speaks.requests
    got = request.to_wire()
    got.pop("_meta", None)
    assert (got, request.max_tokens) == (FULL, 42)
    assert [hint.name for hint in request.model_preferences.hints] == ["first", "second"]
    assert server.stats.violations == []


@pytest.mark.parametrize(
    ("revision", "handler"),
    [("2025-06-18", nobody), ("2025-06-18", Sampling(nobody, tools=True)), (OLD, nobody)],
)
@pytest.mark.requirement("SAMP-02", "M-04")
def test_tools_that_were_not_declared_are_invalid_params(revision: Mode, handler: Any) -> None:
    changes: list[dict[str, Any]]
    changes = [{"tools": [TOOL]}, {"tools": []}, {"tools": None}, {"toolChoice": {"mode": "auto"}}]
    with asker(revision, sampling=handler) as client:
        for tools in changes:
            assert demanded(client, SAMPLING, {**PROMPT, **tools})["error"][0] == -32602


# For the rules of conversations, see `tests/protocol/test_conversation.py`.
BAD: list[dict[str, Any]] = [
    {"messages": PROMPT["messages"]},
    {"messages": "sesame", "maxTokens": 1},
    {**PROMPT, "maxTokens": "sesame"},
    # Uses of tools without results.
    {**PROMPT, "messages": FULL["messages"][:2], "tools": [TOOL]},
]


@BOTH
@pytest.mark.requirement("SAMP-05", "SAMP-06", "SAMP-08", "SAMP-09")
def test_a_request_that_makes_no_sense_is_refused_without_its_own_words(revision: Mode) -> None:
    with asker(revision, sampling=Sampling(nobody, tools=True)) as client:
        for params in BAD:
            code, text = fault(client, SAMPLING, params)
            assert code == -32602
            assert "sesame" not in text


@rotated
@pytest.mark.requirement("SAMP-06")
def test_a_refusal_reaches_the_server_unchanged_or_ends_the_call(wire: Wire) -> None:
    refuse = Person(Refused(-1, "User rejected", {"why": ["mood"]}))
    with wire.connect(asking_server(), sampling=refuse) as client:
        if wire.revision == OLD:
            error = asked(client, SAMPLING, PROMPT)["error"]
            assert error == [-1, "User rejected", {"why": ["mood"]}]
            return
        for way in ("blocking", "future"):
            with pytest.raises(Refused) as caught:
                through(client, way, "ask", {"method": SAMPLING, "params": PROMPT})
            error = caught.value
            assert (error.code, error.message) == (-1, "User rejected")
            assert (error.data, error.method) == ({"why": ["mood"]}, "tools/call")


@rotated_stateful.with_rows(
    "data", {"object": object(), "nan": {"why": [float("nan")]}, "text": "\ud800"}
)
@pytest.mark.requirement("SAMP-06", "SAMP-08")
def test_a_refusal_has_to_be_json(data: Any, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    refuse = Person(Refused(7, "no", data))
    with (
        caplog.at_level(logging.ERROR, "syncmcp"),
        wire.connect(asking_server(), sampling=refuse) as client,
    ):
        code, text, more = asked(client, SAMPLING, PROMPT)["error"]
        assert (code, more) == (-32603, None)
        assert text != "no"
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
    assert any("JSON" in record.getMessage() for record in caplog.records)


@pytest.mark.requirement("SAMP-06")
def test_the_no_of_a_policy_is_minus_one_without_its_reason() -> None:
    with asker(OLD, sampling=nobody, approval=DenyAll()) as client:
        code, text, data = asked(client, SAMPLING, PROMPT)["error"]
        assert (code, data) == (-1, None)
        assert "policy" not in text


# For the rules, see `tests/protocol/test_conversation.py`. Content that an older revision does not
# have is not sent (`None`).
BLOCK: dict[str, Any] = {"type": "text", "text": "alone", "annotations": {"priority": 1}}
SPOKEN: list[tuple[Mode, Any, Any]] = [
    ("2024-11-05", {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}, None),
    ("2025-06-18", [BLOCK], BLOCK),
    *((revision, [BLOCK], [BLOCK]) for revision in (OLD, NEW)),
]


@pytest.mark.parametrize(("revision", "content", "sent"), SPOKEN)
@pytest.mark.requirement("SAMP-07")
def test_older_revisions_get_content_they_have(revision: Mode, content: Any, sent: Any) -> None:
    server = asking_server()
    with syncmcp.connect(server, mode=revision, sampling=lambda *_: saying(content)) as client:
        answer = asked(client, SAMPLING, PROMPT)
        if sent is None:
            assert answer["error"][0] == -32603
        else:
            assert answer["result"]["content"] == sent
    assert server.stats.violations == []


LINK = {**URL, "elicitationId": "e"}


class Reviewer:
    """A reviewer who decides by a function, and notes the kinds of questions."""

    def __init__(self, decide: Callable[[Question], Verdict]) -> None:
        self.asked, self._decide = list[str](), decide

    def review(self, question: Question, /) -> Verdict:
        self.asked.append(question.kind)
        return self._decide(question)


@pytest.mark.requirement("M-17", "M-18")
@pytest.mark.parametrize("personal", ["form", "url"])
def test_that_a_person_fills_in_forms_says_nothing_of_links(personal: str) -> None:
    theirs = Interface(ElicitResult.accept({"name": "Ann"}))
    one_mode: Any = {personal: getattr(theirs, personal)}
    keeper = Reviewer(lambda question: Verdict.deny())
    nobodys, approval = Elicitation(form=nobody, url=nobody), Approval(reviewer=keeper)
    with asker(NEW, elicitation=nobodys, approval=approval) as client:
        for_this_call = Handlers(elicitation=Elicitation(**one_mode, asks_person=True))
        form = asked(client, ELICITATION, FORM, handlers=for_this_call)["result"]
        link = asked(client, ELICITATION, URL, handlers=for_this_call)["result"]
    assert (form["action"], link["action"]) == (
        ("accept", "decline") if personal == "form" else ("decline", "accept")
    )
    assert keeper.asked == [{"form": "url", "url": "form"}[personal]]


@BOTH
@pytest.mark.requirement("M-17", "M-19")
@pytest.mark.parametrize("answer", [ElicitResult.accept({"name": "Ann"}), ElicitResult.decline()])
def test_what_a_person_answers_directly_is_on_record(revision: Any, answer: ElicitResult) -> None:
    records: list[AuditRecord] = []
    approval = Approval(audit=records.append)
    with asker(revision, elicitation=Interface(answer), approval=approval) as client:
        for params in (FORM, LINK if revision == OLD else URL):
            assert asked(client, ELICITATION, params)["result"]["action"] == answer.action
    verdict = Decision.ALLOW if answer.action == "accept" else Decision.DENY
    assert [(each.kind, each.review, each.by, each.decision) for each in records] == [
        ("form", "request", "policy", Decision.ALLOW),
        ("form", "answer", "person", verdict),
        ("url", "request", "policy", Decision.ALLOW),
        ("url", "answer", "person", verdict),
    ]


@BOTH
@pytest.mark.requirement("M-04", "SAMP-07", "SAMP-09")
def test_a_model_cannot_call_unknown_tools(revision: Any, caplog: pytest.LogCaptureFixture) -> None:
    use = ToolUseContent(id="u", name="rm", input={})
    eager = reply().model_copy(update={"content": [TextContent(text="I will"), use]})
    with asker(revision, sampling=Person(eager)) as client:
        assert fault(client, SAMPLING, PROMPT)[0] == -32603
    assert "the request has no tools" in caplog.text


@BOTH
@pytest.mark.requirement("M-20")
def test_a_model_that_takes_no_notice_of_being_stopped_is_left_to_itself(revision: Any) -> None:
    go_on, over = threading.Event(), threading.Event()

    def stubborn(request: Any, context: HandlerContext, /) -> CreateMessageResult:
        context.cancel.cancel("stopped by the person who was asked")
        assert go_on.wait(PATIENCE)
        over.set()
        return reply()

    with asker(revision, sampling=stubborn, max_handlers=1) as client:
        # The answer is sent while the handler is still running, also for the next handler.
        try:
            for _ in range(2):
                assert fault(client, SAMPLING, PROMPT) == (-1, "the answer was stopped")
            assert not over.is_set()
        finally:
            go_on.set()
        assert over.wait(PATIENCE)
        client.set_sampling(model)
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"


@pytest.mark.requirement("SAMP-04")
def test_a_reviewer_cannot_grant_more_tokens_than_asked(caplog: pytest.LogCaptureFixture) -> None:
    def more(question: Question) -> Verdict:
        if question.answer is not None:
            return Verdict.allow()
        wish: Any = question.request
        return Verdict.allow(wish.model_copy(update={"max_tokens": wish.max_tokens + 1}))

    model = Person()
    with asker(NEW, sampling=model, approval=Approval(reviewer=Reviewer(more))) as client:
        asked(client, SAMPLING, PROMPT)
    assert [request.max_tokens for request in model.requests] == [PROMPT["maxTokens"]]
    [record] = [each for each in caplog.records if each.name == "syncmcp.handlers"]
    assert f"the server's limit of {PROMPT['maxTokens']} applies" in record.getMessage()
