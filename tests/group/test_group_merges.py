"""Merges of the servers' lists run one after another, and nothing else waits for them."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from syncmcp import ClientGroup, ClosedError
from syncmcp.group.catalog import Catalog
from syncmcp.group.member import GroupMember
from syncmcp.group.state import GroupState
from syncmcp.handlers.context import ConnectedServer
from syncmcp.testing import Server
from tests.client.test_lifecycle import struck
from tests.support.shops import known, shop
from tests.support.stage import PATIENCE, in_threads


class Turn:
    """The lock of a group's merges, which counts the threads that wait for it."""

    def __init__(self, group: ClientGroup) -> None:
        self._lock = threading.RLock()
        self.waiting = 0
        group._state._turn = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        self.waiting += 1
        self._lock.acquire()
        self.waiting -= 1

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()


class Held:
    """A name hook that adds the server's name, and blocks once, at `item`, until `gate` is set."""

    def __init__(self, item: str) -> None:
        self._item = item
        self.gate, self.reached = threading.Event(), threading.Event()
        self.late = False

    def __call__(self, name: str, server: ConnectedServer) -> str:
        if name == self._item and not self.reached.is_set():
            self.reached.set()
            self.late = not self.gate.wait(PATIENCE)
        return f"{server.name}_{name}"


def tools(name: str, *names: str, **options: Any) -> Server:
    """Return a server with these tools only."""
    server = Server(name, **options)
    for tool in names:
        server.add_tool(lambda tool=tool: f"{tool} of {name}", name=tool, input_schema={})
    return server


class TestTurns:
    @pytest.mark.parametrize("way", ["add", "notify", "refresh"])
    def test_a_busy_server_keeps_no_other_out(
        self, way: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chatty, big = tools("chatty", "t"), tools("big", "u")
        merge, merges = Catalog.with_servers, 0

        def meanwhile(catalog: Catalog, updates: Any, hook: Any) -> Catalog:
            nonlocal merges
            merged = merge(catalog, updates, hook)
            if "big" in updates:
                merges += 1
                assert merges < 5, "it is merged again and again"
                new = f"new_{merges}"
                chatty.add_tool(lambda: "new", name=new, input_schema={})
                known(lambda: turn.waiting > 0 or new in group.tools)
            return merged

        group = ClientGroup({"chatty": chatty} if way == "add" else {"chatty": chatty, "big": big})
        with group:
            turn = Turn(group)
            monkeypatch.setattr(Catalog, "with_servers", meanwhile)
            if way == "add":
                group.add("big", big)
            elif way == "notify":
                big.add_tool(lambda: "v of big", name="v", input_schema={})
                known(lambda: "v" in group.tools)
            else:
                group.refresh()
            assert merges == 1
            assert group.call_tool("u").text == "u of big"
            known(lambda: "new_1" in group.tools)

    @pytest.mark.parametrize("gone", ["a", "c", "ac", "abc"])
    def test_a_removal_meanwhile_waits_for_no_merge_and_is_not_undone(self, gone: str) -> None:
        calls: list[str] = []

        def hook(name: str, server: ConnectedServer) -> str:
            calls.append(name)
            if calls == ["t_b"]:
                for one in gone:
                    group.remove(one)
            return name

        servers = {one: tools(one, f"t_{one}") for one in "bac"}
        with ClientGroup(servers, name_hook=hook) as group:
            calls.clear()
            group.refresh()
            assert calls == ["t_b", "t_a", "t_c"]  # each server is merged once
            assert set(group.tools) == {f"t_{one}" for one in servers if one not in gone}
            assert set(group.clients) == set(group._state.catalog.servers) == {*servers} - {*gone}

    def test_a_merge_amid_a_removal_does_not_undo_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        close = GroupState._close_member

        def late(state: GroupState, member: GroupMember, limit: float | None) -> None:
            group.refresh()
            close(state, member, limit)

        with ClientGroup({"a": tools("a", "t"), "b": tools("b", "u")}) as group:
            monkeypatch.setattr(GroupState, "_close_member", late)
            group.remove("a")
            assert list(group.tools) == ["u"]

    def test_a_server_that_takes_the_place_of_a_removed_one_has_only_its_own_items(self) -> None:
        hook = Held("new")
        server = tools("a", "t")
        with ClientGroup({"a": server, "b": tools("b", "u")}, name_hook=hook) as group:
            turn = Turn(group)
            server.add_tool(lambda: "new", name="new", input_schema={})
            assert hook.reached.wait(PATIENCE)

            def open_the_gate() -> None:
                known(lambda: turn.waiting > 0)
                assert list(group.tools) == ["b_u"]
                hook.gate.set()

            group.remove("a")
            in_threads(partial(group.add, "a", tools("other", "v")), open_the_gate)
            assert list(group.tools) == ["b_u", "a_v"]

    def test_nothing_but_a_merge_waits_for_a_slow_hook(self) -> None:
        hook = Held("new")
        server = tools("a", "t")
        with ClientGroup({"a": server, "b": tools("b", "u")}, name_hook=hook) as group:
            server.add_tool(lambda: "new", name="new", input_schema={})
            try:
                assert hook.reached.wait(PATIENCE)
                assert list(group.tools) == ["a_t", "b_u"]
                assert group.call_tool("a_t").text == "t of a"
                assert {status.state for status in group.status.values()} == {"open"}
                assert group.ping() == {"a": None, "b": None}
                group.remove("b")
                assert list(group.tools) == ["a_t"]
            finally:
                hook.gate.set()
            known(lambda: list(group.tools) == ["a_t", "a_new"])
            assert not hook.late

    def test_neither_close_nor_the_next_opening_waits_for_a_slow_hook(self) -> None:
        hook = Held("new")
        server = tools("a", "t", capabilities={"tools": {}})  # it sends no notifications
        group = ClientGroup({"a": server}, name_hook=hook).open()
        server.add_tool(lambda: "new", name="new", input_schema={})

        def open_again() -> list[str]:
            assert hook.reached.wait(PATIENCE)
            group.close()
            server.remove_tool("new")
            try:
                group.open()
                return list(group.tools)
            finally:
                hook.gate.set()

        with group:
            assert in_threads(group.refresh, open_again) == [None, ["a_t"]]
            assert not hook.late
            assert list(group.tools) == ["a_t"]  # the result of the old merge is discarded

    def test_a_merge_that_waits_ends_with_the_group(self) -> None:
        hook = Held("new")
        server = tools("a", "t")
        with ClientGroup({"a": server}, name_hook=hook) as group:
            turn = Turn(group)
            server.add_tool(lambda: "new", name="new", input_schema={})
            assert hook.reached.wait(PATIENCE)

            def close() -> None:
                known(lambda: turn.waiting > 0)
                group.close()
                hook.gate.set()

            (refreshed, _) = in_threads(group.refresh, close)
            assert isinstance(refreshed, ClosedError)
            with pytest.raises(ClosedError):
                _ = group.tools

    @pytest.mark.parametrize("what", ["add", "refresh"])
    def test_a_hook_that_would_wait_for_itself_fails(self, what: str) -> None:
        def hook(name: str, server: ConnectedServer) -> str:
            if name == "new":
                group.refresh() if what == "refresh" else group.add("b", tools("b", "u"))
            return name

        server = tools("a", "t")
        with ClientGroup({"a": server}, name_hook=hook) as group:
            server.add_tool(lambda: "new", name="new", input_schema={})
            known(lambda: bool(group.status["a"].left_out))
            (left_out,) = group.status["a"].left_out
            assert "name_hook must not" in left_out
            assert list(group.tools) == ["t"]
            server.remove_tool("new")
            group.refresh()
            group.add("b", tools("b", "u"))
            assert list(group.tools) == ["t", "u"]

    def test_ctrl_c_at_any_moment_leaves_the_turn_to_the_next(self) -> None:
        with ClientGroup({"a": shop("a", "t")}, name_hook=lambda name, server: name) as group:
            members: list[GroupMember] = list(group._state.members().values())
            number = 1
            while struck(partial(group._state._publish, members), number):
                assert in_threads(group.refresh, patience=PATIENCE) == [None]
                number += 1
            assert number > 20
            assert list(group.tools) == ["t"]
