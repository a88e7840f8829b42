"""News of the server's outdate what is kept, also where it is on its way; and pages of lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, InvalidParams, SubscriptionLost
from syncmcp.testing import RpcError, Server, ToolContext, serve_http
from tests.client.test_cache import FETCHES, asked, names, shop
from tests.support.stage import PATIENCE, STATELESS, Wire, rotated_stateless

CHANGES: dict[str, Callable[[Server], object]] = {
    "tools/list": lambda server: server.list_changed("tools"),
    "prompts/list": lambda server: server.list_changed("prompts"),
    "resources/list": lambda server: server.list_changed("resources"),
    "resources/templates/list": lambda server: server.list_changed("resources"),
    "resources/read": lambda server: server.resource_updated("shelf:/new"),
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
            CHANGES[method](server)
            next(events)
            for _ in range(2):
                for fetch in FETCHES.values():
                    fetch(client)
        related = {"resources/list", "resources/templates/list"}
        changed = related if method in related else {method}
        for other in FETCHES:
            assert asked(server, other) == before[other] + (other in changed), other


@pytest.mark.requirement("CCH-06")
def test_what_nobody_told_during_an_interruption_counts_as_changed() -> None:
    server = shop()
    with (
        serve_http(server) as http,
        syncmcp.connect(http.url, mode=STATELESS) as client,
        client.listen(tools=True, timeout=PATIENCE) as events,
    ):
        names(client)
        client.list_prompts()
        http.drop_connections()
        assert next(events) == ChangeEvent("tools", missed=True)
        names(client)
        client.list_prompts()
    assert (asked(server, "tools/list"), asked(server, "prompts/list")) == (2, 1)


@pytest.mark.requirement("CCH-06")
@pytest.mark.parametrize("by", ["server", "connection"])
def test_what_a_lost_subscription_was_about_counts_as_changed(
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
            names(client)  # as a thread may that is woken by the end
            assert asked(server, "tools/list") == 2
            end(error)

        monkeypatch.setattr(events._inbox, "close", ask_and_end)
        names(client)
        client.list_prompts()
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
def crowd(page_size: int = 2, count: int = 6) -> Server:
    """A server with several pages of tools."""
    server = Server("crowd", ttl_ms=60_000, page_size=page_size)
    for number in range(count):
        server.add_tool(lambda: "", name=f"tool{number}")
    server.prompt(name="greet")(lambda: "hello")
    return server


@rotated_stateless
@pytest.mark.requirement("CCH-07")
def test_a_list_is_taken_from_kept_pages_only_if_all_are_there(wire: Wire) -> None:
    server = crowd()
    with wire.connect(server) as client:
        first = client.list_tools(cursor=None)
        client.list_tools(cursor=first.next_cursor)
        assert asked(server, "tools/list") == 2
        assert len(client.list_tools().tools) == 6  # the third is not there: all are fetched
        assert asked(server, "tools/list") == 5
        assert len(client.list_tools().tools) == 6
        assert client.list_tools(cursor=None) == first
        client.list_prompts()
        assert asked(server, "tools/list") == 5
        with pytest.raises(InvalidParams):  # which throws all pages of this list away
            client.list_tools(cursor="of another time")
        assert asked(server, "tools/list") == 6
        client.list_tools()
        assert asked(server, "tools/list") == 9
        client.list_prompts()
        assert asked(server, "prompts/list") == 1
