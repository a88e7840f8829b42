"""When a subscription breaks: what is set up again, what is lost, and what a server may say."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def scripted(
    wire: str, *steps: script.Step, revision: Any = NEW, **options: Any
) -> Iterator[tuple[Scripted, syncmcp.Client]]:
    """A server that does `steps` after its opening, and then nothing more; and its client."""
    with (
        Scripted([*opening(revision), *steps, script.silence()]) as peer,
        syncmcp.connect(
            peer.url if wire == "http" else peer.on(wire), mode=revision, **options
        ) as client,
    ):
        yield peer, client


# -- one frame at a time --------------------------------------------------------------------------


@pytest.mark.requirement("STD-04")
@WIRES
def test_an_event_reaches_the_listener_whose_id_it_carries_and_no_other(wire: str) -> None:
    changed = "notifications/resources/updated"
    steps = [
        script.expect(LISTEN, label="one"),
        acknowledge(resourceSubscriptions=["a:1"]),
        script.expect(LISTEN, label="two"),
        acknowledge(resourceSubscriptions=["a:1"]),
        script.notify(changed, {"uri": "a:1/nobody's"}),
        script.notify(changed, tagged(99, uri="a:1/unknown")),
        script.notify(changed, tagged("x", uri="a:1/strange")),
        script.notify(changed, tagged(uri="a:1/two"), to="two"),
        script.notify(changed, tagged(uri="a:1/one"), to="one"),
    ]
    with scripted(wire, *steps) as (_, client):
        one = client.listen(uris=["a:1"], timeout=PATIENCE)
        two = client.listen(uris=["a:1"], timeout=PATIENCE)
        assert next(one) == updated("a:1/one")
        assert next(two) == updated("a:1/two")


@pytest.mark.requirement("SUB-01", "SUB-02")
@WIRES
def test_the_request_says_what_is_wanted_and_less_is_said_and_borne(
    wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    uris = ["a:1", "a:2"]
    steps = [
        script.expect(LISTEN),
        acknowledge(toolsListChanged=True, resourceSubscriptions=["a:2"]),
        script.notify(CHANGED, tagged()),
    ]
    with scripted(wire, *steps, name="peer") as (peer, client):
        with client.listen(tools=True, prompts=True, uris=uris) as events:
            assert (events.lists, events.uris) == (("tools",), ("a:2",))
            assert next(events) == TOOLS
        assert "[peer] refuses to notify of prompts, a:1" in caplog.text
        (request,) = peer.requests(LISTEN)
        assert request["params"]["notifications"] == {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": uris,
        }
        (notice,) = peer.requests("notifications/cancelled")
        assert notice["params"]["requestId"] == request["id"]


REFUSALS: dict[str, tuple[script.Step, type[Exception], str]] = {
    "agrees to nothing": (acknowledge(x=True), NotSupported, "refused to notify of tools"),
    "ends it at once": (script.reply(tagged()), SubscriptionLost, "at once"),
    "an error": (script.error(-32601, "no"), syncmcp.MethodNotFound, "no"),
}


@pytest.mark.requirement("SUB-01", "SUB-03")
@pytest.mark.parametrize("how", REFUSALS)
@WIRES
def test_a_server_that_refuses_it_is_not_listened_to(wire: str, how: str) -> None:
    answer, error, words = REFUSALS[how]
    with scripted(wire, script.expect(LISTEN), answer) as (peer, client):
        with pytest.raises(error, match=words):
            client.listen(tools=True)
        if how == "agrees to nothing":
            assert peer.requests("notifications/cancelled")
        assert client._core.session_state.listeners == []


ENDS = {
    "result": script.reply(tagged()),
    "notice": script.notify("notifications/cancelled", {"requestId": script.ID}),
}


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize("end", ENDS)
@WIRES
def test_the_server_may_end_it_by_an_answer_or_by_a_notice(wire: str, end: str) -> None:
    steps = [
        script.expect(LISTEN),
        acknowledge(),
        script.notify(CHANGED, tagged()),
        ENDS[end],
        script.gate("lost"),
        *ENDS.values(),
        script.expect("tools/list"),
        ENDS["notice"],  # which ends no request but one that listens
        script.reply({"tools": []}),
    ]
    with scripted(wire, *steps, name="peer") as (peer, client):
        events = client.listen(tools=True, timeout=PATIENCE)
        assert next(events) == TOOLS
        with pytest.raises(SubscriptionLost, match="the server ended the subscription") as caught:
            next(events)
        peer.open("lost")
        error = caught.value
        assert (error.by, error.lists, error.uris, error.server) == (
            "server", ("tools",), (), "peer",
        )  # fmt: skip
        assert client.list_tools(timeout=PATIENCE).tools == []
        assert "notifications/cancelled" not in peer.transcript.methods()


@WIRES
def test_a_server_that_never_agrees_is_waited_for_so_long(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class InVain(Latch):
        def wait(self, seconds: float | None) -> bool:
            assert seconds is not None
            waits.append(seconds)
            return not peer.requests(LISTEN)

    monkeypatch.setattr("syncmcp._connection.pending_request.Latch", InVain)
    with scripted(wire, script.expect(LISTEN), timeout=600) as (peer, client):
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
        script.expect("resources/subscribe"),
        script.reply({}),
        script.expect("resources/subscribe"),
        script.error(-32002, "no such resource"),
        script.expect("resources/unsubscribe"),
        script.reply({}),
    ]
    with scripted(wire, *steps, revision=OLD) as (peer, client):
        with pytest.raises(syncmcp.ResourceNotFound):
            client.listen(uris=["a:1", "a:2"])
        (request,) = peer.requests("resources/unsubscribe")
        assert request["params"]["uri"] == "a:1"
        assert client._core.session_state.listeners == []


# -- a server that dies, and one that forgets ---------------------------------------------------


EVERYTHING = [missed("tools"), missed("resource", "a:1")]


def take(events: syncmcp.Subscription, count: int = 2) -> list[ChangeEvent]:
    return [next(events) for _ in range(count)]


@pytest.mark.requirement("STD-08", "SUB-03")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_a_listener_is_set_up_again_on_the_process_that_replaces_a_dead_one(
    revision: syncmcp.Mode,
) -> None:
    server, others = shop(), server_processes()
    with relayed(server) as target, syncmcp.connect(target, mode=revision) as client:
        with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
            die(others)
            assert take(events) == EVERYTHING
            assert server.stats.wait_for(lambda stats: held(server) == 1)
            server.resource_updated("a:1")
            server.list_changed("tools")
            assert take(events) == [updated("a:1"), TOOLS]
        assert let_go(server)


@pytest.mark.requirement("STD-08")
def test_the_process_that_replaces_a_dead_one_is_asked_for_the_same() -> None:
    agreed = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    listening = [*opening(), script.expect(LISTEN), acknowledge(**agreed)]
    with (
        Scripted([*listening, script.cut(code=1)], [*listening, script.silence()]) as peer,
        syncmcp.connect(syncmcp.Stdio(*peer.command), mode=NEW) as client,
        client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events,
    ):
        assert take(events) == EVERYTHING
        first, second = peer.requests(LISTEN, 2)
        assert second["params"] == first["params"]
        assert first["params"]["notifications"] == agreed
        assert second["id"] != first["id"]


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
@pytest.mark.parametrize("loss", ["stream", "shared stream", "session"])
def test_what_is_lost_over_http_is_asked_for_again_and_everything_may_have_changed(
    loss: str,
) -> None:
    server = shop()
    with serve_http(server) as http:
        shared = syncmcp.Http(http.sse_url, transport="sse")
        mode: Any = STATELESS if loss == "stream" else STATEFUL
        with syncmcp.connect(shared if loss == "shared stream" else http.url, mode=mode) as client:
            with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
                for _ in range(2):
                    if loss == "session":
                        http.endpoint.forget_sessions()
                        client.list_tools()
                    else:
                        http.drop_connections()
                    assert take(events) == EVERYTHING
                server.resource_updated("a:1")
                server.list_changed("tools")
                assert take(events) == [updated("a:1"), TOOLS]
            assert let_go(server)
        if loss == "stream":
            assert server.stats.requests[LISTEN] == 3


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
    listen = script.expect(LISTEN)
    steps = [listen, acknowledge(), script.cut(), listen, acknowledge(x=True)]
    with scripted("http", *steps) as (_, client):
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


def test_a_server_that_has_no_such_thing_says_so_in_its_own_way() -> None:
    answer = [script.head(501), script.chunk(b"not here"), script.end()]
    with scripted("http", script.expect(LISTEN), *answer, retry=None) as (_, client):
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
    with scripted("http", script.expect(LISTEN), *answer) as (_, client):
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
        scripted("http", script.expect(LISTEN), *answer) as (_, client),
        client.listen(tools=True, prompts=True, timeout=PATIENCE) as events,
    ):
        assert next(events) == TOOLS


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
