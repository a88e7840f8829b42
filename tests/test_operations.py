"""Every operation in every era, pages, gates, and results that are not what they should be."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    Client,
    Mode,
    NotSupported,
    Stdio,
    ToolError,
)
from syncmcp.testing import Server, ToolContext
from syncmcp.types import (
    LoggingMessageNotificationParams,
    PromptReference,
    ResourceTemplateReference,
)
from tests import programs
from tests.scripts import NEW, OLD, REVISIONS, STATEFUL

CEILING = programs.CEILING


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
        for level in ("debug", "info", "warning"):
            context.log(level, f"a {level}", "acme")
        return "spoken"

    @server.tool()
    def count(context: ToolContext) -> str:
        context.report_progress(1, 2, "half")
        return "counted"

    server.resource("acme://a", mime_type="text/plain")(lambda: "text of a")
    server.resource("acme://bytes")(lambda: b"\x00\xff")
    server.resource_template("acme://of/{name}", name="of")(lambda name: f"of {name}")
    server.prompt(name="greet")(lambda who="you": f"Greet {who}!")
    server.completion(prompt="greet", argument="who")(lambda value, context: ["ann", "anton"])

    def cities(value: str, arguments: Any) -> list[str]:
        return [f"{arguments.get('country', 'nowhere')}:{value}"]

    server.completion(template="acme://of/{name}", argument="name")(cities)
    return server


@pytest.fixture(params=["memory", "stdio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[Mode], Client]]:
    """A function that connects to the full server in a revision."""
    clients: list[Client] = []
    code = "from tests.test_operations import full_server; full_server().run_stdio()"

    def connect_in(revision: Mode) -> Client:
        if request.param == "memory":
            client = syncmcp.connect(full_server(), mode=revision)
        else:
            root = Path(__file__).parent.parent
            client = syncmcp.connect(Stdio(sys.executable, "-c", code, cwd=root), mode=revision)
        clients.append(client)
        return client

    yield connect_in
    for client in clients:
        client.close()


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("RPC-28", "M-35")
def test_every_operation_works_in_every_era(
    revision: Mode, connect: Callable[[Mode], Client]
) -> None:
    client = connect(revision)
    assert client.server.revision == revision
    assert [tool.name for tool in client.list_tools().tools] == ["add", "fail", "speak", "count"]
    assert next(client.iter_tools()).name == "add"
    assert client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text == "3"
    failed = client.call_tool("fail")
    assert failed.is_error
    assert failed.text == "no luck"
    assert {r.uri for r in client.list_resources().resources} == {"acme://a", "acme://bytes"}
    assert {r.uri for r in client.iter_resources()} == {"acme://a", "acme://bytes"}
    templates = client.list_resource_templates().resource_templates
    assert [template.uri_template for template in templates] == ["acme://of/{name}"]
    assert [t.name for t in client.iter_resource_templates()] == ["of"]
    content = client.read_resource("acme://of/x").contents[0]
    assert content.model_dump()["text"] == "of x"
    assert [prompt.name for prompt in client.list_prompts().prompts] == ["greet"]
    assert [prompt.name for prompt in client.iter_prompts()] == ["greet"]
    prompt = client.get_prompt("greet", {"who": "Ann"})
    assert prompt.messages[0].to_wire()["content"] == {"type": "text", "text": "Greet Ann!"}
    found = client.complete(PromptReference(name="greet"), "who", "an")
    assert found.completion.values == ["ann", "anton"]


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


def test_where_a_result_came_from_is_no_part_of_it() -> None:
    with syncmcp.connect(full_server()) as client:
        one, other = client.call_tool("fail"), client.call_tool("fail")
    alone = type(one).from_wire(one.to_wire())
    other._set_origin("another", "server")
    assert one == other == alone
    assert repr(one) == repr(alone)
    assert one.model_dump() == alone.model_dump()
    assert one.to_wire() == alone.to_wire()
    assert dict(one) == dict(alone)
    assert one.model_dump_json() == alone.model_dump_json()


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-32")
def test_what_only_the_stateful_era_has_is_there_and_refused_in_the_other(
    revision: Mode, connect: Callable[[Mode], Client]
) -> None:
    client = connect(revision)
    calls: list[Callable[[], None]] = [
        client.ping,
        lambda: client.subscribe_resource("acme://a"),
        lambda: client.unsubscribe_resource("acme://a"),
    ]
    for call in calls:
        if revision in STATEFUL:
            call()
        else:
            with pytest.raises(NotSupported, match=NEW):
                call()


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-01")
def test_every_operation_gives_a_future_of_the_same_result(
    revision: Mode, connect: Callable[[Mode], Client]
) -> None:
    client = connect(revision)
    futures: list[tuple[Any, Any]] = [
        (client.list_tools.future(), client.list_tools()),
        (client.list_resources.future(), client.list_resources()),
        (client.list_resource_templates.future(), client.list_resource_templates()),
        (client.list_prompts.future(), client.list_prompts()),
        (
            client.call_tool.future("add", {"a": 1, "b": 2}),
            client.call_tool("add", {"a": 1, "b": 2}),
        ),
        (client.read_resource.future("acme://bytes"), client.read_resource("acme://bytes")),
        (client.get_prompt.future("greet"), client.get_prompt("greet")),
        (client.request.future("tools/list"), client.request("tools/list")),
    ]
    for future, result in futures:
        assert future.result(CEILING) == result
    if revision in STATEFUL:
        assert client.ping.future().result(CEILING) is None


# -- logging -------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("M-32", "M-25")
def test_the_log_level_is_asked_for_in_the_way_of_the_era(revision: Mode) -> None:
    heard: list[LoggingMessageNotificationParams] = []
    server = full_server()
    with syncmcp.connect(server, mode=revision, on_log=heard.append) as client:
        client.set_log_level("warning")
        client.call_tool("speak")
        assert [message.data for message in heard] == ["a warning"]
        assert (heard[0].level, heard[0].logger) == ("warning", "acme")
        heard.clear()
        client.set_log_level("info")
        client.call_tool("speak")
        assert [message.level for message in heard] == ["info", "warning"]
        with server.stats as stats:
            assert stats.requests["logging/setLevel"] == (2 if revision in STATEFUL else 0)


@pytest.mark.requirement("M-25")
def test_one_call_may_ask_for_its_own_log_level_in_the_stateless_era() -> None:
    heard: list[str] = []
    with syncmcp.connect(
        full_server(), mode=NEW, on_log=lambda message: heard.append(message.level)
    ) as client:
        client.call_tool("speak")
        assert heard == []  # nothing unless it is asked for
        client.call_tool("speak", log_level="debug")
        assert heard == ["debug", "info", "warning"]
        client.call_tool("speak")
        assert len(heard) == 3


@pytest.mark.requirement("M-25")
def test_all_eight_levels_arrive_in_order_with_their_logger_names() -> None:
    levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    heard: list[tuple[str, str | None, object]] = []
    server = Server("eight")

    @server.tool()
    def speak(context: ToolContext) -> str:
        for number, level in enumerate(levels):
            context.log(level, {"number": number}, f"acme.{level}")
        return ""

    server.on_request("logging/setLevel", lambda params, context: {})
    with syncmcp.connect(
        server,
        mode=OLD,
        on_log=lambda message: heard.append((message.level, message.logger, message.data)),
    ) as client:
        for session in server.sessions:
            session.log_level = "debug"
        client.call_tool("speak")
    assert heard == [(level, f"acme.{level}", {"number": n}) for n, level in enumerate(levels)]


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_level_that_does_not_exist_is_refused_before_anything_is_sent(revision: Mode) -> None:
    level: Any = "loud"
    server = full_server()
    with syncmcp.connect(server, mode=revision) as client:
        with pytest.raises(syncmcp.UsageError, match="loud"):
            client.set_log_level(level)
        with pytest.raises(syncmcp.UsageError, match="INFO"):
            client.list_tools(log_level="INFO")  # type: ignore[arg-type]
        assert client.list_tools().tools
    assert "logging/setLevel" not in server.stats.requests


# -- subscriptions, progress, completion --------------------------------------------------------


def test_a_subscribed_resource_tells_of_its_changes_until_it_is_unsubscribed() -> None:
    server = full_server()
    heard: list[dict[str, Any]] = []
    told = threading.Semaphore(0)

    def hear(params: dict[str, Any]) -> None:
        heard.append(params)
        told.release()

    client = Client(server, mode=OLD)
    client.on_notification("notifications/resources/updated", hear)
    with client:
        server.resource_updated("acme://a")  # nobody has asked
        client.subscribe_resource("acme://a")
        server.resource_updated("acme://a")
        assert told.acquire(timeout=CEILING)
        client.unsubscribe_resource("acme://a")
        server.resource_updated("acme://a")
        client.ping()
    assert heard == [{"uri": "acme://a"}]


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


def test_the_stateless_era_has_no_progress_from_clients() -> None:
    with syncmcp.connect(full_server(), mode=NEW) as client, pytest.raises(NotSupported):
        client.report_progress("t", 1)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_context_of_a_completion_is_left_out_where_the_revision_lacks_it(
    revision: Mode,
) -> None:
    seen: list[dict[str, Any]] = []
    server = full_server()

    def complete(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        seen.append(params)
        return {"completion": {"values": []}}

    server.on_request("completion/complete", complete)
    with syncmcp.connect(server, mode=revision) as client:
        reference = ResourceTemplateReference(uri="acme://of/{name}")
        client.complete(reference, "name", "x", {"country": "no"})
    assert seen[0]["ref"] == {"type": "ref/resource", "uri": "acme://of/{name}"}
    assert seen[0]["argument"] == {"name": "name", "value": "x"}
    if revision in ("2024-11-05", "2025-03-26"):
        assert "context" not in seen[0]
    else:
        assert seen[0]["context"] == {"arguments": {"country": "no"}}
