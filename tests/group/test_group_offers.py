"""What a group offers: its keys, the routing of calls, and changes at run time."""

from __future__ import annotations

import logging
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, ClientGroup, ClosedError, RequiredServersFailed, Stdio, UsageError
from syncmcp.group import Source
from syncmcp.handlers.context import ConnectedServer
from syncmcp.templates import UriTemplate
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitResult, ResourceLink
from tests.support.shops import MISSING, REFUSING, known, shop
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, in_threads

pytestmark = pytest.mark.requirement("M-30")


class TestNames:
    @pytest.mark.requirement("TOOL-05")
    def test_what_two_servers_have_carries_their_names(self) -> None:
        servers = {"a": shop("a", "find", "only_a"), "b": shop("b", "find", "only_b")}
        with ClientGroup(servers) as group:
            assert list(group.tools) == ["a_find", "only_a", "b_find", "only_b"]
            assert [tool.name for tool in group.tools.values()] == list(group.tools)
            assert list(group.prompts) == ["a_order", "b_order"]
            assert list(group.resources) == ["shop://a/hours", "shop://b/hours"]
            templates = [f"shop://{name}/goods/{{article}}" for name in "ab"]
            assert list(group.resource_templates) == templates
            assert group.call_tool("b_find").text == "find of b"
            said = "several tools are named 'find': use one of the keys 'a_find', 'b_f"
            with pytest.raises(UsageError, match=said):
                group.call_tool("find")

    def test_a_hook_names_everything(self) -> None:
        def hook(name: str, server: Any) -> str:
            return f"{server.info.name}.{name}"

        with ClientGroup({"a": shop("x", "find")}, name_hook=hook) as group:
            assert list(group.tools) == ["x.find"]
            assert list(group.prompts) == ["x.order"]
            assert list(group.resources) == ["x.shop://x/hours"]
            assert group.call_tool("x.find").text == "find of x"
            assert group.read_resource("x.shop://x/hours").text == "hours of x"
            assert group.server_of("prompts", "x.order") == ("a", "order")
            wrong: Any = "prompt"
            with pytest.raises(UsageError, match=r"kind must be one of .*, not 'prompt'"):
                group.server_of(wrong, "x.order")

    @pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
    def test_a_hook_is_told_the_name_that_the_group_knows_a_client_by(self, mode: Any) -> None:
        told: list[str] = []

        def hook(name: str, server: ConnectedServer) -> str:
            told.append(server.name)
            return f"{server.name}.{name}"

        server, late = shop("a", "find"), shop("c", "find")
        with (
            syncmcp.connect(server, mode=mode, name="of the program") as opened,
            syncmcp.connect(late, mode=mode) as joining,
        ):
            unopened = Client(shop("b", "find"), mode=mode, name="another")
            with ClientGroup({"one": opened, "two": unopened}, name_hook=hook) as group:
                assert list(group.tools) == ["one.find", "two.find"]
                group.add("three", joining)
                assert group.call_tool("three.find").text == "find of c"
                server.add_tool(lambda: "new", name="fresh", input_schema={})
                known(lambda: "one.fresh" in group.tools)
                group.refresh()
                assert list(group.tools) == ["one.find", "one.fresh", "two.find", "three.find"]
                pairs = [(name, status.server) for name, status in group.status.items()]
                assert [server and server.name for _, server in pairs] == ["one", "two", "three"]
                assert [name for name, _ in pairs] == ["one", "two", "three"]
            assert set(told) == {"one", "two", "three"}
            assert opened.server.name == "of the program"

    def test_a_clash_after_the_hook_names_both_and_opens_nothing(self) -> None:
        servers = {name: shop(name, "find") for name in "ab"}
        group = ClientGroup(servers, name_hook=lambda name, server: name)
        with pytest.raises(UsageError, match=r"'find': 'a' \('find'\) and 'b' \('find'\)"):
            group.open()
        assert {status.state for status in group.status.values()} == {"closed"}
        with pytest.raises(ClosedError):
            _ = group.tools

    @pytest.mark.parametrize("result", ["", None, 3, ZeroDivisionError()])
    def test_a_hook_that_fails_is_told(self, result: Any) -> None:
        def hook(name: str, server: ConnectedServer) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        with pytest.raises(UsageError, match="'find' of 'a'"):
            ClientGroup({"a": shop("a", "find")}, name_hook=hook).open()

    def test_the_same_server_twice_is_refused_but_not_with_other_credentials(self) -> None:
        server, client = shop("a"), Client(shop("b"))
        same: list[tuple[Any, Any, str]] = [
            *((server, server, "a"), (client, client, "b")),
            (MISSING, Stdio("/nowhere/at-all"), "/nowhere/at-all"),
            (REFUSING, syncmcp.Http(REFUSING), REFUSING),
        ]
        for one, other, place in same:
            group = ClientGroup({"one": one, "other": other})
            said = f"'one' and 'other' are the same server, {place}: leave one out"
            with pytest.raises(UsageError, match=said):
                group.open()
            assert {status.state for status in group.status.values()} == {"closed"}
        servers: dict[str, Source] = {
            user: syncmcp.Http(REFUSING, headers={"Authorization": f"Bearer {user}"})
            for user in ("me", "you")
        }
        servers |= {"plain": MISSING, "with": Stdio("/nowhere/at-all", env={"A": "1"})}
        with pytest.raises(RequiredServersFailed) as caught:
            ClientGroup(servers).open()
        assert len(caught.value.errors) == 4


class TestRouting:
    def test_every_shape_of_a_call_reaches_its_server(self) -> None:
        with ClientGroup({"a": shop("a", "search"), "b": shop("b", "u")}) as group:
            assert group.call_tool("u", {}).text == "u of b"
            assert group.call_tool(name="u", arguments={}, timeout=PATIENCE).text == "u of b"
            assert group.call_tool.future("u").result(PATIENCE).text == "u of b"
            assert [item.text for item in group.call_tool.stream("u")] == ["u of b"]  # type: ignore[union-attr]
            with pytest.raises(TypeError, match="unexpected"):
                group.call_tool("u", nonsense=1)  # type: ignore[call-arg]
            with pytest.raises(UsageError, match="did you mean 'search'"):
                group.call_tool("serch")
            with pytest.raises(UsageError, match="neither a key nor a model"):
                group.call_tool(3)  # type: ignore[arg-type]
            with pytest.raises(UsageError):
                group.call_tool()  # type: ignore[call-arg]
            # A resource is read by URI, model or link. A prompt is fetched by key or model.
            link = ResourceLink(name="hours", uri="shop://b/hours")
            for place in ("shop://b/hours", group.resources["shop://b/hours"], link):
                assert group.read_resource(place).text == "hours of b"
            assert group.read_resource("shop://a/goods/fish").text == "fish of a"
            with pytest.raises(UsageError, match="no server of the group has a resource"):
                group.read_resource("shop://c/hours")
            for what in ("b_order", group.prompts["b_order"]):
                said = group.get_prompt(what, {"what": "fish"}).messages[0]
                assert "order fish at b" in str(said)
            with pytest.raises(UsageError, match="what"):
                group.get_prompt(group.prompts["a_order"])
            with pytest.raises(UsageError, match="no server of the group has a prompt 'x'"):
                group.get_prompt("x")

    def test_templates_are_compared_up_to_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        other = shop("b")
        with monkeypatch.context() as patched:
            # The test server rejects an ambiguous template, but other servers may offer it.
            patched.setattr(UriTemplate, "ambiguity", None)
            other.resource_template("shop://a{/path*}", name="any")(lambda path: path)
        with ClientGroup({"a": shop("a"), "b": other}) as group:
            assert "shop://a{/path*}" in group.resource_templates
            assert group.read_resource("shop://a/goods/fish").text == "fish of a"
            with pytest.raises(UsageError, match="no server of the group has a resource"):
                group.read_resource("shop://a/fish")
        compared, match = list[str](), UriTemplate.match

        def counted(template: UriTemplate, uri: str, **options: Any) -> dict[str, str] | None:
            compared.append(repr(template))
            return match(template, uri, **options)

        much = shop("much")
        for number in map(str, range(100)):
            uri = f"much://{number}/{'x' * 1000}/{{name}}"
            much.resource_template(uri, name=number)(lambda name: name)
        monkeypatch.setattr(UriTemplate, "match", counted)
        with ClientGroup({"much": much, "a": shop("a")}) as group:
            assert group.read_resource("shop://a/goods/fish").text == "fish of a"
        assert 25 < len([each for each in compared if "much" in each]) < 35

    def test_a_resource_that_two_servers_have_is_read_by_its_key(self) -> None:
        with ClientGroup({"a": shop("x"), "b": shop("x")}) as group:
            assert list(group.resources) == ["a_shop://x/hours", "b_shop://x/hours"]
            assert group.server_of("resources", "b_shop://x/hours") == ("b", "shop://x/hours")
            listed = group.resources["b_shop://x/hours"]
            assert listed.uri == "shop://x/hours"
            client, *_ = group._state.route(lambda catalog: catalog.route("resources", listed))
            assert client is group.clients["b"]
            assert group.read_resource("b_shop://x/hours").text == "hours of x"
            for uri in ("shop://x/hours", "shop://x/goods/fish"):
                with pytest.raises(UsageError):
                    group.read_resource(uri)


def with_tool(name: str, tool: Any) -> Server:
    """Return a server with one tool of the same name."""
    server = Server(name)
    server.tool(name=name)(tool)
    return server


class TestHandlers:
    @pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
    def test_one_set_answers_all_and_knows_who_asks(self, mode: str) -> None:
        def ask(context: ToolContext) -> str:
            return str(context.elicit("Who asks?", {"type": "object", "properties": {}}))

        asking = {name: with_tool(name, ask) for name in "xyz"}
        asked: list[tuple[str, str]] = []

        def answer(who: str) -> Any:
            def form(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
                asked.append((who, context.server.name))
                return ElicitResult.decline()

            return form

        servers, own = {"one": asking["x"], "two": asking["y"]}, {"elicitation": answer("two")}
        options: dict[str, Any] = {"mode": mode, "elicitation": answer("all")}
        with ClientGroup(servers, per_server={"two": own}, **options) as group:
            group.add("three", asking["z"], elicitation=answer("three"))
            for tool in asking:
                assert "decline" in str(group.call_tool(tool).text)
        assert asked == [("all", "one"), ("two", "two"), ("three", "three")]

    def test_what_is_only_told_names_the_server(self, caplog: pytest.LogCaptureFixture) -> None:
        heard: list[Any] = []

        def shout(context: ToolContext) -> None:
            context.report_progress(1, 2, "half")
            context.log("warning", "loud")

        servers = {"one": with_tool("x", shout), "two": with_tool("y", shout)}
        with ClientGroup(
            servers,
            on_log=lambda server, message: heard.append((server, message.data)),
            on_progress=lambda server, *said: heard.append((server, *said)),
            per_server={"two": {"on_log": lambda message: heard.append(("own", message.data))}},
        ) as group:
            group.call_tool("x", log_level="info")
            group.call_tool("y", log_level="info")
        half, loud = (1, 2, "half"), "loud"
        assert heard == [("one", *half), ("one", loud), ("two", *half), ("own", loud)]
        # A logger gets the messages of each server in a child logger.
        with ClientGroup(servers, on_log=logging.getLogger("servers")) as group:
            group.call_tool("x", log_level="info")
        assert ("servers.one", logging.WARNING, "loud") in caplog.record_tuples

    def test_roots_are_the_same_for_all(self, tmp_path: Path) -> None:
        def look(context: ToolContext) -> str:
            return str(len(context.list_roots()))

        with ClientGroup({name: with_tool(name, look) for name in "xy"}, roots=[]) as group:
            group.roots.add(tmp_path)
            assert [group.call_tool(tool).text for tool in "xy"] == ["1", "1"]
        with pytest.raises(UsageError):
            _ = ClientGroup().roots

    def test_options_of_a_client_are_its_own(self) -> None:
        group = ClientGroup({"a": Client(shop("a"))}, per_server={"a": {"timeout": 1}})
        with pytest.raises(UsageError, match="already has its options"):
            group.open()
        with pytest.raises(UsageError, match="names"):
            ClientGroup({"a": shop("a")}, per_server={"a": {"name": "b"}})


class TestComingAndGoing:
    def test_servers_are_added_and_removed_at_run_time(self) -> None:
        with ClientGroup({"a": shop("a", "t")}) as group:
            client = group.add("b", shop("b", "t", "u"))
            assert group.clients["b"] is client
            # Existing keys do not change.
            assert list(group.tools) == ["t", "b_t", "u"]
            assert group.call_tool("t").text == "t of a"
            group.remove("a")
            assert list(group.tools) == ["b_t", "u"]
            assert list(group.status) == ["b"]
            group.add("c", shop("c", "t"))
            assert list(group.tools) == ["b_t", "u", "c_t"]
        with group:
            assert list(group.clients) == ["b", "c"]

    def test_what_cannot_be_added_leaves_nothing(self) -> None:
        server, other = shop("a", "t"), shop("b", "t")
        with ClientGroup({"a": server}, name_hook=lambda name, of: name[:1]) as group:
            before = {**group.tools}, list(group.status)
            wrong: list[tuple[str, Any, str]] = [
                ("a", shop("c"), "already has a server 'a'"),
                *(("b", server, "'a' and 'b' are the same"), ("b", other, "'a' .* and 'b'")),
                ("b", MISSING, "not found"),
            ]
            for name, source, said in wrong:
                with pytest.raises(syncmcp.McpError, match=said):
                    group.add(name, source)
                assert ({**group.tools}, list(group.status)) == before
                assert other.sessions == []
                assert group.call_tool("t").text == "t of a"

    def test_only_an_open_group_takes_servers_and_calls(self) -> None:
        group = ClientGroup({"broken": MISSING}, require=())
        for call in (group.call_tool, group.call_tool.future, group.call_tool.stream):
            with pytest.raises(ClosedError):
                call("t")
        with pytest.raises(ClosedError):
            group.add("a", shop("a"))
        with group:
            with pytest.raises(UsageError):
                group.add("", shop("a"))
            with pytest.raises(UsageError, match="no server 'x'"):
                group.remove("x")
            with pytest.raises(UsageError, match="already has a server 'broken'"):
                group.add("broken", shop("a"))
            group.remove("broken")
            group.add("broken", shop("a", "t"))
            assert group.call_tool("t").text == "t of a"

    def test_a_client_that_was_open_is_left_open(self) -> None:
        with syncmcp.connect(shop("a", "t")) as mine:
            closed = Client(shop("b", "u"))
            with ClientGroup({"a": mine, "b": closed}) as group:
                assert group.call_tool("u").text == "u of b"
                group.remove("a")
                assert mine.call_tool("t").text == "t of a"
                group.add("a", mine)
            assert mine.call_tool("t").text == "t of a"
            assert mine._core.session_state.listeners == []
            with pytest.raises(ClosedError):
                closed.call_tool("u")

    def test_removing_a_server_ends_its_calls_and_no_others(self) -> None:
        one, two = Stage(), Stage()
        with ClientGroup({"one": one.server, "two": two.server}) as group:
            first = group.call_tool.future("one_hold")
            second = group.call_tool.future("two_hold")
            one.inside("")
            two.inside("")
            group.remove("one")
            with pytest.raises(ClosedError):
                first.result(PATIENCE)
            two.gate.set()
            assert second.result(PATIENCE).text == ""

    def test_a_server_that_died_is_lost_until_the_next_call(self) -> None:
        server = Server("a", capabilities={"tools": {}})  # no listener: it would reconnect
        server.add_tool(lambda: "t of a", name="t", input_schema={})
        with ClientGroup({"a": server}) as group:
            (session,) = server.sessions
            session.close()
            known(lambda: group.status["a"].state == "lost")
            assert group.status["a"].error is not None
            assert group.call_tool("t").text == "t of a"
            states = [group.status["a"].state]
            group.clients["a"].close()
            assert [*states, group.status["a"].state] == ["open", "closed"]


class TestChanges:
    @pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
    def test_what_a_server_changes_is_fetched_again(self, mode: str) -> None:
        server = shop("a", "t")
        with ClientGroup({"a": server, "b": shop("b", "u")}, mode=mode) as group:
            server.add_tool(lambda: "new", name="u", input_schema={})
            known(lambda: "a_u" in group.tools)
            assert list(group.tools) == ["t", "a_u", "u"]
            server.remove_tool("t")
            known(lambda: "t" not in group.tools)
            server.remove_resource("shop://a/hours")
            known(lambda: "shop://a/hours" not in group.resources)

    def test_a_change_that_clashes_is_not_offered(self, caplog: pytest.LogCaptureFixture) -> None:
        server = shop("a", "t")
        servers = {"a": server, "b": shop("b", "u")}
        with ClientGroup(servers, name_hook=lambda name, of: of.name + name[:1]) as group:
            server.add_tool(lambda: "new", name="tt", input_schema={})
            known(lambda: "is left out" in caplog.text)
            assert list(group.tools) == ["at", "bu"]
            assert group.call_tool("at").text == "t of a"

    def test_refresh_asks_servers_that_tell_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        one, two = (Server(name, capabilities={"tools": {}}) for name in ("one", "two"))
        with ClientGroup({"one": one, "two": two}) as group:
            one.add_tool(lambda: "new", name="fresh", input_schema={})
            assert list(group.tools) == []
            two.on_request("tools/list", lambda params, context: {"tools": 3})
            group.refresh()
            assert list(group.tools) == ["fresh"]
            assert "[two] could not fetch its lists: " in caplog.text
        with pytest.raises(ClosedError):
            group.refresh()

    def test_what_came_while_refresh_asked_is_kept(self) -> None:
        server = shop("a", "t")
        asked, answer = threading.Event(), threading.Event()

        def prompts(params: Any, context: ToolContext) -> Any:
            asked.set()
            assert answer.wait(PATIENCE)
            return {"prompts": []}

        with ClientGroup({"a": server}) as group:
            server.on_request("prompts/list", prompts)

            def change() -> None:
                assert asked.wait(PATIENCE)
                there = group._state
                member = there.members()["a"]
                assert member.lists is not None
                newer = member.lists._replace(tools=())
                there._on_change(weakref.ref(there), weakref.ref(member), newer)
                answer.set()

            assert in_threads(group.refresh, change) == [None, None]
            assert dict(group.tools) == {}
