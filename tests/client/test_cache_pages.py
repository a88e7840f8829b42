"""Pages that are kept: a list is never put together from those of two walks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import Client
from syncmcp.cache import MemoryCache
from syncmcp.testing import ToolContext, serve_http
from tests.client.library import (
    NEW,
    OLD,
    SIZE,
    Library,
    Way,
    blocking,
    every_way,
    iterated,
)
from tests.client.test_cache import MEMORY
from tests.support.stage import STATELESS, Clock, Wire, rotated_stateless


@rotated_stateless
@every_way
@pytest.mark.parametrize("shorter", [0, SIZE, SIZE * 2])
@pytest.mark.requirement("CCH-04")
def test_a_list_is_kept_as_long_as_the_page_that_may_be_kept_least(
    wire: Wire, way: Way, shorter: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "syncmcp._client.caching")
    library = Library()
    library.lifetimes[shorter] = 30_000
    with wire.connect(library.server) as client:
        assert blocking(client) == OLD
        library.keys = NEW
        clock.advance(29.0)
        assert way(client) == OLD
        assert library.asked == [0, 2, 4]
        clock.advance(2.0)
        assert way(client) == NEW
        assert blocking(client) == NEW
        assert library.asked == [0, 2, 4, 0, 2, 4, 6]


SECOND = f"0:{SIZE}"  # the cursor of the second page


def _list_that_fails(client: Client, library: Library) -> None:
    library.broken = True
    with pytest.raises(syncmcp.InternalError):
        client.list_tools(cache="refresh")
    library.broken = False


REFRESHED: dict[str, Callable[[Client, Library], object]] = {
    "first page": lambda client, _: client.list_tools(cursor=None, cache="refresh"),
    "later page": lambda client, _: client.list_tools(cursor=SECOND, cache="refresh"),
    "request": lambda client, _: client.request("tools/list", {"cursor": SECOND}, cache="refresh"),
    "iterator": lambda client, _: next(client.iter_tools(cache="refresh")),
    "list that fails": _list_that_fails,
}


@every_way
@pytest.mark.parametrize("refresh", REFRESHED)
@pytest.mark.parametrize("by", ["the client", "another client"])
@pytest.mark.requirement("M-35")
def test_a_page_that_was_fetched_alone_is_not_put_together_with_kept_ones(
    way: Way, refresh: str, by: str
) -> None:
    library, store = Library("public"), MemoryCache()
    options: dict[str, Any] = {"mode": STATELESS, "cache": store}
    with (
        serve_http(library.server) as http,
        syncmcp.connect(http.url, **options) as client,
        syncmcp.connect(http.url, **options) as another,
    ):
        assert blocking(client) == way(another) == OLD
        assert library.asked == [0, 2, 4]
        library.keys = NEW
        REFRESHED[refresh](client if by == "the client" else another, library)
        assert way(client) == NEW
        library.asked = []
        assert way(another) == blocking(client) == iterated(client) == NEW
        assert library.asked == []


@rotated_stateless
@pytest.mark.requirement("M-35")
def test_after_a_new_first_page_those_behind_it_are_new_ones_too(wire: Wire) -> None:
    library = Library()
    with wire.connect(library.server) as client:

        def by_cursors(**options: Any) -> list[str]:
            """A list whose later pages may be kept ones."""
            page = client.list_tools(cursor=None, **options)
            names = [tool.name for tool in page.tools]
            while page.next_cursor is not None:
                page = client.list_tools(cursor=page.next_cursor)
                names += [tool.name for tool in page.tools]
            return names

        assert blocking(client) == by_cursors() == OLD
        assert library.asked == [0, 2, 4]
        library.keys = NEW
        assert by_cursors(cache="refresh") == NEW
        assert by_cursors() == NEW
        assert library.asked == [0, 2, 4, 0, 2, 4, 6]


def test_an_iterator_counts_kept_pages_as_they_are_needed_and_goes_on_with_them() -> None:
    library = Library()
    with MEMORY.connect(library.server) as client:
        assert blocking(client) == OLD
        with pytest.raises(syncmcp.LimitExceeded):
            blocking(client, max_pages=2)
        tools = client.iter_tools(max_pages=2)
        assert [next(tools).name for _ in range(SIZE * 2)] == OLD[: SIZE * 2]
        with pytest.raises(syncmcp.LimitExceeded):
            next(tools)
        assert library.asked == [0, 2, 4]
        tools = client.iter_tools()
        assert next(tools).name == OLD[0]
        library.keys = NEW
        assert blocking(client, cache="refresh") == NEW
        assert [tool.name for tool in tools] == OLD[1:]
        assert iterated(client) == NEW
        assert library.asked == [0, 2, 4, 0, 2, 4, 6]


@every_way
def test_kept_pages_whose_cursors_go_in_circles_are_an_error(way: Way) -> None:
    library = Library()

    def circle(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {**library.page({}, context), "nextCursor": "again"}

    library.server.on_request("tools/list", circle)
    with MEMORY.connect(library.server) as client:
        for _ in range(2):
            with pytest.raises(syncmcp.ProtocolError, match="repeated a cursor"):
                way(client)
