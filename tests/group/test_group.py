"""A group of servers: opening all at once, broken servers, and closing."""

from __future__ import annotations

import json
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, ClientGroup, ClosedError, ConnectFailed, NotApproved, Stdio, UsageError
from syncmcp.group import Source
from syncmcp.servers_file import ServerReview, read
from syncmcp.testing import Server, ToolContext, serve_http
from tests.support.shops import CHILD, DEMO, DYING, MISSING, REFUSING, Gated, known, shop
from tests.support.stage import PATIENCE, Stage, in_threads, interrupted


async def _coroutine(*args: Any) -> None: ...


def meanwhile(gated: Gated, job: Callable[[], object], other: Callable[[], Any]) -> list[Any]:
    """Run `job`, and `other` while the gated server is opening; return both outcomes."""

    def run_other() -> Any:
        assert gated.reached.wait(PATIENCE)
        try:
            return other()
        finally:
            gated.gate.set()

    return in_threads(job, run_other)


class TestOpening:
    @pytest.mark.requirement("M-30")
    @pytest.mark.pitfall("27")
    def test_two_broken_servers_of_five_leave_three(self) -> None:
        with serve_http(shop("web", "w")) as http:
            servers: dict[str, Source] = {"here": shop("here", "h"), "child": DEMO}
            servers |= {"web": http.url, "dying": DYING, "refusing": REFUSING}
            with ClientGroup(servers) as group:
                assert list(group.clients) == ["here", "child", "web"]
                states = {name: status.state for name, status in group.status.items()}
                open_ones = dict.fromkeys(("here", "child", "web"), "open")
                assert states == {**open_ones, "dying": "failed", "refusing": "failed"}
                assert isinstance(group.status["refusing"].error, ConnectFailed)
                error = group.status["dying"].error
                assert isinstance(error, ConnectFailed)
                assert (error.exit_code, error.server) == (7, "dying")
                assert group.call_tool("h").text == "h of here"
                assert group.call_tool("w").text == "w of web"
                assert group.server_of("tools", "greet") == ("child", "greet")
                assert getattr(group.status["web"].server, "name", None) == "web"
            assert {status.state for status in group.status.values()} == {"closed", "failed"}

    @pytest.mark.requirement("M-30")
    def test_all_are_opened_at_one_time(self) -> None:
        servers = {name: Gated(shop(name)) for name in "abc"}
        group = ClientGroup(servers)

        def let_in() -> None:
            assert all(server.reached.wait(PATIENCE) for server in servers.values())
            for server in servers.values():
                server.gate.set()

        # The second thread waits for the opening by the first.
        assert in_threads(group.open, group.open, let_in) == [group, group, None]
        assert list(group.clients) == ["a", "b", "c"]
        assert [len(server.server.sessions) for server in servers.values()] == [1, 1, 1]
        group.close()

    @pytest.mark.parametrize("require", ["all", ["bad"], ["good", "bad"], "any", ["good"], []])
    def test_a_broken_server_closes_the_rest_if_it_is_required(self, require: Any) -> None:
        group = ClientGroup({"good": shop("good"), "bad": MISSING}, require=require)
        if "bad" not in require and require != "all":
            with group:
                assert list(group.clients) == ["good"]
                with pytest.raises(UsageError, match=r"\(not open: bad; see status\)"):
                    group.call_tool("of the bad one")
            return
        with pytest.raises(syncmcp.RequiredServersFailed, match="'bad'") as caught:
            group.open()
        assert list(caught.value.errors) == ["bad"]
        assert isinstance(caught.value.__cause__, ConnectFailed)
        assert group.status["good"].state == "closed"
        with pytest.raises(ClosedError):
            group.call_tool("x")

    def test_a_server_whose_list_fails_is_broken(self) -> None:
        server = shop("a", "t")

        def fail(params: Any, context: ToolContext) -> Any:
            raise RuntimeError

        server.on_request("prompts/list", fail)
        with ClientGroup({"a": server, "b": shop("b")}) as group:
            assert isinstance(group.status["a"].error, syncmcp.InternalError)
            assert list(group.clients) == ["b"]
        with ClientGroup({"a": Server("bare")}) as group:  # it has no lists
            assert not any((group.tools, group.resources, group.resource_templates, group.prompts))

    @pytest.mark.parametrize(
        "options",
        [
            *({"servers": {"": "http://x"}}, {"servers": [Server("a")]}, {"name": "x"}),
            *({"require": require} for require in ("some", 3, ["a"])),
            *({"per_server": {"a": {}}}, {"close_timeout": -1}),
            *({"name_hook": _coroutine}, {"on_log": _coroutine}),
        ],
    )
    def test_arguments_that_make_no_sense(self, options: Any) -> None:
        with pytest.raises(UsageError):
            ClientGroup(**options)


class TestFromAFile:
    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / ".cursor").mkdir()  # the person's own settings
        monkeypatch.chdir(tmp_path / "work")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def written(self, file: str, **servers: Any) -> Path:
        Path(file).write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        return Path(file)

    def test_what_is_wrong_with_one_entry_hurts_no_other(self) -> None:
        bad = {"unset": {"command": "${NOT_SET_ANYWHERE}"}, "wrong": {"command": 3}}
        off = {**CHILD, "disabled": True}
        file = self.written("../.cursor/servers.json", demo=CHILD, off=off, **bad)
        with ClientGroup(file) as group:
            states = {name: status.state for name, status in group.status.items()}
            assert states == {"demo": "open", "off": "disabled", **dict.fromkeys(bad, "failed")}
            assert "NOT_SET_ANYWHERE" in str(group.status["unset"].error)
            assert group.call_tool("greet", {"name": "Ada"}).text

    @pytest.mark.requirement("SEC-06")
    def test_what_a_project_names_is_opened_once_a_person_agreed(self) -> None:
        file = self.written("mcp.json", one=CHILD, two={**CHILD, "cwd": "."})
        with ClientGroup(file, require=()) as group:
            assert group.clients == {}
            assert isinstance(group.status["one"].error, NotApproved)
        threads: list[threading.Thread] = []

        def approve(review: ServerReview) -> bool:
            threads.append(threading.current_thread())
            return review.server == "one"

        with ClientGroup(read(file, approve=approve)) as group:
            assert list(group.clients) == ["one"]
            assert isinstance(group.status["two"].error, NotApproved)
        assert threads == [threading.current_thread()] * 2

    def test_what_cannot_be_remembered_hurts_no_other_server(self) -> None:
        file = self.written("mcp.json", one=CHILD)
        Path("approvals.json").write_text("{}")
        found = read(file, approvals="approvals.json")
        with ClientGroup({**found, "other": shop("other")}) as group:
            assert "approvals.json" in str(group.status["one"].error)
            assert list(group.clients) == ["other"]

    def test_the_time_limit_of_an_entry_counts_over_that_of_the_group(self) -> None:
        file = self.written("../.cursor/servers.json", one={**CHILD, "timeout": 9000}, two=CHILD)
        servers: dict[str, Source] = {**read(file), "three": shop("three")}
        servers["two"] = read(self.written("../.cursor/two.json", two={**CHILD, "cwd": "."}))["two"]
        own = {"two": {"timeout": 7.0}}
        with ClientGroup(servers, timeout=8.0, per_server=own) as group:
            limits = {name: client._core.settings.timeout for name, client in group.clients.items()}
        assert limits == {"one": 9.0, "two": 7.0, "three": 8.0}


class TestAsCompleted:
    def test_what_is_done_first_comes_first(self) -> None:
        slow, quick = Stage(), Stage()
        with ClientGroup({"slow": slow.server, "quick": quick.server}) as group:
            quick.gate.set()
            results = group.as_completed(lambda client: client.call_tool.future("hold"))
            for expected in ("quick", "slow"):
                name, done = next(results)
                assert (name, done.result(0).text) == (expected, "")
                slow.gate.set()
            assert next(results, None) is None

    def test_an_error_is_in_its_future_and_stops_no_other(self) -> None:
        with ClientGroup({"a": shop("a", "t"), "b": Server("bare")}) as group:
            results = group.as_completed(lambda client: client.list_prompts.future())
            outcomes = {name: done.exception() for name, done in results}
            assert outcomes["a"] is None
            assert isinstance(outcomes["b"], syncmcp.NotSupported)

            def start(client: Client) -> syncmcp.RequestFuture[None]:
                raise syncmcp.Denied("not this one")

            with pytest.raises(UsageError, match="no open server 'x'"):
                group.as_completed(start, servers=["x"])
            ((name, done),) = group.as_completed(start, servers=["a", "a"])
            assert name == "a"
            assert isinstance(done.exception(), syncmcp.Denied)

    def test_leaving_it_cancels_the_rest(self) -> None:
        slow, quick = Stage(), Stage()
        with ClientGroup({"slow": slow.server, "quick": quick.server}) as group:
            quick.gate.set()
            results = group.as_completed(lambda client: client.call_tool.future("hold"))
            next(results)
            (context,) = slow.inside("")
            results.close()  # type: ignore[attr-defined]
            assert context.cancelled.wait(PATIENCE)


class TestClosing:
    def test_closing_ends_an_opening_or_adding_and_a_removed_server_is_not_there(self) -> None:
        gated = Gated(shop("a"))
        group = ClientGroup({"a": gated, "b": shop("b")}, require="all")
        opened, _ = meanwhile(gated, group.open, group.close)
        assert isinstance(opened, ClosedError)
        assert gated.server.sessions == []
        with group:
            assert list(group.clients) == ["a", "b"]
        gated = Gated(shop("a"))
        group = ClientGroup({"a": gated, "b": shop("b")}, require="all")
        assert meanwhile(gated, group.open, partial(group.remove, "a")) == [group, None]
        assert list(group.status) == ["b"]
        assert gated.server.sessions == []
        gated = Gated(shop("a"))
        added, _ = meanwhile(gated, partial(group.add, "a", gated), group.close)
        assert isinstance(added, ClosedError)
        assert gated.server.sessions == []
        assert list(group.status) == ["b"]

    def test_an_opening_that_was_closed_does_not_fail_the_next_one(self) -> None:
        gated, closed = Gated(shop("a")), threading.Event()
        group = ClientGroup({"a": gated})

        def close_and_open() -> ClientGroup:
            assert gated.reached.wait(PATIENCE)
            group.close()
            closed.set()
            return group.open()

        def let_go() -> None:
            assert closed.wait(PATIENCE)
            known(lambda: group.status["a"].state == "opening")
            gated.gate.set()

        first, second, _ = in_threads(group.open, close_and_open, let_go)
        assert isinstance(first, ClosedError)
        assert second is group
        group.close()

    @pytest.mark.parametrize("what", ["open", "add", "close"])
    def test_ctrl_c_at_any_moment_leaves_nothing_that_close_does_not_end(self, what: str) -> None:
        servers = {"a": shop("a", "t"), "b": shop("b")}
        extra = shop("c")

        def stop() -> None:
            raise KeyboardInterrupt

        number, more = 1, True
        while more:
            group = ClientGroup(servers)
            if what != "open":
                group.open()
            job = partial(group.add, "c", extra) if what == "add" else getattr(group, what)
            more = interrupted(job, number, stop, "call")
            with group:
                assert group.call_tool("t").text == "t of a"
            known(lambda: not any(one.sessions for one in (*servers.values(), extra)))
            number += {"open": 11, "add": 31, "close": 2}[what]
        assert number > 10

    def test_servers_that_do_not_end_are_ended_in_time(self) -> None:
        stubborn = (
            "import signal, sys; from syncmcp.testing import Server;"
            " signal.signal(signal.SIGTERM, signal.SIG_IGN); Server().run_stdio();"
            " signal.pause()"
        )
        target = partial(Stdio, sys.executable, "-c", stubborn)
        group = ClientGroup({name: target(name) for name in "123"}).open()
        group.close(timeout=0.2)
        assert group.clients == {}

    def test_a_group_that_nobody_has_any_more_ends_its_servers(self) -> None:
        server = shop("a", "t")
        ours = [ClientGroup({"a": server}).open()]
        assert len(server.sessions) == 1
        reference = weakref.ref(ours[0])

        def gone() -> bool:
            ours.clear()
            return reference() is None

        with pytest.warns(ResourceWarning, match="never closed"):
            known(gone)  # its thread may still refer to it
        known(lambda: server.sessions == [])


class TestRaces:
    def test_everything_at_once_leaves_nothing(self) -> None:
        servers = [shop(str(number), "t", f"t{number}") for number in range(4)]
        group = ClientGroup({"fixed": shop("fixed", "t")}).open()
        stop = threading.Event()

        def come_and_go(number: int) -> None:
            while not stop.is_set():
                group.add(str(number), servers[number])
                assert group.call_tool(f"t{number}").text == f"t{number} of {number}"
                group.remove(str(number))

        def call() -> None:
            try:
                for _ in range(100):
                    assert group.call_tool("t").text == "t of fixed"
                    for name in list(group.tools):
                        with suppress(ClosedError, UsageError):  # another thread removed it
                            group.call_tool(name)
            finally:
                stop.set()

        jobs = [partial(come_and_go, number) for number in range(4)]
        assert in_threads(call, *jobs) == [None] * 5
        assert list(group.tools) == ["t"]
        group.close()
        assert all(server.sessions == [] for server in servers)
