"""A group that listens to its servers, pings them, and completes arguments."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, ClientGroup, ClosedError, NotSupported, UsageError
from syncmcp.group import GroupSubscription
from syncmcp.testing import Server, ToolContext
from syncmcp.types import PromptReference, ResourceTemplateReference
from tests.support.shops import MISSING, known, shop
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, in_threads


@pytest.fixture
def shops() -> dict[str, Server]:
    return {"a": shop("a", "t"), "b": shop("b", "u")}


@pytest.fixture(params=[STATEFUL, STATELESS])
def group(shops: dict[str, Server], request: pytest.FixtureRequest) -> Iterator[ClientGroup]:
    with ClientGroup({**shops, "broken": MISSING}, mode=request.param) as opened:
        yield opened


class TestListening:
    def test_events_name_their_server(self, group: ClientGroup, shops: dict[str, Server]) -> None:
        with group.listen(tools=True, prompts=True, timeout=PATIENCE) as changes:
            assert dict(changes.lists) == {"a": ("tools", "prompts"), "b": ("tools", "prompts")}
            assert repr(changes) == "<GroupSubscription to a: tools, prompts, b: tools, prompts>"
            shops["b"].add_tool(lambda: "v", name="v", input_schema={})
            assert next(changes) == ("b", ChangeEvent("tools"))
            shops["a"].prompt(name="other")(lambda: "x")
            assert next(changes) == ("a", ChangeEvent("prompts"))
            assert dict(changes.errors) == {}

        uris = ["shop://a/hours", "shop://b/hours"]
        with group.listen(uris=uris, timeout=PATIENCE) as changes:
            assert dict(changes.uris) == {"a": ("shop://a/hours",), "b": ("shop://b/hours",)}
            shops["a"].resource_updated("shop://a/hours")
            assert next(changes) == ("a", ChangeEvent("resource", "shop://a/hours"))

    def test_nobody_is_served_twice_and_each_event_goes_to_one(self, group: ClientGroup) -> None:
        told = [ChangeEvent("tools"), ChangeEvent("prompts")]
        with group.listen(tools=True, prompts=True, timeout=PATIENCE) as changes:

            def tell(*names: str) -> None:
                for name in names:
                    for event in told:
                        changes._inboxes.queues[name].put(event)

            def tell_both() -> None:
                known(lambda: len(changes._inboxes._ready._waiters) == 2)
                tell("a")

            tell("a", "b")
            assert [next(changes)[0] for _ in range(4)] in (["a", "b"] * 2, ["b", "a"] * 2)
            first, second, _ = in_threads(partial(next, changes), partial(next, changes), tell_both)
            assert sorted([first, second]) == sorted(("a", event) for event in told)

    def test_the_last_event_waits_for_no_server(
        self, group: ClientGroup, shops: dict[str, Server], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[float | None] = []
        close = GroupSubscription.close

        def closing(self: GroupSubscription, timeout: float | None = None) -> None:
            told.append(timeout)
            close(self, timeout)

        monkeypatch.setattr(GroupSubscription, "close", closing)
        changes = group.listen(tools=True, stop_after=1, timeout=PATIENCE)
        shops["a"].add_tool(lambda: "v", name="v", input_schema={})
        assert next(changes) == ("a", ChangeEvent("tools"))
        assert told == []
        assert next(changes, None) is None
        assert told == [None]
        assert list(changes) == []

    def test_silence_has_an_end_that_ends_nothing_and_closing_wakes_who_waits(
        self, group: ClientGroup, shops: dict[str, Server]
    ) -> None:
        changes = group.listen(tools=True, timeout=0)
        with pytest.raises(TimeoutError):
            next(changes)
        shops["a"].add_tool(lambda: "v", name="v", input_schema={})
        changes._timeout = PATIENCE
        assert next(changes)[0] == "a"

        def close() -> None:
            known(lambda: bool(changes._inboxes._ready._waiters))
            changes.close()

        assert in_threads(lambda: list(changes), close) == [[], None]

    def test_who_leaves_ends_no_other(self, group: ClientGroup, shops: dict[str, Server]) -> None:
        with group.listen(tools=True, timeout=PATIENCE) as changes:
            group.remove("a")
            shops["b"].add_tool(lambda: "v", name="v", input_schema={})
            assert next(changes) == ("b", ChangeEvent("tools"))
            group.close()
            assert list(changes) == []

    def test_one_that_does_not_agree_is_told_of_not_heard(self, shops: dict[str, Server]) -> None:
        def refuse(params: Any, context: ToolContext) -> Any:
            raise syncmcp.InvalidParams("not today")

        with ClientGroup({**shops}, mode=STATELESS) as group:
            shops["a"].on_request("subscriptions/listen", refuse)
            with group.listen(tools=True, timeout=PATIENCE) as changes:
                assert list(changes.errors) == ["a"]
                assert list(changes.lists) == ["b"]
                shops["b"].add_tool(lambda: "v", name="v", input_schema={})
                assert next(changes)[0] == "b"
            shops["b"].on_request("subscriptions/listen", refuse)
            with pytest.raises(syncmcp.McpError, match="not today"):
                group.listen(tools=True)

    def test_a_subscription_that_is_lost_is_told_and_ends_when_it_was_the_last(
        self, group: ClientGroup, caplog: pytest.LogCaptureFixture
    ) -> None:
        changes = group.listen(tools=True, timeout=PATIENCE)
        for name, listening in changes._listenings.items():
            listening.fail("server")
            assert name in group.clients
        assert list(changes) == []
        lost = {name: type(error) for name, error in changes.errors.items()}
        assert lost == dict.fromkeys("ab", syncmcp.SubscriptionLost)
        assert "[a] " in caplog.text

    def test_one_that_nobody_has_any_more_is_given_up(self, group: ClientGroup) -> None:
        changes = group.listen(tools=True)
        inbox = changes._inboxes.queues["a"]
        gone = weakref.ref(changes)
        del changes
        gc.collect()
        assert gone() is None
        known(lambda: inbox.closed)

    def test_what_makes_no_sense_is_refused(self, group: ClientGroup) -> None:
        cases: list[dict[str, Any]] = [
            *({"uris": uris} for uris in ("shop://a/hours", [""], ["shop://nobody/has"])),
            *({}, {"tools": True, "timeout": -1}, {"tools": True, "stop_after": 0}),
        ]
        for wrong in cases:
            with pytest.raises(UsageError):
                group.listen(**wrong)

    def test_where_no_server_tells_of_it_that_is_said(self) -> None:
        quiet = Server("quiet", capabilities={"tools": {}})
        with ClientGroup({"quiet": quiet}) as group, pytest.raises(NotSupported):
            group.listen(tools=True)
        with pytest.raises(ClosedError):
            group.listen(tools=True)

    def test_ctrl_c_while_it_asks_leaves_nothing(
        self, shops: dict[str, Server], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(jobs: Any) -> Any:
            for job in jobs.values():
                job()
            raise KeyboardInterrupt

        with ClientGroup({"a": shops["a"]}) as group:
            (standing,) = (client._core.session_state for client in group.clients.values())
            before = len(standing._listeners)
            with monkeypatch.context() as patched:
                patched.setattr("syncmcp.group.listening.run_all", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    group.listen(tools=True)
            assert len(standing._listeners) == before


class TestPing:
    def test_every_server_says_that_it_is_there(self, group: ClientGroup) -> None:
        assert dict(group.ping()) == {"a": None, "b": None}
        assert dict(group.ping(servers=["b"], timeout=PATIENCE)) == {"b": None}
        with pytest.raises(UsageError, match="no open server 'broken'"):
            group.ping(servers=["broken"])
        with pytest.raises(UsageError):
            group.ping(timeout=-1)

    def test_what_is_wrong_with_one_is_its_own(self, shops: dict[str, Server]) -> None:
        def fail(params: Any, context: ToolContext) -> Any:
            raise syncmcp.InternalError("tired")

        with ClientGroup({**shops}, mode=STATEFUL) as group:
            shops["b"].on_request("ping", fail)
            answers = group.ping()
        assert answers["a"] is None
        assert isinstance(answers["b"], syncmcp.InternalError)


def completing(name: str) -> Server:
    server, template = Server(name), f"shop://{name}/{{what}}"
    server.prompt(name="greet")(lambda who: who)
    server.resource_template(template, name="what")(lambda what: what)
    places: tuple[dict[str, str], ...] = (
        {"prompt": "greet", "argument": "who"},
        {"template": template, "argument": "what"},
    )
    for place in places:
        server.completion(**place)(lambda typed, _: [f"{name} {typed}"])
    return server


class TestRouting:
    def test_arguments_are_completed_by_the_server_that_has_them(self) -> None:
        template = ResourceTemplateReference(uri="shop://a/{what}")
        with ClientGroup({"a": completing("a"), "b": completing("b")}) as group:
            for ref in (group.prompts["b_greet"], PromptReference(name="b_greet"), "b_greet"):
                assert group.complete(ref, "who", "t").completion.values == ["b t"]
            for each in (group.resource_templates[template.uri], template, template.uri):
                done = group.complete.future(each, "what", "o").result(PATIENCE)
                assert done.completion.values == ["a o"]
            with pytest.raises(UsageError, match="'greet' has no argument 'whom'"):
                group.complete("a_greet", "whom", "")
            for several in ("greet", PromptReference(name="greet")):
                with pytest.raises(UsageError, match="several prompts are named 'greet'"):
                    group.complete(several, "who", "")
            for nothing, kind in (("gret", "prompt"), ("shop://c/{what}", "resource template")):
                with pytest.raises(UsageError, match=f"no server of the group has a {kind} '"):
                    group.complete(nothing, "who", "")

    def test_a_string_is_looked_up_as_a_key_whatever_it_looks_like(self) -> None:
        keys = {"greet": "a {greeting}", "shop://a/{what}": "goods of a"}
        with ClientGroup({"a": completing("a")}, name_hook=lambda name, of: keys[name]) as group:
            assert group.complete("a {greeting}", "who", "t").completion.values == ["a t"]
            assert group.complete("goods of a", "what", "t").completion.values == ["a t"]
        with (
            ClientGroup({"a": completing("a")}, name_hook=lambda name, of: "same") as group,
            pytest.raises(UsageError, match="both a prompt and a template 'same'"),
        ):
            group.complete("same", "who", "t")

    def test_a_tool_is_a_function_by_its_key(self) -> None:
        with ClientGroup({"a": shop("a", "t"), "b": shop("b", "t")}) as group:
            assert group.tool("b_t")().text == "t of b"
            assert group.tool("a_t", timeout=PATIENCE).future().result(PATIENCE).text == "t of a"
            with pytest.raises(UsageError, match="several tools are named 't'"):
                group.tool("t")
            with pytest.raises(UsageError):
                group.tool("a_t", timeout=-1)

    def test_an_operation_is_described_like_that_of_a_client(self, group: ClientGroup) -> None:
        ours, theirs = group.call_tool, group.clients["a"].call_tool
        for name in ("__name__", "__signature__"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert repr(ours) == f"<operation call_tool of {group!r}>"

    def test_a_resource_is_subscribed_to_where_it_is(self, shops: dict[str, Server]) -> None:
        heard = SimpleQueue[tuple[str, str]]()

        def notice(name: str, method: str, params: Any) -> None:
            if method == "notifications/resources/updated":
                heard.put((name, params["uri"]))

        with ClientGroup({**shops}, mode=STATEFUL, on_notification=notice) as group:
            group.subscribe_resource("shop://b/hours")
            shops["b"].resource_updated("shop://b/hours")
            assert heard.get(timeout=PATIENCE) == ("b", "shop://b/hours")
            group.unsubscribe_resource("shop://b/hours")
        assert heard.empty()
