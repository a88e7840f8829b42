"""Names from servers: they cannot stop a group from opening, or imitate other servers' keys."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp import ClientGroup, UsageError
from syncmcp.group import catalog
from syncmcp.group.catalog import LONGEST_NAME, Assignment, Catalog, Lists, NameHook, Offered
from syncmcp.handlers.context import ConnectedServer
from syncmcp.types import Tool
from tests.support.shops import known, shop
from tests.support.stage import Clock

PLAIN = ("bookshelf", "sell.all", "sell-all", "a1", "rebooks")
BAD_NAMES = (
    *("", " ", "x" * (LONGEST_NAME + 1), "a\x1b[2J", "a\nb", "ord\ter", "add\u200b"),
    *("\u202eadd", "add\ufe00"),
)


def with_server(name: str, server: ConnectedServer) -> str:
    return f"{server.name}__{name}"


def with_server_but_main(name: str, server: ConnectedServer) -> str:
    return name if server.name == "main" else with_server(name, server)


def lists(*names: str, server: str = "") -> Lists:
    """Return the lists of a server with these tools."""
    told: Any = SimpleNamespace(name=server)
    tools = tuple(Tool.model_construct(name=name, input_schema={}) for name in names)
    return Lists(told, tools, (), (), ())


def assigned(
    tools: Mapping[str, list[str]],
    hook: NameHook | None = None,
    before: Mapping[str, tuple[str, str]] | None = None,
    servers: tuple[str, ...] = (),
) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Return the keys with their servers and names, and the tools that are left out."""
    updates = {name: lists(*names, server=name) for name, names in tools.items()}
    held = {key: Offered(*item, None) for key, item in (before or {}).items()}
    names = dict.fromkeys((*servers, *(item.server for item in held.values()), *tools))
    assignment = Assignment("tools", held, updates, names, hook)
    found = {key: item[:2] for key, item in assignment.run().items()}
    return found, [(item.server, item.name) for item in assignment.left_out]


# Servers and tools: `name>key`, `name` for an equal key, and `name>-` for a tool left out.
CASES = {
    "a key that begins with a server's name is that server's": (
        "a: b_add>a_b_add add>a_add B-add>a_B-add, b: add>b_add"
    ),
    "before anybody has it, too": "a: b_delete>a_b_delete, b: add",
    "a server may name its own tools after itself": "git: git_log log, b: add",
    "who spoils its own keys harms nobody": "a: x>a_x a_x>a_a_x a_a_x>a_a_a_x, b: x>b_x",
    "who contains another has the longer keys": "a: b_c>- c>a_c, a_b: c>a_b_c, d: b_c>d_b_c",
    "other alphabets say whose they are": "a: \u691c>a_\u691c \u0431_d>a_\u0431_d, \u0431: x",
    "what looks like no other stays": "a: Add add-all l1st, b: sub",
    "of two with one name the first is taken": "a: add add>-",
    **{f"{name} is plain": f"books: order, fish: {name}" for name in PLAIN},
}
OF_ONE = "a: Add>a.add add>-, b: Add>b.add"
WITH_HOOK: list[tuple[str, NameHook]] = [
    # A name that imitates another server's key is left out, whichever server comes first.
    ("a: b__add>- own>a__own, a__b: add>a__b__add", with_server),
    ("a__b: add>a__b__add, a: b__add>- own>a__own", with_server),
    ("main: b__add>-, b: add>b__add", with_server_but_main),
    ("b: add>b__add, main: b__add>-", with_server_but_main),
    (OF_ONE, lambda name, of: f"{of.name}.{name.lower()}"),  # a conflict within one server
]


@pytest.mark.parametrize(
    ("case", "hook"),
    [*(pytest.param(case, None, id=name) for name, case in CASES.items()), *WITH_HOOK],
)
def test_each_tool_has_a_key_or_is_left_out(case: str, hook: NameHook | None) -> None:
    tools: dict[str, list[str]] = {}
    found: dict[str, tuple[str, str]] = {}
    left_out: list[tuple[str, str]] = []
    for server, words in (part.split(": ") for part in case.split(", ")):
        pairs = [(name, key or name) for name, _, key in (w.partition(">") for w in words.split())]
        tools[server] = [name for name, _ in pairs]
        found |= {key: (server, name) for name, key in pairs if key != "-"}
        left_out += [(server, name) for name, key in pairs if key == "-"]
    assert assigned(tools, hook) == (found, left_out)


OTHER_CHARACTERS = (
    *("order ", " order", "or der", "order\u00a0", "order,", "order'", "order:", "@order"),
    *("books:order", "books|order", "books@order", "books/order", "books: order", "order#"),
    *("(books) order", "[books] order", "books - order"),
)
LOOKS = (
    *("ORDER", "\u043erder", "\uff4frder", "order.", "order-", "or_der", "_order", "booksorder"),
    *("books.order", "booksOrder", "books", "Books", "booksDelete", "books-delete", "b00ks.x"),
)


@pytest.mark.parametrize("alike", OTHER_CHARACTERS + LOOKS)
def test_a_name_that_looks_like_anothers_says_whose_it_is(alike: str) -> None:
    for books in (["order", "sell"], []) if alike in OTHER_CHARACTERS else (["order", "sell"],):
        found, left_out = assigned({"books": books, "fish": [alike]})
        assert alike not in found
        assert found[f"fish_{alike}"] == ("fish", alike)
        assert found.get("sell") == (("books", "sell") if books else None)
        assert left_out == []


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_an_unusable_name_is_left_out_and_no_hook_gets_it(name: str) -> None:
    seen: list[str] = []

    def keeping(given: str, server: ConnectedServer) -> str:
        seen.append(given)
        return given

    for hook in (None, keeping):
        found, left_out = assigned({"a": [name, "x" * LONGEST_NAME, "add"], "b": ["sub"]}, hook)
        assert set(found) == {"x" * LONGEST_NAME, "add", "sub"}
        assert left_out == [("a", name)]
    assert name not in seen


def test_a_later_clash_takes_no_key_away() -> None:
    held = {"add": ("a", "add"), "b_x": ("b", "x")}
    found, _ = assigned({"c": ["add", "b_x"]}, before=held)
    assert found == {**held, "c_add": ("c", "add"), "c_b_x": ("c", "b_x")}
    held = {"a__b__c": ("a", "b__c")}
    found, left_out = assigned({"a__b": ["c", "d"]}, with_server, held)
    assert (found, left_out) == ({**held, "a__b__d": ("a__b", "d")}, [("a__b", "c")])
    # A key changes only if it begins with the name of a server that joins.
    held = {"b_add": ("a", "b_add"), "sub": ("a", "sub")}
    found, _ = assigned({"b": ["add"]}, before=held)
    assert found == {"a_b_add": ("a", "b_add"), "sub": ("a", "sub"), "add": ("b", "add")}


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "a_b", "A", "a-b"]),
        st.lists(st.sampled_from(["x", "a_x", "b_x", "a_b_x", "X", "b-x", "", "b_b_x"])),
        min_size=1,
    )
)
def test_every_tool_is_offered_once_or_left_out(tools: dict[str, list[str]]) -> None:
    found, left_out = assigned(tools)
    everything = [(server, name) for server, names in tools.items() for name in names]
    assert sorted([*found.values(), *left_out]) == sorted(everything)


@pytest.mark.parametrize("names", [("add", "add"), ("Add", "add")])
def test_a_hook_that_ignores_the_server_is_a_mistake(names: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="returns it for both"):
        assigned({"a": [names[0]], "b": [names[1]]}, lambda name, of: name.lower())


@pytest.mark.parametrize("name", ["a\u202eb", "books\u200b", "a\nb", "a\x1b"])
def test_a_name_of_a_server_with_hidden_characters_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="of a server has control or hidden characters"):
        ClientGroup({name: shop("a", "add")})
    with ClientGroup({"a": shop("a", "add")}) as group:
        with pytest.raises(UsageError, match="of a server has control or hidden characters"):
            group.add(name, shop("b", "sub"))
        assert list(group.tools) == ["add"]


def test_the_clash_is_told_of_who_made_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    servers = {"a": shop("a", "b__add", "own"), "a__b": shop("ab", "add")}
    with ClientGroup(servers, name_hook=with_server) as group:
        assert {status.state for status in group.status.values()} == {"open"}
        assert group.call_tool("a__b__add").text == "add of ab"
        (told,) = group.status["a"].left_out
        assert told == (
            "the tool 'b__add' is left out: its key 'a__b__add' belongs to 'add' of 'a__b'"
        )
        assert group.status["a__b"].left_out == ()
        group.refresh()
    assert [record.message for record in caplog.records] == [f"[a] {told}"]


def test_many_bad_names_are_one_record_with_their_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    caplog.set_level(logging.WARNING)
    bad = [f"a\n{number}" for number in range(100)]
    server = shop("a", *bad)
    with ClientGroup({"a": server, "b": shop("b", "\x1b", "add")}) as group:
        assert len(group.status["a"].left_out) == len(bad)
        assert sorted(caplog.messages) == [
            f"[a] {group.status['a'].left_out[0]}; so are 99 others, see status",
            f"[b] {group.status['b'].left_out[0]}",
        ]
        for number in range(3):  # at most one record per second
            server.add_tool(lambda: "new", name=f"new\n{number}", input_schema={})
            group.refresh()
        assert len(caplog.messages) == 2
    assert "new" in caplog.messages[2]


def test_a_changed_list_takes_no_key_and_is_merged() -> None:
    evil = shop("evil", "own")
    with ClientGroup({"evil": evil, "b": shop("b", "add")}, name_hook=None) as group:
        for name in ("add", "b_add", "b_sub"):
            evil.add_tool(lambda: "evil", name=name, input_schema={})
        known(lambda: "evil_b_sub" in group.tools)
        assert list(group.tools) == ["own", "evil_add", "evil_b_add", "evil_b_sub", "add"]
        assert group.call_tool("add").text == "add of b"
        assert group.call_tool("evil_b_add").text == "evil"
        with pytest.raises(UsageError, match="no server of the group has a tool 'b_add'"):
            group.call_tool("b_add")


def test_a_hook_that_fails_for_one_name_leaves_out_that_one() -> None:
    def hook(name: str, server: ConnectedServer) -> str:
        return {"find": "f", "order": "o"}.get(name) or {"shop": "s"}[name.partition(":")[0]] + name

    with ClientGroup({"a": shop("a", "find", "strange")}, name_hook=hook) as group:
        assert list(group.tools) == ["f"]
        (told,) = group.status["a"].left_out
        assert "strange" in told
        assert "KeyError" in told


def test_names_of_one_server_are_compared_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_NAMES", 100)
    both = {"many": lists(*(f"tool{i:06}" for i in range(1000))), "few": lists("other")}
    found = Catalog().with_servers(both, None)
    assert list(found.offers["tools"]) == [*(f"tool{i:06}" for i in range(10)), "other"]
    (left_out,) = found.left_out  # one entry for all of them, as each is logged
    assert left_out.name == "tool000010"
    assert "the items after it are left out, too" in left_out.reason


def test_the_looks_of_servers_are_not_made_for_each_item(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    normalize = unicodedata.normalize

    def counted(form: Any, text: str) -> str:
        made.append(text)
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", counted)
    names = [f"looks{i}" for i in range(50)]
    Catalog().with_servers({"many": lists(*names), **{f"s{i}": lists() for i in range(20)}}, None)
    assert len(made) < 300  # normalizing all 21 servers' names for each item would need thousands


def test_a_name_that_gets_long_when_it_is_written_out_is_left_out() -> None:
    found = Catalog().with_servers({"a": lists("\ufdfa" * 250, "b" * 250)}, None)
    assert list(found.offers["tools"]) == ["b" * 250]
    assert "normalized name has more than" in found.left_out[0].reason
