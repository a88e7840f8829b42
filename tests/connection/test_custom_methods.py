"""Methods that no revision knows, in both directions."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from pydantic import BaseModel

import syncmcp
from syncmcp import Client, InvalidOutput, Mode, NotSupported, UsageError
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.connection.questions.asking import asking_server, demanded
from tests.support.programs import CEILING
from tests.support.scripts import NEW, OLD, REVISIONS, opening, talk


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
def test_the_stateless_era_has_neither_notifications_of_clients_nor_requests_of_servers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard, server = list[object](), asking_server()
    server.on_notification("acme/tell", heard.append)
    client = Client(server, mode=NEW)
    client.on_request("acme/question", lambda params, context: None)
    with caplog.at_level(logging.WARNING, "syncmcp"), client:
        assert "acme/question" in caplog.text  # it waits in vain, and its owner is told
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
