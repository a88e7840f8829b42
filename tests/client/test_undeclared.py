"""Servers with undeclared features: refused, unless the program asks the client to try."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, ClientGroup, NotSupported
from syncmcp.completion import Completer
from syncmcp.skills import EXTENSION as SKILLS
from syncmcp.skills import Skills
from syncmcp.testing import Server, ToolContext
from syncmcp.types import PromptReference
from tests.client.test_tasks import ON
from tests.support.session_server import session_server
from tests.support.shops import known
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, Wire, rotated

HINT = (
    r'does not declare the capability {} \(undeclared="try" sends the request anyway'
    r"(; in a test, register the first \w+ before the client connects)?\)$"
)
LETTER = PromptReference(name="letter")


class Modest(Server):
    """A server with every feature that declares none of them."""

    def __init__(self) -> None:
        super().__init__("modest")
        self.add_tool(lambda: "bought", name="buy")
        self.prompt(name="letter")(lambda to="": f"Dear {to}")
        self.completion(prompt="letter", argument="to")(lambda typed, _: [f"{typed}nn"])
        self.resource("a:1", name="one")(lambda: "goods")
        self.resource_template("a:{n}/more", name="more")(lambda n: f"more of {n}")

    def capabilities(self, revision: str) -> dict[str, Any]:
        return {}

    def asked(self) -> set[str]:
        """Return the methods that clients requested, except those of opening, and pings."""
        with self.stats as stats:
            return set(stats.requests) - {"initialize", "server/discover", "ping"}


OPERATIONS: dict[str, Callable[..., object]] = {
    "tools/list": lambda client, **how: client.list_tools(**how),
    "tools/call": lambda client, **how: client.call_tool("buy", **how),
    "resources/list": lambda client, **how: client.list_resources(**how),
    "resources/templates/list": lambda client, **how: client.list_resource_templates(**how),
    "resources/read": lambda client, **how: client.read_resource("a:1", **how),
    "prompts/list": lambda client, **how: client.list_prompts(**how),
    "prompts/get": lambda client, **how: client.get_prompt("letter", **how),
    "completion/complete": lambda client, **how: client.complete(LETTER, "to", "A", **how),
}
STATEFUL_OPERATIONS: dict[str, Callable[..., object]] = {
    "resources/subscribe": lambda client, **how: client.subscribe_resource("a:1", **how),
    "resources/unsubscribe": lambda client, **how: client.unsubscribe_resource("a:1", **how),
    "logging/setLevel": lambda client, **how: client.set_log_level("info", **how),
    "tasks/list": lambda client, **how: client.list_tasks(**how),
}


def operations(wire: Wire) -> dict[str, Callable[..., object]]:
    return {**OPERATIONS, **(STATEFUL_OPERATIONS if wire.revision == STATEFUL else {})}


# -- single calls ----------------------------------------------------------------------------------
REF, ARGUMENT = {"type": "ref/prompt", "name": "letter"}, {"name": "to", "value": "A"}
PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "buy"},
    "prompts/get": {"name": "letter"},
    "resources/read": {"uri": "a:1"},
    "resources/subscribe": {"uri": "a:1"},
    "resources/unsubscribe": {"uri": "a:1"},
    "logging/setLevel": {"level": "info"},
    "completion/complete": {"ref": REF, "argument": ARGUMENT},
}


@rotated
@pytest.mark.requirement("VER-06", "M-31")
def test_what_is_not_declared_is_refused_unless_the_call_says_to_try(wire: Wire) -> None:
    server = Modest()
    with wire.connect(server, name="modest") as client:
        for method, operation in operations(wire).items():
            request = partial(client.request, method, undeclared="refuse")
            for refused in (partial(operation, client), request):
                with pytest.raises(NotSupported, match=HINT.format(r"[\w.]+")) as caught:
                    refused()
                assert (caught.value.method, caught.value.server) == (method, "modest")
        with pytest.raises(NotSupported):
            client.tool("buy")
        with pytest.raises(NotSupported, match=r"has no such request|is not enabled"):
            client.request("tasks/update", {}, undeclared="try")  # the revision has no such method
        assert server.asked() == set()
        assert client.tool("buy", undeclared="try")().text == "bought"
        assert server.asked() == {"tools/list", "tools/call"}
        assert client.list_tools.future(undeclared="try").result(PATIENCE).tools[0].name == "buy"
        assert [prompt.name for prompt in client.iter_prompts(undeclared="try")] == ["letter"]
        found = client.complete(LETTER, "to", "A", undeclared="try")
        assert found.completion.values == ["Ann"]
        for operation in operations(wire).values():
            operation(client, undeclared="try")
            with pytest.raises(NotSupported):  # the option applies to one call only
                operation(client)
        assert server.asked() == set(operations(wire))
        asked = server.stats.requests.copy()
        for method in operations(wire):  # a raw request is sent without the option
            client.request(method, PARAMS.get(method))
            assert server.stats.requests[method] == asked[method] + 1


@rotated
def test_a_client_that_says_so_tries_everything_but_where_a_call_says_otherwise(wire: Wire) -> None:
    server = Modest()
    with wire.connect(server, undeclared="try") as client:
        for operation in operations(wire).values():
            with pytest.raises(NotSupported):
                operation(client, undeclared="refuse")
        assert server.asked() == set()
        for operation in operations(wire).values():
            operation(client, undeclared=None)
        assert server.asked() == set(operations(wire))
        completion = Completer(client, LETTER, pause=0).suggest("to", "A")
        assert completion is not None
        assert completion.values == ["Ann"]
        with client.batch() as batch:
            listed = batch.list_prompts()
        assert listed.result(PATIENCE).prompts[0].name == "letter"


def test_the_log_level_of_a_call_and_of_a_stateless_server_needs_nobody_to_declare_it() -> None:
    server, levels = Modest(), []

    def look(context: ToolContext) -> str:
        levels.append(context.meta.get("io.modelcontextprotocol/logLevel"))
        return ""

    server.add_tool(look, name="look")
    with syncmcp.connect(server, mode=STATELESS) as client:
        client.set_log_level("info")
        client.call_tool("look", undeclared="try")
        client.call_tool("look", undeclared="try", log_level="error")
    assert levels == ["info", "error"]


# -- change events ---------------------------------------------------------------------------------
@rotated
@pytest.mark.requirement("M-12")
@pytest.mark.parametrize("of", ["call", "client"])
def test_changes_that_are_not_declared_can_be_listened_to(wire: Wire, of: str) -> None:
    server = Modest()
    try_it: dict[str, Any] = {"undeclared": "try"}
    fetched: SimpleQueue[str] = SimpleQueue()
    with wire.connect(server, **(try_it if of == "client" else {})) as client:
        here = try_it if of == "call" else {}
        with pytest.raises(NotSupported, match=HINT.format(r"resources\.subscribe")):
            client.listen(uris=["a:1"], undeclared="refuse")
        assert server.asked() == set()
        wanted: dict[str, Any] = {"uris": ["a:1"], "tools": True, "prompts": True}
        with client.listen(**wanted, timeout=PATIENCE, **here) as events:
            server.resource_updated("a:1")
            assert next(events) == ChangeEvent("resource", "a:1")
            server.list_changed("tools")
            server.list_changed("prompts")
            assert {next(events).kind, next(events).kind} == {"tools", "prompts"}
        now: dict[str, Any] = {"debounce": 0, **here}
        listeners = [client.on_resource_updated("a:1", lambda _: fetched.put("a:1"), **now)]
        kinds: tuple[Any, ...] = ("tools", "prompts", "resources")
        for kind in kinds:
            on_changed = getattr(client, f"on_{kind}_changed")
            listeners.append(on_changed(lambda _, kind=kind: fetched.put(kind), **now))
        for kind in kinds:
            server.list_changed(kind)
            assert fetched.get(timeout=PATIENCE) == kind
        server.resource_updated("a:1")
        assert fetched.get(timeout=PATIENCE) == "a:1"
        for listener in listeners:
            assert listener.stop(PATIENCE)


@pytest.mark.parametrize("way", ["blocking", "future", "batch"])
@pytest.mark.requirement("VER-06", "M-12")
def test_a_subscription_that_cannot_be_given_back_is_still_there(way: str) -> None:
    with session_server() as server:
        server.capabilities = {"tools": {}}
        with syncmcp.connect(server.url, mode=STATEFUL) as client:
            client.subscribe_resource("a:1", undeclared="try")
            client.set_log_level("error", undeclared="try")

            def in_a_batch() -> None:
                with client.batch() as batch:
                    batch.unsubscribe_resource("a:1")
                batch.futures[0].result(PATIENCE)

            ways: dict[str, Callable[[], object]] = {
                "blocking": lambda: client.unsubscribe_resource("a:1"),
                "future": lambda: client.unsubscribe_resource.future("a:1").result(PATIENCE),
                "batch": in_a_batch,
            }
            with pytest.raises(NotSupported, match=HINT.format(r"resources\.subscribe")):
                ways[way]()
            for session, subscriptions in (("session-2", 1), ("session-3", 0)):
                server.forget()
                assert client.call_tool("pid").text == session
                assert server.seen[session, "resources/subscribe"] == subscriptions
                assert server.seen[session, "logging/setLevel"] == 1
                if subscriptions:
                    client.unsubscribe_resource("a:1", undeclared="try")


# -- groups ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_a_group_offers_and_hears_what_its_servers_do_not_declare(mode: str) -> None:
    server = Modest()
    with ClientGroup({"modest": server}, mode=mode) as group:
        assert set(group.tools) == set(group.prompts) == set()
        with pytest.raises(NotSupported, match='undeclared="try"'):
            group.listen(tools=True)
        with group.listen(tools=True, undeclared="try", timeout=PATIENCE) as changes:
            server.list_changed("tools")
            assert next(changes) == ("modest", ChangeEvent("tools"))
    with ClientGroup({"modest": server}, mode=mode, undeclared="try") as group:
        assert set(group.tools) == {"buy"}
        assert set(group.prompts) == {"letter"}
        with group.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as changes:
            server.add_tool(lambda: "sold", name="sell")
            assert next(changes) == ("modest", ChangeEvent("tools"))
            server.resource_updated("a:1")
            assert next(changes) == ("modest", ChangeEvent("resource", "a:1"))
        known(lambda: "sell" in group.tools)


# -- tasks -----------------------------------------------------------------------------------------
@rotated
@pytest.mark.requirement("CAN-03")
def test_a_task_can_be_started_followed_and_cancelled_where_none_are_declared(wire: Wire) -> None:
    stage = Stage()
    vars(stage.server)["capabilities"] = lambda revision: {"tools": {}}
    stage.server.add_tool(stage.hold, name="work", task_support="optional")
    with wire.connect(stage.server, **ON) as client:
        with pytest.raises(NotSupported, match='undeclared="try"'):
            client.start_task("work")
        assert stage.stats.requests["tools/call"] == 0
        task = client.start_task("work", {"key": "worked"}, undeclared="try")
        assert task.refresh() == "working"
        assert task.id is not None
        other = client.task(task.id, "work", undeclared="try")
        stage.let_go("worked")
        assert other.result(PATIENCE).text == "worked"
        task = client.start_task("work", undeclared="try")
        task.cancel()
        assert (task.wait(PATIENCE), task.status) == (True, "cancelled")
    assert stage.stats.wait_for(lambda stats: stats.tasks == 0, PATIENCE)


# -- skills ----------------------------------------------------------------------------------------
def test_skills_that_are_not_declared_can_be_asked_for() -> None:
    server = Server("shop")
    said = {"uri": "skill://a/SKILL.md", "frontmatter": {"name": "a", "description": "b"}}
    server.on_request("skills/list", lambda params, context: {"skills": [said]})
    server.on_request("resources/directory/read", lambda params, context: {"contents": 7})
    with syncmcp.connect(server, mode=STATELESS, extensions={SKILLS: {}}) as client:
        skills = Skills(client)
        for attempt in (skills.list, partial(skills.read_directory, "skill://a")):
            with pytest.raises(NotSupported, match='undeclared="try"'):
                attempt()
        (skill,) = skills.list(undeclared="try")
        assert skill.name == "a"
        with pytest.raises(syncmcp.InvalidOutput):
            skills.read_directory("skill://a", undeclared="try")
