"""Lists whose session ends, or whose cursor is refused, before their last page."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, ConnectionLost, InvalidParams, SessionLost
from syncmcp.testing import RpcError, ToolContext, serve_http
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
from tests.support.programs import server_processes
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, relayed

# What became of a list that begins anew with `NEW` after four items of `OLD`.
WHOLE, ITERATED = NEW, list("abcdxyzfg")


@contextmanager
def over_stdio(library: Library, **options: Any) -> Iterator[Client]:
    """Where sessions end, the process is killed."""
    before = server_processes()

    def kill() -> None:
        [relay] = server_processes() - before
        os.kill(relay, signal.SIGKILL)

    def page(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        if library.comes(params.get("cursor")):
            return {}  # nobody is there to get it
        return library.page(params, context)

    library.end_sessions = kill
    library.server.on_request("tools/list", page)
    with relayed(library.server) as target, syncmcp.connect(target, **options) as client:
        yield client


@contextmanager
def over_http(library: Library, response: Any, **options: Any) -> Iterator[Client]:
    """Where sessions end, the server knows them no more: 404."""
    with serve_http(library.server, response=response) as http:
        post = http.endpoint.handle_post

        def handle_post(headers: Any, body: bytes, **more: Any) -> Any:
            message = json.loads(body)
            if isinstance(message, dict):  # no frame of a batch
                library.comes((message.get("params") or {}).get("cursor"))
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

every_wire = pytest.mark.parametrize("wire", WIRES)
# Those on which there are sessions, or at least processes.
sessions = pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "http-2026-07-28"])
stateful = pytest.mark.parametrize("wire", [wire for wire in WIRES if wire.endswith(STATEFUL)])


def expected(way: Way) -> list[str]:
    """What a list gives that begins anew after four items."""
    return ITERATED if way is iterated else WHOLE


@pytest.fixture(autouse=True)
def _started_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before a process is started again."""
    monkeypatch.setattr("syncmcp._concurrency.timing._LONGEST_BACKOFF", 0.0)


# -- the session ends -----------------------------------------------------------------------------
@every_wire
@every_way
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.requirement("PAG-04", "CCH-07")
def test_a_list_begins_anew_where_its_cursor_is_good_no_more(
    wire: str, way: Way, lenient: bool
) -> None:
    library = Library()
    sessionless = wire == f"http-{STATELESS}"
    # Pages of two sessions are not put together though the server would.
    library.lenient = lenient and not sessionless
    with WIRES[wire](library) as client:
        library.losses = 1
        assert way(client) == expected(way)
        assert library.asked.count(0) == 2
        assert library.foreign == sessionless
        # What is kept by now, if anything, is of one session.
        assert blocking(client) == WHOLE


@sessions
@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.requirement("PAG-04")
def test_an_iterator_left_for_a_while_gives_nothing_twice(wire: str, noticed: bool) -> None:
    library = Library()
    with WIRES[wire](library) as client:
        tools = client.iter_tools()
        given = [next(tools).name for _ in range(4)]
        library.lose()
        if noticed:  # another call has opened the new session
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
    ("wire", "options", "walks"),
    [
        (f"stdio-{STATEFUL}", {}, 3),
        (f"json-{STATEFUL}", {}, 3),
        (f"json-{STATEFUL}", {"retry": None}, 2),
        (f"json-{STATEFUL}", {"retry": syncmcp.Retry(5)}, 5),
    ],
    ids=repr,
)
@every_way
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


@stateful
@pytest.mark.parametrize("way", ["blocking", "future", "request"])
@pytest.mark.requirement("PAG-04")
def test_a_cursor_of_the_callers_is_not_sent_in_another_session(wire: str, way: str) -> None:
    library = Library()
    with WIRES[wire](library) as client:
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
@every_wire
@every_way
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

    def refuse(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        library.asked.append(0)
        raise RpcError(-32602, "no")

    library.server.on_request("tools/list", refuse)
    with WIRES[f"http-{STATELESS}"](library) as client, pytest.raises(InvalidParams):
        way(client)
    assert library.asked == [0]


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
