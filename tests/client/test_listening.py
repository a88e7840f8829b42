"""Change events, by iterators and callbacks, on every wire and in both eras."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock

import pytest

import syncmcp
from syncmcp import ChangeEvent, SubscriptionLost
from syncmcp._client.session_state import SUBSCRIBE, UNSUBSCRIBE, ResourceSubscriptions
from syncmcp._concurrency.event_queue import EventQueue
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import ConnectionLost, ResourceNotFound
from syncmcp.testing import RpcError, Server, ToolContext
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Wire,
    every_wire,
    in_threads,
    is_gone,
    logged,
    rotated,
    rotated_stateful,
    rotated_with,
)

TOOLS = ChangeEvent("tools")
PROMPTS = ChangeEvent("prompts")
RESOURCES = ChangeEvent("resources")


def updated(uri: str, *, missed: bool = False) -> ChangeEvent:
    return ChangeEvent("resource", uri, missed)


def shop(**options: Any) -> Server:
    """Return a server with tools, prompts and resources."""
    server = Server("shop", **options)

    server.add_tool(lambda: "bought", name="buy")
    server.prompt(name="offer")(lambda: "an offer")
    for uri in ("a:1", "a:2"):
        server.resource(uri)(lambda: "goods")
    return server


def held(server: Server) -> int:
    """Return the number of listeners and resource subscriptions at the server."""
    subscribed = sum(
        f"a:{n}" in session.subscriptions for session in server.sessions for n in (1, 2)
    )
    return server.stats.listeners + subscribed


def let_go(server: Server) -> bool:
    """Wait until the server has no listeners and no resource subscriptions."""
    return server.stats.wait_for(lambda stats: held(server) == 0, PATIENCE)


@contextmanager
def listening(wire: Wire, **wanted: Any) -> Iterator[tuple[Server, syncmcp.Subscription]]:
    server = shop()
    with wire.connect(server) as client, client.listen(timeout=PATIENCE, **wanted) as events:
        yield server, events


@every_wire
def test_what_changes_after_the_server_has_agreed_is_told(wire: Wire) -> None:
    wanted: dict[str, Any] = {"tools": True, "prompts": True, "resources": True, "uris": ["a:1"]}
    with listening(wire, **wanted) as (server, events):
        assert events.lists == ("tools", "prompts", "resources")
        assert events.uris == ("a:1",)
        for _ in range(2):  # an event may be queued again once it was delivered
            server.list_changed("resources")
            server.resource_updated("a:1")
            server.list_changed("prompts")
            server.list_changed("tools")
            assert [next(events) for _ in range(4)] == [RESOURCES, updated("a:1"), PROMPTS, TOOLS]


@rotated
def test_what_changes_again_before_anybody_looks_is_one_event(wire: Wire) -> None:
    server = shop()
    arrived = threading.Event()
    with wire.connect(server) as client:
        client.on_notification("notifications/prompts/list_changed", lambda _: arrived.set())
        wanted: dict[str, Any] = {"tools": True, "prompts": True, "uris": ["a:1"]}
        events = client.listen(**wanted, timeout=PATIENCE, stop_after=3)
        for _ in range(50):
            server.list_changed("tools")
            server.resource_updated("a:1")
        server.list_changed("prompts")
        assert arrived.wait(PATIENCE)
        assert list(events) == [TOOLS, updated("a:1"), PROMPTS]
        assert let_go(server)  # the loop has ended


@pytest.mark.requirement("M-12")
@every_wire
def test_leaving_the_loop_tells_the_server_and_neither_side_holds_anything(wire: Wire) -> None:
    server = shop()

    def ring() -> None:
        assert server.stats.wait_for(lambda stats: held(server) > 0, PATIENCE)
        server.resource_updated("a:1")

    with wire.connect(server) as client:
        for failure in (None, ZeroDivisionError):
            ringing = threading.Thread(target=ring, name="ring")
            ringing.start()
            with pytest.raises(failure) if failure else nullcontext():
                for event in client.listen(uris=["a:1"], timeout=PATIENCE):
                    assert event == updated("a:1")
                    if failure:
                        raise failure
                    break
            assert let_go(server)
            ringing.join(PATIENCE)
        events = client.listen(uris=["a:1"])
        assert server.stats.wait_for(lambda stats: held(server) == 1, PATIENCE)
        del events
        gc.collect()  # no reference is left
        assert let_go(server)
        client.listen(uris=["a:1"]).close()  # waits for the unsubscription by a pool thread
        assert let_go(server)
        assert server.stats.wait_for(lambda stats: stats.running == 0, PATIENCE)
        state, connection = client._core.session_state, client._core.connection
        assert connection is not None
        assert (state.listeners, len(state.resources)) == ([], 0)
        assert connection._table.open_calls() == []


@rotated_with("what", ["subscription", "client", "client that drains"])
def test_closing_it_from_another_thread_wakes_who_waits(wire: Wire, what: str) -> None:
    server = shop()
    with wire.connect(server) as client:
        events = client.listen(tools=True, uris=["a:1"])
        waiting = threading.Event()

        def listen() -> list[ChangeEvent]:
            waiting.set()
            return list(events)

        def close() -> None:
            assert waiting.wait(PATIENCE)
            if what == "subscription":
                events.close()
            else:
                client.close(drain=what == "client that drains")

        assert in_threads(listen, close) == [[], None]
        assert let_go(server)
        assert list(events) == []
        events.close()
        assert client._core.session_state.listeners == []


@pytest.mark.requirement("M-12")
@rotated_stateful
def test_listeners_on_one_resource_share_one_subscription(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client:
        asked = server.stats.requests
        client.subscribe_resource("a:1")  # shared with the program's own subscription
        first = client.listen(uris=["a:1"], timeout=PATIENCE)
        second = client.listen(uris=["a:1", "a:1"], timeout=PATIENCE)
        assert asked["resources/subscribe"] == 1
        first.close()
        client.unsubscribe_resource("a:1")
        assert asked["resources/unsubscribe"] == 0
        server.resource_updated("a:1")
        assert next(second) == updated("a:1")
        second.close()
        assert asked["resources/unsubscribe"] == 1
        assert held(server) == 0
        with client.listen(uris=["a:1"]):
            client.subscribe_resource("a:1")
        assert asked["resources/unsubscribe"] == 1
        client.unsubscribe_resource("a:1")
        assert asked["resources/unsubscribe"] == 2
        assert held(server) == 0


@rotated
def test_a_client_that_is_closed_and_opened_again_listens_anew(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client:
        before = client.listen(uris=["a:1"])
        client.close()
        with pytest.raises(syncmcp.ClosedError):
            client.listen(tools=True)
        client.open()
        with client.listen(uris=["a:1"], timeout=PATIENCE) as events:
            before.close()
            server.resource_updated("a:1")
            assert next(events) == updated("a:1")
            assert list(before) == []
        client.close()
        lazy = syncmcp.Client(client._core.settings.target, mode=wire.revision, lazy=True)
        with closing(lazy), lazy.listen(tools=True, timeout=PATIENCE) as events:
            server.list_changed("tools")
            assert next(events) == TOOLS


@rotated
def test_those_who_listen_are_each_told_and_threads_share_the_events(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client, client.listen(tools=True, timeout=PATIENCE) as all_tools:
        uris = ["a:1", "a:2"]
        with client.listen(tools=True, uris=uris, timeout=PATIENCE, stop_after=3) as both:
            server.list_changed("tools")
            assert [next(all_tools), next(both)] == [TOOLS, TOOLS]
            for uri in uris:
                server.resource_updated(uri)
            seen = in_threads(*[lambda: list(both)] * 3)
            assert sorted(event for part in seen for event in part) == [*map(updated, uris)]
        server.list_changed("tools")
        assert next(all_tools) == TOOLS


@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_too_many_events_end_it(revision: syncmcp.Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._concurrency.event_queue.BACKLOG", 3)
    server = shop()
    with syncmcp.connect(server, mode=revision) as client:
        events = client.listen(uris=["a:1"], timeout=PATIENCE)
        (session,) = server.sessions
        assert client._core.connection is not None
        number = client._core.connection.next_id - 1
        tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
        for number in range(4):
            session.notify("notifications/resources/updated", {"uri": f"a:1/{number}", **tag})
        assert let_go(server)
        assert [next(events) for _ in range(3)] == [updated(f"a:1/{n}") for n in range(3)]
        for _ in range(2):
            with pytest.raises(SubscriptionLost, match="too many events are queued") as caught:
                next(events)
            assert (caught.value.by, caught.value.uris) == ("backlog", ("a:1",))
        assert server.stats.wait_for(lambda stats: held(server) == 0)


def test_the_uris_of_queued_events_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._concurrency.event_queue.MAX_CHARACTERS", 100)
    queue = EventQueue()
    long = [updated(f"{number}{'x' * 39}") for number in range(4)]
    for round in range(3):  # events that were removed make room for others
        assert [queue.put(event) for event in long] == [True, True, False, False]
        assert queue.put(long[0])  # equal to an event in the queue, so not stored twice
        if round == 1:
            assert queue.take_all() == long[:2]
        else:
            assert [queue.next(0.0), queue.next(0.0)] == long[:2]


def test_a_missed_event_becomes_a_certain_one_in_its_place_and_not_the_other_way_round() -> None:
    queue, prompts = EventQueue(), ChangeEvent("prompts", missed=True)
    missed = ChangeEvent("tools", missed=True)
    assert all(queue.put(event) for event in (missed, prompts, TOOLS, missed))
    assert queue.take_all() == [TOOLS, prompts]


# -- subscribing and unsubscribing at the same time
class Asked:
    """Stands for the server: notes the methods, and runs code during a request."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.meanwhile: list[Callable[[], object]] = []

    def __call__(self, method: str, uri: str) -> None:
        self.methods.append(method)
        if self.meanwhile:
            self.meanwhile.pop(0)()


@pytest.mark.parametrize("how", ["acquired", "claimed"])
def test_what_is_wanted_while_it_is_given_back_is_asked_for_again(how: str) -> None:
    uris, ask = ResourceSubscriptions(), Asked()
    uris.acquire("a:1", ask, Deadline(None))
    waiting = threading.Thread(
        target=uris.acquire, args=("a:1", ask, Deadline(PATIENCE)), name="waiting"
    )
    explicit = uris.explicit("a:1")
    ask.meanwhile = [waiting.start if how == "acquired" else explicit.__enter__]
    uris.release("a:1", ask)
    if how == "acquired":
        waiting.join(PATIENCE)
    assert ask.methods == [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE]
    assert uris.needed_uris() == [("a:1", "refuse")]


def test_a_refusal_is_nothing_to_be_given_back_and_a_broken_wire_may_be() -> None:
    uris, ask = ResourceSubscriptions(), Asked()
    for failure in (ResourceNotFound("no"), ConnectionLost("gone")):
        ask.meanwhile = [Mock(side_effect=failure)]
        with pytest.raises(type(failure)):
            uris.acquire("a:1", ask, Deadline(None))
        uris.release("a:1", ask)
        assert len(uris) == 0
    assert ask.methods == [SUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE]


def test_who_began_to_listen_while_a_resource_is_given_back_still_listens() -> None:
    server = shop()
    listening: list[syncmcp.Subscription] = []
    asked = threading.Event()

    def unsubscribe(params: dict[str, object], context: ToolContext) -> dict[str, object]:
        asked.set()
        assert server.stats.wait_for(lambda stats: stats.requests["resources/subscribe"] == 2)
        assert context.session is not None
        context.session.subscriptions.discard(str(params["uri"]))
        return {}

    with syncmcp.connect(server, mode=STATEFUL) as client:
        client.subscribe_resource("a:1")
        server.on_request("resources/unsubscribe", unsubscribe)

        def listen() -> None:
            assert asked.wait(PATIENCE)
            listening.append(client.listen(uris=["a:1"], timeout=PATIENCE))

        assert in_threads(lambda: client.unsubscribe_resource("a:1"), listen) == [None, None]
        assert server.stats.requests["resources/subscribe"] == 3
        server.resource_updated("a:1")
        assert next(listening[0]) == updated("a:1")
        del server.handlers["resources/unsubscribe"]
        listening[0].close()
        assert held(server) == 0


def test_subscribing_and_unsubscribing_at_the_same_time_leaves_the_last_wish() -> None:
    server = shop()
    with syncmcp.connect(server, mode=STATEFUL) as client:

        def cycle() -> None:
            for _ in range(15):
                with client.listen(uris=["a:1"], timeout=PATIENCE):
                    assert "a:1" in server.sessions[0].subscriptions

        assert in_threads(*[cycle] * 4) == [None] * 4
        assert held(server) == 0
        assert len(client._core.session_state.resources) == 0


class Heard(SimpleQueue[Any]):
    """A callback that notes its arguments and the name of its thread."""

    def __call__(self, value: Any) -> None:
        self.put((value, threading.current_thread().name))

    def next(self, thread: str) -> Any:
        """Return the next argument; check that the call was in a thread of this kind."""
        value, name = self.get(timeout=PATIENCE)
        assert name.startswith(f"syncmcp-{thread}[")
        return value


@rotated
def test_a_function_is_called_with_each_event_until_it_is_stopped_even_if_it_fails(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    server, heard = shop(), Heard()

    def hear(event: ChangeEvent) -> None:
        heard(event)
        if event == TOOLS:
            raise SystemExit("I have had enough")

    with wire.connect(server) as client:
        listener = client.listen(tools=True, uris=["a:1"]).run_in_thread(hear)
        server.list_changed("tools")
        assert heard.next("listener") == TOOLS
        server.resource_updated("a:1")
        assert heard.next("listener") == updated("a:1")
        assert listener.running
        assert listener.stop(PATIENCE)
        assert not listener.running
        assert listener.error is None
        assert let_go(server)
        server.list_changed("tools")
        client.list_tools()
        assert heard.empty()
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
        server.list_changed("tools")
        assert inside.wait(PATIENCE)
        assert heard.next("worker")
        assert client.call_tool("buy", timeout=PATIENCE).text == "bought"
        assert not listener.stop(0)
        assert listener.running
        go_on.set()
        assert said.next("listener") == (False, "bought")
        assert listener.stop(PATIENCE)
        assert other.stop(PATIENCE)


@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_closing_the_client_ends_its_listeners(revision: syncmcp.Mode) -> None:
    server = shop()
    client = syncmcp.connect(server, mode=revision)
    listeners = client.listen(tools=True).run_in_thread(print), client.on_tools_changed(print)
    client.close()
    for listener in listeners:
        assert listener.stop(PATIENCE)
        assert listener.error is None


@pytest.mark.parametrize("how", ["thread", "refresh"])
def test_who_listens_is_told_of_the_end(how: str, caplog: pytest.LogCaptureFixture) -> None:
    server, errors = shop(), Heard()
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
        (told, _) = errors.get(timeout=PATIENCE)
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
        assert tools.next("worker") == ["buy", "sell"]
        assert prompts.next("worker") == []
        assert resources.next("worker") == ["a:1", "a:9"]
        assert content.next("worker") == "none"
        assert reading.stop(PATIENCE)


def test_what_changes_during_a_call_leads_to_another_one_after_it() -> None:
    server, heard = shop(), Heard()
    inside, go_on = threading.Event(), threading.Event()

    def slow(tools: list[Any]) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)
        heard([tool.name for tool in tools])

    with syncmcp.connect(server) as client:
        listener = client.on_tools_changed(slow, debounce=0)
        server.list_changed("tools")
        assert inside.wait(PATIENCE)
        server.add_tool(lambda: "", name="sell")
        assert heard.empty()
        go_on.set()
        assert [heard.next("worker") for _ in range(2)] == [["buy"], ["buy", "sell"]]
        assert listener.stop(PATIENCE)


def test_a_list_that_cannot_be_fetched_is_said_and_the_next_one_comes() -> None:
    server, heard = shop(), Heard()

    def refuse(params: dict[str, Any], context: Any) -> dict[str, Any]:
        if server.stats.requests["tools/list"] == 1:
            raise RpcError(-32603, "not now")
        return {"tools": []}

    server.on_request("tools/list", refuse)
    with logged("syncmcp.subscriptions") as said, syncmcp.connect(server, mode=STATEFUL) as client:
        client.on_tools_changed(heard, debounce=0)
        server.list_changed("tools")
        assert "a refresh after a change failed: tools/list" in said.get(timeout=PATIENCE)
        server.list_changed("tools")
        assert heard.next("worker") == []


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
        assert listener.stop(PATIENCE)  # after the fetch has ended
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
