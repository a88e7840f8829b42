"""The questions of a tool: how they reach the client, also in rounds, and how they end."""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp.errors import InternalError
from syncmcp.testing import (
    Question,
    RpcError,
    Server,
    ToolContext,
    Withdrawn,
    serve_http,
)
from tests.testing.talks import (
    ACCEPT,
    CAPABILITIES,
    EVERYTHING,
    FORM,
    MODEL,
    NEWEST_STATEFUL,
    ROOTS,
    Open,
    reply,
    text_of,
)
from tests.testing.wires import MODERN, PATIENCE, Http, Memory, modern

ELICITATION, SAMPLING = "elicitation/create", "sampling/createMessage"

# Several questions


def test_requests_side_by_side_are_all_sent_and_one_refusal_withdraws_the_others(
    server: Server, line: Memory
) -> None:
    @server.tool()
    def both(context: ToolContext) -> str:
        return ",".join(context.ask_all({"a": ("roots/list", None), "b": ("roots/list", {})}))

    line.start(roots={})
    number = line.ask("tools/call", {"name": "both"})
    for question in reversed([line.next(), line.next()]):
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


# What a tool can check before it asks


@pytest.mark.requirement("M-08", "M-22")
@pytest.mark.parametrize(
    ("revision", "capabilities", "features"),
    [
        (NEWEST_STATEFUL, {"elicitation": {}}, "elicitation elicitation.form"),
        (MODERN, {"elicitation": {"url": {}}}, "elicitation elicitation.url"),
        ("2025-06-18", {"elicitation": {"url": {}}}, "elicitation elicitation.form"),
        ("2025-03-26", {"elicitation": {}}, ""),
        ("2025-06-18", {"sampling": {"tools": {}}}, "sampling"),
        (MODERN, {"sampling": {"tools": {}}}, "sampling sampling.tools"),
        (MODERN, {"sampling": {"context": {}}}, "sampling sampling.context"),
        ("2024-11-05", {"roots": {"listChanged": True}}, "roots roots.listChanged"),
    ],
)
def test_a_tool_can_tell_what_it_may_ask(
    server: Server, talk: Open, revision: str, capabilities: Any, features: str
) -> None:
    asked = "elicitation elicitation.form elicitation.url sampling sampling.tools "
    asked += "sampling.context roots roots.listChanged"

    @server.tool()
    def look(context: ToolContext) -> str:
        return " ".join(feature for feature in asked.split() if context.can(feature))

    assert text_of(talk(revision, capabilities).tool("look")) == features


@pytest.mark.parametrize(
    ("method", "params", "capabilities", "feature"),
    [
        (SAMPLING, {}, {"roots": {}}, "sampling"),
        (SAMPLING, {"tools": []}, {"sampling": {}}, "sampling.tools"),
        (SAMPLING, {"toolChoice": {}}, {"sampling": {}}, "sampling.tools"),
        (SAMPLING, {"includeContext": "thisServer"}, {"sampling": {}}, "sampling.context"),
        (ELICITATION, {"mode": "url"}, {"elicitation": {}}, "elicitation.url"),
        (ELICITATION, {}, {"elicitation": {"url": {}}}, "elicitation.form"),
    ],
)
def test_no_more_is_asked_than_was_declared(
    server: Server, talk: Open, method: str, params: Any, capabilities: Any, feature: str
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> None:
        context.ask_all({"a": (method, params)})

    why = ": it needs a handler, sampling=" if feature == "sampling" else ""
    for revision, more in ((MODERN, ""), (NEWEST_STATEFUL, why)):
        error = talk(revision, capabilities).tool("ask")["error"]
        assert error["message"] == f"The client did not declare {feature}{more}"
    assert server.stats.questions == {}


# Missing, late and malformed answers


def test_an_unanswered_question_is_withdrawn_and_its_late_answer_dropped(
    server: Server, line: Memory
) -> None:
    @server.tool()
    def ask(context: ToolContext) -> None:
        context.sample("?", max_tokens=1, timeout=0.01)

    line.start(sampling={})
    line.ask("tools/call", {"name": "ask"})
    question, withdrawal, answer = line.next(), line.next(), line.next()
    assert withdrawal["params"]["requestId"] == question["id"]
    assert answer["result"]["isError"]
    assert "did not answer" in text_of(answer)
    line.answer(question, MODEL)
    assert (server.stats.late_answers, server.stats.violations) == (1, [])


def test_a_tool_can_request_and_withdraw_where_a_server_can(server: Server, talk: Open) -> None:
    asked: queue.SimpleQueue[Question] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> str:
        question = context.ask("roots/list")
        asked.put(question)
        with pytest.raises(Withdrawn) as withdrawn:
            question.result()
        return f"{withdrawn.value}; again: {question.cancel()}"

    @server.tool()
    def request(context: ToolContext) -> str:
        try:
            return str(context.request("roots/list", timeout=PATIENCE) == ROOTS)
        except RpcError as error:
            return f"went on after {error}"

    def withdraw(method: str, params: Any) -> Any:
        assert asked.get(timeout=PATIENCE).cancel("changed my mind")
        return ROOTS

    client = talk(NEWEST_STATEFUL)
    assert text_of(client.tool("request", answer=reply)) == "True"
    assert text_of(client.tool("ask", answer=withdraw)) == "changed my mind; again: False"
    [note] = client.notes
    assert note["params"]["reason"] == "changed my mind"
    assert (server.stats.late_answers, server.stats.violations) == (1, [])
    # In 2026-07-28, servers send no requests.
    client = talk(MODERN)
    assert client.tool("ask")["error"]["code"] == -32603
    assert text_of(client.tool("request")).endswith("(-32603)")


@pytest.mark.parametrize("what", ["call", "session"])
def test_questions_end_with_the_call_that_asked_them(
    server: Server, line: Memory, what: str
) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> None:
        for _ in range(2):  # The end comes during the first, before the second.
            try:
                context.list_roots()
            except (Withdrawn, ConnectionError) as error:
                ended.put(str(error))

    line.start(roots={})
    number = line.ask("tools/call", {"name": "ask"})
    question = line.next()
    if what == "session":
        line.close()
    else:
        line.notify("notifications/cancelled", {"requestId": number})
        assert line.next()["params"]["requestId"] == question["id"]
    assert [ended.get(timeout=PATIENCE) for _ in range(2)] == [f"the {what} has ended"] * 2
    assert server.stats.questions == {"roots/list": 1}
    assert line.frames.empty()


def test_a_call_may_end_while_its_question_is_on_its_way(server: Server, line: Memory) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> None:
        try:
            context.list_roots()
        except Withdrawn as error:
            ended.put(str(error))

    def take(frame: bytes) -> None:
        """Cancel the call on the thread that delivers the question."""
        line.frames.put(frame)
        if json.loads(frame).get("method") == "roots/list":
            line.notify("notifications/cancelled", {"requestId": "call"})

    line.close()
    line.session = server.connect(take)
    line.start(roots={})
    line.ask("tools/call", {"name": "ask", "arguments": {}}, "call")
    assert ended.get(timeout=PATIENCE) == "the call has ended"
    assert line.next()["method"] == "roots/list"
    assert line.next()["method"] == "notifications/cancelled"


# Progress of the client


def sampled(server: Server, line: Memory, *steps: dict[str, Any]) -> list[Any]:
    """Have a tool ask a model that reports these steps; return the reports that it got."""
    reports: list[Any] = []

    @server.tool()
    def ask(context: ToolContext) -> None:
        context.sample("?", max_tokens=1, progress=lambda *report: reports.append(report))

    line.start(sampling={}, roots={})
    line.ask("tools/call", {"name": "ask"})
    question = line.next()
    token = question["params"]["_meta"]["progressToken"]
    for step in steps:
        line.notify("notifications/progress", {"progressToken": token, **step})
    line.answer(question, MODEL)
    assert line.next()["result"] == {"content": []}
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
    # The tool requests no progress for this question; nor is there any after the answer.
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


# Rounds of 2026-07-28


def _offer_name(server: Server) -> None:
    @server.tool()
    def name(context: ToolContext, greeting: str = "hello") -> str:
        return f"{greeting} {context.elicit('Who are you?', FORM)['content']['name']}"


def test_an_elicitation_of_swapped_arguments_names_their_order(server: Server) -> None:
    swapped: Any = ("Who are you?", FORM)

    @server.tool()
    def name(context: ToolContext) -> Any:
        return context.elicit(*reversed(swapped))

    with syncmcp.connect(server) as client:
        told = client.call_tool("name").text
    assert told.endswith("mapping, not str: write elicit(message, schema)")


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ({"a": {"method": "roots/list", "params": {}}}, "questions['a'] must be a tuple (method,"),
        ([("roots/list", None)], "must map keys to tuples (method, params): write {KEY: (...)}"),
    ],
    ids=["dict", "list"],
)
def test_questions_of_another_form_are_refused(server: Server, questions: Any, said: str) -> None:
    @server.tool()
    def curious(context: ToolContext) -> Any:
        return context.ask_all(questions)

    with syncmcp.connect(server, roots=[]) as client:
        assert said in client.call_tool("curious").text


def test_a_result_that_is_not_json_is_told_what_to_return(server: Server) -> None:
    server.add_tool(object, name="thing")
    said = "returned object that is not JSON: return a text, a model or JSON values"
    with syncmcp.connect(server) as client, pytest.raises(InternalError, match=said):
        client.call_tool("thing")


def test_an_error_that_a_tool_returns_is_to_be_raised(server: Server) -> None:
    server.add_tool(lambda: ValueError("no"), name="sell")
    with syncmcp.connect(server) as client:
        result = client.call_tool("sell")
    assert (result.is_error, result.text) == (True, "sell returned ValueError: raise it instead")


def leg(name: str, state: Any = None, responses: Any = None, **more: Any) -> dict[str, Any]:
    """Return the params of a call, or of its next round."""
    params = {"name": name, "arguments": {}, **more}
    params |= {} if state is None else {"requestState": state}
    params |= {} if responses is None else {"inputResponses": responses}
    return modern(params, **{CAPABILITIES: EVERYTHING})


def _open_round(line: Memory, name: str = "name") -> Any:
    result = line.call("tools/call", leg(name))["result"]
    assert result["resultType"] == "input_required"
    return result


def _retry(line: Memory, state: Any, responses: Any, name: str = "name", **more: Any) -> Any:
    return line.call("tools/call", leg(name, state, responses, **more))


NAMED = {"question": ACCEPT}


def test_a_round_names_its_question_and_an_unguessable_state(server: Server, line: Memory) -> None:
    _offer_name(server)
    first, second = _open_round(line), _open_round(line)
    assert server.stats.paused == 2
    params = {"message": "Who are you?", "mode": "form", "requestedSchema": FORM}
    assert first["inputRequests"] == {
        "question": {"method": "elicitation/create", "params": params}
    }
    assert len(first["requestState"]) >= 32
    assert first["requestState"] != second["requestState"]
    assert text_of(_retry(line, second["requestState"], NAMED)) == "hello Ada"
    assert server.stats.paused == 1
    # A retry with the id of the previous request is a violation.
    line.ask("tools/call", leg("name"), 5)
    line.ask("tools/call", leg("name", line.next()["result"]["requestState"], NAMED), 5)
    assert text_of(line.next()) == "hello Ada"
    assert server.stats.violations == ["tools/call: the retry has the id of the request before"]


def test_a_round_may_ask_nothing_or_again_what_was_not_answered(
    server: Server, line: Memory
) -> None:
    @server.tool()
    def survey(context: ToolContext) -> str:
        context.pause_round()
        found = context.ask_all({"a": ("roots/list", None), "b": ("roots/list", None)})
        return ",".join(found)

    @server.tool()
    def patience(context: ToolContext) -> str:
        context.pause_round()
        return context.revision

    with Memory(server) as old:  # a revision without rounds
        old.start()
        assert text_of(old.tool("patience")) == NEWEST_STATEFUL
    first = _open_round(line, "survey")
    assert "inputRequests" not in first
    second = _retry(line, first["requestState"], None, "survey")["result"]
    assert set(second["inputRequests"]) == {"a", "b"}
    third = _retry(line, second["requestState"], {"b": ROOTS}, "survey")["result"]
    assert set(third["inputRequests"]) == {"a"}
    assert third["requestState"] != second["requestState"]
    assert text_of(_retry(line, third["requestState"], {"a": ROOTS}, "survey")) == "a,b"
    assert server.stats.violations == ["inputResponses lacks 'a'"]


def test_progress_goes_on_under_the_token_of_the_retry(server: Server, line: Memory) -> None:
    @server.tool()
    def work(context: ToolContext) -> str:
        context.report_progress(1)
        context.list_roots()
        context.report_progress(2)
        context.log("info", "on we go")
        return str(context.request_id)

    def send(token: str, params: dict[str, Any], **meta: Any) -> Any:
        params["_meta"] |= {"progressToken": token, **meta}
        return line.ask("tools/call", params)

    send("first", leg("work"))
    assert line.next()["params"]["progressToken"] == "first"
    state = line.next()["result"]["requestState"]
    level = {"io.modelcontextprotocol/logLevel": "info"}
    number = send("second", leg("work", state, {"question": ROOTS}), **level)
    assert line.next()["params"]["progressToken"] == "second"
    assert line.next()["method"] == "notifications/message"
    assert text_of(line.next()) == str(number)


def test_a_state_that_is_not_the_servers_own_or_of_another_request_is_refused(
    server: Server, line: Memory
) -> None:
    _offer_name(server)
    server.add_tool(lambda: "other", name="other")
    state = _open_round(line)["requestState"]
    altered = state[:-1] + ("a" if state[-1] != "a" else "b")
    with Memory(server) as other:
        answers = [
            *(_retry(line, wrong, NAMED) for wrong in (altered, "", 7, None)),
            _retry(line, state, NAMED, "other"),
            _retry(line, state, NAMED, arguments={"greeting": "bye"}),
            line.call("tools/list", modern({"requestState": state})),
            line.call("prompts/get", modern({"name": "name", "requestState": state})),
            _retry(other, state, NAMED),
        ]
    assert [answer["error"]["code"] for answer in answers] == [-32602] * 9
    assert len(server.stats.violations) == 9
    assert server.stats.paused == 1
    assert text_of(_retry(line, state, NAMED)) == "hello Ada"
    assert _retry(line, state, NAMED)["error"]["code"] == -32602
    assert server.stats.violations[9:] == ["tools/call: requestState is used before"]


def test_a_retry_that_is_cancelled_cancels_the_tool(server: Server, line: Memory) -> None:
    going, ended = threading.Event(), threading.Event()

    @server.tool()
    def work(context: ToolContext) -> None:
        context.list_roots()
        going.set()
        if context.cancelled.wait(PATIENCE):
            ended.set()

    state = _open_round(line, "work")["requestState"]
    number = line.ask("tools/call", leg("work", state, {"question": ROOTS}))
    assert going.wait(PATIENCE)
    line.notify("notifications/cancelled", {"requestId": number})
    assert ended.wait(PATIENCE)
    assert server.stats.wait_for(lambda seen: seen.running == 0)
    assert server.stats.cancelled == 1
    assert line.frames.empty()


@pytest.mark.parametrize("how", ["timeout", "session", "server", "endpoint"])
def test_a_tool_nobody_comes_back_to_ends(server: Server, line: Memory, how: str) -> None:
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @server.tool()
    def ask(context: ToolContext) -> None:
        try:
            context.elicit("Who?", FORM, timeout=0.01 if how == "timeout" else PATIENCE)
        except (TimeoutError, Withdrawn) as error:
            ended.put((type(error), context.cancelled.is_set()))
            raise

    with serve_http(server) as http, Http(http.url) as client:

        def send(**more: Any) -> Any:
            if how in ("timeout", "session"):
                return line.call("tools/call", leg("ask", **more))
            body = {"name": "ask", "arguments": {}, **more}
            return client.modern("tools/call", body, **{CAPABILITIES: EVERYTHING})[2]

        state = send()["result"]["requestState"]
        ending: dict[str, Any] = {"session": line, "server": server, "endpoint": http.endpoint}
        if how != "timeout":
            ending[how].close()
        wanted = TimeoutError if how == "timeout" else Withdrawn
        assert ended.get(timeout=PATIENCE) == (wanted, True)
        assert server.stats.wait_for(lambda seen: seen.paused == 0)
        if how != "session":
            refused = send(requestState=state, inputResponses=NAMED)
            assert refused["error"]["code"] == -32602
        assert server.stats.violations == []
    assert server.stats.errors == (how != "session")


def test_a_custom_handler_may_keep_a_state_of_its_own(server: Server, line: Memory) -> None:
    def handle(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        if params.get("requestState") == "mine":
            return {"content": []}
        return {"resultType": "input_required", "requestState": "mine"}

    server.on_request("tools/call", handle)
    assert _open_round(line)["requestState"] == "mine"
    assert _retry(line, "mine", None)["result"]["resultType"] == "complete"
    assert server.stats.violations == []
