"""What the server notices when a client breaks the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp.testing import (
    Server,
    ToolContext,
)
from syncmcp.testing.server.wire import REVISIONS
from tests.testing.talks import (
    FORM,
    MODEL,
    ROOTS,
    Talk,
    both_eras,
    text_of,
)
from tests.testing.wires import MODERN, Memory


def _model(**changes: Any) -> dict[str, Any]:
    return {**MODEL, **changes}


TEXT = {"type": "text", "text": "x"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}

BREACHES: list[tuple[str, Any, str]] = [
    ("sampling/createMessage", _model(role="system"), "role is 'system'"),
    ("sampling/createMessage", _model(model=None), "model is not a string"),
    ("sampling/createMessage", _model(stopReason=1), "stopReason is not a string"),
    ("sampling/createMessage", _model(content="x"), "a content block of type None"),
    ("sampling/createMessage", _model(content=[TEXT, USE]), "a content block of type 'tool_use'"),
    ("sampling/createMessage", _model(resultType="complete"), "resultType in an answer"),
    ("elicitation/create", {"action": "yes"}, "action is 'yes'"),
    (
        "elicitation/create",
        {"action": "decline", "content": {"name": "x"}},
        "content that nobody asked for",
    ),
    (
        "elicitation/create",
        {"action": "accept", "content": {}},
        "content: 'name' is a required property",
    ),
    (
        "elicitation/create",
        {"action": "accept", "content": {"name": 1}},
        "content.name: 1 is not of type 'string'",
    ),
    (
        "elicitation/create",
        {"action": "accept", "content": {"name": "x", "mail": "no"}},
        "content.mail: 'no' is not a 'email'",
    ),
    (
        "elicitation/create",
        {"action": "accept", "content": {"name": "x", "unasked": 1}},
        "content: Additional properties are not allowed ('unasked' was unexpected)",
    ),
    ("roots/list", {}, "roots is not an array"),
    ("roots/list", {"roots": [{"uri": "https://x"}]}, "a root with the uri 'https://x'"),
    ("roots/list", {"roots": [{"uri": "file://host/x"}]}, "a root with the uri 'file://host/x'"),
    ("roots/list", ["x"], "the answer is not an object"),
]
MAIL_FORM = {
    **FORM,
    "properties": {"name": {"type": "string"}, "mail": {"type": "string", "format": "email"}},
}
PARAMS: dict[str, Any] = {
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "?", "requestedSchema": MAIL_FORM},
    "roots/list": None,
}


@both_eras
@pytest.mark.parametrize(("method", "answer", "breach"), BREACHES)
def test_a_wrong_answer_is_recorded(
    server: Server, line: Memory, revision: str, method: str, answer: Any, breach: str
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> str:
        context.ask_all({"a": (method, PARAMS[method])})
        return "done"

    client = Talk(line, revision)
    assert text_of(client.tool("ask", answer=lambda *_: answer)) == "done"
    assert server.stats.violations == [f"{method}: {breach}"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_arrays_of_content_came_with_2025_11_25(
    server: Server, line: Memory, revision: str
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> str:
        context.sample("?", max_tokens=1)
        return "done"

    client = Talk(line, revision, {"sampling": {}})
    client.tool("ask", answer=lambda *_: _model(content=[TEXT]))
    known = revision in ("2025-11-25", MODERN)
    expected = f"sampling/createMessage: content is an array, which {revision} does not have"
    assert server.stats.violations == ([] if known else [expected])


@both_eras
def test_a_model_may_ask_for_the_tools_it_was_given(
    server: Server, line: Memory, revision: str
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> Any:
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        return context.sample("?", max_tokens=1, tools=tools, tool_choice={"mode": "auto"})

    client = Talk(line, revision)
    client.tool("ask", answer=lambda *_: _model(content=[USE], stopReason="toolUse"))
    assert client.asked[0][1]["toolChoice"] == {"mode": "auto"}
    assert server.stats.violations == []


def test_answers_nobody_waits_for_are_recorded(server: Server, line: Memory) -> None:
    line.start()
    for number in (7, "1", None):
        line.send({"jsonrpc": "2.0", "id": number, "result": {}})
    assert len(server.stats.violations) == 3
    assert (server.stats.responses, server.stats.late_answers) == (3, 0)


def test_two_answers_to_one_question_are_recorded(server: Server, line: Memory) -> None:
    @server.tool()
    def ask(context: ToolContext) -> int:
        return len(context.list_roots())

    line.start(roots={})
    line.ask("tools/call", {"name": "ask", "arguments": {}})
    answer = {"jsonrpc": "2.0", "id": line.next()["id"], "result": ROOTS}
    line.send(answer)
    line.send(answer)
    assert text_of(line.next()) == "1"
    assert server.stats.violations == [
        f"an answer to request {answer['id']!r}, which does not wait"
    ]


@pytest.mark.parametrize("declared", [True, False])
def test_roots_that_change_unannounced_are_recorded(
    server: Server, line: Memory, declared: bool
) -> None:
    line.start(roots={"listChanged": declared})
    line.notify("notifications/roots/list_changed")
    assert bool(server.stats.violations) is not declared


def test_a_retry_in_a_stateful_revision_is_recorded(server: Server, line: Memory) -> None:
    server.add_tool(lambda: "done", name="plain")
    line.start()
    assert text_of(line.tool("plain", requestState="x")) == "done"
    assert len(server.stats.violations) == 1
