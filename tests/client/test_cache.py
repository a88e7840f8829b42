"""Cached results: how long they are valid, and what invalidates them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncmcp
from syncmcp import (
    ChangeEvent,
    ClosedError,
    Handlers,
    InvalidParams,
    RequestCancelled,
    SubscriptionLost,
    UsageError,
    types,
)
from syncmcp._client.caching import ResultCache
from syncmcp._client.pages import cached_or_exchange
from syncmcp._connection.options import CacheUse, ResolvedOptions
from syncmcp._protocol.capabilities import NO_OFFER
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.revisions import dialect_for
from syncmcp._protocol.steps import CacheLookup, Send, Steps
from syncmcp.cache import CachedResult, MemoryCache
from syncmcp.config import Http
from syncmcp.testing import RpcError, Server, ToolContext, serve_http
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Clock, Wire, rotated_stateless

MEMORY = Wire("memory", STATELESS)

FETCHES: dict[str, Callable[..., Any]] = {
    "tools/list": lambda client, **how: client.list_tools(**how),
    "prompts/list": lambda client, **how: client.list_prompts(**how),
    "resources/list": lambda client, **how: client.list_resources(**how),
    "resources/templates/list": lambda client, **how: client.list_resource_templates(**how),
    "resources/read": lambda client, **how: client.read_resource("shelf:/new", **how),
    "server/discover": lambda client, **how: client.request("server/discover", **how),
}
every_fetch = pytest.mark.parametrize("method", FETCHES)


class Recorder:
    """A store that exposes its entries."""

    def __init__(self) -> None:
        self.kept: dict[str, CachedResult] = {}

    def get(self, key: str) -> CachedResult | None:
        return self.kept.get(key)

    def put(self, key: str, result: CachedResult) -> None:
        self.kept[key] = result


def shop(ttl_ms: int | None = 60_000, **options: Any) -> Server:
    """A server with a feature of each kind; its results may be cached for a minute."""
    server = Server("shop", ttl_ms=ttl_ms, **options)

    server.add_tool(lambda text: text, name="echo")
    server.prompt(name="greet")(lambda: "hello")
    server.resource("shelf:/new")(lambda: "Moby-Dick")
    server.resource("shelf:/old")(lambda: "Ulysses")
    server.resource_template("shelf:/{name}")(lambda name: f"a book of {name}")
    return server


def asked(server: Server, method: str) -> int:
    return server.stats.requests[method]


def names(client: Any, **options: Any) -> list[str]:
    return [tool.name for tool in client.list_tools(**options).tools]


# -- lifetimes ------------------------------------------------------------------------------------
@rotated_stateless
def test_futures_and_iterators_take_what_is_kept_and_keep_what_they_get(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client:
        first = client.list_tools.future().result(PATIENCE)
        future = client.list_tools.future()
        assert future.done()
        assert future.result() == first == client.list_tools()
        assert list(client.iter_tools()) == first.tools
        assert client.read_resource.future("shelf:/new").result(PATIENCE).text == "Moby-Dick"
        assert client.read_resource("shelf:/new").text == "Moby-Dick"
        for raw in (client.request("tools/list"), client.request.future("tools/list").result()):
            assert raw["tools"][0]["name"] == "echo"
    assert (asked(server, "tools/list"), asked(server, "resources/read")) == (1, 1)


@rotated_stateless
@pytest.mark.requirement("CCH-01")
def test_another_method_or_other_parameters_are_another_result(wire: Wire) -> None:
    server = shop(page_size=1)
    with wire.connect(server) as client:
        for _ in range(2):
            assert client.read_resource("shelf:/new").text == "Moby-Dick"
            assert client.read_resource("shelf:/old").text == "Ulysses"
            assert client.read_resource("shelf:/New").text == "a book of New"
            first = client.list_resources(cursor=None)
            second = client.list_resources(cursor=first.next_cursor)
            assert first.resources != second.resources
            assert client.list_resource_templates().resource_templates
            assert names(client) == ["echo"]
    assert asked(server, "resources/read") == 3
    assert asked(server, "resources/list") == 2


@every_fetch
@pytest.mark.requirement("CCH-04", "CCH-05")
def test_after_its_lifetime_it_is_asked_for_when_somebody_wants_it_and_not_before(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, lifetime = Clock(monkeypatch, "syncmcp._client.caching", stands=True), 60.0
    server, fetch = shop(), FETCHES[method]
    with MEMORY.connect(server) as client:
        clock.advance(1.0)  # opening invalidates results requested up to its own time
        fetch(client, cache="refresh")
        before = asked(server, method)
        clock.advance(lifetime - 1.0)
        fetch(client)
        assert asked(server, method) == before
        clock.advance(1.0)
        client.call_tool("echo", {"text": "a"})  # any earlier request has arrived
        assert asked(server, method) == before
        fetch(client)
        fetch(client)
        assert asked(server, method) == before + 1


@pytest.mark.parametrize("transport", ["memory", "http"])
def test_until_2025_nothing_is_kept_whatever_a_server_says(transport: str) -> None:
    server = shop()
    hints = {"ttlMs": 60_000, "cacheScope": "public"}
    whole = server.features.list_tools
    server.on_request("tools/list", lambda *given: {**whole(*given), **hints})
    store = Recorder()
    with Wire(transport, STATEFUL).connect(server, cache=store) as client:
        assert client.list_tools() == client.list_tools()
    assert asked(server, "tools/list") == 2
    assert not store.kept


def test_an_error_is_not_kept_nor_a_result_that_does_not_fit() -> None:
    server = shop()

    def answer(params: Any, context: ToolContext) -> Any:
        if asked(server, "tools/list") == 1:
            raise RpcError(-32603, "broken")
        unfit = {"tools": 7, "ttlMs": 0}
        later = asked(server, "tools/list") > 2
        return server.features.list_tools(params, context) if later else unfit

    server.on_request("tools/list", answer)
    with MEMORY.connect(server) as client:
        for error in (syncmcp.InternalError, syncmcp.InvalidOutput):
            with pytest.raises(error):
                client.list_tools()
        assert names(client) == ["echo"]


def test_a_kept_result_is_not_for_a_call_that_could_not_be_made() -> None:
    with MEMORY.connect(shop()) as client:
        client.list_tools()
        token = syncmcp.CancelToken()
        token.cancel("enough")
        with pytest.raises(RequestCancelled, match="cancelled"):
            client.list_tools(cancel=token)
        client.close()
        for call in (client.list_tools, client.list_tools.future):
            with pytest.raises(ClosedError):
                call()


@rotated_stateless
def test_whatever_a_caller_does_to_its_result_the_next_one_is_as_it_was(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client:
        for _ in range(3):
            result, raw = client.list_tools(), client.request("tools/list")
            assert "spoiled" not in f"{result} {raw}"
            (tool,) = result.tools
            tool.name = "spoiled"
            for schema in (tool.input_schema, raw["tools"][0]["inputSchema"]):
                schema["properties"]["spoiled"] = {}
                schema["required"].append("spoiled")
            result.tools.clear()
            raw["tools"].append("spoiled")
    assert asked(server, "tools/list") == 1


# -- options of a call ----------------------------------------------------------------------------
@rotated_stateless
@every_fetch
def test_a_call_may_refresh_what_is_kept_or_pass_it_by(wire: Wire, method: str) -> None:
    server, fetch, store = shop(), FETCHES[method], Recorder()
    with wire.connect(server, cache=store) as client:
        before = asked(server, method)
        fetch(client, cache="bypass")
        assert not store.kept
        fetch(client)
        (first,) = store.kept.values()
        fetch(client, cache="use")
        fetch(client, cache="bypass")
        assert list(store.kept.values()) == [first]
        fetch(client, cache="refresh")
        (second,) = store.kept.values()
        assert second.asked > first.asked
        fetch(client)
        assert asked(server, method) == before + 4


@rotated_stateless
@pytest.mark.parametrize(
    "option",
    [
        {"meta": {"example.com/who": "me"}},
        {"headers": {"X-Who": "me"}},
        {"handlers": Handlers(elicitation=lambda params, context: types.ElicitResult.decline())},
        {"log_level": "debug"},
    ],
    ids=lambda option: str(next(iter(option))),
)
def test_a_call_that_says_more_than_parameters_is_not_kept(
    wire: Wire, option: dict[str, Any]
) -> None:
    server, store = shop(), Recorder()
    with wire.connect(server, cache=store) as client:
        client.list_tools(**option)
        client.list_tools(**option, cache="refresh")
        assert not store.kept
        client.list_tools()
        client.list_tools(**option)
        assert asked(server, "tools/list") == 4
        client.request("tools/list", {"_meta": {"a": 1}})
        assert asked(server, "tools/list") == 5
        assert len(store.kept) == 1


def test_a_client_that_can_answer_more_is_told_what_that_makes_of_a_list() -> None:
    server = shop()
    with MEMORY.connect(server) as client:
        for wrong in ("always", None, True):
            with pytest.raises(UsageError, match="cache must be 'use', 'refresh' or 'bypass'"):
                client.list_tools(cache=wrong)  # type: ignore[arg-type]
        assert asked(server, "tools/list") == 0
        client.list_tools()
        client.set_elicitation(lambda params, context: types.ElicitResult.decline())
        client.list_tools()
        client.list_tools()
    assert asked(server, "tools/list") == 2


# -- other features -------------------------------------------------------------------------------
def test_a_schema_that_is_out_of_date_is_fetched_past_the_cache_and_into_it() -> None:
    server = shop()
    old = {"type": "object", "properties": {"a": {"type": "integer"}}}
    new = {"type": "object", "properties": {"a": {"type": "string"}}}
    server.add_tool(lambda: {"a": 1}, name="give", output_schema=old)
    with MEMORY.connect(server) as client:
        client.list_tools()
        client.call_tool("give")
        server.add_tool(lambda: {"a": "one"}, name="give", output_schema=new)
        assert client.call_tool("give").data == {"a": "one"}
        assert asked(server, "tools/list") == 2
        assert client.list_tools().tools[-1].output_schema == new
        assert asked(server, "tools/list") == 2


@pytest.mark.requirement("XHD-01", "XHD-14")
def test_a_kept_list_teaches_which_arguments_headers_repeat() -> None:
    server = Server("cloud", ttl_ms=60_000, cache_scope="public")

    marked = {"region": {"type": "string", "x-mcp-header": "Region"}}
    schema = {"type": "object", "properties": marked}
    server.add_tool(lambda region: region, name="start", input_schema=schema)
    store = MemoryCache()
    with serve_http(server) as http:
        for _ in range(2):
            with syncmcp.connect(http.url, mode=STATELESS, cache=store) as client:
                client.list_tools()
                assert client.call_tool("start", {"region": "eu"}).text == "eu"
        # No call lacked its header, and no call listed the tools again.
        assert (asked(server, "tools/list"), asked(server, "tools/call")) == (1, 2)


CHANGES: dict[str, Any] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": None,
}


@rotated_stateless
@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.requirement("CCH-06")
def test_news_outdate_what_they_are_about_and_nothing_else(wire: Wire, method: str) -> None:
    server = shop()
    with wire.connect(server) as client:
        for fetch in FETCHES.values():
            fetch(client)
        before = dict(server.stats.requests)
        wanted: Any = {"tools": True, "prompts": True, "resources": True, "uris": ["shelf:/new"]}
        with client.listen(**wanted, timeout=PATIENCE) as events:
            kind = CHANGES[method]
            server.list_changed(kind) if kind else server.resource_updated("shelf:/new")
            next(events)
            for _ in range(2):
                for fetch in FETCHES.values():
                    fetch(client)
        for other in FETCHES:
            changed = other == method or (kind and CHANGES.get(other) == kind)
            assert asked(server, other) == before[other] + bool(changed), other


@pytest.mark.requirement("CCH-06")
@pytest.mark.parametrize("by", ["interruption", "server", "connection"])
def test_what_nobody_told_or_a_lost_subscription_was_about_counts_as_changed(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shop()

    def refuse(params: Any, context: ToolContext) -> Any:
        raise RpcError(-32600, "not again")

    with (
        serve_http(server) as http,
        syncmcp.connect(http.url, mode=STATELESS) as client,
        client.listen(tools=True, timeout=PATIENCE) as events,
    ):
        end = events._inbox.close

        def ask_and_end(error: syncmcp.McpError | None = None) -> None:
            names(client)  # a thread that this end wakes up may do the same
            assert asked(server, "tools/list") == 2
            end(error)

        names(client)
        client.list_prompts()
        if by == "interruption":
            http.drop_connections()
            assert next(events) == ChangeEvent("tools", missed=True)
        else:
            monkeypatch.setattr(events._inbox, "close", ask_and_end)
            if by == "server":
                server.listeners.end()
            else:
                server.on_request("subscriptions/listen", refuse)
                http.drop_connections()
            with pytest.raises(SubscriptionLost) as caught:
                next(events)
            assert caught.value.by == by
        names(client)
        client.list_prompts()
        monkeypatch.undo()
    assert (asked(server, "tools/list"), asked(server, "prompts/list")) == (2, 1)


@pytest.mark.parametrize(("transport", "lists"), [("stdio", 2), ("memory", 2), ("http", 1)])
def test_only_what_a_url_gave_is_good_after_opening_again(transport: str, lists: int) -> None:
    server = shop()
    with Wire(transport, STATELESS).connect(server) as client:
        assert names(client) == ["echo"]
        client.close()
        client.open()
        assert names(client) == names(client) == ["echo"]
    assert asked(server, "tools/list") == lists


# -- pages ----------------------------------------------------------------------------------------
@rotated_stateless
@pytest.mark.requirement("CCH-07")
def test_a_list_is_taken_from_kept_pages_only_if_all_are_there(wire: Wire) -> None:
    server = shop(page_size=2)
    for number in range(5):
        server.add_tool(lambda: "", name=f"tool{number}")
    with wire.connect(server) as client:
        first = client.list_tools(cursor=None)
        client.list_tools(cursor=first.next_cursor)
        assert asked(server, "tools/list") == 2
        assert len(client.list_tools().tools) == 6  # the third page is not cached: all are fetched
        assert asked(server, "tools/list") == 5
        assert len(client.list_tools().tools) == 6
        assert client.list_tools(cursor=None) == first
        client.list_prompts()
        assert asked(server, "tools/list") == 5
        with pytest.raises(InvalidParams):  # this error invalidates all pages of the list
            client.list_tools(cursor="of another time")
        assert asked(server, "tools/list") == 6
        client.list_tools()
        assert asked(server, "tools/list") == 9
        client.list_prompts()
        assert asked(server, "prompts/list") == 1


DIALECT = dialect_for("2026-07-28", None)
LIFETIME = 10
METHODS = {"tools/list": ChangeEvent("tools"), "resources/read": ChangeEvent("resource", "a:1")}


class Keeper:
    """The parts of a client that its cache uses, and the change events it has not yet received."""

    def __init__(self, store: MemoryCache) -> None:
        self.cache: ResultCache | None = ResultCache(
            store, Http("https://example.com/mcp"), extensions={}, offer=lambda: NO_OFFER
        )
        self.settings = SimpleNamespace(max_rounds=1)
        self.heard = dict.fromkeys(METHODS, 0)
        self.news: list[tuple[str, int]] = []

    def live(self) -> Any:
        agreed = SimpleNamespace(check=lambda method, undeclared: DIALECT)
        return SimpleNamespace(dialect=DIALECT, agreed=agreed)


class Fetch(NamedTuple):
    """A request that is not answered from the cache: first sent, then answered, then finished."""

    method: str
    steps: Steps[Any]
    store: Callable[[Reply], None]
    answer: dict[str, Any]


def advance(steps: Steps[Any], value: Any) -> tuple[Any, Any]:
    """Resume a generator; return the effect that it yields, and its result once it ends."""
    try:
        return steps.send(value), None
    except StopIteration as stop:
        return None, stop.value


class World:
    """One server, two clients that share a store, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.versions = dict.fromkeys(METHODS, 0)
        self.store = MemoryCache()
        self.clients = [Keeper(self.store), Keeper(self.store)]
        self.fetches: list[Fetch] = []
        self.hits = 0

    def time(self) -> float:
        return self.now

    def call(self, client: Keeper, method: str, use: CacheUse) -> None:
        options = ResolvedOptions(None, None).but(cache=use)
        params = {"uri": "a:1"} if method == "resources/read" else None
        assert client.cache is not None
        steps: Steps[Any] = cached_or_exchange(cast("Any", client), method, params)
        effect, found = advance(steps, None)
        assert isinstance(effect, CacheLookup)
        effect, found = advance(steps, client.cache.look_up(effect, client.live(), options))
        if found is None:
            assert isinstance(effect, Send)
            store = client.cache.reply_handler(effect, options)
            assert store is not None
            self.fetches.append(Fetch(method, steps, store, {}))
            return
        assert use == "use"
        self.hits += 1
        # A cached result is never older than the last change that this client received...
        assert found["version"] >= client.heard[method]
        # ... and never older than the server allows.
        assert self.now < found["answered"] + LIFETIME

    def serve(self, fetch: Fetch) -> None:
        if not fetch.answer:
            version = self.versions[fetch.method]
            fetch.answer.update(resultType="complete", version=version, cacheScope="public")
            fetch.answer["ttlMs"] = LIFETIME * 1000

    def finish(self, fetch: Fetch) -> None:
        self.serve(fetch)
        fetch.answer["answered"] = self.now  # the time of arrival, used only by this test
        self.fetches.remove(fetch)
        reply = Reply(fetch.answer, DIALECT)
        fetch.store(reply)
        assert advance(fetch.steps, reply) == (None, fetch.answer)

    def change(self, method: str) -> None:
        self.versions[method] += 1
        for client in self.clients:
            client.news.append((method, self.versions[method]))

    def hear(self, client: Keeper) -> None:
        if client.news:
            method, version = client.news.pop(0)
            assert client.cache is not None
            client.cache.on_change(METHODS[method])
            client.heard[method] = version


METHOD = st.sampled_from(["tools/list"] * 3 + ["resources/read"])
WHO = st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), WHO, METHOD, st.sampled_from(["use", "use", "refresh"])),
        st.tuples(st.just("call"), WHO, METHOD, st.just("use")),
        st.tuples(st.sampled_from(["serve", "finish"]), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 2)),
        st.tuples(st.just("change"), METHOD),
        st.tuples(st.just("hear"), WHO),
        st.tuples(st.just("wait"), st.integers(1, 9)),
    ),
    min_size=12,
    max_size=40,
)


def play(steps: list[Any]) -> World:
    world = World()
    with mock.patch("syncmcp._client.caching.monotonic", world.time):
        for kind, *rest in steps:
            # The clock moves only with calls and waits.
            if kind == "call":
                world.now += 0.25
                world.call(world.clients[rest[0]], rest[1], rest[2])
            elif kind in ("serve", "finish") and world.fetches:
                getattr(world, kind)(world.fetches[rest[0] % len(world.fetches)])
            elif kind == "change":
                world.change(rest[0])
            elif kind == "hear":
                world.hear(world.clients[rest[0]])
            elif kind == "wait":
                world.now += float(rest[0])
    return world


@given(STEPS)
def test_no_interleaving_shows_anybody_what_they_were_told_is_old(steps: list[Any]) -> None:
    play(steps)


def asks(client: int, use: CacheUse = "use") -> tuple[Any, ...]:
    return ("call", client, "tools/list", use)


CHANGE = ("change", "tools/list")


@pytest.mark.requirement("CCH-06")
@pytest.mark.parametrize(
    ("steps", "hits"),
    [
        ([asks(0), ("serve", 0), CHANGE, ("hear", 0), ("finish", 0), asks(0)], 0),
        ([asks(0), ("finish", 0), ("wait", 9), asks(0), ("wait", 1), asks(0)], 1),
        ([asks(0), ("finish", 0), asks(1), CHANGE, ("hear", 1), asks(1), asks(0)], 2),
    ],
    ids=["answered before the change", "kept for its lifetime", "kept by another client"],
)
def test_what_is_outdated_is_asked_for_again(steps: list[Any], hits: int) -> None:
    world = play(steps)
    assert (world.hits, len(world.fetches)) == (hits, 1)


def test_an_answer_that_was_asked_for_earlier_does_not_replace_one_asked_for_later() -> None:
    steps = [asks(0), ("serve", 0), CHANGE, asks(1, "refresh"), ("finish", 1), ("finish", 0)]
    (kept,) = play([*steps, ("hear", 1)]).store._entries.values()
    assert b'"version":1' in kept.body
