"""How a handler's questions reach the client, and how they end."""

from __future__ import annotations

import json
import queue
from typing import Any

import pytest

from syncmcp.testing import (
    Question,
    RpcError,
    Server,
    ToolContext,
    UrlElicitationRequired,
    Withdrawn,
)
from tests.support.stage import in_threads
from tests.testing.talks import (
    ACCEPT,
    FORM,
    MODEL,
    NEWEST_STATEFUL,
    ROOTS,
    Open,
    Refusal,
    Talk,
    both_eras,
    reply,
    text_of,
)
from tests.testing.wires import MODERN, PATIENCE, Memory

# Several questions


@both_eras
def test_questions_travel_together_from_threads_prompts_and_resources(
    server: Server, talk: Open, revision: str
) -> None:
    @server.tool()
    def survey(context: ToolContext) -> Any:
        found = context.ask_all(
            {
                "form": ("elicitation/create", {"message": "Who?", "requestedSchema": FORM}),
                "model": ("sampling/createMessage", {"messages": [], "maxTokens": 5}),
                "roots": ("roots/list", None),
            }
        )
        return list(found.items())

    @server.tool()
    def crowd(context: ToolContext) -> int:
        return in_threads(*[context.list_roots] * 4).count(ROOTS["roots"])

    @server.prompt()
    def hello(context: ToolContext) -> str:
        return str(context.elicit("Who?", FORM)["content"]["name"])

    @server.resource("test://roots")
    def roots(context: ToolContext) -> str:
        return str(context.list_roots()[0]["uri"])

    client = talk(revision)
    expected = [["form", ACCEPT], ["model", MODEL], ["roots", ROOTS]]
    assert json.loads(text_of(client.tool("survey", answer=reply))) == expected
    assert client.rounds == (revision == MODERN)
    assert text_of(client.tool("crowd", answer=reply)) == "4"
    assert len(client.asked) == 7
    got = client.call("prompts/get", {"name": "hello"}, reply)["result"]
    assert got["messages"][0]["content"]["text"] == "Ada"
    read = client.call("resources/read", {"uri": "test://roots"}, reply)["result"]
    assert read["contents"][0]["text"] == "file:///tmp"
    assert server.stats.violations == []


def test_requests_side_by_side_are_all_sent_and_one_refusal_withdraws_the_others(
    server: Server, line: Memory
) -> None:
    @server.tool()
    def both(context: ToolContext) -> str:
        found = context.ask_all({"a": ("roots/list", None), "b": ("roots/list", {})})
        return ",".join(found)

    line.start(roots={})
    number = line.ask("tools/call", {"name": "both"})
    first, second = line.next(), line.next()
    for question in (second, first):
        line.answer(question, ROOTS)
    answer = line.next()
    assert (answer["id"], text_of(answer)) == (number, "a,b")

    line.ask("tools/call", {"name": "both"})
    first, second = line.next(), line.next()
    error = {"code": -1, "message": "no"}
    line.send({"jsonrpc": "2.0", "id": first["id"], "error": error})
    withdrawal = line.next()
    assert withdrawal["method"] == "notifications/cancelled"
    assert withdrawal["params"]["requestId"] == second["id"]
    assert line.next()["error"] == error


# What a tool can know first


@pytest.mark.requirement("M-08", "M-22")
@pytest.mark.parametrize(
    ("revision", "capabilities", "features"),
    [
        (NEWEST_STATEFUL, {"elicitation": {}}, {"elicitation", "elicitation.form"}),
        (MODERN, {"elicitation": {"url": {}}}, {"elicitation", "elicitation.url"}),
        ("2025-06-18", {"elicitation": {"url": {}}}, {"elicitation", "elicitation.form"}),
        ("2025-03-26", {"elicitation": {}}, set()),
        ("2025-06-18", {"sampling": {"tools": {}}}, {"sampling"}),
        (MODERN, {"sampling": {"tools": {}}}, {"sampling", "sampling.tools"}),
        (MODERN, {"sampling": {"context": {}}}, {"sampling", "sampling.context"}),
        ("2024-11-05", {"roots": {"listChanged": True}}, {"roots", "roots.listChanged"}),
    ],
)
def test_a_tool_can_tell_what_it_may_ask(
    server: Server, line: Memory, revision: str, capabilities: Any, features: set[str]
) -> None:
    asked = ["elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools"]
    asked += ["sampling.context", "roots", "roots.listChanged"]

    @server.tool()
    def look(context: ToolContext) -> str:
        return " ".join(feature for feature in asked if context.can(feature))

    client = Talk(line, revision, capabilities)
    assert set(text_of(client.tool("look")).split()) == features


@pytest.mark.parametrize(
    ("method", "params", "capabilities", "feature"),
    [
        ("sampling/createMessage", {}, {"roots": {}}, "sampling"),
        ("sampling/createMessage", {"tools": []}, {"sampling": {}}, "sampling.tools"),
        ("sampling/createMessage", {"toolChoice": {}}, {"sampling": {}}, "sampling.tools"),
        (
            "sampling/createMessage",
            {"includeContext": "thisServer"},
            {"sampling": {}},
            "sampling.context",
        ),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {}}, "elicitation.url"),
        ("elicitation/create", {}, {"elicitation": {"url": {}}}, "elicitation.form"),
    ],
)
def test_no_more_is_asked_than_was_declared(
    server: Server, line: Memory, method: str, params: Any, capabilities: Any, feature: str
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> str:
        context.ask_all({"a": (method, params)})
        return "never"

    for revision in (MODERN, NEWEST_STATEFUL):
        client = Talk(line, revision, capabilities)
        error = client.tool("ask")["error"]
        why = (
            ": it needs a handler, sampling="
            if revision != MODERN and feature == "sampling"
            else ""
        )
        assert error["message"] == f"The client did not declare {feature}{why}"
        assert client.asked == []
    assert server.stats.questions == {}


# Answers that are none


def test_an_unanswered_question_is_withdrawn_and_its_late_answer_dropped(
    server: Server, line: Memory
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> str:
        context.sample("?", max_tokens=1, timeout=0.01)
        return "never"

    line.start(sampling={})
    line.ask("tools/call", {"name": "ask", "arguments": {}})
    question, withdrawal, answer = line.next(), line.next(), line.next()
    assert withdrawal["params"]["requestId"] == question["id"]
    assert answer["result"]["isError"]
    assert "did not answer" in text_of(answer)
    line.send({"jsonrpc": "2.0", "id": question["id"], "result": MODEL})
    assert (server.stats.late_answers, server.stats.violations) == (1, [])


def test_a_tool_can_request_and_withdraw_where_a_server_can(server: Server, talk: Open) -> None:
    asked: queue.SimpleQueue[Question] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> str:
        question = context.ask("roots/list")
        asked.put(question)
        try:
            question.result()
        except Withdrawn as withdrawn:
            return f"{withdrawn}; again: {question.cancel()}"
        return "never"

    @server.tool()
    def request(context: ToolContext) -> str:
        try:
            return str(context.request("roots/list", timeout=PATIENCE) == ROOTS)
        except RpcError as error:
            return f"went on after {error}"

    def withdraw(method: str, params: Any) -> Any:
        assert asked.get(timeout=PATIENCE).cancel("changed my mind")
        return ROOTS

    def refuse(method: str, params: Any) -> Any:
        raise Refusal(-1)

    client = talk(NEWEST_STATEFUL)
    assert text_of(client.tool("request", answer=reply)) == "True"
    assert text_of(client.tool("request", answer=refuse)) == "went on after no (-1)"
    assert text_of(client.tool("ask", answer=withdraw)) == "changed my mind; again: False"
    [note] = client.notes
    assert note["method"] == "notifications/cancelled"
    assert note["params"]["reason"] == "changed my mind"
    assert (server.stats.late_answers, server.stats.violations) == (1, [])
    # 2026-07-28 has no requests of servers.
    client = talk(MODERN)
    assert client.tool("ask")["error"]["code"] == -32603
    assert text_of(client.tool("request")).endswith("(-32603)")


@pytest.mark.parametrize("what", ["call", "session"])
def test_questions_end_with_the_call_that_asked_them(
    server: Server, line: Memory, what: str
) -> None:
    ended: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> None:
        for _ in range(2):  # Once while it waits, once when it has ended already.
            try:
                context.list_roots()
            except (Withdrawn, ConnectionError) as error:
                ended.put(error)

    line.start(roots={})
    number = line.ask("tools/call", {"name": "ask", "arguments": {}})
    question = line.next()
    if what == "session":
        line.close()
    else:
        line.notify("notifications/cancelled", {"requestId": number})
        assert line.next()["params"]["requestId"] == question["id"]
    assert [str(ended.get(timeout=PATIENCE)) for _ in range(2)] == [f"the {what} has ended"] * 2
    assert server.stats.questions == {"roots/list": 1}
    assert line.frames.empty()


def test_a_call_may_end_while_its_question_is_on_its_way(server: Server) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> None:
        try:
            context.list_roots()
        except Withdrawn as error:
            ended.put(str(error))

    class Hasty(Memory):
        """Gives the call up on the thread that delivers the question."""

        def take(self, frame: bytes) -> None:
            self.frames.put(frame)
            if json.loads(frame).get("method") == "roots/list":
                self.notify("notifications/cancelled", {"requestId": "call"})

    line = Hasty(server)
    line.session = server.connect(line.take)
    line.start(roots={})
    line.ask("tools/call", {"name": "ask", "arguments": {}}, "call")
    assert ended.get(timeout=PATIENCE) == "the call has ended"
    assert line.next()["method"] == "roots/list"
    assert line.next()["method"] == "notifications/cancelled"
    line.close()


# Progress of the client


def sampled(server: Server, line: Memory, *steps: dict[str, Any]) -> list[Any]:
    """Have a tool ask a model that reports these steps; return what it heard of them."""
    reports: list[Any] = []

    @server.tool()
    def ask(context: ToolContext) -> str:
        context.sample("?", max_tokens=1, progress=lambda *report: reports.append(report))
        return "done"

    line.start(sampling={}, roots={})
    line.ask("tools/call", {"name": "ask", "arguments": {}})
    question = line.next()
    token = question["params"]["_meta"]["progressToken"]
    for step in steps:
        line.notify("notifications/progress", {"progressToken": token, **step})
    line.answer(question, MODEL)
    assert text_of(line.next()) == "done"
    return reports


def test_the_clients_progress_reaches_the_tool_in_order_until_the_answer(
    server: Server, line: Memory
) -> None:
    @server.tool()
    def roots(context: ToolContext) -> str:
        return str(context.list_roots())

    steps = [{"progress": value, "total": 3, "message": f"at {value}"} for value in (1, 2.5)]
    assert sampled(server, line, *steps) == [(1, 3, "at 1"), (2.5, 3, "at 2.5")]
    assert server.stats.violations == []
    # This question wants no progress, and afterwards there is none.
    line.ask("tools/call", {"name": "roots", "arguments": {}})
    question = line.next()
    told = {"progressToken": question["id"], "progress": 1}
    line.notify("notifications/progress", told)
    line.answer(question, ROOTS)
    assert "result" in line.next()
    line.notify("notifications/progress", told)
    line.notify("notifications/progress", {"progressToken": "t", "progress": 1})
    assert len(server.stats.violations) == 3


@pytest.mark.parametrize("values", [[1, 1], [2, 1], ["half"], [None], [True]])
def test_progress_that_does_not_grow_is_a_violation(
    server: Server, line: Memory, values: list[Any]
) -> None:
    sampled(server, line, *({"progress": value} for value in values))
    assert len(server.stats.violations) == 1


# Urls


def test_a_tool_may_demand_a_visit_first(server: Server, line: Memory) -> None:
    told: queue.SimpleQueue[ToolContext] = queue.SimpleQueue()

    @server.tool()
    def inbox(context: ToolContext) -> str:
        told.put(context)
        raise UrlElicitationRequired({"e1": ("Sign in", "https://example.com/in")})

    error = Talk(line, NEWEST_STATEFUL).tool("inbox")["error"]
    entry = {"mode": "url", "elicitationId": "e1", "message": "Sign in"}
    entry["url"] = "https://example.com/in"
    assert (error["code"], error["data"]) == (-32042, {"elicitations": [entry]})
    told.get(timeout=PATIENCE).complete_elicitation("e1")
    assert line.next()["params"] == {"elicitationId": "e1"}
