"""What is made of a client has the client: its class, its handlers, its own methods."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, ClientGroup
from syncmcp.testing import Server, serve_http
from syncmcp.testing.server.context import ToolContext
from syncmcp.types import CallToolResult, ElicitResult, ListToolsResult
from tests.support.stage import PATIENCE

FORM = {"type": "object", "properties": {"n": {"type": "string"}}}


class Careful(Client):
    """Hides a tool, and counts calls."""

    mark = "mine"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[str] = []

    def list_tools(self, **options: Any) -> ListToolsResult:  # type: ignore[override]
        listed = super().list_tools(**options)
        listed.tools = [tool for tool in listed.tools if tool.name != "danger"]
        return listed

    def iter_tools(self, **options: Any) -> Any:
        return (tool for tool in super().iter_tools(**options) if tool.name != "danger")

    def call_tool(self, name: str, *args: Any, **options: Any) -> CallToolResult:  # type: ignore[override]
        self.calls.append(name)
        return super().call_tool(name, *args, **options)


def server() -> Server:
    made = Server("facade")

    @made.tool()
    def safe() -> str:
        return "done"

    @made.tool()
    def danger() -> str:
        return "done"

    @made.tool()
    def ask(context: ToolContext) -> str:
        context.elicit("who?", FORM)
        return " ".join(root["uri"] for root in context.list_roots())

    return made


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("way", ["blocking", "future", "kept method"])
def test_a_handler_is_given_the_client_that_only_a_call_holds(mode: Any, way: str) -> None:
    seen: list[tuple[type, str, list[str]]] = []

    def form(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        client: Any = context.client
        roots = [str(root.path) for root in client.roots.list()]
        seen.append((type(client), client.mark, roots))
        return ElicitResult.accept({"n": "x"})

    def opened() -> Careful:
        return Careful(server(), mode=mode, elicitation=form, roots=["/tmp"]).open()

    def text() -> str:
        if way == "blocking":
            return Client.call_tool(opened(), "ask").text
        ask = Client.call_tool.__get__(opened(), Careful)
        if way == "future":
            future = ask.future("ask")
            del ask
            return future.result(PATIENCE).text
        return ask("ask").text

    def dropped() -> str:
        said = text()
        gc.collect()
        return said

    with pytest.warns(ResourceWarning, match="never closed"):
        said = dropped()
    assert seen == [(Careful, "mine", ["/tmp"])]
    assert said == "file:///tmp"


def test_what_a_client_makes_can_be_pickled_and_copied() -> None:
    with serve_http(server()) as http, Client(http.url) as client:
        for made in (client.tool("safe"), client.request, client.resume, client.start_task):
            other: Any = pickle.loads(pickle.dumps(made))
            assert type(other) is type(made)
            assert type(copy.deepcopy(made)) is type(made)
        assert pickle.loads(pickle.dumps(client.tool("safe")))().text == "done"
        assert pickle.loads(pickle.dumps(client.request))("tools/list")["tools"]
        pickle.loads(pickle.dumps(client)).close()  # all of these have the process's one


def test_what_a_subclass_has_in_the_place_of_a_method_counts() -> None:
    made = server()
    changed = threading.Event()
    lists: list[list[str]] = []

    def note(tools: list[Any]) -> None:
        lists.append([tool.name for tool in tools])
        changed.set()

    with Careful(made) as client:
        with pytest.raises(syncmcp.UsageError, match="'danger'"):
            client.tool("danger")
        assert client.tool("safe")().text == "done"
        assert client.calls == ["safe"]
        with ClientGroup({"a": client}) as group:
            assert sorted(tool.name for tool in group.tools.values()) == ["ask", "safe"]
        client.open()
        listener = client.on_tools_changed(note, debounce=0.0)
        made.add_tool(lambda: "new", name="third")
        assert changed.wait(PATIENCE)
        listener.stop(PATIENCE)
    assert lists[-1] == ["safe", "ask", "third"]


def test_the_mode_is_looked_at_before_anything_that_may_ask_a_person() -> None:
    mode: Any = "yesterday"
    with pytest.raises(syncmcp.UsageError, match="mode must be one of"):
        Client(object(), mode=mode)  # type: ignore[arg-type]
