"""What people and models write to each other stays out of the log, whatever becomes of it."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest

import syncmcp
from syncmcp import Refused
from syncmcp.approval import AllowAll, Approval, DenyAll, Question, Verdict
from syncmcp.types import CreateMessageRequestParams, CreateMessageResult, ElicitResult
from tests.connection.questions.asking import ELICITATION, FORM, SAMPLING, asking_server
from tests.support.people import reply
from tests.support.stage import PATIENCE, Wire, rotated_with

CANARY = "canary-5b1e0d"

PROMPT: dict[str, Any] = {
    "systemPrompt": f"{CANARY}-system",
    "messages": [
        {"role": "user", "content": {"type": "text", "text": f"{CANARY}-prompt"}},
        {"role": "assistant", "content": {"type": "text", "text": f"{CANARY}-turn"}},
    ],
    "metadata": {"note": f"{CANARY}-metadata"},
    "maxTokens": 10,
}
ASKED = {**FORM, "message": f"{CANARY}-form"}


class Impatient:
    """A reviewer who wants longer answers than the server, and writes others than the model."""

    asks_person = True

    def review(self, question: Question, /) -> Verdict:
        if isinstance(question.request, CreateMessageRequestParams) and question.answer is None:
            longer = question.request.model_copy(update={"max_tokens": 99})
            return Verdict.allow(longer)
        return Verdict.allow(answer=reply(f"{CANARY}-edited"))


def refuse(*_: Any) -> Any:
    raise Refused(-1, "no", {"why": f"{CANARY}-reason"})


def dawdle(request: Any, context: Any) -> Any:
    assert context.cancel.wait(PATIENCE)
    return reply(f"{CANARY}-late")


def saying(content: Any) -> CreateMessageResult:
    answer = {"role": "assistant", "model": "double", "content": content}
    return CreateMessageResult.from_wire(answer)


TEXT = {"type": "text", "text": f"{CANARY}-text"}
USE = {"type": "tool_use", "id": "u", "name": f"{CANARY}-tool", "input": {"a": CANARY}}

SPOKEN: dict[str, Any] = {"sampling": lambda *_: saying(TEXT)}
MODELS: dict[str, dict[str, Any]] = {
    "answers": SPOKEN,
    "answers in a list": {"sampling": lambda *_: saying([TEXT, TEXT])},
    "wants a tool": {"sampling": lambda *_: saying(USE)},
    "returns a dict": {"sampling": lambda *_: {"role": "assistant", "content": CANARY}},
    "returns text": {"sampling": lambda *_: f"{CANARY}-answer"},
    "refuses": {"sampling": refuse},
    "is allowed": {**SPOKEN, "approval": AllowAll()},
    "is denied": {**SPOKEN, "approval": DenyAll()},
    "is judged by nobody": {**SPOKEN, "approval": Approval()},
    "is edited": {**SPOKEN, "approval": Approval(reviewer=Impatient())},
    "is slow": {"sampling": dawdle, "human_timeout": 0.05},
}


def filling(content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"elicitation": lambda *_: ElicitResult.accept(content), **more}


PEOPLE: dict[str, dict[str, Any]] = {
    "answers": filling({"name": f"{CANARY}-name"}),
    "answers something else": filling({"name": 7, "loud": f"{CANARY}-loud"}),
    "answers too much": filling({"name": "x", "more": f"{CANARY}-more"}),
    "returns a dict": {"elicitation": lambda *_: {"action": "accept", "content": CANARY}},
    "declines": {"elicitation": lambda *_: ElicitResult.decline()},
    "is allowed": filling({"name": CANARY}, approval=AllowAll()),
    "is denied": filling({"name": CANARY}, approval=DenyAll()),
}

CASES = {
    **{f"model {case}": (SAMPLING, PROMPT, given) for case, given in MODELS.items()},
    **{f"person {case}": (ELICITATION, ASKED, given) for case, given in PEOPLE.items()},
    "tools": (SAMPLING, {**PROMPT, "tools": [{"name": CANARY}]}, MODELS["answers"]),
    "no limit": (SAMPLING, {**PROMPT, "maxTokens": CANARY}, MODELS["answers"]),
    "no form": (ELICITATION, {**ASKED, "requestedSchema": {"type": CANARY}}, PEOPLE["answers"]),
}


@rotated_with("method, params, options", CASES)
@pytest.mark.requirement("SAMP-08", "M-17")
def test_neither_what_is_asked_nor_what_is_answered_is_logged_above_debug(
    method: str, params: Any, options: Any, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "syncmcp")
    question = {"method": method, "params": params}
    with wire.connect(asking_server(), **options) as client:
        for call in (client.call_tool, lambda *given: client.call_tool.future(*given).result(10)):
            with suppress(syncmcp.McpError):  # in the stateless era a refusal ends the call
                call("ask", question)
    # It did come here: at DEBUG the beginning of each frame is seen.
    assert CANARY in caplog.text
    formatter = logging.Formatter("%(levelname)s %(name)s %(message)s")
    above = [formatter.format(record) for record in caplog.records if record.levelno > 10]
    assert not [text for text in above if CANARY in text]
