"""Methods that no revision knows, in both directions."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
from pydantic import BaseModel

import syncmcp
from syncmcp import Client, HandlerContext, InvalidOutput, Mode, NotSupported, UsageError
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.support.programs import CEILING
from tests.support.scripts import NEW, OLD, REVISIONS, STATEFUL, WIRES, opening, talk


class Stock(BaseModel):
    item: str
    pieces: int


def warehouse() -> Server:
    server = Server("warehouse")
    server.on_request("acme/count", lambda params, context: {**params, "pieces": 3})

    @server.tool()
    def ask(context: ToolContext, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the client, and say what came back."""
        try:
            return {"result": context.request(method, params)}
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    return server


def asked(client: Client, method: str = "acme/question", **params: Any) -> Any:
    """What the server's tool was answered."""
    result = client.call_tool("ask", {"method": method, "params": params})
    return json.loads(result.raise_for_error().text)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-31")
def test_any_request_can_be_sent_and_answered_in_a_type_of_ones_own(revision: Mode) -> None:
    with syncmcp.connect(warehouse(), mode=revision) as client:
        stock = client.request("acme/count", {"item": "lamp"}, result=Stock)
        assert stock == Stock(item="lamp", pieces=3)
        later = client.request.future("acme/count", {"item": "desk"}, result=Stock)
        assert later.result(CEILING).item == "desk"
        raw = client.request("acme/count", {"item": "bed"})
        assert raw["item"] == "bed"
        assert raw["pieces"] == 3


@WIRES
@pytest.mark.requirement("M-31", "RPC-09")
def test_a_custom_request_has_id_token_and_meta_and_a_notification_has_no_id(wire: str) -> None:
    script = [*opening(), s.expect("acme/tell"), s.expect("acme/count"), s.reply({"pieces": 1})]
    with talk(script, wire) as (peer, client):
        client.notify("acme/tell", {"a": 1})
        client.request("acme/count", {"item": "x"}, meta={"acme.example/k": 1})
        assert peer.requests("acme/tell") == [
            {"jsonrpc": "2.0", "method": "acme/tell", "params": {"a": 1}}
        ]
        (sent,) = peer.requests("acme/count")
        assert type(sent["id"]) is int
        assert sent["params"]["item"] == "x"
        assert sent["params"]["_meta"]["acme.example/k"] == 1
        assert sent["params"]["_meta"]["progressToken"] == sent["id"]


@pytest.mark.requirement("M-31", "STD-05")
def test_a_custom_request_has_deadlines_cancellation_and_progress() -> None:
    server = Server("slow")
    withdrawn = threading.Semaphore(0)

    def work(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        context.report_progress(1, 4, "begun")
        if context.cancelled.wait(CEILING):
            withdrawn.release()
        return {}

    server.on_request("acme/work", work)
    token = syncmcp.CancelToken()
    reports: list[tuple[Any, ...]] = []

    def report(*values: Any) -> None:
        reports.append(values)
        token.cancel("enough")

    with syncmcp.connect(server) as client:
        with pytest.raises(syncmcp.RequestCancelled):
            client.request("acme/work", cancel=token, on_progress=report)
        assert reports == [(1, 4, "begun")]
        with pytest.raises(syncmcp.RequestTimeout):
            client.request("acme/work", timeout=0.5)
        for _ in range(2):
            assert withdrawn.acquire(timeout=CEILING)
        with server.stats as stats:
            assert len(stats.cancels) == 2


@pytest.mark.requirement("M-31")
def test_a_known_method_may_be_sent_by_name_and_keeps_its_gate() -> None:
    server = warehouse()
    with syncmcp.connect(server) as client:
        assert client.request("tools/list", result=ListToolsResult).tools[0].name == "ask"
        with pytest.raises(NotSupported):
            client.request("prompts/list", undeclared="refuse")
        with pytest.raises(UsageError):
            client.request("")
        with server.stats as stats:
            assert stats.requests["prompts/list"] == 0


def test_a_result_that_does_not_fit_the_callers_model_is_invalid_output() -> None:
    with syncmcp.connect(warehouse()) as client:
        with pytest.raises(InvalidOutput, match="Stock") as caught:
            client.request("acme/count", {"item": ["no", "text"]}, result=Stock)
        assert "item" in str(caught.value)
        assert caught.value.method == "acme/count"


@pytest.mark.requirement("M-31")
def test_the_stateless_era_has_no_notifications_from_clients() -> None:
    heard: list[object] = []
    server = warehouse()
    server.on_notification("acme/tell", heard.append)
    with syncmcp.connect(server, mode=NEW) as client:
        for method in ("acme/tell", "notifications/roots/list_changed"):
            with pytest.raises(NotSupported, match=NEW):
                client.notify(method)
        client.list_tools()
    assert heard == []


@pytest.mark.parametrize("revision", STATEFUL)
@pytest.mark.requirement("M-31")
def test_a_handler_answers_requests_that_the_library_does_not_know(revision: Mode) -> None:
    contexts: list[HandlerContext] = []

    def answer(params: dict[str, Any], context: HandlerContext) -> dict[str, Any]:
        contexts.append(context)
        return {"got": params}

    client = Client(warehouse(), mode=revision)
    client.on_request("acme/question", answer)
    with client:
        assert asked(client, door=7) == {"result": {"got": {"door": 7}}}
        assert contexts[0].client is client
        assert contexts[0].method == "acme/question"
        assert not contexts[0].cancel.cancelled


@pytest.mark.requirement("M-31")
def test_a_handler_may_return_a_model_or_nothing_and_be_replaced_and_removed() -> None:
    with syncmcp.connect(warehouse(), mode=OLD) as client:
        assert asked(client)["error"][0] == -32601
        client.on_request("acme/question", lambda params, context: None)
        assert asked(client) == {"result": {}}
        model: Any = lambda params, context: ListToolsResult(tools=[])  # noqa: E731
        client.on_request("acme/question", model)
        assert asked(client)["result"]["tools"] == []
        client.on_request("acme/question", None)
        assert asked(client)["error"][0] == -32601


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-31")
def test_notifications_reach_the_handler_of_their_method_in_order(revision: Mode) -> None:
    heard: list[object] = []
    every: list[tuple[str, object]] = []
    server = Server("tells")

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


@pytest.mark.requirement("M-31")
def test_the_stateless_era_has_no_requests_from_servers(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(warehouse(), mode=NEW)
    client.on_request("acme/question", lambda params, context: None)
    with caplog.at_level(logging.WARNING, "syncmcp"), client:
        assert "acme/question" in caplog.text  # it waits in vain, and its owner is told
        with pytest.raises(NotSupported, match=NEW):
            client.on_request("acme/other", lambda params, context: None)


@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage"])
def test_what_the_library_answers_itself_is_no_custom_method(method: str) -> None:
    client = Client(warehouse())
    with pytest.raises(UsageError, match=method):
        client.on_request(method, lambda params, context: None)
