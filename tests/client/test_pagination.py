"""Lists: their pages, caching, limits, lost sessions and rejected cursors."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import Any
from unittest.mock import Mock

import pytest

import syncmcp
from syncmcp import Client, ConnectionLost, InvalidParams, LimitExceeded, ProtocolError, SessionLost
from syncmcp.cache import MemoryCache
from syncmcp.testing import RpcError, Server, ToolContext, serve_http
from syncmcp.testing import script as s
from tests.client.test_cache import MEMORY
from tests.support.programs import server_processes
from tests.support.scripts import EVERYTHING, Scripted, opening, talk
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Clock,
    Wire,
    relayed,
    rotated_stateless,
)

SIZE = 2
# The items of a list, before and after a change.
OLD, NEW = list("abcdef"), list("xbydzfg")


class Library:
    """A server with a list of pages. Its cursors are valid in one session, and sessions may end.

    Attributes:
        keys: The items of the list.
        then: The items after the end of a session.
        asked: The first index of each page that was requested, in order.
        lifetimes: Milliseconds for which a page is cached, by its first index; default a minute.
        broken: Whether each page but the first fails.
        foreign: How many requests had a cursor of another session; `lenient` accepts those.
        losses: How many more sessions end at the request for the page at `SIZE * 2`.
        end_sessions: Ends all sessions; `None` for a wire without sessions.
    """

    def __init__(self, scope: str = "private") -> None:
        self.server = Server("library", capabilities={"tools": {}})
        self.server.on_request("tools/list", self.page)
        self.keys, self.then = OLD, NEW
        self.asked: list[int] = []
        self.lifetimes: dict[int, int] = {}
        self.broken = self.lenient = False
        self.foreign = self.losses = self._volume = 0
        self.end_sessions: Callable[[], object] | None = None
        self._scope = scope

    def lose(self) -> None:
        """End the session, if the wire has sessions, and invalidate its cursors."""
        self.keys = self.then
        self._volume += 1
        if self.end_sessions is not None:
            self.end_sessions()

    def comes(self, cursor: object) -> bool:
        """Note a request for a page; return whether it ends the session."""
        if not self.losses or not isinstance(cursor, str) or not cursor.endswith(f":{SIZE * 2}"):
            return False
        self.losses -= 1
        self.lose()
        return self.end_sessions is not None

    def page(self, params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        volume, _, start = params.get("cursor", f"{self._volume}:0").partition(":")
        begin, end = int(start), int(start) + SIZE
        self.asked.append(begin)
        if begin and self.broken:
            raise RpcError(-32603, "broken")
        if volume != str(self._volume):
            self.foreign += 1
            if not self.lenient:
                raise RpcError(-32602, "Invalid cursor")
        result: dict[str, Any] = {
            "tools": [{"name": key, "inputSchema": {}} for key in self.keys[begin:end]],
            "ttlMs": self.lifetimes.get(begin, 60_000),
            "cacheScope": self._scope,
        }
        if end < len(self.keys):
            result["nextCursor"] = f"{self._volume}:{end}"
        return result


def blocking(client: Client, **options: Any) -> list[str]:
    result = client.list_tools(**options)
    assert result.next_cursor is None
    return [tool.name for tool in result.tools]


def future(client: Client, **options: Any) -> list[str]:
    return [tool.name for tool in client.list_tools.future(**options).result(PATIENCE).tools]


def iterated(client: Client, **options: Any) -> list[str]:
    return [tool.name for tool in client.iter_tools(**options)]


# A function that returns the names of a whole list.
Way = Callable[..., "list[str]"]
every_way = pytest.mark.parametrize("way", [blocking, future, iterated])

# The result of a list that starts again with `NEW` after four items of `OLD`.
WHOLE, ITERATED = NEW, list("abcdxyzfg")


@contextmanager
def over_stdio(library: Library, **options: Any) -> Iterator[Client]:
    """Connect to the library as a process, which is killed to end its session."""
    before = server_processes()

    def kill() -> None:
        [relay] = server_processes() - before
        os.kill(relay, signal.SIGKILL)

    def page(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        lost = library.comes(params.get("cursor"))  # the process is dead: nobody gets the page
        return {} if lost else library.page(params, context)

    library.end_sessions = kill
    library.server.on_request("tools/list", page)
    with relayed(library.server) as target, syncmcp.connect(target, **options) as client:
        yield client


@contextmanager
def over_http(library: Library, response: Any, **options: Any) -> Iterator[Client]:
    """Connect to the library over HTTP; an ended session is answered with status 404."""
    with serve_http(library.server, response=response) as http:
        post = http.endpoint.handle_post

        def handle_post(headers: Any, body: bytes, **more: Any) -> Any:
            library.comes((json.loads(body).get("params") or {}).get("cursor"))
            return post(headers, body, **more)

        if options["mode"] != STATELESS:
            library.end_sessions = http.endpoint.forget_sessions
        vars(http.endpoint)["handle_post"] = handle_post
        with syncmcp.connect(http.url, **options) as client:
            yield client


WIRES: Mapping[str, Callable[..., Any]] = {
    f"stdio-{STATEFUL}": partial(over_stdio, mode=STATEFUL),
    f"stdio-{STATELESS}": partial(over_stdio, mode=STATELESS),
    f"json-{STATEFUL}": partial(over_http, response="json", mode=STATEFUL),
    f"events-{STATEFUL}": partial(over_http, response="sse", mode=STATEFUL),
    f"http-{STATELESS}": partial(over_http, response="auto", mode=STATELESS),
}

# Each wire, with one of the ways in turn.
wires_and_ways = pytest.mark.parametrize(
    ("wire", "way"), [*zip(WIRES, cycle([blocking, future, iterated]), strict=False)]
)


def expected(way: Way) -> list[str]:
    return ITERATED if way is iterated else WHOLE


@pytest.fixture(autouse=True)
def _started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart processes without a pause."""
    monkeypatch.setattr("syncmcp._concurrency.timing._LONGEST_BACKOFF", 0.0)


# -- the session ends -----------------------------------------------------------------------------
@wires_and_ways
@pytest.mark.requirement("PAG-04", "CCH-07")
def test_a_list_begins_anew_where_its_cursor_is_good_no_more(wire: str, way: Way) -> None:
    library = Library()
    sessionless = wire == f"http-{STATELESS}"
    # The server accepts old cursors, but the client must not combine pages of two sessions.
    library.lenient = not sessionless
    with WIRES[wire](library) as client:
        library.losses = 1
        assert way(client) == expected(way)
        assert library.asked.count(0) == 2
        assert library.foreign == sessionless
        # If pages are cached now, all are of one session.
        assert blocking(client) == WHOLE


@pytest.mark.parametrize(
    ("wire", "noticed"),
    [
        *((f"stdio-{STATEFUL}", False), (f"stdio-{STATELESS}", True)),
        *((f"json-{STATEFUL}", True), (f"events-{STATEFUL}", False)),
    ],
)
@pytest.mark.requirement("PAG-04")
def test_an_iterator_left_for_a_while_gives_nothing_twice(wire: str, noticed: bool) -> None:
    library = Library()
    with WIRES[wire](library) as client:
        tools = client.iter_tools()
        given = [next(tools).name for _ in range(4)]
        library.lose()
        if noticed:  # another call has already opened the new session
            client.list_tools(cursor=None, cache="bypass")
        assert [*given, *(tool.name for tool in tools)] == ITERATED
        assert library.foreign == 0


def test_what_a_server_lists_twice_is_given_twice_while_nothing_happens() -> None:
    library = Library()
    library.keys = library.then = list("abaca")
    with WIRES[f"json-{STATEFUL}"](library) as client:
        assert iterated(client) == list("abaca")
        library.losses = 1
        assert iterated(client) == list("abac")


@pytest.mark.parametrize(
    ("wire", "options", "walks", "way"),
    [
        (f"stdio-{STATEFUL}", {}, 3, blocking),
        (f"json-{STATEFUL}", {}, 3, future),
        (f"json-{STATEFUL}", {}, 3, iterated),
        (f"json-{STATEFUL}", {"retry": None}, 2, future),
        (f"json-{STATEFUL}", {"retry": syncmcp.Retry(5)}, 5, blocking),
    ],
)
@pytest.mark.requirement("PAG-04")
def test_a_list_is_begun_as_often_as_a_request_is_sent_and_not_for_ever(
    wire: str, options: dict[str, Any], walks: int, way: Way
) -> None:
    library = Library()
    with WIRES[wire](library, **options) as client:
        library.losses = walks - 1
        assert way(client) == expected(way)
        library.losses, library.asked = 1000, []
        with pytest.raises(SessionLost, match="ended repeatedly") as caught:
            way(client)
        assert caught.value.method == "tools/list"
        assert isinstance(caught.value.__cause__, ConnectionLost)
        assert library.asked.count(0) == walks
        library.losses = 0
        assert way(client) == WHOLE


@pytest.mark.parametrize(
    ("wire", "way"), [("stdio", "blocking"), ("json", "future"), ("events", "request")]
)
@pytest.mark.requirement("PAG-04")
def test_a_cursor_of_the_callers_is_not_sent_in_another_session(wire: str, way: str) -> None:
    library = Library()
    with WIRES[f"{wire}-{STATEFUL}"](library) as client:
        cursor = client.list_tools(cursor=None).next_cursor
        library.lose()
        fetch: dict[str, Callable[[], object]] = {
            "blocking": lambda: client.list_tools(cursor=cursor),
            "future": lambda: client.list_tools.future(cursor=cursor).result(PATIENCE),
            "request": lambda: client.request("tools/list", {"cursor": cursor}),
        }
        with pytest.raises(SessionLost, match="first page") as caught:
            fetch[way]()
        assert (caught.value.method, library.foreign) == ("tools/list", 0)
        assert blocking(client) == WHOLE


def test_without_sessions_a_cursor_goes_to_a_new_process_too() -> None:
    library = Library()
    library.lenient = True
    with WIRES[f"stdio-{STATELESS}"](library) as client:
        cursor = client.list_tools(cursor=None).next_cursor
        library.lose()
        tools = client.list_tools(cursor=cursor).tools
        assert [tool.name for tool in tools] == NEW[SIZE : SIZE * 2]


# -- the server refuses the cursor ----------------------------------------------------------------
@wires_and_ways
@pytest.mark.requirement("CCH-07")
def test_a_refused_cursor_begins_a_list_anew_once_and_a_second_refusal_is_the_end(
    wire: str, way: Way
) -> None:
    library = Library()
    with WIRES[wire](library) as client:
        library.end_sessions = None
        library.losses = 1
        assert way(client) == expected(way)
        assert (library.asked.count(0), library.foreign) == (2, 1)
        assert blocking(client) == WHOLE
        library.asked, library.foreign, library.losses = [], 0, 2
        with pytest.raises(InvalidParams, match="Invalid cursor"):
            way(client, cache="refresh")
        assert (library.asked.count(0), library.foreign) == (2, 2)


@every_way
def test_a_first_page_that_is_refused_is_not_asked_for_again(way: Way) -> None:
    library = Library()
    refuse = Mock(side_effect=RpcError(-32602, "no"))
    library.server.on_request("tools/list", refuse)
    with WIRES[f"http-{STATELESS}"](library) as client, pytest.raises(InvalidParams):
        way(client)
    refuse.assert_called_once()


@pytest.mark.requirement("CCH-07")
def test_an_iterator_asks_for_kept_pages_anew_after_a_refusal() -> None:
    library = Library()
    with WIRES[f"http-{STATELESS}"](library) as client:
        assert iterated(client) == OLD
        tools = client.iter_tools(cache="refresh")
        given = [next(tools).name for _ in range(3)]
        library.lose()
        assert [*given, *(tool.name for tool in tools)] == ITERATED
        assert iterated(client) == blocking(client) == WHOLE
        assert library.asked == [0, 2, 4, 0, 2, 4, 0, 2, 4, 6]


@rotated_stateless.with_rows(
    "way, shorter", [(blocking, SIZE), (future, SIZE * 2), (iterated, 0), (iterated, SIZE * 2)]
)
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


@pytest.mark.parametrize(
    ("way", "refresh"), [*zip(cycle([blocking, future, iterated]), REFRESHED, strict=False)]
)
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
            """Return the whole list, page by page; later pages may come from the cache."""
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


@contextmanager
def pages(*steps: Any, **options: Any) -> Iterator[tuple[Client, Scripted]]:
    """Connect to a server that answers each `tools/list` with the next of these pages."""
    script = opening()
    for step in steps:
        script += [s.expect("tools/list"), step if "do" in step else s.reply(step)]
    with talk(script, **options) as (peer, client):
        yield client, peer


def page(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **more}


def cursors(peer: Scripted, count: int, method: str = "tools/list") -> list[Any]:
    """Return the cursors that were sent; "absent" for a request without one."""
    sent = peer.requests(method, count)
    return [message.get("params", {}).get("cursor", "absent") for message in sent]


DAY = "2026-01-01T00:00:00Z"
TASK = {"taskId": "a", "status": "working", "createdAt": DAY, "lastUpdatedAt": DAY, "ttl": None}
LISTS: dict[str, dict[str, Any]] = {
    "tools": {"name": "a", "inputSchema": {"type": "object"}},
    "resources": {"name": "a", "uri": "file:///a"},
    "resource_templates": {"name": "a", "uriTemplate": "file:///{a}"},
    "prompts": {"name": "a"},
    "tasks": TASK,
}


@pytest.mark.requirement("PAG-01", "PAG-02", "PAG-03", "M-35", "TSK-08", "PMT-02")
@pytest.mark.pitfall("19")
@pytest.mark.parametrize("way", ["list", "iter"])
@pytest.mark.parametrize("what", LISTS)
def test_a_list_has_all_its_pages_with_an_empty_cursor_too(what: str, way: str) -> None:
    wire = "stdio" if what == "tools" else "memory"
    items = "resourceTemplates" if what == "resource_templates" else what
    method = "resources/templates/list" if what == "resource_templates" else f"{items}/list"
    odd, some = " Ünïcode/+&= %\n", LISTS[what]
    script = s.handshake(STATEFUL, capabilities={**EVERYTHING, "tasks": {"list": {}}})
    parts: list[dict[str, Any]] = [
        {items: [some, some], "nextCursor": ""},
        {items: [], "nextCursor": odd},
        {items: [some], "nextCursor": "7"},
        {items: [], "nextCursor": None},  # ends a list, like a missing cursor
    ]
    script += [step for part in parts for step in (s.expect(method), s.reply(part))]
    with talk(script, wire) as (peer, client):
        listed: Any = getattr(client, f"{way}_{what}")()
        if way == "list":
            assert listed.next_cursor is None
            listed = getattr(listed, what)
        key = "task_id" if what == "tasks" else "name"
        assert [getattr(each, key) for each in listed] == ["a"] * 3
        assert cursors(peer, 4, method) == ["absent", "", odd, "7"]


@pytest.mark.requirement("M-35")
def test_a_page_at_a_time_with_the_cursor_of_the_page_before() -> None:
    steps = [page("a", nextCursor=""), page("b", nextCursor="2"), page("c")]
    with pages(*steps) as (client, peer):
        first = client.list_tools(cursor=None)
        second = client.list_tools(cursor=first.next_cursor)
        third = client.list_tools.future(cursor="2").result(PATIENCE)
        found = [
            ([tool.name for tool in part.tools], part.next_cursor)
            for part in (first, second, third)
        ]
        assert found == [(["a"], ""), (["b"], "2"), (["c"], None)]
        assert cursors(peer, 3) == ["absent", "", "2"]


@pytest.mark.requirement("M-35")
def test_iterating_fetches_a_page_when_it_is_needed_and_not_before() -> None:
    steps = [page("a", "b", nextCursor="1"), page(nextCursor="2"), page("c")]
    with pages(*steps) as (client, peer):
        tools = client.iter_tools()
        assert peer.transcript.methods().count("tools/list") == 0
        assert [next(tools).name, next(tools).name] == ["a", "b"]
        assert len(cursors(peer, 1)) == 1
        assert [tool.name for tool in tools] == ["c"]
        assert cursors(peer, 3) == ["absent", "1", "2"]


@every_way
@pytest.mark.pitfall("19")
@pytest.mark.requirement("M-35")
def test_cursors_that_go_round_in_circles_are_an_error(way: Way) -> None:
    circle = [page("a", nextCursor="1"), page("b", nextCursor="2"), page("c", nextCursor="1")]
    with pages(*circle) as (client, peer):
        with pytest.raises(ProtocolError, match="repeated a cursor") as caught:
            way(client)
        assert caught.value.method == "tools/list"
        assert cursors(peer, 3) == ["absent", "1", "2"]
    library = Library()
    kept = {"tools": [], "ttlMs": 60_000, "cacheScope": "private", "nextCursor": "again"}
    library.server.on_request("tools/list", lambda *_: kept)
    with MEMORY.connect(library.server) as client:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="repeated a cursor"):
                way(client)


@every_way
@pytest.mark.parametrize("of", ["call", "client"])
@pytest.mark.pitfall("19")
@pytest.mark.requirement("M-35")
def test_a_list_without_end_ends_at_the_limit_of_pages(way: Way, of: str) -> None:
    limit = {"max_pages": 4}
    endless = [page("a", nextCursor=str(number)) for number in range(10)]
    with pages(*endless, **(limit if of == "client" else {})) as (client, peer):
        with pytest.raises(LimitExceeded, match="max_pages"):
            way(client, **(limit if of == "call" else {}))
        assert len(cursors(peer, 4)) == 4
    with pages(page("a", nextCursor="1"), page("b")) as (client, _):
        assert way(client, max_pages=2) == ["a", "b"]


@every_way
def test_the_items_of_all_pages_are_bounded(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    # When a list starts again, the count starts at zero.
    again = [page("a", "b", nextCursor="1"), s.error(-32602, "unknown cursor")]
    for before in ([], again if way is blocking else []):
        with pages(*before, page("a", "b", nextCursor="1"), page("c")) as (client, _):
            assert way(client) == ["a", "b", "c"]
    steps = [page("a", "b", nextCursor="1"), page("c", "d", nextCursor="2"), page()]
    with pages(*steps) as (client, peer):
        with pytest.raises(LimitExceeded, match="more than 3 items") as caught:
            way(client)
        assert caught.value.method == "tools/list"
        assert len(cursors(peer, 2)) == 2


@pytest.mark.parametrize("cursor", [{}, {"cursor": None}])
def test_the_items_of_a_page_are_bounded_before_there_are_models_of_them(
    cursor: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    # These are not valid tools: the limit is checked before their content.
    too_many = pytest.raises(LimitExceeded, match="more than 3 items")
    with pages({"tools": [1, 2, 3, 4]}) as (client, _), too_many:
        client.list_tools(**cursor)


LONG, ZEROS = "x" * 1200, {"_meta": {"acme/zeros": [0] * 130}}


@every_way
@pytest.mark.parametrize(
    ("bound", "most", "allowed", "endless"),
    [
        ("bytes", 3000, [page(LONG, nextCursor="1"), page(f"{LONG}y")], {"nextCursor": LONG}),
        ("values", 300, [page("a", nextCursor="1", **ZEROS), page("b, [{:", **ZEROS)], ZEROS),
    ],
    ids=["bytes", "values"],
)
def test_the_bytes_and_values_of_all_pages_together_are_bounded(
    way: Way,
    bound: str,
    most: int,
    allowed: list[dict[str, Any]],
    endless: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"syncmcp._client.pages.MAX_{bound.upper()}", most)
    with pages(page(3 * LONG, _meta={"acme/zeros": [0] * 400})) as (client, _):
        assert way(client) == [3 * LONG]  # the limit does not apply to a list of a single page
    with pages(*allowed) as (client, _):
        given = [tool["name"] for part in allowed for tool in part["tools"]]
        assert way(client) == given
    last = endless.get("nextCursor", "")
    steps = [page("a", **{**endless, "nextCursor": f"{number}{last}"}) for number in range(3)]
    with pages(*steps) as (client, peer):
        with pytest.raises(LimitExceeded, match=f"more than {most:,} {bound}"):
            way(client)
        assert len(cursors(peer, 3)) == 3
