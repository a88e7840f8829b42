"""Lists: whole, page by page, lazily; and servers whose lists never end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, LimitExceeded, ProtocolError
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.support.programs import CEILING
from tests.support.scripts import EVERYTHING, OLD, WIRES, Scripted, opening


@contextmanager
def pages(*steps: Any, **options: Any) -> Iterator[tuple[Client, Scripted]]:
    """A client of a server that answers `tools/list` with these pages, one after another."""
    script = opening()
    for step in steps:
        script += [s.expect("tools/list"), step if "do" in step else s.reply(step)]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD, **options) as client:
        yield client, peer


def page(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **more}


def cursors(peer: Scripted, count: int) -> list[Any]:
    """The cursors that were sent; "absent" where none was."""
    sent = peer.requests("tools/list", count)
    return [message["params"].get("cursor", "absent") for message in sent]


def names(result: ListToolsResult) -> list[str]:
    return [tool.name for tool in result.tools]


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
@WIRES
def test_a_list_has_all_its_pages_with_an_empty_cursor_too(wire: str, what: str, way: str) -> None:
    items = "resourceTemplates" if what == "resource_templates" else what
    method = "resources/templates/list" if what == "resource_templates" else f"{items}/list"
    odd, some = " Ünïcode/+&= %\n", LISTS[what]
    script = s.handshake(OLD, capabilities={**EVERYTHING, "tasks": {"list": {}}})
    parts: list[dict[str, Any]] = [
        {items: [some, some], "nextCursor": ""},
        {items: [], "nextCursor": odd},
        {items: [some], "nextCursor": "7"},
        {items: [], "nextCursor": None},  # which ends a list as no cursor does
    ]
    for part in parts:
        script += [s.expect(method), s.reply(part)]
    with Scripted(script) as peer, syncmcp.connect(peer.on(wire), mode=OLD) as client:
        listed: Any = getattr(client, f"{way}_{what}")()
        if way == "list":
            assert listed.next_cursor is None
            listed = getattr(listed, what)
        key = "task_id" if what == "tasks" else "name"
        assert [getattr(each, key) for each in listed] == ["a"] * 3
        sent = [
            asked.get("params", {}).get("cursor", "absent") for asked in peer.requests(method, 4)
        ]
        assert sent == ["absent", "", odd, "7"]


@pytest.mark.requirement("M-35")
def test_a_page_at_a_time_with_the_cursor_of_the_page_before() -> None:
    steps = [page("a", nextCursor=""), page("b", nextCursor="2"), page("c")]
    with pages(*steps) as (client, peer):
        first = client.list_tools(cursor=None)
        assert (names(first), first.next_cursor) == (["a"], "")
        second = client.list_tools(cursor=first.next_cursor)
        assert (names(second), second.next_cursor) == (["b"], "2")
        third = client.list_tools.future(cursor="2").result(CEILING)
        assert (names(third), third.next_cursor) == (["c"], None)
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


READING: dict[str, Callable[..., list[str]]] = {
    "list": lambda client, **how: names(client.list_tools(**how)),
    "iterate": lambda client, **how: [tool.name for tool in client.iter_tools(**how)],
    "future": lambda client, **how: names(client.list_tools.future(**how).result(CEILING)),
}
every_way = pytest.mark.parametrize("way", READING)


@every_way
@pytest.mark.pitfall("19")
@pytest.mark.requirement("M-35")
def test_cursors_that_go_round_in_circles_are_an_error(way: str) -> None:
    circle = [page("a", nextCursor="1"), page("b", nextCursor="2"), page("c", nextCursor="1")]
    with pages(*circle) as (client, peer):
        with pytest.raises(ProtocolError, match="repeated a cursor") as caught:
            READING[way](client)
        assert caught.value.method == "tools/list"
        assert cursors(peer, 3) == ["absent", "1", "2"]


@every_way
@pytest.mark.parametrize("of", ["call", "client"])
@pytest.mark.pitfall("19")
@pytest.mark.requirement("M-35")
def test_a_list_without_end_ends_at_the_limit_of_pages(way: str, of: str) -> None:
    limit = {"max_pages": 4}
    endless = [page("a", nextCursor=str(number)) for number in range(10)]
    with pages(*endless, **(limit if of == "client" else {})) as (client, peer):
        with pytest.raises(LimitExceeded, match="max_pages"):
            READING[way](client, **(limit if of == "call" else {}))
        assert len(cursors(peer, 4)) == 4
    with pages(page("a", nextCursor="1"), page("b")) as (client, _):
        assert READING[way](client, max_pages=2) == ["a", "b"]


@every_way
def test_the_items_of_all_pages_are_bounded(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    with pages(page("a", "b", nextCursor="1"), page("c")) as (client, _):
        assert READING[way](client) == ["a", "b", "c"]
    steps = [page("a", "b", nextCursor="1"), page("c", "d", nextCursor="2"), page()]
    with pages(*steps) as (client, peer):
        with pytest.raises(LimitExceeded, match="more than 3 items") as caught:
            READING[way](client)
        assert caught.value.method == "tools/list"
        assert len(cursors(peer, 2)) == 2


@pytest.mark.parametrize("cursor", [{}, {"cursor": None}])
def test_the_items_of_a_page_are_bounded_before_there_are_models_of_them(
    cursor: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    # Of no use as tools: the bound counts before anything else is looked at.
    with (
        pages({"tools": [1, 2, 3, 4]}) as (client, _),
        pytest.raises(LimitExceeded, match="more than 3 items"),
    ):
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
    way: str,
    bound: str,
    most: int,
    allowed: list[dict[str, Any]],
    endless: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"syncmcp._client.pages.MAX_{bound.upper()}", most)
    with pages(page(3 * LONG, _meta={"acme/zeros": [0] * 400})) as (client, _):
        assert READING[way](client) == [3 * LONG]  # a list of one page is as long as it likes
    with pages(*allowed) as (client, _):
        given = [tool["name"] for part in allowed for tool in part["tools"]]
        assert READING[way](client) == given
    steps = [
        page("a", **{**endless, "nextCursor": f"{number}{endless.get('nextCursor', '')}"})
        for number in range(3)
    ]
    with pages(*steps) as (client, peer):
        with pytest.raises(LimitExceeded, match=f"more than {most:,} {bound}"):
            READING[way](client)
        assert len(cursors(peer, 3)) == 3


def test_a_restart_of_a_list_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    refused = s.error(-32602, "unknown cursor")
    again = [page("a", "b", nextCursor="2"), page("c")]
    with pages(page("a", "b", nextCursor="1"), refused, *again) as (client, _):
        assert names(client.list_tools()) == ["a", "b", "c"]
