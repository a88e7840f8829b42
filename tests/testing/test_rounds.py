"""Rounds of 2026-07-28: what a retry may do, and what becomes of a tool that waits for one."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from syncmcp.testing import (
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
    NEWEST_STATEFUL,
    ROOTS,
    text_of,
)
from tests.testing.wires import PATIENCE, Http, Memory, modern


def _offer_name(server: Server) -> None:
    @server.tool()
    def name(context: ToolContext, greeting: str = "hello") -> str:
        return f"{greeting} {context.elicit('Who are you?', FORM)['content']['name']}"


def _open_round(line: Memory, name: str = "name", **arguments: Any) -> Any:
    params = {"name": name, "arguments": arguments}
    answer = line.call("tools/call", modern(params, **{CAPABILITIES: EVERYTHING}))
    assert answer["result"]["resultType"] == "input_required"
    return answer["result"]


def _retry(line: Memory, state: Any, responses: Any, name: str = "name", **arguments: Any) -> Any:
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if state is not None:
        params["requestState"] = state
    if responses is not None:
        params["inputResponses"] = responses
    return line.call("tools/call", modern(params, **{CAPABILITIES: EVERYTHING}))


def test_a_round_names_its_question_and_an_unguessable_state(server: Server, line: Memory) -> None:
    _offer_name(server)
    first, second = _open_round(line), _open_round(line)
    assert server.stats.paused == 2
    assert first["inputRequests"] == {
        "question": {
            "method": "elicitation/create",
            "params": {"message": "Who are you?", "mode": "form", "requestedSchema": FORM},
        }
    }
    assert len(first["requestState"]) >= 32
    assert first["requestState"] != second["requestState"]
    assert text_of(_retry(line, second["requestState"], {"question": ACCEPT})) == "hello Ada"
    assert server.stats.paused == 1
    # A retry with the id of the request before is noticed.
    params = {"name": "name", "arguments": {}}
    line.ask("tools/call", modern(params, **{CAPABILITIES: EVERYTHING}), 5)
    state = line.next()["result"]["requestState"]
    again = {**params, "requestState": state, "inputResponses": {"question": ACCEPT}}
    line.ask("tools/call", modern(again, **{CAPABILITIES: EVERYTHING}), 5)
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

    with Memory(server) as old:  # which has no rounds
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

    def send(token: str, **more: Any) -> Any:
        meta = {CAPABILITIES: EVERYTHING, "progressToken": token, **more.pop("meta", {})}
        params = modern({"name": "work", "arguments": {}, **more}, **meta)
        return line.ask("tools/call", params)

    send("first")
    assert line.next()["params"]["progressToken"] == "first"
    state = line.next()["result"]["requestState"]
    level = {"io.modelcontextprotocol/logLevel": "info"}
    number = send("second", requestState=state, inputResponses={"question": ROOTS}, meta=level)
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
    other = Memory(server)
    answers = [
        *(_retry(line, wrong, {"question": ACCEPT}) for wrong in (altered, "", 7, None)),
        _retry(line, state, {"question": ACCEPT}, "other"),
        _retry(line, state, {"question": ACCEPT}, greeting="bye"),
        line.call("tools/list", modern({"requestState": state})),
        line.call("prompts/get", modern({"name": "name", "requestState": state})),
        _retry(other, state, {"question": ACCEPT}),
    ]
    other.close()
    assert [answer["error"]["code"] for answer in answers] == [-32602] * 9
    assert len(server.stats.violations) == 9
    assert server.stats.paused == 1
    assert text_of(_retry(line, state, {"question": ACCEPT})) == "hello Ada"
    assert _retry(line, state, {"question": ACCEPT})["error"]["code"] == -32602
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
    params = {
        "name": "work",
        "arguments": {},
        "requestState": state,
        "inputResponses": {"question": ROOTS},
    }
    number = line.ask("tools/call", modern(params, **{CAPABILITIES: EVERYTHING}))
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
            ended.put((error, context.cancelled.is_set()))
            raise

    with serve_http(server) as http, Http(http.url) as client:

        def send(**more: Any) -> Any:
            body = {"name": "ask", "arguments": {}, **more}
            meta = {CAPABILITIES: EVERYTHING}
            if how in ("timeout", "session"):
                return line.call("tools/call", modern(body, **meta))
            return client.modern("tools/call", body, **meta)[2]

        state = send()["result"]["requestState"]
        ending: dict[str, Any] = {"session": line, "server": server, "endpoint": http.endpoint}
        if how != "timeout":
            ending[how].close()
        error, cancelled = ended.get(timeout=PATIENCE)
        assert cancelled
        assert isinstance(error, TimeoutError if how == "timeout" else Withdrawn)
        assert server.stats.wait_for(lambda seen: seen.paused == 0)
        if how != "session":
            refused = send(requestState=state, inputResponses={"question": ACCEPT})
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
