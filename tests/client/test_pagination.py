"""Lists: whole, page by page, lazily; and servers whose lists never end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    Client,
    LimitExceeded,
    ProtocolError,
    ServerError,
    UsageError,
)
from syncmcp.testing import script as s
from syncmcp.types import ListToolsResult
from tests.support.programs import CEILING
from tests.support.scripts import OLD, WIRES, Scripted, opening


def pages(*steps: dict[str, Any]) -> Scripted:
    """A server whose `tools/list` answers with these pages, one after another."""
    script = opening()
    for page in steps:
        script += [s.expect("tools/list"), s.reply(page)]
    return Scripted(script)


def page(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **more}


def cursors(peer: Scripted, count: int) -> list[Any]:
    """The cursors that were sent; "absent" where none was."""
    sent = peer.requests("tools/list", count)
    return [message["params"].get("cursor", "absent") for message in sent]


def names(result: ListToolsResult) -> list[str]:
    return [tool.name for tool in result.tools]


@WIRES
@pytest.mark.requirement("PAG-01", "PAG-02", "PAG-03", "M-35")
@pytest.mark.pitfall("19")
def test_a_list_has_all_its_pages_the_empty_ones_and_the_empty_cursor_too(wire: str) -> None:
    odd = " ünïcode/+&= %\n"
    with pages(
        page("a", "b", nextCursor=""),
        page(nextCursor=odd),
        page("c", nextCursor="7"),
        page(),
    ) as peer:
        with syncmcp.connect(peer.on(wire), mode=OLD) as client:
            whole = client.list_tools()
        assert names(whole) == ["a", "b", "c"]
        assert whole.next_cursor is None
        assert cursors(peer, 4) == ["absent", "", odd, "7"]


LISTS = {
    "iter_tools": ("tools", [{"name": "a", "inputSchema": {"type": "object"}}]),
    "iter_resources": ("resources", [{"name": "a", "uri": "file:///a"}]),
    "iter_resource_templates": ("resourceTemplates", [{"name": "a", "uriTemplate": "file:///{a}"}]),
    "iter_prompts": ("prompts", [{"name": "a"}]),
}


@pytest.mark.requirement("PAG-01", "PAG-02", "PAG-03")
@pytest.mark.pitfall("19")
@pytest.mark.parametrize("iterate", LISTS)
def test_iterating_goes_on_at_the_empty_cursor_and_behind_empty_pages(iterate: str) -> None:
    items, some = LISTS[iterate]
    method = "resources/templates/list" if items == "resourceTemplates" else f"{items}/list"
    script = opening()
    odd = " ünïcode/+&= %\n"
    for part in ({items: some, "nextCursor": ""}, {items: [], "nextCursor": odd}, {items: some}):
        script += [s.expect(method), s.reply(part)]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        assert [each.name for each in getattr(client, iterate)()] == ["a", "a"]
        sent = [asked["params"].get("cursor", "absent") for asked in peer.requests(method, 3)]
        assert sent == ["absent", "", odd]


@pytest.mark.requirement("PAG-03")
def test_a_null_cursor_ends_a_list_as_an_absent_one_does() -> None:
    with (
        pages(page("a", nextCursor=None)) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        assert names(client.list_tools()) == ["a"]
        assert cursors(peer, 1) == ["absent"]


@pytest.mark.requirement("M-35")
def test_a_page_at_a_time_with_the_cursor_of_the_page_before() -> None:
    with (
        pages(page("a", nextCursor=""), page("b", nextCursor="2"), page("c")) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        first = client.list_tools(cursor=None)
        assert (names(first), first.next_cursor) == (["a"], "")
        second = client.list_tools(cursor=first.next_cursor)
        assert (names(second), second.next_cursor) == (["b"], "2")
        third = client.list_tools.future(cursor="2").result(CEILING)
        assert (names(third), third.next_cursor) == (["c"], None)
        assert cursors(peer, 3) == ["absent", "", "2"]


@pytest.mark.requirement("M-35")
def test_iterating_fetches_a_page_when_it_is_needed_and_not_before() -> None:
    with (
        pages(page("a", "b", nextCursor="1"), page(nextCursor="2"), page("c")) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        tools = client.iter_tools()
        assert peer.transcript.methods().count("tools/list") == 0
        assert [next(tools).name, next(tools).name] == ["a", "b"]
        assert len(cursors(peer, 1)) == 1
        assert [tool.name for tool in tools] == ["c"]
        assert cursors(peer, 3) == ["absent", "1", "2"]


@pytest.mark.parametrize("method", ["list", "iterate"])
@pytest.mark.pitfall("19")
@pytest.mark.requirement("M-35")
def test_cursors_that_go_round_in_circles_are_an_error(method: str) -> None:
    circle = [page("a", nextCursor="1"), page("b", nextCursor="2"), page("c", nextCursor="1")]
    with pages(*circle) as peer, syncmcp.connect(peer, mode=OLD) as client:
        with pytest.raises(ProtocolError, match="repeated a cursor") as caught:
            client.list_tools() if method == "list" else list(client.iter_tools())
        assert caught.value.method == "tools/list"
        assert cursors(peer, 3) == ["absent", "1", "2"]


@pytest.mark.parametrize("method", ["list", "iterate", "client"])
@pytest.mark.pitfall("19")
@pytest.mark.requirement("M-35")
def test_a_list_without_end_ends_at_the_limit_of_pages(method: str) -> None:
    endless = [page("a", nextCursor=str(number)) for number in range(10)]
    limit = 4 if method == "client" else 1000
    with pages(*endless) as peer, syncmcp.connect(peer, mode=OLD, max_pages=limit) as client:
        fetch: dict[str, Callable[[], object]] = {
            "list": lambda: client.list_tools(max_pages=4),
            "iterate": lambda: list(client.iter_tools(max_pages=4)),
            "client": client.list_tools,
        }
        with pytest.raises(LimitExceeded, match="max_pages"):
            fetch[method]()
        assert len(cursors(peer, 4)) == 4


def test_as_many_pages_as_the_limit_allows_are_fine() -> None:
    with (
        pages(page("a", nextCursor="1"), page("b")) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        assert names(client.list_tools(max_pages=2)) == ["a", "b"]
        with pytest.raises(UsageError):
            client.list_tools(max_pages=0)


@pytest.mark.requirement("PAG-04")
def test_a_new_connection_begins_a_list_at_its_first_page() -> None:
    script = [*opening(), s.expect("tools/list"), s.reply(page("a", nextCursor="old"))]
    with Scripted(script) as peer:
        client = Client(peer, mode=OLD)
        for _ in range(2):
            with client:
                next(client.iter_tools())
        assert cursors(peer, 2) == ["absent", "absent"]


@pytest.mark.parametrize("page_limit", [1, None])
@pytest.mark.requirement("PAG-04")
def test_a_whole_list_that_broke_off_begins_anew_on_a_new_connection(
    page_limit: int | None,
) -> None:
    script = [
        *opening(),
        s.expect("tools/list"),
        s.reply(page("a", nextCursor="old")),
        s.expect("tools/list"),
        s.error(-32603, "broken"),
    ]
    with Scripted(script) as peer:
        client = Client(peer, mode=OLD)
        for _ in range(2):
            with client, pytest.raises((LimitExceeded, ServerError)):
                client.list_tools(max_pages=page_limit)
        sent = ["absent"] if page_limit else ["absent", "old"]
        assert cursors(peer, 2 * len(sent)) == sent * 2


READING: dict[str, Callable[[Client], list[str]]] = {
    "list": lambda client: names(client.list_tools()),
    "iterate": lambda client: [tool.name for tool in client.iter_tools()],
    "future": lambda client: names(client.list_tools.future().result(CEILING)),
}


@pytest.mark.parametrize("way", READING)
def test_the_items_of_all_pages_together_are_bounded(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    with (
        pages(page("a", "b", nextCursor="1"), page("c")) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        assert READING[way](client) == ["a", "b", "c"]
    with (
        pages(page("a", "b", nextCursor="1"), page("c", "d", nextCursor="2"), page()) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
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
        pages({"tools": [1, 2, 3, 4]}) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
        pytest.raises(LimitExceeded, match="more than 3 items"),
    ):
        client.list_tools(**cursor)


@pytest.mark.parametrize("way", READING)
def test_the_bytes_of_all_pages_together_are_bounded(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_BYTES", 3000)
    long = "x" * 1200
    with (
        pages(page(long, nextCursor="1"), page(f"{long}y")) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        assert READING[way](client) == [long, f"{long}y"]
    endless = [page("a", nextCursor=f"{number}{long}") for number in range(3)]
    with pages(*endless) as peer, syncmcp.connect(peer, mode=OLD) as client:
        with pytest.raises(LimitExceeded, match="more than 3,000 bytes"):
            READING[way](client)
        assert len(cursors(peer, 3)) == 3


@pytest.mark.parametrize("way", READING)
def test_the_values_of_all_pages_together_are_bounded(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_VALUES", 300)
    noted = {"_meta": {"acme/zeros": [0] * 130}}
    with (
        pages(page("a", nextCursor="1", **noted), page("b, [{:", **noted)) as peer,
        syncmcp.connect(peer, mode=OLD) as client,
    ):
        assert READING[way](client) == ["a", "b, [{:"]
    endless = [page("a", nextCursor=str(number), **noted) for number in range(3)]
    with pages(*endless) as peer, syncmcp.connect(peer, mode=OLD) as client:
        with pytest.raises(LimitExceeded, match="more than 300 values"):
            READING[way](client)
        assert len(cursors(peer, 3)) == 3


def test_a_list_of_one_page_may_be_as_long_as_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_BYTES", 100)
    with pages(page("x" * 1200)) as peer, syncmcp.connect(peer, mode=OLD) as client:
        assert names(client.list_tools()) == ["x" * 1200]


def test_a_restart_of_a_list_counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._client.pages.MAX_ITEMS", 3)
    script = opening()
    script += [s.expect("tools/list"), s.reply(page("a", "b", nextCursor="1"))]
    script += [s.expect("tools/list"), s.error(-32602, "unknown cursor")]
    for part in (page("a", "b", nextCursor="2"), page("c")):
        script += [s.expect("tools/list"), s.reply(part)]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        assert names(client.list_tools()) == ["a", "b", "c"]
