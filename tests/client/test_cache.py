"""Results are kept as long as the server allows it, and not a moment after it says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import ClosedError, Handlers, RequestCancelled, UsageError, types
from syncmcp.cache import CachedResult, MemoryCache
from syncmcp.testing import RpcError, Server, ToolContext, serve_http
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Clock, Wire, rotated_stateless

Fetch = Callable[..., Any]
MEMORY = Wire("memory", STATELESS)
DAY = 24 * 3600.0

FETCHES: dict[str, Fetch] = {
    "tools/list": lambda client, **options: client.list_tools(**options),
    "prompts/list": lambda client, **options: client.list_prompts(**options),
    "resources/list": lambda client, **options: client.list_resources(**options),
    "resources/templates/list": lambda client, **options: client.list_resource_templates(**options),
    "resources/read": lambda client, **options: client.read_resource("shelf:/new", **options),
    "server/discover": lambda client, **options: client.request("server/discover", **options),
}
every_fetch = pytest.mark.parametrize("method", FETCHES)


class Recorder:
    """A store that remembers what was put into it."""

    def __init__(self) -> None:
        self.kept: dict[str, CachedResult] = {}

    def get(self, key: str) -> CachedResult | None:
        return self.kept.get(key)

    def put(self, key: str, result: CachedResult) -> None:
        self.kept[key] = result


def shop(ttl_ms: int | None = 60_000, **options: Any) -> Server:
    """A server with one of each, whose results may be kept for a minute."""
    server = Server("shop", ttl_ms=ttl_ms, **options)

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.prompt()
    def greet() -> str:
        return "hello"

    server.resource("shelf:/new")(lambda: "Moby-Dick")
    server.resource("shelf:/old")(lambda: "Ulysses")
    server.resource_template("shelf:/{name}")(lambda name: f"a book of {name}")
    return server


def asked(server: Server, method: str) -> int:
    return server.stats.requests[method]


def names(client: Any, **options: Any) -> list[str]:
    return [tool.name for tool in client.list_tools(**options).tools]


# -- kept, and for how long -----------------------------------------------------------------------
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
@pytest.mark.parametrize(("ttl", "lifetime"), [(60_000, 60.0), (10**12, DAY), (10**30, DAY)])
@pytest.mark.requirement("CCH-04", "CCH-05")
def test_after_its_lifetime_it_is_asked_for_when_somebody_wants_it_and_not_before(
    method: str, ttl: int, lifetime: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "syncmcp._client.caching", stands=True)
    server, fetch = shop(ttl), FETCHES[method]
    with MEMORY.connect(server) as client:
        clock.advance(1.0)  # what was asked for before is older than the connection
        fetch(client, cache="refresh")
        before = asked(server, method)
        clock.advance(lifetime - 1.0)
        fetch(client)
        assert asked(server, method) == before
        clock.advance(1.0)
        client.call_tool("echo", {"text": "a"})  # the server has heard of everything before this
        assert asked(server, method) == before
        fetch(client)
        fetch(client)
        assert asked(server, method) == before + 1


@pytest.mark.parametrize("transport", ["memory", "http"])
def test_until_2025_nothing_is_kept_whatever_a_server_says(transport: str) -> None:
    server = shop()
    hints = {"ttlMs": 60_000, "cacheScope": "public"}
    server.on_request(
        "tools/list",
        lambda params, context: {**server.features.list_tools(params, context), **hints},
    )
    store = Recorder()
    with Wire(transport, STATEFUL).connect(server, cache=store) as client:
        assert client.list_tools() == client.list_tools()
    assert asked(server, "tools/list") == 2
    assert not store.kept


def test_an_error_is_not_kept_nor_a_result_that_does_not_fit() -> None:
    server = shop()
    answers: list[Any] = [RpcError(-32603, "broken"), {"tools": 7}]

    def answer(params: Any, context: ToolContext) -> Any:
        if not answers:
            return server.features.list_tools(params, context)
        given = answers.pop(0)
        if isinstance(given, RpcError):
            raise given
        return {**given, "ttlMs": 0}

    server.on_request("tools/list", answer)
    with MEMORY.connect(server) as client:
        with pytest.raises(syncmcp.InternalError):
            client.list_tools()
        with pytest.raises(syncmcp.InvalidOutput):
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


# -- what a call may say --------------------------------------------------------------------------
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


# -- beside the rest of the library ---------------------------------------------------------------
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
        # No call was refused for want of its header, and none was listed for.
        assert (asked(server, "tools/list"), asked(server, "tools/call")) == (1, 2)
