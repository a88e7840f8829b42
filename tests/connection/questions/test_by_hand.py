"""Calls whose questions the program answers by itself, here or in another process."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pytest

import syncmcp
from syncmcp import UsageError
from syncmcp.handlers.pending import InputRequired
from syncmcp.testing import Server, ToolContext, demo_server
from syncmcp.testing import script as s
from syncmcp.types import (
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    GetPromptResult,
    ReadResourceResult,
    TextContent,
)
from tests.connection.questions.asking import (
    DONE,
    ELICITATION,
    FORM,
    PROMPT,
    ROOTS,
    SAMPLING,
    asker,
    asking_server,
    said,
)
from tests.support.people import nobody, reply
from tests.support.scripts import NEW, OLD, opening, talk
from tests.support.stage import PATIENCE, Wire, rotated_stateless

CANARY = "swordfish-77c2"
LISTED = [s.reply({"resultType": "complete", "tools": []})]


def names_server() -> Server:
    """A server whose tools, prompt and resource want to know a name."""
    server = asking_server()

    def name(context: ToolContext) -> str:
        return str(context.elicit("Who are you?", FORM["requestedSchema"])["content"]["name"])

    def many(context: ToolContext) -> list[str]:
        asked: Any = {"a": (ELICITATION, FORM), "b": (SAMPLING, PROMPT), "c": (ROOTS, {})}
        return sorted(context.ask_all(asked, timeout=PATIENCE))

    def later(context: ToolContext) -> str:
        context.pause_round()
        return "now"

    def greet(context: ToolContext, greeting: str = "hello") -> str:
        return f"{greeting} {name(context)}"

    def twice(context: ToolContext) -> str:
        return f"{name(context)} and {name(context)}"

    for tool in (greet, twice, many, later):
        server.add_tool(tool)
    server.prompt(name="ask")(name)
    server.resource("acme://card")(name)
    return server


def ann(pending: Any) -> dict[str, Any]:
    """An answer to the only question."""
    assert isinstance(pending, InputRequired)
    (key,) = pending.questions
    return {key: ElicitResult.accept({"name": "Ann"})}


@rotated_stateless.with_rows("way", ["blocking", "future"])
@pytest.mark.requirement("MRTR-01", "MRTR-02")
def test_a_call_comes_back_with_its_questions_and_goes_on_with_their_answers(
    way: str, wire: Wire
) -> None:
    with wire.connect(names_server(), elicitation=nobody) as client:

        def do(operation: Any, *args: Any) -> Any:
            return (
                operation(*args) if way == "blocking" else operation.future(*args).result(PATIENCE)
            )

        pending = do(client.begin_tool, "greet", {"greeting": "hi"})
        assert isinstance(pending, InputRequired)
        assert pending.method == "tools/call"
        (question,) = pending.questions.values()
        assert question.method == ELICITATION
        assert question.to_wire()["params"]["message"] == "Who are you?"
        result = do(client.resume, pending, ann(pending))
        assert isinstance(result, CallToolResult)
        assert result.text == "hi Ann"
        pending = do(client.begin_prompt, "ask")
        prompt = do(client.resume, pending, ann(pending))
        assert isinstance(prompt, GetPromptResult)
        assert "Ann" in str(prompt.to_wire())
        pending = do(client.begin_read, "acme://card")
        read = do(client.resume, pending, ann(pending))
        assert isinstance(read, ReadResourceResult)
        assert "Ann" in str(read.to_wire())


@rotated_stateless
def test_a_call_is_pending_as_often_as_it_asks_and_for_what_was_not_answered(wire: Wire) -> None:
    with wire.connect(names_server()) as client:
        assert client.begin_tool("echo", {"text": "plain"}).text == "plain"  # type: ignore[union-attr]
        later: Any = client.begin_tool("later")
        assert later.questions == {}
        assert client.resume(later).text == "now"  # type: ignore[union-attr]
        first: Any = client.begin_tool("twice")
        second: Any = client.resume(first, ann(first))
        third: Any = client.resume(second, ann(second))
        assert third.text == "Ann and Ann"
        many: Any = client.begin_tool("many")
        assert many.questions.keys() == {"a", "b", "c"}
        rest: Any = client.resume(many, {"b": reply()})
        assert isinstance(rest, InputRequired)
        assert rest.questions.keys() == {"a", "c"}
        roots = {"roots": [{"uri": "file:///"}]}
        done: Any = client.resume(rest, {"a": ElicitResult.accept({"name": "Ann"}), "c": roots})
        assert json.loads(done.text) == ["a", "b", "c"]


def test_until_2025_handlers_answer_and_the_result_comes_at_once() -> None:
    with asker(OLD, sampling=lambda *_: reply()) as client:
        result = client.begin_tool("ask", {"method": SAMPLING, "params": PROMPT})
        assert isinstance(result, CallToolResult)
        assert "double" in result.text


@pytest.mark.parametrize("state", ["", "x", CANARY * 50, None])
@pytest.mark.requirement("MRTR-02", "MRTR-03", "MRTR-05", "MRTR-08")
def test_the_state_survives_json_exactly_or_stays_absent(state: str | None) -> None:
    questions = {"a": (ELICITATION, FORM), "b": (SAMPLING, PROMPT)}
    call = s.expect("tools/call")
    asking = [*opening(NEW), call, s.input_required(questions, state)]
    with talk(asking, mode=NEW) as (peer, client):
        pending = client.begin_tool("x", {"a": 1}, meta={"acme.example/k": 1})
        assert isinstance(pending, InputRequired)
        (first,) = peer.requests("tools/call")
    again: InputRequired[Any] = InputRequired.from_json(json.loads(json.dumps(pending.to_json())))
    finishing = [*opening(NEW), s.expect("tools/list"), *LISTED, call, s.reply(DONE)]
    with talk(finishing, mode=NEW) as (peer, client):
        client.list_tools()
        client.resume(again, {"a": ElicitResult.decline(), "b": reply()})
        (second,) = peer.requests("tools/call")
    assert first["id"] != second["id"]
    params = second["params"]
    assert params.get("requestState") == state
    assert ("requestState" in params) == (state is not None)
    assert params["inputResponses"] == {"a": {"action": "decline"}, "b": reply().to_wire()}
    key = "io.modelcontextprotocol/clientCapabilities"
    assert first["params"]["_meta"][key] == params["_meta"][key]


def test_what_a_program_can_answer_is_declared_for_these_requests_alone() -> None:
    with syncmcp.connect(names_server(), mode=NEW, roots=["/"]) as client:

        def declared(**options: Any) -> Any:
            result: Any = client.begin_tool("capabilities", **options)
            return json.loads(result.text)

        everything = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
        assert declared() == everything
        assert declared(can=("form",)) == {"elicitation": {"form": {}}}
        assert declared(can=("sampling", "sampling_tools")) == {"sampling": {"tools": {}}}
        assert said(client, "capabilities") == {"roots": {}}
        with pytest.raises(UsageError, match="can"):
            declared(can=("forms",))


def test_answers_that_make_no_sense_are_refused_before_anything_is_sent() -> None:
    server = names_server()
    with syncmcp.connect(server, mode=NEW) as client:
        pending: Any = client.begin_tool("greet")
        (key,) = pending.questions
        bad: Any
        for bad in ({"other": ElicitResult.decline()}, {key: "yes"}, {key: None}, ["x"], "x", 7):
            with pytest.raises(UsageError):
                client.resume(pending, bad)
        bad = {key: "my-password"}
        with pytest.raises(UsageError, match=r"a model or a dict, not str$"):
            client.resume(pending, bad)
        said = rf"^the answer to {key!r} is not a valid ElicitResult: action: .*; write Elicit"
        answer = CreateMessageResult(role="assistant", content=TextContent(text="x"), model="m")
        for bad in ({"name": "Ada"}, {"action": "yes"}, answer):
            with pytest.raises(syncmcp.InvalidAnswer, match=said):
                client.resume(pending, {key: bad})
        for bad in (None, {"method": "tools/call"}, pending.to_json()):
            with pytest.raises(UsageError):
                client.resume(bad)
        with server.stats as stats:
            assert stats.requests["tools/call"] == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "model"),
    [
        ("request_llm_help", {"question": "?"}, "CreateMessageResult: role: Field required"),
        ("count_files", {"path": "."}, "ListRootsResult: roots: Field required"),
    ],
)
def test_an_answer_of_another_kind_is_refused(
    tool: str, arguments: dict[str, Any], model: str
) -> None:
    with syncmcp.connect(demo_server(), mode=NEW) as client:
        pending: Any = client.begin_tool(tool, arguments)
        with pytest.raises(syncmcp.InvalidAnswer, match=f"is not a valid {model}$"):
            client.resume(pending, {key: {"text": "hi"} for key in pending.questions})


def test_json_that_is_no_pending_call_is_refused() -> None:
    empty: Any = {"method": "tools/call", "params": {}, "questions": {}}
    pending = {**empty, "state": "x", "offer": []}
    assert InputRequired.from_json(pending).to_json() == pending
    wrong: list[dict[str, Any]] = [{"method": "tools/list"}, {"method": 7}, {"params": 7}]
    wrong += [{"questions": []}, {"questions": {"q": 1}}, {"state": 7}, {"offer": ["x"]}]
    for data in ({}, None, *({**pending, **one} for one in wrong)):
        with pytest.raises(UsageError, match="pending"):
            InputRequired.from_json(data)


@pytest.mark.requirement("MRTR-04")
def test_neither_a_pending_call_nor_a_log_shows_the_state(caplog: pytest.LogCaptureFixture) -> None:
    call = s.expect("tools/call")
    ask = s.input_required({"q": (ELICITATION, FORM)}, CANARY)
    script = [*opening(NEW), call, ask, call, s.error(-32603, "no")]
    with caplog.at_level(logging.DEBUG), talk(script, mode=NEW) as (_, client):
        pending = client.begin_tool("x")
        assert isinstance(pending, InputRequired)
        with pytest.raises(UsageError) as odd:
            client.resume(pending, {"other": {}})
        with pytest.raises(syncmcp.ServerError) as refused:
            client.resume(pending, {"q": {"action": "decline"}})
    shown = [repr(pending), str(pending), f"{pending}", repr([pending])]
    shown += [repr(odd.value), str(odd.value), repr(refused.value), str(refused.value)]
    shown += [repr(pickle.dumps(refused.value)), repr(pending.questions)]
    assert CANARY not in "".join(shown)
    assert CANARY not in caplog.text
    assert CANARY in json.dumps(pending.to_json())
    copy = pickle.loads(pickle.dumps(pending))
    assert copy.to_json() == pending.to_json()
