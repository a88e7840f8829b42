"""Every operation in every era, pages, gates, and results that are not what they should be."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, Mode, Stdio, ToolError
from syncmcp.testing import Server, ToolContext
from syncmcp.types import PromptReference
from syncmcp.types.server_features import set_origin
from tests.support import programs
from tests.support.scripts import OLD, REVISIONS, STATEFUL

CEILING = programs.CEILING


TOOLS = ["add", "fail", "speak"]
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def full_server(**options: Any) -> Server:
    """A server with one of everything."""
    server = Server("full", capabilities={"resources": {"subscribe": True}}, **options)

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def fail() -> str:
        raise ValueError("no luck")

    @server.tool()
    def speak(context: ToolContext) -> str:
        for number, level in enumerate(LEVELS):
            context.log(level, {"number": number}, f"acme.{level}")
        return "spoken"

    server.resource("acme://a", mime_type="text/plain")(lambda: "text of a")
    server.resource("acme://bytes")(lambda: b"\x00\xff")
    server.resource_template("acme://of/{name}", name="of")(lambda name: f"of {name}")
    server.prompt(name="greet")(lambda who="you": f"Greet {who}!")
    server.completion(prompt="greet", argument="who")(lambda value, context: ["ann", "anton"])
    return server


@pytest.fixture(params=["memory", "stdio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[Mode], Client]]:
    """A function that connects to the full server in a revision."""
    clients: list[Client] = []
    code = "from tests.client.test_operations import full_server; full_server().run_stdio()"

    def connect_in(revision: Mode) -> Client:
        if request.param == "memory":
            client = syncmcp.connect(full_server(), mode=revision)
        else:
            root = Path(__file__).parents[2]
            client = syncmcp.connect(Stdio(sys.executable, "-c", code, cwd=root), mode=revision)
        clients.append(client)
        return client

    yield connect_in
    for client in clients:
        client.close()


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("RPC-28", "M-01", "M-35")
def test_every_operation_works_everywhere(
    revision: Mode, connect: Callable[[Mode], Client]
) -> None:
    client = connect(revision)
    assert client.server.revision == revision

    def both(operation: Any, *arguments: Any) -> Any:
        """What the call gives, and its future."""
        result = operation(*arguments)
        assert operation.future(*arguments).result(CEILING) == result
        return result

    assert [tool.name for tool in both(client.list_tools).tools] == TOOLS
    assert [tool.name for tool in client.iter_tools()] == TOOLS
    assert both(client.call_tool, "add", {"a": 1, "b": 2}).raise_for_error().text == "3"
    failed = both(client.call_tool, "fail")
    assert (failed.is_error, failed.text) == (True, "no luck")
    assert {r.uri for r in both(client.list_resources).resources} == {"acme://a", "acme://bytes"}
    assert {r.uri for r in client.iter_resources()} == {"acme://a", "acme://bytes"}
    templates = both(client.list_resource_templates).resource_templates
    assert [template.uri_template for template in templates] == ["acme://of/{name}"]
    assert [t.name for t in client.iter_resource_templates()] == ["of"]
    assert both(client.read_resource, "acme://of/x").text == "of x"
    assert both(client.read_resource, "acme://bytes").blob == b"\x00\xff"
    assert [prompt.name for prompt in both(client.list_prompts).prompts] == ["greet"]
    assert [prompt.name for prompt in client.iter_prompts()] == ["greet"]
    prompt = both(client.get_prompt, "greet", {"who": "Ann"})
    assert prompt.messages[0].to_wire()["content"] == {"type": "text", "text": "Greet Ann!"}
    found = both(client.complete, PromptReference(name="greet"), "who", "an", {"country": "no"})
    assert found.completion.values == ["ann", "anton"]
    assert len(both(client.request, "tools/list")["tools"]) == len(TOOLS)
    if revision in STATEFUL:
        assert both(client.ping) is None
        assert both(client.subscribe_resource, "acme://a") is None
        assert both(client.unsubscribe_resource, "acme://a") is None


def test_a_tool_error_names_tool_and_server_also_from_a_pickle() -> None:
    with syncmcp.connect(full_server(), name="mine") as client:
        result = client.call_tool("fail")
    for kept in (
        result,
        copy.copy(result),
        result.model_copy(),
        pickle.loads(pickle.dumps(result)),
    ):
        with pytest.raises(ToolError) as caught:
            kept.raise_for_error()
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert (error.tool, error.server) == ("fail", "mine")
            assert str(error) == "tool 'fail' [mine]: no luck"
            assert error.result == result
    # Where it came from is no part of it.
    alone = type(result).from_wire(result.to_wire())
    set_origin(kept, "another", "server")
    assert result == kept == alone
    for view in (repr, type(alone).model_dump, type(alone).to_wire):
        assert view(result) == view(kept) == view(alone)


# -- logging -------------------------------------------------------------------------------------
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-32", "M-25")
def test_the_log_level_is_asked_for_in_the_way_of_the_era(revision: Mode) -> None:
    heard: list[tuple[str, str | None, object]] = []
    server = full_server()
    with syncmcp.connect(
        server,
        mode=revision,
        on_log=lambda message: heard.append((message.level, message.logger, message.data)),
    ) as client:
        for level in LEVELS:
            client.set_log_level(level)  # type: ignore[arg-type]
            heard.clear()
            client.call_tool("speak")
            assert heard == [
                (other, f"acme.{other}", {"number": number})
                for number, other in enumerate(LEVELS)
                if number >= LEVELS.index(level)
            ]
        with server.stats as stats:
            asked = len(LEVELS) if revision in STATEFUL else 0
            assert stats.requests["logging/setLevel"] == asked


# -- subscriptions, progress, completion --------------------------------------------------------
@pytest.mark.requirement("M-32")
def test_the_client_reports_progress_of_a_request_of_the_servers() -> None:
    server = Server("asks")
    seen: list[dict[str, Any]] = []
    server.on_notification("notifications/progress", seen.append)

    @server.tool()
    def ask(context: ToolContext) -> str:
        context.request("acme/work", {"_meta": {"progressToken": "t-1"}})
        return "asked"

    def work(params: dict[str, Any], context: syncmcp.HandlerContext) -> None:
        token = params["_meta"]["progressToken"]
        context.client.report_progress(token, 1)
        context.client.report_progress(token, 2, 2, "done")

    client = Client(server, mode=OLD)
    client.on_request("acme/work", work)
    with client:
        client.call_tool("ask")
    assert seen == [
        {"progressToken": "t-1", "progress": 1},
        {"progressToken": "t-1", "progress": 2, "total": 2, "message": "done"},
    ]
