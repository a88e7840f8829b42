"""Messages of a server outside calls: pings, requests without handlers, batches, broken frames."""

from __future__ import annotations

import logging
import threading
from itertools import chain
from typing import Any

import pytest
from pydantic import BaseModel

import syncmcp
from syncmcp import CancelToken, Client, InvalidOutput, Mode, NotSupported, UsageError
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.connection.questions.asking import asking_server, demanded
from tests.support.people import Held
from tests.support.programs import CEILING
from tests.support.scripts import NEW, OLD, REVISIONS, STATEFUL, WIRES, Scripted, opening, talk
from tests.support.stage import PATIENCE

PING = [s.expect("ping"), s.reply({})]
TOOLS: dict[str, Any] = {"resultType": "complete", "tools": []}


@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.requirement("RPC-24", "RPC-06", "RPC-07")
def test_a_ping_is_answered_with_an_empty_result_and_its_own_id(revision: Mode) -> None:
    identifiers: list[int | str] = [0, 7, "", "seven"]
    asked = [[s.request("ping", identifier=each), s.expect("response")] for each in identifiers]
    with talk([*opening(revision), *chain(*asked)], mode=revision) as (peer, _):
        answers = peer.requests("response", len(identifiers))
    assert answers == [{"jsonrpc": "2.0", "id": each, "result": {}} for each in identifiers]
    assert [type(answer["id"]) for answer in answers] == [int, int, str, str]


@WIRES
@pytest.mark.requirement("RPC-08", "RPC-19")
def test_a_request_that_nobody_handles_is_refused_as_unknown(wire: str) -> None:
    methods = ["sampling/createMessage", "elicitation/create", "roots/list", "acme/what"]
    methods += ["tasks/get"]
    asked = [[s.request(each, {"a": 1}, identifier=each), s.expect("response")] for each in methods]
    with talk([*opening(), *chain(*asked)], wire) as (peer, _):
        for method, answer in zip(methods, peer.requests("response", len(methods)), strict=True):
            assert (answer["id"], answer["error"]["code"]) == (method, -32601)
            assert isinstance(answer["error"]["message"], str)
            assert "result" not in answer


@WIRES
@pytest.mark.requirement("RPC-26")
def test_in_the_stateless_era_a_server_is_never_sent_a_response(wire: str) -> None:
    script = [*opening(NEW), s.request("ping", identifier=1), s.request("acme/what", identifier=3)]
    script += [s.request("sampling/createMessage", {}, identifier=2)]
    script += [s.message({"jsonrpc": "2.0", "id": 4}), s.expect("tools/list"), s.reply(TOOLS)]
    with Scripted(script) as peer:
        with syncmcp.connect(peer.on(wire), mode=NEW) as client:
            client.list_tools()
        assert peer.gone()
        assert peer.methods(2) == ["server/discover", "tools/list"]


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
        assert (answers[11]["result"], answers[12]["result"]) == ({}, {"yes": True})
        assert heard == [{"n": 1}]


def test_an_id_that_is_used_twice_by_the_server_is_answered_once() -> None:
    asked, held = s.request("acme/question", identifier=5), Held(dict)
    script = [*opening(), asked, asked, s.request("ping", identifier=6), s.expect("response")]
    script += [s.gate("go"), s.expect("response"), *PING]
    with talk(script, on_request={"acme/question": held}) as (peer, client):
        assert peer.requests("response")[0]["id"] == 6
        held.gate.set()
        peer.open("go")
        client.ping()
        assert [answer["id"] for answer in peer.requests("response", 2)] == [6, 5]


def test_handlers_that_lend_their_slots_do_not_let_all_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._connection.server_requests.MAX_OPEN", 3)
    inside, go_on = threading.Semaphore(0), CancelToken()

    def wait_and_lend(_: dict[str, Any], __: Any) -> None:
        inside.release()
        assert go_on.wait(PATIENCE)

    asked = [[s.request("acme/question", identifier=n), s.gate(f"after {n}")] for n in range(4)]
    script = [*opening(), *chain(*asked), *[s.expect("response")] * 4]
    options: Any = {"max_handlers": 1, "max_questions": 2}
    with talk(script, on_request={"acme/question": wait_and_lend}, **options) as (peer, _):
        for number in range(4):
            if number < 3:
                assert inside.acquire(timeout=PATIENCE)
            peer.open(f"after {number}")
        (refused,) = peer.requests("response", 1)
        assert (refused["id"], refused["error"]["code"]) == (3, -32603)
        go_on.cancel()
        assert {answer["id"] for answer in peer.requests("response", 4)} == {0, 1, 2, 3}


class Stock(BaseModel):
    item: str
    pieces: int


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-31")
def test_any_request_can_be_sent_and_answered_in_a_type_of_ones_own(revision: Mode) -> None:
    server = Server("warehouse")
    server.on_request("acme/count", lambda params, context: {**params, "pieces": 3})
    with syncmcp.connect(server, mode=revision) as client:
        stock = client.request("acme/count", {"item": "lamp"}, result=Stock)
        assert stock == Stock(item="lamp", pieces=3)
        later = client.request.future("acme/count", {"item": "desk"}, result=Stock)
        assert later.result(CEILING).item == "desk"
        raw = client.request("acme/count", {"item": "bed"})
        assert (raw["item"], raw["pieces"]) == ("bed", 3)
        with pytest.raises(InvalidOutput, match="Stock") as caught:
            client.request("acme/count", {"item": ["no", "text"]}, result=Stock)
        assert "item" in str(caught.value)
        assert caught.value.method == "acme/count"


@pytest.mark.requirement("M-31", "RPC-09")
def test_a_custom_request_has_id_token_and_meta_and_a_notification_has_no_id() -> None:
    script = [*opening(), s.expect("acme/tell"), s.expect("acme/count"), s.reply({"pieces": 1})]
    with talk(script) as (peer, client):
        client.notify("acme/tell", {"a": 1})
        client.request("acme/count", {"item": "x"}, meta={"acme.example/k": 1})
        told = {"jsonrpc": "2.0", "method": "acme/tell", "params": {"a": 1}}
        assert peer.requests("acme/tell") == [told]
        (sent,) = peer.requests("acme/count")
        assert type(sent["id"]) is int
        assert sent["params"]["item"] == "x"
        meta = sent["params"]["_meta"]
        assert (meta["acme.example/k"], meta["progressToken"]) == (1, sent["id"])


@pytest.mark.requirement("M-31", "STD-05")
def test_a_custom_request_has_cancellation_and_progress() -> None:
    server, withdrawn = Server("slow"), threading.Event()

    def work(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        context.report_progress(1, 4, "begun")
        if context.cancelled.wait(CEILING):
            withdrawn.set()
        return {}

    server.on_request("acme/work", work)
    token, reports = syncmcp.CancelToken(), list[Any]()

    def report(*values: Any) -> None:
        reports.append(values)
        token.cancel("enough")

    with syncmcp.connect(server) as client:
        with pytest.raises(syncmcp.RequestCancelled):
            client.request("acme/work", cancel=token, on_progress=report)
        assert reports == [(1, 4, "begun")]
        assert withdrawn.wait(CEILING)


@pytest.mark.requirement("M-31")
def test_the_stateless_era_has_requests_of_clients_alone(caplog: pytest.LogCaptureFixture) -> None:
    heard, server = list[object](), asking_server()
    server.on_notification("acme/tell", heard.append)
    client = Client(server, mode=NEW)
    client.on_request("acme/question", lambda params, context: None)
    with caplog.at_level(logging.WARNING, "syncmcp"), client:
        assert "acme/question" in caplog.text  # its handler is never called: the log warns of it
        with pytest.raises(NotSupported, match=NEW):
            client.on_request("acme/other", lambda params, context: None)
        for method in ("acme/tell", "notifications/roots/list_changed"):
            with pytest.raises(NotSupported, match=NEW):
                client.notify(method)
        client.list_tools()
    assert heard == []


@pytest.mark.requirement("M-31")
def test_a_handler_may_return_a_model_or_nothing_and_be_replaced_and_removed() -> None:
    with syncmcp.connect(asking_server(), mode=OLD) as client:
        assert demanded(client, "acme/question")["error"][0] == -32601
        client.on_request("acme/question", lambda params, context: None)
        assert demanded(client, "acme/question") == {"result": {}}
        model: Any = lambda params, context: ListToolsResult(tools=[])  # noqa: E731
        client.on_request("acme/question", model)
        assert demanded(client, "acme/question")["result"]["tools"] == []
        client.on_request("acme/question", None)
        assert demanded(client, "acme/question")["error"][0] == -32601
        for method in ("ping", "roots/list", "sampling/createMessage"):
            with pytest.raises(UsageError, match=method):
                client.on_request(method, model)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-31")
def test_notifications_reach_the_handler_of_their_method_in_order(revision: Mode) -> None:
    heard, every, server = list[object](), list[Any](), Server("tells")

    @server.tool()
    def tell(context: ToolContext) -> str:
        for number in range(20):
            context.notify("acme/news", {"number": number})
        context.notify("acme/other")
        return "told"

    client = Client(server, mode=revision, on_notification=lambda *news: every.append(news))
    client.on_notification("acme/news", heard.append)
    with client:
        client.call_tool("tell")
        assert heard == [{"number": number} for number in range(20)]
        assert every == [*(("acme/news", params) for params in heard), ("acme/other", {})]
        client.on_notification("acme/news", None)
        client.call_tool("tell")
        assert len(heard) == 20
