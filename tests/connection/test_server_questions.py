"""What a server sends of itself: pings, requests nobody handles, batches, and broken frames."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, Client, Mode
from syncmcp.testing import script as s
from tests.support.programs import CEILING
from tests.support.scripts import NEW, OLD, STATEFUL, WIRES, Scripted, opening, talk
from tests.support.stage import PATIENCE

PING = [s.expect("ping"), s.reply({})]
TOOLS: dict[str, Any] = {"resultType": "complete", "tools": []}


@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.requirement("RPC-24", "RPC-06", "RPC-07")
def test_a_ping_is_answered_with_an_empty_result_and_its_own_id(revision: Mode) -> None:
    script = [*opening(revision)]
    identifiers: list[int | str] = [0, 7, "", "seven"]
    for identifier in identifiers:
        script += [s.request("ping", identifier=identifier), s.expect("response")]
    with talk(script, mode=revision) as (peer, _):
        answers = peer.requests("response", len(identifiers))
    assert answers == [{"jsonrpc": "2.0", "id": each, "result": {}} for each in identifiers]
    assert [type(answer["id"]) for answer in answers] == [int, int, str, str]


@WIRES
@pytest.mark.requirement("RPC-24", "RPC-06")
def test_a_ping_that_comes_before_the_answer_to_initialize_is_answered_too(wire: str) -> None:
    script = [
        s.expect("initialize", label="start"),
        s.request("ping", identifier=1),
        s.expect("response"),
        s.reply({"protocolVersion": OLD, "capabilities": {}, "serverInfo": {}}, to="start"),
        s.expect("notifications/initialized"),
    ]
    with talk(script, wire) as (peer, _):
        (answer,) = peer.requests("response")
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": {}}


@WIRES
@pytest.mark.requirement("RPC-08", "RPC-19")
def test_a_request_that_nobody_handles_is_refused_as_unknown(wire: str) -> None:
    methods = ["sampling/createMessage", "elicitation/create", "roots/list", "acme/what"]
    methods += ["tasks/get"]
    script = [*opening()]
    for method in methods:
        script += [s.request(method, {"a": 1}, identifier=method), s.expect("response")]
    with talk(script, wire) as (peer, _):
        answers = peer.requests("response", len(methods))
    for method, answer in zip(methods, answers, strict=True):
        assert answer["id"] == method
        assert answer["error"]["code"] == -32601
        assert isinstance(answer["error"]["message"], str)
        assert "result" not in answer


@WIRES
@pytest.mark.requirement("RPC-26")
def test_in_the_stateless_era_a_server_is_never_sent_a_response(wire: str) -> None:
    script = [
        *opening(NEW),
        s.request("ping", identifier=1),
        s.request("sampling/createMessage", {}, identifier=2),
        s.request("acme/what", identifier=3),
        s.message({"jsonrpc": "2.0", "id": 4}),
        s.expect("tools/list"),
        s.reply(TOOLS),
    ]
    with Scripted(script) as peer:
        with syncmcp.connect(peer.on(wire), mode=NEW) as client:
            client.list_tools()
        assert peer.gone()
        assert peer.methods(2) == ["server/discover", "tools/list"]


@WIRES
@pytest.mark.requirement("RPC-09")
def test_notifications_are_never_answered_whatever_is_wrong_with_them(wire: str) -> None:
    script = [
        *opening(),
        s.notify("notifications/progress", {"progressToken": 99, "progress": 1}),
        s.notify("notifications/progress", {"progressToken": 99, "progress": "much"}),
        s.notify("notifications/progress"),
        s.notify("notifications/cancelled", {"requestId": 99}),
        s.notify("notifications/cancelled", {"requestId": {"a": 1}}),
        s.notify("notifications/message", {"level": "loud"}),
        s.notify("notifications/message", "text"),
        s.notify("acme/what", {"x": 1}),
        s.message({"jsonrpc": "2.0", "method": 7}),
        *PING,
    ]
    with Scripted(script) as peer:
        with syncmcp.connect(peer.on(wire), mode=OLD, on_log=lambda message: None) as client:
            client.ping()
        assert peer.gone()
        assert peer.methods(3) == ["initialize", "notifications/initialized", "ping"]


@WIRES
@pytest.mark.requirement("RPC-12", "RPC-06")
def test_a_batch_is_taken_apart_and_each_of_its_members_counts(wire: str) -> None:
    heard: list[object] = []
    batch = [
        {"jsonrpc": "2.0", "method": "acme/news", "params": {"n": 1}},
        {"jsonrpc": "2.0", "id": 11, "method": "ping"},
        {"jsonrpc": "2.0", "id": s.ID, "result": {"tools": []}},
        {"jsonrpc": "2.0", "id": 12, "method": "acme/question"},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": 999, "result": {}},
    ]
    script = [*opening("2025-03-26"), s.expect("tools/list"), s.message(batch)]
    script += [s.expect("response"), s.expect("response")]
    with Scripted(script) as peer:
        client = Client(peer.on(wire), mode="2025-03-26")
        client.on_notification("acme/news", heard.append)
        client.on_request("acme/question", lambda params, context: {"yes": True})
        with client:
            assert client.list_tools().tools == []
            answers = {answer["id"]: answer for answer in peer.requests("response", 2)}
        assert answers[11]["result"] == {}
        assert answers[12]["result"] == {"yes": True}
        assert heard == [{"n": 1}]


@pytest.mark.requirement("RPC-10")
def test_an_error_that_names_no_request_is_shown_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = {"jsonrpc": "2.0", "error": {"code": -32700, "message": "cannot parse that"}}
    script = [*opening(), s.message(error), *PING]
    with caplog.at_level(logging.WARNING, "syncmcp"), talk(script) as (_, client):
        client.ping()
    assert "cannot parse that" in caplog.text


@WIRES
def test_deeply_nested_and_truncated_json_disturbs_nobody(wire: str) -> None:
    deep = b'{"jsonrpc":"2.0","method":"x","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    script = [*opening(), s.raw(deep + b"\n"), s.raw(b'{"jsonrpc":"2.0","id":2,"res\n')]
    script += [s.raw(b'{"jsonrpc":"2.0","id":99,"result":NaN}\n'), *PING]
    with talk(script, wire) as (_, client):
        client.ping()


@pytest.mark.parametrize(
    "answer",
    [
        {"jsonrpc": "2.0", "id": s.ID},
        {"jsonrpc": "2.0", "id": s.ID, "error": "text"},
        {"jsonrpc": "2.0", "id": s.ID, "error": {"message": "no code"}},
        {"jsonrpc": "2.0", "id": s.ID, "result": {}, "error": {"code": 1, "message": "both"}},
    ],
)
def test_a_malformed_answer_to_a_request_fails_that_request(answer: object) -> None:
    script = [*opening(), s.expect("ping"), s.message(answer), *PING]
    with talk(script) as (_, client):
        with pytest.raises(syncmcp.ProtocolError, match="malformed") as caught:
            client.ping()
        assert caught.value.method == "ping"
        client.ping()


def test_an_id_that_is_used_twice_by_the_server_is_answered_once() -> None:
    gate = threading.Event()
    script = [
        *opening(),
        s.request("acme/question", identifier=5),
        s.request("acme/question", identifier=5),
        s.request("ping", identifier=6),
        s.expect("response"),
        s.gate("go"),
        s.expect("response"),
        *PING,
    ]

    def wait(params: dict[str, Any], context: syncmcp.HandlerContext) -> None:
        gate.wait(CEILING)

    with Scripted(script) as peer:
        client = Client(peer, mode=OLD)
        client.on_request("acme/question", wait)
        with client:
            assert peer.requests("response")[0]["id"] == 6
            gate.set()
            peer.open("go")
            client.ping()
        assert [answer["id"] for answer in peer.requests("response", 2)] == [6, 5]


def test_handlers_that_lend_their_slots_do_not_open_the_door_to_any_number_of_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncmcp._connection.server_requests.MAX_OPEN", 3)
    inside, go_on = threading.Semaphore(0), CancelToken()

    def wait_and_lend(_: dict[str, Any], __: Any) -> None:
        inside.release()
        assert go_on.wait(PATIENCE)

    questions = [
        step
        for number in range(4)
        for step in (s.request("acme/question", identifier=number), s.gate(f"after {number}"))
    ]
    script = [*opening(), *questions, *[s.expect("response")] * 4]
    with talk(
        script, max_handlers=1, max_questions=2, on_request={"acme/question": wait_and_lend}
    ) as (peer, _):
        for number in range(4):
            if number < 3:
                assert inside.acquire(timeout=PATIENCE)
            peer.open(f"after {number}")
        (refused,) = peer.requests("response", 1)
        assert (refused["id"], refused["error"]["code"]) == (3, -32603)
        go_on.cancel()
        assert {answer["id"] for answer in peer.requests("response", 4)} == {0, 1, 2, 3}
