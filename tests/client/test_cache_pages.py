"""Pages that are kept: a list is never put together from those of two walks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import Client
from syncmcp.cache import MemoryCache
from syncmcp.testing import RpcError, Server, ToolContext, serve_http
from tests.client.test_cache import MEMORY, wires
from tests.support.stage import PATIENCE, STATELESS, Clock, Wire

SIZE = 2
# The list before and after it changed; nobody is told.
OLD, NEW = "abcdef", "xbydzfg"
MINUTE = 60_000


class Library:
    """A server whose list of tools changes without a word.

    Attributes:
        server: The server.
        keys: The names of the tools.
        lifetimes: How long each page may be kept, in milliseconds, by where it begins.
        broken: Whether later pages fail.
        asked: Where the pages were that were asked for, in order.
    """

    def __init__(self, scope: str = "private") -> None:
        self.server = Server("library", capabilities={"tools": {}})
        self.server.on_request("tools/list", self.page)
        self.keys = OLD
        self.lifetimes: dict[int, int] = {}
        self.broken = False
        self.asked: list[int] = []
        self._scope = scope

    def page(self, params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Answer one request, on a worker thread."""
        start = int(params.get("cursor", "0"))
        self.asked.append(start)
        if start and self.broken:
            raise RpcError(-32603, "broken")
        end = start + SIZE
        result: dict[str, Any] = {
            "tools": [
                {"name": key, "inputSchema": {"type": "object"}} for key in self.keys[start:end]
            ],
            "ttlMs": self.lifetimes.get(start, MINUTE),
            "cacheScope": self._scope,
        }
        if end < len(self.keys):
            result["nextCursor"] = str(end)
        return result


def blocking(client: Client, **options: Any) -> str:
    return "".join(tool.name for tool in client.list_tools(**options).tools)


def future(client: Client, **options: Any) -> str:
    return "".join(tool.name for tool in client.list_tools.future(**options).result(PATIENCE).tools)


def iterated(client: Client, **options: Any) -> str:
    return "".join(tool.name for tool in client.iter_tools(**options))


every_way = pytest.mark.parametrize("way", [blocking, future, iterated])


@wires
@every_way
@pytest.mark.parametrize("shorter", [0, SIZE, SIZE * 2])
@pytest.mark.requirement("CCH-04")
def test_a_list_is_kept_as_long_as_the_page_that_may_be_kept_least(
    wire: Wire, way: Callable[[Client], str], shorter: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "syncmcp._client.caching")
    library = Library()
    library.lifetimes[shorter] = MINUTE // 2
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


def _list_that_fails(client: Client, library: Library) -> None:
    library.broken = True
    with pytest.raises(syncmcp.InternalError):
        client.list_tools(cache="refresh")
    library.broken = False


REFRESHED: dict[str, Callable[[Client, Library], object]] = {
    "first page": lambda client, _: client.list_tools(cursor=None, cache="refresh"),
    "later page": lambda client, _: client.list_tools(cursor=str(SIZE), cache="refresh"),
    "request": lambda client, _: client.request(
        "tools/list", {"cursor": str(SIZE)}, cache="refresh"
    ),
    "iterator": lambda client, _: next(client.iter_tools(cache="refresh")),
    "list that fails": _list_that_fails,
}
every_refresh = pytest.mark.parametrize("refresh", REFRESHED.values(), ids=list(REFRESHED))


@wires
@every_way
@every_refresh
@pytest.mark.requirement("M-35")
def test_a_page_that_was_fetched_alone_is_not_put_together_with_kept_ones(
    wire: Wire, way: Callable[[Client], str], refresh: Callable[[Client, Library], None]
) -> None:
    library = Library()
    with wire.connect(library.server) as client:
        assert blocking(client) == OLD
        library.keys = NEW
        refresh(client, library)
        assert way(client) == NEW
        library.asked = []
        assert blocking(client) == iterated(client) == NEW
        assert library.asked == []


@every_way
@every_refresh
def test_nor_is_one_that_another_client_put_into_the_store(
    way: Callable[[Client], str], refresh: Callable[[Client, Library], None]
) -> None:
    library, store = Library("public"), MemoryCache()
    options: dict[str, Any] = {"mode": STATELESS, "cache": store}
    with (
        serve_http(library.server) as http,
        syncmcp.connect(http.url, **options) as client,
        syncmcp.connect(http.url, **options) as other,
    ):
        assert blocking(client) == way(other) == OLD
        assert library.asked == [0, 2, 4]
        library.keys = NEW
        refresh(other, library)
        assert way(client) == NEW
        library.asked = []
        assert way(other) == NEW
        assert library.asked == []


@wires
@pytest.mark.requirement("M-35")
def test_after_a_new_first_page_those_behind_it_are_new_ones_too(wire: Wire) -> None:
    library = Library()
    with wire.connect(library.server) as client:

        def by_cursors(**options: Any) -> str:
            """A list whose later pages may be kept ones."""
            page = client.list_tools(cursor=None, **options)
            names = [tool.name for tool in page.tools]
            while page.next_cursor is not None:
                page = client.list_tools(cursor=page.next_cursor)
                names += [tool.name for tool in page.tools]
            return "".join(names)

        assert blocking(client) == by_cursors() == OLD
        assert library.asked == [0, 2, 4]
        library.keys = NEW
        assert by_cursors(cache="refresh") == NEW
        assert by_cursors() == NEW
        assert library.asked == [0, 2, 4, 0, 2, 4, 6]


@wires
def test_an_iterator_over_a_kept_list_goes_on_with_it_whatever_is_fetched_meanwhile(
    wire: Wire,
) -> None:
    library = Library()
    with wire.connect(library.server) as client:
        assert blocking(client) == OLD
        tools = client.iter_tools()
        assert next(tools).name == OLD[0]
        library.keys = NEW
        assert blocking(client, cache="refresh") == NEW
        assert [tool.name for tool in tools] == list(OLD[1:])
        assert iterated(client) == NEW
        assert library.asked == [0, 2, 4, 0, 2, 4, 6]


def test_the_limit_of_pages_counts_kept_ones_as_they_are_needed() -> None:
    library = Library()
    with MEMORY.connect(library.server) as client:
        assert blocking(client) == OLD
        with pytest.raises(syncmcp.LimitExceeded):
            blocking(client, max_pages=2)
        tools = client.iter_tools(max_pages=2)
        assert [next(tools).name for _ in range(SIZE * 2)] == list(OLD[: SIZE * 2])
        with pytest.raises(syncmcp.LimitExceeded):
            next(tools)
        assert library.asked == [0, 2, 4]


@every_way
def test_kept_pages_whose_cursors_go_round_in_circles_are_an_error_as_others_are(
    way: Callable[[Client], str],
) -> None:
    library = Library()

    def circle(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {**library.page({}, context), "nextCursor": "again"}

    library.server.on_request("tools/list", circle)
    with MEMORY.connect(library.server) as client:
        for _ in range(2):
            with pytest.raises(syncmcp.ProtocolError, match="repeated a cursor"):
                way(client)
