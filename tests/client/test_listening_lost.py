"""When a subscription breaks: what is set up again, what is lost, and what a server may say."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, NotSupported, SubscriptionLost
from syncmcp._client.core import ClientCore
from syncmcp._client.session_state import SessionState
from syncmcp._concurrency.timing import Deadline, Latch
from syncmcp._connection.connection import Connection
from syncmcp.testing import FaultProxy, script, serve_http
from tests.client.test_listening import PROMPTS, TOOLS, held, let_go, shop, updated
from tests.support.programs import server_processes
from tests.support.scripts import NEW, OLD, WIRES, Scripted
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    InterruptedLatch,
    in_threads,
    is_gone,
    relayed,
)

TAG = "io.modelcontextprotocol/subscriptionId"
CHANGED = "notifications/tools/list_changed"
LISTEN = "subscriptions/listen"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def missed(kind: Any, uri: str | None = None) -> ChangeEvent:
    return ChangeEvent(kind, uri, missed=True)


def opening(revision: str = NEW) -> list[script.Step]:
    return script.handshake(revision, capabilities=CAPABILITIES)


def tagged(id: object = script.ID, **params: Any) -> dict[str, Any]:
    return {**params, "_meta": {TAG: id}}


def acknowledge(id: object = script.ID, **filter: Any) -> script.Step:
    agreed = filter or {"toolsListChanged": True}
    return script.notify(
        "notifications/subscriptions/acknowledged", tagged(id, notifications=agreed)
    )


# -- one frame at a time --------------------------------------------------------------------------


@pytest.mark.requirement("STD-04")
@WIRES
def test_an_event_reaches_the_listener_whose_id_it_carries_and_no_other(wire: str) -> None:
    changed = "notifications/resources/updated"
    steps = [
        *opening(),
        script.expect(LISTEN, label="one"),
        acknowledge(resourceSubscriptions=["a:1"]),
        script.expect(LISTEN, label="two"),
        acknowledge(resourceSubscriptions=["a:1"]),
        script.notify(changed, {"uri": "a:1/nobody's"}),
        script.notify(changed, tagged(99, uri="a:1/unknown")),
        script.notify(changed, tagged("x", uri="a:1/strange")),
        script.notify(changed, tagged(uri="a:1/two"), to="two"),
        script.notify(changed, tagged(uri="a:1/one"), to="one"),
        script.silence(),
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=NEW) as client:
        one = client.listen(uris=["a:1"], timeout=PATIENCE)
        two = client.listen(uris=["a:1"], timeout=PATIENCE)
        assert next(one) == updated("a:1/one")
        assert next(two) == updated("a:1/two")


@pytest.mark.requirement("SUB-02")
@WIRES
def test_the_request_says_what_is_wanted(wire: str) -> None:
    uris = ["a:1"]
    steps = [
        *opening(),
        script.expect(LISTEN),
        acknowledge(resourceSubscriptions=uris, promptsListChanged=True),
        script.silence(),
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=NEW) as client:
        with client.listen(prompts=True, uris=uris) as events:
            assert (events.lists, events.uris) == (("prompts",), ("a:1",))
        (request,) = peer.requests(LISTEN)
        assert request["params"]["notifications"] == {
            "promptsListChanged": True,
            "resourceSubscriptions": uris,
        }
        (notice,) = peer.requests("notifications/cancelled")
        assert notice["params"]["requestId"] == request["id"]


@pytest.mark.requirement("SUB-01")
@WIRES
def test_less_than_what_was_asked_for_is_said_and_borne(
    wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = [
        *opening(),
        script.expect(LISTEN),
        acknowledge(toolsListChanged=True, resourceSubscriptions=["a:2"]),
        script.notify(CHANGED, tagged()),
        script.silence(),
    ]
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), mode=NEW, name="peer") as client,
        client.listen(tools=True, prompts=True, uris=["a:1", "a:2"]) as events,
    ):
        assert (events.lists, events.uris) == (("tools",), ("a:2",))
        assert next(events) == TOOLS
    assert "[peer] refuses to notify of prompts, a:1" in caplog.text


@pytest.mark.requirement("SUB-01")
@WIRES
def test_a_server_that_agrees_to_nothing_does_not_support_it(wire: str) -> None:
    steps = [*opening(), script.expect(LISTEN), acknowledge(x=True), script.silence()]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=NEW) as client:
        with pytest.raises(NotSupported, match="refused to notify of tools"):
            client.listen(tools=True)
        assert peer.requests("notifications/cancelled")


ENDS = {
    "result": script.reply(tagged()),
    "notice": script.notify("notifications/cancelled", {"requestId": script.ID}),
}


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize("end", ENDS)
@WIRES
def test_the_server_may_end_it_by_an_answer_or_by_a_notice(wire: str, end: str) -> None:
    steps = [
        *opening(),
        script.expect(LISTEN),
        acknowledge(),
        script.notify(CHANGED, tagged()),
        ENDS[end],
        script.gate("lost"),
        *ENDS.values(),
        script.expect("tools/list"),
        script.reply({"tools": []}),
        script.silence(),
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=NEW, name="peer") as client:
        events = client.listen(tools=True, timeout=PATIENCE)
        assert next(events) == TOOLS
        with pytest.raises(SubscriptionLost, match="the server ended the subscription") as caught:
            next(events)
        peer.open("lost")
        error = caught.value
        assert (error.by, error.lists, error.uris, error.server) == (
            "server", ("tools",), (), "peer",
        )  # fmt: skip
        assert client.list_tools().tools == []
        assert "notifications/cancelled" not in peer.transcript.methods()


@pytest.mark.requirement("SUB-03")
@WIRES
def test_a_server_may_end_it_at_once(wire: str) -> None:
    steps = [*opening(), script.expect(LISTEN), script.reply(tagged()), script.silence()]
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), mode=NEW) as client,
        pytest.raises(SubscriptionLost, match="at once"),
    ):
        client.listen(tools=True)


@pytest.mark.requirement("SUB-03")
@WIRES
def test_a_notice_ends_no_other_request_than_one_that_listens(wire: str) -> None:
    steps = [
        *opening(),
        script.expect("tools/list"),
        script.notify("notifications/cancelled", {"requestId": script.ID}),
        script.reply({"tools": []}),
        script.silence(),
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=NEW) as client:
        assert client.list_tools(timeout=PATIENCE).tools == []


@WIRES
def test_a_refusal_is_an_error_of_the_server_s(wire: str) -> None:
    steps = [*opening(), script.expect(LISTEN), script.error(-32601, "no"), script.silence()]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=NEW) as client:
        with pytest.raises(syncmcp.MethodNotFound):
            client.listen(tools=True)
        assert client._core.session_state.listeners == []


@WIRES
def test_a_server_that_never_agrees_is_waited_for_so_long(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*opening(), script.expect(LISTEN), script.silence()]
    waits: list[float] = []

    class InVain(Latch):
        def wait(self, seconds: float | None) -> bool:
            assert seconds is not None
            waits.append(seconds)
            return not peer.requests(LISTEN)

    monkeypatch.setattr("syncmcp._connection.pending_request.Latch", InVain)
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), mode=NEW, timeout=600) as client,
    ):
        with pytest.raises(
            syncmcp.RequestTimeout, match="did not acknowledge the subscription"
        ) as caught:
            client.listen(tools=True)
        assert caught.value.seconds == 600
        assert 500 < waits.pop() <= 600
        assert peer.requests("notifications/cancelled")


@WIRES
def test_a_refused_subscription_gives_back_those_before_it(wire: str) -> None:
    steps = [
        *opening(OLD),
        script.expect("resources/subscribe"),
        script.reply({}),
        script.expect("resources/subscribe"),
        script.error(-32002, "no such resource"),
        script.expect("resources/unsubscribe"),
        script.reply({}),
        script.silence(),
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.on(wire), mode=OLD) as client:
        with pytest.raises(syncmcp.ResourceNotFound):
            client.listen(uris=["a:1", "a:2"])
        (request,) = peer.requests("resources/unsubscribe")
        assert request["params"]["uri"] == "a:1"
        assert client._core.session_state.listeners == []


@WIRES
def test_an_update_of_something_below_is_told_with_its_own_uri(wire: str) -> None:
    steps = [
        *opening(OLD),
        script.expect("resources/subscribe"),
        script.reply({}),
        script.notify("notifications/resources/updated", {"uri": "a:10"}),
        script.notify("notifications/resources/updated", {"uri": "a:1/part"}),
        script.expect("resources/unsubscribe"),
        script.reply({}),
        script.silence(),
    ]
    with (
        Scripted(steps) as peer,
        syncmcp.connect(peer.on(wire), mode=OLD) as client,
        client.listen(uris=["a:1"], timeout=PATIENCE) as events,
    ):
        assert next(events) == updated("a:1/part")


# -- a server that dies, and one that forgets ---------------------------------------------------


@pytest.mark.requirement("STD-08", "SUB-03")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_a_listener_is_set_up_again_on_the_process_that_replaces_a_dead_one(
    revision: syncmcp.Mode,
) -> None:
    server, others = shop(), server_processes()
    with relayed(server) as target, syncmcp.connect(target, mode=revision) as client:
        with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
            die(others)
            assert [next(events), next(events)] == [missed("tools"), missed("resource", "a:1")]
            assert server.stats.wait_for(lambda stats: held(server) == 1)
            server.resource_updated("a:1")
            server.list_changed("tools")
            assert [next(events), next(events)] == [updated("a:1"), TOOLS]
        assert let_go(server)


@pytest.mark.requirement("STD-08")
def test_the_process_that_replaces_a_dead_one_is_asked_for_the_same() -> None:
    agreed = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    dies = [*opening(), script.expect(LISTEN), acknowledge(**agreed), script.cut(code=1)]
    lasts = [*opening(), script.expect(LISTEN), acknowledge(**agreed), script.silence()]
    with (
        Scripted(dies, lasts) as peer,
        syncmcp.connect(syncmcp.Stdio(*peer.command), mode=NEW) as client,
    ):
        events = client.listen(tools=True, uris=["a:1"], timeout=PATIENCE)
        assert [next(events), next(events)] == [missed("tools"), missed("resource", "a:1")]
        first, second = peer.requests(LISTEN, 2)
        assert first["params"]["notifications"] == agreed
        assert second["params"] == first["params"]
        assert second["id"] != first["id"]
        events.close()


@pytest.mark.requirement("STD-08")
def test_a_process_that_dies_between_the_handshake_and_the_end_of_the_opening_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = threading.Semaphore(0)
    restore, interrupted = SessionState.restore, ClientCore.interrupted
    doomed = [True]  # the first connection that replaces another

    def told(core: ClientCore, error: syncmcp.McpError) -> None:
        interrupted(core, error)
        losses.release()

    def restore_and_wait(state: SessionState, connection: Connection, deadline: Deadline) -> None:
        restore(state, connection, deadline)
        if doomed:
            doomed.clear()
            connection.notify("acme/die", None, deadline)
            for _ in range(2):
                assert losses.acquire(timeout=PATIENCE)

    monkeypatch.setattr(ClientCore, "interrupted", told)
    listening = [script.expect("ping"), script.reply({})]
    end = [script.expect("acme/die"), script.cut(code=1)]
    lasts = [*opening(OLD), script.notify(CHANGED), script.silence()]
    with (
        Scripted([*opening(OLD), *listening, *end], [*opening(OLD), *end], lasts) as peer,
        syncmcp.connect(syncmcp.Stdio(*peer.command), mode=OLD) as client,
    ):
        events = client.listen(tools=True, timeout=PATIENCE)
        monkeypatch.setattr(SessionState, "restore", restore_and_wait)
        client.notify("acme/die")
        assert TOOLS in [next(events) for _ in range(3)]
        events.close()


def test_a_loss_that_is_told_while_a_call_that_is_given_up_opens_anew_is_mended_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted = ClientCore.interrupted
    lost, opened_anew = threading.Event(), threading.Event()
    make_connection = ClientCore._make_connection

    def told(core: ClientCore, error: syncmcp.McpError) -> None:
        lost.set()
        assert opened_anew.wait(PATIENCE)
        interrupted(core, error)

    def make(core: ClientCore, older: bool) -> Connection:
        connection = make_connection(core, older)
        if lost.is_set():
            opened_anew.set()
        return connection

    listening = [script.expect("ping"), script.reply({})]
    first = [*opening(OLD), *listening, script.expect("acme/die"), script.cut(code=1)]
    second = [script.expect("initialize"), script.silence()]
    third = [*opening(OLD), script.notify(CHANGED), script.silence()]
    token = syncmcp.CancelToken()
    with (
        Scripted(first, second, third) as peer,
        syncmcp.connect(syncmcp.Stdio(*peer.command), mode=OLD) as client,
    ):
        events = client.listen(tools=True, timeout=PATIENCE)
        monkeypatch.setattr(ClientCore, "interrupted", told)
        monkeypatch.setattr(ClientCore, "_make_connection", make)
        client.notify("acme/die")
        assert lost.wait(PATIENCE)

        def give_up() -> None:
            peer.requests("initialize", 2)
            token.cancel()

        error, _ = in_threads(lambda: client.ping(cancel=token), give_up)
        assert isinstance(error, syncmcp.RequestCancelled)
        assert TOOLS in events
        events.close()


def die(others: set[int]) -> None:
    """Have the server's process die, and not the `others`, which other tests may need."""
    (process,) = server_processes() - others
    os.kill(process, signal.SIGKILL)


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_a_process_that_is_not_replaced_takes_the_subscription_with_it(
    revision: syncmcp.Mode,
) -> None:
    server, others = shop(), server_processes()
    with relayed(server) as target:
        target.restart = "never"
        with syncmcp.connect(target, mode=revision, name="shop") as client:
            events = client.listen(tools=True, uris=["a:1"], timeout=PATIENCE)
            die(others)
            with pytest.raises(SubscriptionLost, match="the connection ended") as caught:
                next(events)
            assert (caught.value.by, caught.value.lists, caught.value.uris) == (
                "connection", ("tools",), ("a:1",),
            )  # fmt: skip
            assert isinstance(caught.value.__cause__, syncmcp.ConnectionLost)
            events.close()


@pytest.mark.requirement("SUB-03")
def test_a_stream_that_breaks_is_asked_for_again() -> None:
    server = shop()
    with serve_http(server) as http, syncmcp.connect(http.url, mode=STATELESS) as client:
        with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
            http.drop_connections()
            assert [next(events), next(events)] == [missed("tools"), missed("resource", "a:1")]
            server.list_changed("tools")
            assert next(events) == TOOLS
            assert server.stats.requests[LISTEN] == 2
        assert let_go(server)


def test_the_stream_that_all_share_is_opened_again_for_those_who_listen() -> None:
    server = shop()
    with serve_http(server) as http:
        old = syncmcp.Http(http.sse_url, transport="sse")
        with (
            syncmcp.connect(old, mode=STATEFUL) as client,
            client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events,
        ):
            for _ in range(2):
                http.drop_connections()
                assert [next(events), next(events)] == [missed("tools"), missed("resource", "a:1")]
            server.resource_updated("a:1")
            assert next(events) == updated("a:1")


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_a_server_that_is_gone_for_good_takes_the_subscription_with_it(
    revision: syncmcp.Mode,
) -> None:
    server = shop()
    with serve_http(server, retry_ms=1) as http, FaultProxy(http.url) as network:
        retry = syncmcp.Retry(attempts=2, pause=0.01)
        with syncmcp.connect(network.url, mode=revision, retry=retry) as client:
            events = client.listen(tools=True, uris=["a:1"], timeout=6 * PATIENCE)
            network.close()
            with pytest.raises(SubscriptionLost) as caught:
                next(events)
            assert (caught.value.by, caught.value.uris) == ("connection", ("a:1",))
            assert isinstance(caught.value.__cause__, syncmcp.TransportError)
            events.close()


@pytest.mark.requirement("SUB-03")
def test_a_server_that_agrees_to_nothing_when_it_is_asked_again_is_lost() -> None:
    steps = [
        *opening(),
        script.expect(LISTEN),
        acknowledge(),
        script.cut(),
        script.expect(LISTEN),
        acknowledge(x=True),
        script.silence(),
    ]
    with Scripted(steps) as peer, syncmcp.connect(peer.url, mode=NEW) as client:
        events = client.listen(tools=True, timeout=PATIENCE)
        with pytest.raises(SubscriptionLost, match="refused to notify of tools") as caught:
            next(events)
        assert caught.value.lists == ("tools",)


@pytest.mark.requirement("SUB-03")
def test_a_stream_that_the_server_ends_in_good_order_is_not_asked_for_again() -> None:
    server = shop()
    with serve_http(server) as http, syncmcp.connect(http.url, mode=STATELESS) as client:
        events = client.listen(tools=True, timeout=PATIENCE)
        server.listeners.end()
        with pytest.raises(SubscriptionLost) as caught:
            next(events)
        assert caught.value.by == "server"
        assert server.stats.requests[LISTEN] == 1


def test_in_a_new_session_everything_may_have_changed() -> None:
    server = shop()
    with serve_http(server) as http, syncmcp.connect(http.url, mode=STATEFUL) as client:
        with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
            http.endpoint.forget_sessions()
            client.list_tools()
            assert [next(events), next(events)] == [missed("tools"), missed("resource", "a:1")]
            server.resource_updated("a:1")
            assert next(events) == updated("a:1")
        assert let_go(server)


def test_a_missed_event_becomes_a_certain_one() -> None:
    server = shop()
    with (
        serve_http(server) as http,
        syncmcp.connect(http.url, mode=STATEFUL) as client,
        client.listen(tools=True, prompts=True, timeout=PATIENCE) as events,
    ):
        http.endpoint.forget_sessions()
        client.list_tools()
        client.ping()
        server.list_changed("tools")
        seen = threading.Event()
        client.on_notification("notifications/resources/list_changed", lambda _: seen.set())
        server.list_changed("resources")
        assert seen.wait(PATIENCE)
        assert [next(events), next(events)] == [TOOLS, missed("prompts")]
        server.list_changed("prompts")
        assert next(events) == PROMPTS


def test_ctrl_c_wakes_who_waits_for_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    server = shop()
    with syncmcp.connect(server) as client:
        events = client.listen(tools=True)
        monkeypatch.setattr("syncmcp._concurrency.event_queue.Latch", InterruptedLatch)
        with pytest.raises(KeyboardInterrupt):
            next(events)
        monkeypatch.undo()
        server.list_changed("tools")
        assert next(events) == TOOLS
        events.close()


# -- what servers over HTTP do ------------------------------------------------------------------


def listening_at(*answer: script.Step) -> Scripted:
    return Scripted([*opening(), script.expect(LISTEN), *answer, script.silence()])


def test_a_server_that_has_no_such_thing_says_so_in_its_own_way() -> None:
    answer = [script.head(501), script.chunk(b"not here"), script.end()]
    with listening_at(*answer) as peer, syncmcp.connect(peer.url, mode=NEW, retry=None) as client:
        with pytest.raises(syncmcp.HttpError) as caught:
            client.listen(tools=True)
        assert caught.value.status == 501


def test_a_stream_that_is_no_stream_is_lost() -> None:
    agreed = {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True}},
    }
    answer = [
        script.head(200, {"content-type": "application/json"}),
        script.chunk(json.dumps(agreed).encode()),
        script.end(),
    ]
    with listening_at(*answer) as peer, syncmcp.connect(peer.url, mode=NEW) as client:
        events = client.listen(tools=True, timeout=PATIENCE)
        with pytest.raises(SubscriptionLost, match="does not answer the request") as caught:
            next(events)
        assert caught.value.by == "connection"


def test_on_its_own_stream_an_event_needs_no_id_but_must_not_have_another_one() -> None:
    answer = [
        acknowledge(toolsListChanged=True, promptsListChanged=True),
        script.notify("notifications/prompts/list_changed", tagged(99)),
        script.notify(CHANGED),
    ]
    with (
        listening_at(*answer) as peer,
        syncmcp.connect(peer.url, mode=NEW) as client,
        client.listen(tools=True, prompts=True, timeout=PATIENCE) as events,
    ):
        assert next(events) == TOOLS


def test_losing_it_has_a_name_of_its_own_and_can_be_pickled() -> None:
    error = SubscriptionLost("gone", by="backlog", lists=("tools",), uris=("a:1",))
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.by, copy.lists, copy.uris) == ("backlog", ("tools",), ("a:1",))
    assert isinstance(copy, syncmcp.McpError)
    assert not isinstance(copy, syncmcp.TransportError)


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


def test_one_that_was_closed_is_not_kept() -> None:
    with syncmcp.connect(shop()) as client:
        events = client.listen(tools=True)
        gone = is_gone(events._backend)
        events.close()
        del events
        assert gone()
