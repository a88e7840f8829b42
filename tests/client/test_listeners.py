"""Functions that are called when something changes: with events, or with what was fetched anew."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, SubscriptionLost
from syncmcp.testing import RpcError
from tests.client.test_listening import TOOLS, held, let_go, shop, updated
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, is_gone, logged, rotated


class Heard:
    """Collects what a function was called with, and on which threads."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.threads: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, value: Any) -> None:
        with self._changed:
            self.values.append(value)
            self.threads.append(threading.current_thread().name)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        """What came, once it is so much."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.values) >= count, PATIENCE)
            return list(self.values)


@rotated
def test_a_function_is_called_with_each_event_until_it_is_stopped_even_if_it_fails(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    server = shop()
    heard = Heard()

    def hear(event: ChangeEvent) -> None:
        heard(event)
        if len(heard.values) == 1:
            raise SystemExit("I have had enough")

    with wire.connect(server) as client:
        listener = client.listen(tools=True, uris=["a:1"]).run_in_thread(hear)
        server.list_changed("tools")
        assert heard.wait(1) == [TOOLS]
        server.resource_updated("a:1")
        assert heard.wait(2) == [TOOLS, updated("a:1")]
        assert listener.running
        assert listener.stop(PATIENCE)
        assert not listener.running
        assert listener.error is None
        assert let_go(server)
        server.list_changed("tools")
        client.list_tools()
        assert len(heard.values) == 2
        assert all(name.startswith("syncmcp-listener[") for name in heard.threads)
        assert listener.stop(0)
    assert "a listener of changes failed" in caplog.text
    assert "I have had enough" in caplog.text


@rotated
def test_a_slow_function_holds_up_nobody_and_may_stop_its_own_listener(wire: Wire) -> None:
    server = shop()
    inside, go_on = threading.Event(), threading.Event()
    heard, said = Heard(), Heard()
    with wire.connect(server) as client:

        def slow(event: ChangeEvent) -> None:
            inside.set()
            assert go_on.wait(PATIENCE)
            said((listener.stop(), client.call_tool("buy").text))

        listener = client.listen(tools=True).run_in_thread(slow)
        other = client.on_tools_changed(heard, debounce=0)
        try:
            server.list_changed("tools")
            assert inside.wait(PATIENCE)
            heard.wait(1)
            assert client.call_tool("buy", timeout=PATIENCE).text == "bought"
            assert not listener.stop(0)
            assert listener.running
        finally:
            go_on.set()
        assert said.wait(1) == [(False, "bought")]
        assert listener.stop(PATIENCE)
        assert other.stop(PATIENCE)


@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_closing_the_client_ends_its_listeners(revision: syncmcp.Mode) -> None:
    server = shop()
    client = syncmcp.connect(server, mode=revision)
    thread = client.listen(tools=True).run_in_thread(print)
    refreshing = client.on_tools_changed(print)
    client.close()
    assert thread.stop(PATIENCE)
    assert refreshing.stop(PATIENCE)
    assert (thread.error, refreshing.error) == (None, None)


@pytest.mark.parametrize("how", ["thread", "refresh"])
def test_who_listens_is_told_of_the_end(how: str, caplog: pytest.LogCaptureFixture) -> None:
    server = shop()
    errors = Heard()
    with syncmcp.connect(server, mode=STATELESS) as client:
        for on_error in (errors, None):
            if how == "thread":
                listener = client.listen(tools=True).run_in_thread(print, on_error=on_error)
            else:
                listener = client.on_tools_changed(print, on_error=on_error)
            assert server.stats.wait_for(lambda stats: stats.listeners == 1)
            server.listeners.end()
            assert listener._ended.wait(PATIENCE)
            error = listener.error
            assert isinstance(error, SubscriptionLost)
            assert error.by == "server"
            assert ("the server ended the subscription" in caplog.text) is (on_error is None)
        (told,) = errors.values
        assert isinstance(told, SubscriptionLost)


@rotated
def test_the_list_is_fetched_again_when_it_has_changed(wire: Wire) -> None:
    server = shop()
    stock = ["one"]
    server.resource("a:9")(lambda: stock[0])
    tools, prompts, resources, content = Heard(), Heard(), Heard(), Heard()
    with wire.connect(server) as client:
        client.on_tools_changed(lambda now: tools([tool.name for tool in now]), debounce=0)
        client.on_prompts_changed(lambda now: prompts([prompt.name for prompt in now]), debounce=0)
        client.on_resources_changed(lambda now: resources([one.uri for one in now]), debounce=0)
        reading = client.on_resource_updated("a:9", lambda now: content(now.text), debounce=0)
        server.remove_prompt("offer")
        server.remove_resource("a:2")
        server.add_tool(lambda: "", name="sell")
        stock[0] = "none"
        server.resource_updated("a:9")
        assert tools.wait(1)[-1] == ["buy", "sell"]
        assert prompts.wait(1)[-1] == []
        assert resources.wait(1)[-1] == ["a:1", "a:9"]
        assert content.wait(1) == ["none"]
        assert reading.stop(PATIENCE)
    for heard in (tools, prompts, resources, content):
        assert heard.threads[0].startswith("syncmcp-worker[")


def test_what_changes_during_a_call_leads_to_another_one_after_it() -> None:
    server = shop()
    inside, go_on = threading.Event(), threading.Event()
    heard = Heard()

    def slow(tools: list[Any]) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)
        heard([tool.name for tool in tools])

    with syncmcp.connect(server) as client:
        listener = client.on_tools_changed(slow, debounce=0)
        server.list_changed("tools")
        assert inside.wait(PATIENCE)
        server.add_tool(lambda: "", name="sell")
        assert not heard.values
        go_on.set()
        assert heard.wait(2) == [["buy"], ["buy", "sell"]]
        assert listener.stop(PATIENCE)


def test_a_list_that_cannot_be_fetched_is_said_and_the_next_one_comes() -> None:
    server = shop()
    heard = Heard()
    refused = [True]

    def refuse(params: dict[str, Any], context: Any) -> dict[str, Any]:
        if refused:
            refused.clear()
            raise RpcError(-32603, "not now")
        return {"tools": []}

    server.on_request("tools/list", refuse)
    with logged("syncmcp.subscriptions") as said, syncmcp.connect(server, mode=STATEFUL) as client:
        client.on_tools_changed(heard, debounce=0)
        server.list_changed("tools")
        assert "a refresh after a change failed: tools/list" in said.get(timeout=PATIENCE)
        server.list_changed("tools")
        assert heard.wait(1) == [[]]


def test_closing_during_a_fetch_is_no_failure_of_it(caplog: pytest.LogCaptureFixture) -> None:
    server = shop()
    asked, go_on = threading.Event(), threading.Event()

    def hold(params: dict[str, Any], context: Any) -> dict[str, Any]:
        asked.set()
        assert go_on.wait(PATIENCE)
        return {"tools": []}

    server.on_request("tools/list", hold)
    with syncmcp.connect(server, mode=STATEFUL) as client:
        listener = client.on_tools_changed(print, debounce=0)
        server.list_changed("tools")
        assert asked.wait(PATIENCE)
        client.close()
        go_on.set()
        assert listener.stop(PATIENCE)  # behind the fetch
    assert not [record for record in caplog.records if record.name == "syncmcp.subscriptions"]


@pytest.mark.filterwarnings("ignore:a client of shop was never closed")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_a_client_that_nobody_has_is_not_kept_by_what_it_fetches(revision: syncmcp.Mode) -> None:
    server = shop()
    client: Any = syncmcp.connect(server, mode=revision)
    client.on_tools_changed(print)
    gone = is_gone(client)
    del client
    assert gone()
    assert server.stats.wait_for(lambda stats: stats.sessions == 0 and held(server) == 0)
