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


def _model(**changes: Any) -> tuple[str, dict[str, Any]]:
    return "sampling/createMessage", {**MODEL, **changes}


def _form(action: str, **content: Any) -> tuple[str, dict[str, Any]]:
    return "elicitation/create", {"action": action, "content": content}


TEXT = {"type": "text", "text": "x"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}

BREACHES: list[tuple[tuple[str, Any], str]] = [
    (_model(role="system"), "role is 'system'"),
    (_model(model=None), "model is not a string"),
    (_model(stopReason=1), "stopReason is not a string"),
    (_model(content="x"), "a content block of type None"),
    (_model(content=[TEXT, USE]), "a content block of type 'tool_use'"),
    (_model(resultType="complete"), "resultType in an answer"),
    (("elicitation/create", {"action": "yes"}), "action is 'yes'"),
    (_form("decline", name="x"), "unrequested content"),
    (_form("accept"), "content: 'name' is a required property"),
    (_form("accept", name="x", mail="no"), "content.mail: 'no' is not a 'email'"),
    (
        _form("accept", name="x", unasked=1),
        "content: Additional properties are not allowed ('unasked' was unexpected)",
    ),
    (("roots/list", {}), "roots is not an array"),
    (("roots/list", {"roots": [{"uri": "file://host/x"}]}), "a root with the uri 'file://host/x'"),
    (("roots/list", ["x"]), "the answer is not an object"),
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
@pytest.mark.parametrize(("answer", "breach"), BREACHES)
def test_a_wrong_answer_is_recorded(
    server: Server, line: Memory, revision: str, answer: tuple[str, Any], breach: str
) -> None:
    method, result = answer

    @server.tool()
    def ask(context: ToolContext) -> str:
        context.ask_all({"a": (method, PARAMS[method])})
        return "done"

    client = Talk(line, revision)
    assert text_of(client.tool("ask", answer=lambda *_: result)) == "done"
    assert server.stats.violations == [f"{method}: {breach}"]


@pytest.mark.parametrize("revision", REVISIONS)
def test_arrays_of_content_and_tools_of_a_model_came_with_2025_11_25(
    server: Server, line: Memory, revision: str
) -> None:
    known = revision in ("2025-11-25", MODERN)

    @server.tool()
    def ask(context: ToolContext) -> str:
        context.sample("?", max_tokens=1)
        if known:
            tools = [{"name": "t", "inputSchema": {"type": "object"}}]
            context.sample("?", max_tokens=1, tools=tools, tool_choice={"mode": "auto"})
        return "done"

    def answer(_: str, params: dict[str, Any]) -> Any:
        content = [USE] if "tools" in params else [TEXT]
        return _model(content=content)[1]

    client = Talk(line, revision)
    client.tool("ask", answer=answer)
    expected = f"sampling/createMessage: content is an array, which {revision} does not have"
    assert server.stats.violations == ([] if known else [expected])
    assert [params.get("toolChoice") for _, params in client.asked[1:]] == [
        {"mode": "auto"}
    ] * known


def test_answers_nobody_waits_for_are_recorded(server: Server, line: Memory) -> None:
    @server.tool()
    def ask(context: ToolContext) -> int:
        return len(context.list_roots())

    line.start(roots={})
    for number in (7, "1", None):
        line.send({"jsonrpc": "2.0", "id": number, "result": {}})
    assert len(server.stats.violations) == 3
    assert (server.stats.responses, server.stats.late_answers) == (3, 0)
    # Two to one question, and one of another era.
    line.ask("tools/call", {"name": "ask", "arguments": {}, "requestState": "x"})
    question = line.next()
    line.answer(question, ROOTS)
    line.answer(question, ROOTS)
    assert text_of(line.next()) == "1"
    assert len(server.stats.violations) == 5
    late = f"an answer to request {question['id']!r}, which is not waiting for one"
    assert server.stats.violations[-1] == late


@pytest.mark.parametrize("declared", [True, False])
def test_roots_that_change_unannounced_are_recorded(
    server: Server, line: Memory, declared: bool
) -> None:
    line.start(roots={"listChanged": declared})
    line.notify("notifications/roots/list_changed")
    assert bool(server.stats.violations) is not declared
