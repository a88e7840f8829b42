"""Who is asked, and what is put on record, where handlers and reviewers come together."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from syncmcp import Elicitation, HandlerContext, Handlers
from syncmcp.approval import Approval, AuditRecord, Decision, Question, Verdict
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitResult,
    TextContent,
    ToolUseContent,
)
from tests.connection.questions.asking import (
    ELICITATION,
    FORM,
    PROMPT,
    SAMPLING,
    URL,
    asked,
    asker,
    fault,
    model,
)
from tests.support.people import Interface, nobody, reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import PATIENCE

BOTH = pytest.mark.parametrize("revision", [OLD, NEW])
LINK = {**URL, "elicitationId": "e"}


class Gatekeeper:
    """A reviewer who says no and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def review(self, question: Question, /) -> Verdict:
        self.asked.append(question.kind)
        return Verdict.deny()


@pytest.mark.requirement("M-17", "M-18")
@pytest.mark.parametrize("personal", ["form", "url"])
def test_that_a_person_fills_in_forms_says_nothing_of_links(personal: str) -> None:
    theirs = Interface(ElicitResult.accept({"name": "Ann"}))
    one_mode: Any = {personal: getattr(theirs, personal)}
    keeper = Gatekeeper()
    with asker(
        NEW, elicitation=Elicitation(form=nobody, url=nobody), approval=Approval(reviewer=keeper)
    ) as client:
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
    with asker(
        revision, elicitation=Interface(answer), approval=Approval(audit=records.append)
    ) as client:
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
def test_a_model_cannot_call_a_tool_that_no_server_gave_it(
    revision: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def eager(
        request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        use = ToolUseContent(id="u", name="rm", input={})
        return reply().model_copy(update={"content": [TextContent(text="I will"), use]})

    with asker(revision, sampling=eager) as client:
        assert fault(client, SAMPLING, PROMPT)[0] == -32603
    assert "the request has no tools" in caplog.text


@BOTH
@pytest.mark.requirement("M-20")
def test_a_model_that_takes_no_notice_of_being_stopped_is_left_to_itself(revision: Any) -> None:
    go_on, over = threading.Event(), threading.Event()

    def stubborn(
        request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        context.cancel.cancel("stopped by the person who was asked")
        assert go_on.wait(PATIENCE)
        over.set()
        return reply()

    with asker(revision, sampling=stubborn, max_handlers=1) as client:
        # The answer comes while the handler is still at work, and so does the next one's.
        try:
            for _ in range(2):
                assert fault(client, SAMPLING, PROMPT) == (-1, "the answer was stopped")
            assert not over.is_set()
        finally:
            go_on.set()
        assert over.wait(PATIENCE)
        client.set_sampling(model)
        assert asked(client, SAMPLING, PROMPT)["result"]["model"] == "double"


class Spendthrift:
    """A reviewer who grants the model more than the server asked for."""

    def review(self, question: Question, /) -> Verdict:
        if question.answer is not None:
            return Verdict.allow()
        assert isinstance(question.request, CreateMessageRequestParams)
        more = question.request.max_tokens + 1
        return Verdict.allow(question.request.model_copy(update={"max_tokens": more}))


@pytest.mark.requirement("SAMP-04")
def test_a_reviewer_cannot_grant_more_tokens_than_the_server_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    granted: list[int] = []

    def count(
        request: CreateMessageRequestParams, context: HandlerContext, /
    ) -> CreateMessageResult:
        granted.append(request.max_tokens)
        return reply()

    with asker(NEW, sampling=count, approval=Approval(reviewer=Spendthrift())) as client:
        asked(client, SAMPLING, PROMPT)
    assert granted == [PROMPT["maxTokens"]]
    [record] = [each for each in caplog.records if each.name == "syncmcp.handlers"]
    assert f"asked for {PROMPT['maxTokens']}" in record.getMessage()
