"""Who is asked, and what is put on record, where handlers and reviewers come together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from syncmcp import Elicitation, HandlerContext, Handlers
from syncmcp.approval import Approval, AuditRecord, Decision, Question, Verdict
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
    fault,
    model,
)
from tests.support.people import Interface, Person, nobody, reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import PATIENCE

LINK = {**URL, "elicitationId": "e"}


class Reviewer:
    """A reviewer who says what a function says, and keeps what was asked."""

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
def test_a_model_cannot_call_a_tool_that_no_server_gave_it(
    revision: Any, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.mark.requirement("SAMP-04")
def test_a_reviewer_cannot_grant_more_tokens_than_the_server_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
