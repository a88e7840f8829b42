"""Rounds of input, as the server sees them on the wire (spec: 2026-07-28, "Multi Round-Trip")."""

from __future__ import annotations

import json
import logging
import pickle
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.connection import Connection
from syncmcp.handlers.pending import InputRequired
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.testing.script import Step
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
    URL,
    asker,
    asking_server,
    model,
    person,
    said,
    through,
)
from tests.support.people import Obedient, Person, nobody, reply
from tests.support.scripts import NEW, OLD, opening, talk
from tests.support.stage import PATIENCE, Wire, elsewhere, rotated_stateless

CALL = s.expect("tools/call")
ASK = s.input_required({"q": (SAMPLING, PROMPT)}, "state")
LISTED = [s.expect("tools/list"), s.reply({"resultType": "complete", "tools": []})]
CANARY = "swordfish-5c1f"
LOCAL = {"sampling", "elicitation", "roots"}


def rounds(*steps: Step) -> list[Step]:
    return [*opening(NEW), *steps]


@pytest.mark.parametrize(("wire", "way"), [("memory", "blocking"), ("stdio", "future")])
@pytest.mark.requirement("MRTR-01", "MRTR-02", "MRTR-03", "MRTR-04", "MRTR-05", "MRTR-08")
def test_a_retry_has_a_new_id_and_an_answer_under_each_key(wire: str, way: str) -> None:
    questions = {
        "": (SAMPLING, PROMPT),
        'a b/\u00e9"': (ELICITATION, FORM),
        "__proto__": (ROOTS, None),
    }
    state = ' {"a": 1}\u0000\n\U0001f600e\u0301&lt;\\u0041 '
    script = rounds(CALL, s.input_required(questions, state), CALL, s.reply(DONE))
    arguments = {"a": [1, {"b": None}], "requestState": "mine"}
    handlers: Any = {"sampling": model, "elicitation": person, "roots": ["/"]}
    with talk(script, wire, mode=NEW, **handlers) as (peer, client):
        meta = {"acme.example/k": "v"}
        assert through(client, way, "x", arguments, meta=meta).text == "done"
        first, second = peer.requests("tools/call", 2)
    assert type(second["id"]) is int
    assert first["id"] != second["id"]
    before, after = first["params"], second["params"]
    assert after.pop("inputResponses") == {
        "": reply().to_wire(),
        'a b/\u00e9"': {"action": "accept", "content": {"name": "Ann", "loud": True}},
        "__proto__": {"roots": [{"uri": "file:///"}]},
    }
    assert after.pop("requestState") == state
    for sent in (first, second):
        meta = sent["params"].pop("_meta")
        assert meta.pop("progressToken") == sent["id"]
        assert meta["acme.example/k"] == "v"
        assert meta["io.modelcontextprotocol/clientCapabilities"].keys() == LOCAL
    assert before == after == {"name": "x", "arguments": arguments}


def asking(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    """Return the part of a result that asks one question, or more."""
    return {"inputRequests": {"q": {"method": method, "params": params}, **more}}


BAD = {"method": "acme/question"}
WITH_TOOLS = {**PROMPT, "tools": [{"name": "sum", "inputSchema": {"type": "object"}}]}
ILL: Any = {"elicitation": lambda *_: ElicitResult.accept({"loud": True})}
MODEL, PERSON = {"sampling": nobody}, {"elicitation": nobody}
NOT_GONE_ON: dict[str, tuple[dict[str, Any], dict[str, Any], type[syncmcp.McpError]]] = {
    "one good, one bad": (asking(SAMPLING, PROMPT, bad=BAD), MODEL, syncmcp.ProtocolError),
    "no handler": (asking(SAMPLING, PROMPT), PERSON, syncmcp.InvalidQuestion),
    "tools that were not offered": (asking(SAMPLING, WITH_TOOLS), MODEL, syncmcp.InvalidQuestion),
    "a link for forms": (asking(ELICITATION, URL), PERSON, syncmcp.InvalidQuestion),
    "a bad answer": (asking(ELICITATION, FORM), ILL, syncmcp.InvalidAnswer),
}
# If the client offered no handler for a question, the error names its method.
NAMED = {"one good, one bad": "acme/question", "no handler": SAMPLING}


@pytest.mark.parametrize("case", NOT_GONE_ON)
@pytest.mark.requirement("MRTR-07", "SAMP-02", "ELI-02")
def test_a_round_that_cannot_be_answered_fails_the_call_and_nothing_is_sent(case: str) -> None:
    asks, handlers, error = NOT_GONE_ON[case]
    script = rounds(CALL, s.reply({"resultType": "input_required", **asks}), *LISTED)
    with talk(script, mode=NEW, **handlers) as (peer, client):
        with pytest.raises(error) as caught:
            client.call_tool("x")
        assert caught.value.method == NAMED.get(case, "tools/call")
        client.list_tools()
        assert peer.methods(3) == ["server/discover", "tools/call", "tools/list"]


@pytest.mark.requirement("MRTR-01", "MRTR-05")
def test_a_link_that_a_round_has_twice_is_asked_for_once_and_answered_twice() -> None:
    asks = {"p": (ELICITATION, URL), "q": (ELICITATION, {**URL, "message": "More"})}
    again = s.input_required({**asks, "r": (ELICITATION, URL)}, "state")
    agreeing, script = Person(), rounds(CALL, again, CALL, s.reply(DONE))
    with talk(script, mode=NEW, elicitation=syncmcp.Elicitation(url=agreeing)) as (peer, client):
        assert client.call_tool("x").text == "done"
        answers = peer.requests("tools/call", 2)[1]["params"]["inputResponses"]
    assert answers == {key: {"action": "accept"} for key in "pqr"}
    # Links with different messages are separate questions.
    assert sorted(request.message for request in agreeing.requests) == ["Look", "More"]


@pytest.mark.parametrize(
    ("limit", "ask", "way"),
    [(None, ASK, "blocking"), (3, s.input_required(None, "later"), "future")],
    ids=["asks", "waits"],
)
def test_a_server_that_never_has_enough_is_stopped(limit: int | None, ask: Any, way: str) -> None:
    number = limit or 10
    script = rounds(*[CALL, ask] * (number + 1), *LISTED)
    options: dict[str, Any] = {} if limit is None else {"max_rounds": limit}
    with talk(script, mode=NEW, name="asker", sampling=model, **options) as (peer, client):
        with pytest.raises(syncmcp.TooManyRounds) as caught:
            through(client, way)
        assert (caught.value.rounds, caught.value.server) == (number, "asker")
        client.list_tools()
        assert peer.methods(3).count("tools/call") == number + 1


def test_the_limit_of_a_call_is_for_all_its_rounds_but_not_for_its_handlers() -> None:
    script = rounds(s.repeat([CALL, s.input_required(None, "later")]))
    with talk(script, mode=NEW, max_rounds=10000) as (_, client):
        with pytest.raises(syncmcp.RequestTimeout) as caught:
            client.call_tool("x", timeout=0.2)
        assert caught.value.kind == "total"


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set once a call waits a minute before its next round."""
    waits = threading.Event()

    def pause(number: int) -> float:
        waits.set()
        return 60.0

    monkeypatch.setattr("syncmcp._protocol.exchange.repeat_delay", pause)
    return waits


def ordering() -> tuple[Server, list[str]]:
    """Return a server whose tool pauses, and the log of that tool."""
    server, orders = Server("shop"), list[str]()

    @server.tool()
    def order(context: ToolContext) -> str:
        orders.append("done")
        context.pause_round()
        orders.append("again")
        return "never"

    return server, orders


ENDS = (syncmcp.RequestTimeout, syncmcp.RequestCancelled, syncmcp.ClosedError)


@rotated_stateless.with_rows(
    "way, end",
    [(way, end) for way in ("blocking", "future") for end in ("limit", "token", "close")],
)
def test_a_call_that_ends_between_two_rounds_may_have_been_done(
    end: str, way: str, wire: Wire, between: threading.Event
) -> None:
    (server, orders), token = ordering(), syncmcp.CancelToken()
    with wire.connect(server) as client:
        options: Any = {"timeout": 1.0 if end == "limit" else PATIENCE, "cancel": token}
        call = elsewhere(lambda: through(client, way, "order", **options))
        assert between.wait(PATIENCE)
        if end == "token":
            token.cancel("enough")
        elif end == "close":
            client.close()
        with pytest.raises(ENDS) as caught:
            call.result(PATIENCE)
    ended: Any = caught.value
    assert (ended.method, ended.delivery) == ("tools/call", "unknown")
    assert "unknown" in str(ended)
    assert orders == ["done"]


@rotated_stateless
def test_a_future_between_rounds_ends_first(
    wire: Wire, between: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server, orders), ended, close = ordering(), threading.Event(), Connection.close

    def close_late(self: Connection, deadline: Deadline) -> None:
        ended.wait(PATIENCE)
        close(self, deadline)

    with wire.connect(server) as client:
        monkeypatch.setattr(Connection, "close", close_late)
        future = client.call_tool.future("order")
        future.add_done_callback(lambda _: ended.set())
        assert between.wait(PATIENCE)
        client.close()
        with pytest.raises(syncmcp.ClosedError) as caught:
            future.result(PATIENCE)
    assert (caught.value.delivery, orders) == ("unknown", ["done"])


def test_if_one_answer_fails_the_others_are_called_off_and_nothing_is_sent() -> None:
    obedient = Obedient()

    def refuse(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        obedient.entered()
        raise syncmcp.Refused(-1, "no")

    asks = s.input_required({"a": (SAMPLING, PROMPT), "b": (ELICITATION, FORM)}, "state")
    script = rounds(CALL, asks, *LISTED)
    with talk(script, mode=NEW, sampling=obedient, elicitation=refuse) as (peer, client):
        with pytest.raises(syncmcp.Refused, match="no"):
            client.call_tool("x")
        obedient.obeyed()
        client.list_tools()
        assert peer.methods(3) == ["server/discover", "tools/call", "tools/list"]


@pytest.mark.requirement("MRTR-04")
def test_the_state_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    ask = s.input_required({"q": (SAMPLING, PROMPT)}, CANARY)
    script = rounds(CALL, ask, CALL, s.reply(DONE), *[CALL, ask] * 2, CALL, ask)
    contexts: list[syncmcp.HandlerContext] = []

    def handler(request: Any, context: syncmcp.HandlerContext) -> Any:
        contexts.append(context)
        if len(contexts) == 3:
            raise RuntimeError("enough")
        return reply()

    with (
        caplog.at_level(logging.DEBUG),
        talk(script, mode=NEW, sampling=handler, max_rounds=1) as (_, client),
    ):
        assert client.call_tool("x").text == "done"
        with pytest.raises(syncmcp.TooManyRounds) as many:
            client.call_tool("x")
        with pytest.raises(syncmcp.Refused) as failed:
            client.call_tool("x")
        shown = [repr(client), repr(contexts), str(contexts[0].call)]
    for error in (many.value, failed.value):
        shown += [repr(error), str(error), repr(pickle.dumps(error))]
    assert CANARY not in caplog.text
    assert CANARY not in "".join(shown)


def names_server() -> Server:
    """Return a server whose tools, prompt and resource ask for a name."""
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
    """Return answers to the only question."""
    assert isinstance(pending, InputRequired)
    (key,) = pending.questions
    return {key: ElicitResult.accept({"name": "Ann"})}


@rotated_stateless.with_rows("way", ["blocking", "future"])
@pytest.mark.requirement("MRTR-01", "MRTR-02")
def test_a_call_comes_back_with_questions_and_takes_answers(way: str, wire: Wire) -> None:
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
    finishing = [*opening(NEW), *LISTED, call, s.reply(DONE)]
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

        elicitation: dict[str, Any] = {"form": {}, "url": {}}
        assert declared() == {"sampling": {}, "elicitation": elicitation, "roots": {}}
        assert declared(can=("form",)) == {"elicitation": {"form": {}}}
        assert declared(can=("sampling", "sampling_tools")) == {"sampling": {"tools": {}}}
        assert said(client, "capabilities") == {"roots": {}}
        with pytest.raises(syncmcp.UsageError, match="can"):
            declared(can=("forms",))


def test_answers_that_make_no_sense_are_refused_before_anything_is_sent() -> None:
    server = names_server()
    with syncmcp.connect(server, mode=NEW) as client:
        pending: Any = client.begin_tool("greet")
        (key,) = pending.questions
        bad: Any
        for bad in ({"other": ElicitResult.decline()}, {key: "yes"}, {key: None}, ["x"], "x", 7):
            with pytest.raises(syncmcp.UsageError):
                client.resume(pending, bad)
        bad = {key: "my-password"}
        advice = r"must be ElicitResult or dict, not str; write ElicitResult\.accept\({\.\.\.}\)$"
        with pytest.raises(syncmcp.UsageError, match=advice):
            client.resume(pending, bad)
        with pytest.raises(syncmcp.UsageError, match=rf"'other'; the questions are: {key!r}$"):
            client.resume(pending, {"other": ElicitResult.decline()})
        said = rf"^the answer to {key!r} is not a valid ElicitResult: action: .*; write Elicit"
        answer = CreateMessageResult(role="assistant", content=TextContent(text="x"), model="m")
        for bad in ({"name": "Ada"}, {"action": "yes"}, answer):
            with pytest.raises(syncmcp.InvalidAnswer, match=said):
                client.resume(pending, {key: bad})
        unfit = ElicitResult.model_construct(action="accept", content={"loud": "swordfish"})
        with pytest.raises(syncmcp.InvalidAnswer, match="does not fit the form") as caught:
            client.resume(pending, {key: unfit})
        assert list(caught.value.problems) == ["name", "loud"]
        for bad in (None, {"method": "tools/call"}, pending.to_json()):
            with pytest.raises(syncmcp.UsageError, match="pass what begin_tool, begin_prompt"):
                client.resume(bad)
        several: Any = client.begin_tool("many")
        for key, wanted in {
            "b": "CreateMessageResult: role",
            "c": "ListRootsResult: roots",
        }.items():
            with pytest.raises(syncmcp.InvalidAnswer, match=f"valid {wanted}: Field required$"):
                client.resume(several, {key: {"text": "hi"}})
        assert server.stats.requests["tools/call"] == 2


def test_json_that_is_no_pending_call_is_refused() -> None:
    empty: Any = {"method": "tools/call", "params": {}, "questions": {}}
    pending = {**empty, "state": "x", "offer": []}
    assert InputRequired.from_json(pending).to_json() == pending
    wrong: list[dict[str, Any]] = [{"method": "tools/list"}, {"method": 7}, {"params": 7}]
    wrong += [{"questions": []}, {"questions": {"q": 1}}, {"state": 7}, {"offer": ["x"]}]
    data: Any
    for data in ({}, None, *({**pending, **one} for one in wrong)):
        with pytest.raises(syncmcp.UsageError, match="pending"):
            InputRequired.from_json(data)


@pytest.mark.requirement("MRTR-04")
def test_neither_a_pending_call_nor_a_log_shows_the_state(caplog: pytest.LogCaptureFixture) -> None:
    call = s.expect("tools/call")
    ask = s.input_required({"q": (ELICITATION, FORM)}, CANARY)
    script = [*opening(NEW), call, ask, call, s.error(-32603, "no")]
    with caplog.at_level(logging.DEBUG), talk(script, mode=NEW) as (_, client):
        pending = client.begin_tool("x")
        assert isinstance(pending, InputRequired)
        with pytest.raises(syncmcp.UsageError) as odd:
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
