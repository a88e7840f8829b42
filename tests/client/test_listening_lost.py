"""Broken subscriptions: which are restored, which are lost, and which messages are valid."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from threading import current_thread
from typing import Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, NotSupported, SubscriptionLost
from syncmcp._client.core import ClientCore
from syncmcp._client.listening import StreamSubscription
from syncmcp._client.session_state import SessionState
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.connection import Connection
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.testing import FaultProxy, script, serve_http
from tests.client.test_listening import TOOLS, held, let_go, shop, updated
from tests.support.parts import without_pauses
from tests.support.programs import server_processes
from tests.support.scripts import NEW, OLD, WIRES, Scripted
from tests.support.session_server import FirstStreamLost, session_server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, InterruptedLatch, in_threads, relayed
from tests.transports.http_peer import Request

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
    """Connect to a server that performs `steps` after opening, and is then silent."""
    with Scripted([*opening(revision), *steps, script.silence()]) as peer:
        target = peer.url if wire == "http" else peer.on(wire)
        with syncmcp.connect(target, mode=revision, **options) as client:
            yield peer, client


# -- one frame at a time --------------------------------------------------------------------------
@pytest.mark.requirement("STD-04")
@WIRES
def test_an_event_reaches_the_listener_whose_id_it_carries_and_no_other(wire: str) -> None:
    changed = "notifications/resources/updated"
    agreed = acknowledge(resourceSubscriptions=["a:1"])
    steps = [
        *(script.expect(LISTEN, label="one"), agreed),
        *(script.expect(LISTEN, label="two"), agreed),
        script.notify(changed, {"uri": "a:1/nobody's"}),
        script.notify(changed, tagged(99, uri="a:1/unknown")),
        script.notify(changed, tagged("x", uri="a:1/strange")),
        *(script.notify(changed, tagged(uri=f"a:1/{to}"), to=to) for to in ("two", "one")),
    ]
    with scripted(wire, *steps) as (_, client):
        listening = [client.listen(uris=["a:1"], timeout=PATIENCE) for _ in range(2)]
        assert [*map(next, listening)] == [updated("a:1/one"), updated("a:1/two")]


@pytest.mark.requirement("SUB-01", "SUB-02")
@WIRES
def test_the_request_says_what_is_wanted_less_is_borne(
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
        assert "[peer] refuses to send notifications about prompts, a:1" in caplog.text
        (request,) = peer.requests(LISTEN)
        assert request["params"]["notifications"] == {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": uris,
        }
        (notice,) = peer.requests("notifications/cancelled")
        assert notice["params"]["requestId"] == request["id"]


REFUSED = "refused to send notifications about tools"


@pytest.mark.requirement("SUB-01", "SUB-03")
@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (acknowledge(x=True), NotSupported, REFUSED),
        (script.reply(tagged()), SubscriptionLost, "at once"),
        (script.error(-32601, "no"), syncmcp.MethodNotFound, "no"),
    ],
    ids=["agrees to nothing", "ends it at once", "an error"],
)
@WIRES
def test_a_server_that_refuses_it_is_not_listened_to(
    wire: str, answer: script.Step, error: type[Exception], words: str
) -> None:
    with scripted(wire, script.expect(LISTEN), answer) as (peer, client):
        with pytest.raises(error, match=words):
            client.listen(tools=True)
        if error is NotSupported:
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
        ENDS["notice"],  # cancels no request but those for changes
        script.reply({"tools": []}),
    ]
    with scripted(wire, *steps, name="peer") as (peer, client):
        events = client.listen(tools=True, timeout=PATIENCE)
        assert next(events) == TOOLS
        with pytest.raises(SubscriptionLost, match="the server ended the subscription") as caught:
            next(events)
        peer.open("lost")
        assert lost(caught.value) == ("server", ("tools",), ())
        assert caught.value.server == "peer"
        assert client.list_tools(timeout=PATIENCE).tools == []
        assert "notifications/cancelled" not in peer.transcript.methods()


@WIRES
def test_a_refused_subscription_gives_back_those_before_it(wire: str) -> None:
    steps = [
        *(script.expect("resources/subscribe"), script.reply({})),
        *(script.expect("resources/subscribe"), script.error(-32002, "no such resource")),
        *(script.expect("resources/unsubscribe"), script.reply({})),
    ]
    with scripted(wire, *steps, revision=OLD) as (peer, client):
        with pytest.raises(syncmcp.ResourceNotFound):
            client.listen(uris=["a:1", "a:2"])
        (request,) = peer.requests("resources/unsubscribe")
        assert request["params"]["uri"] == "a:1"
        assert client._core.session_state.listeners == []


# -- dead servers and lost sessions -------------------------------------------------------------
EVERYTHING = [missed("tools"), missed("resource", "a:1")]


def lost(error: SubscriptionLost) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return error.by, error.lists, error.uris


def take(events: syncmcp.Subscription, count: int = 2) -> list[ChangeEvent]:
    return [next(events) for _ in range(count)]


@pytest.mark.requirement("STD-08", "SUB-03")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
@pytest.mark.parametrize("restart", [True, False])
def test_a_listener_is_set_up_again_on_the_next_process(
    revision: syncmcp.Mode, restart: bool
) -> None:
    server, others = shop(), server_processes()
    with relayed(server) as target:
        if not restart:
            target.restart = "never"
        with syncmcp.connect(target, mode=revision, name="shop") as client:
            events = client.listen(tools=True, uris=["a:1"], timeout=PATIENCE)
            (process,) = server_processes() - others  # other tests may use the others
            os.kill(process, signal.SIGKILL)
            if restart:
                assert take(events) == EVERYTHING
                assert server.stats.wait_for(lambda stats: held(server) == 1)
                server.resource_updated("a:1")
                server.list_changed("tools")
                assert take(events) == [updated("a:1"), TOOLS]
            else:
                with pytest.raises(SubscriptionLost, match="the connection ended") as caught:
                    next(events)
                assert lost(caught.value) == ("connection", ("tools",), ("a:1",))
                assert isinstance(caught.value.__cause__, syncmcp.ConnectionLost)
            events.close()
        assert let_go(server)


@pytest.mark.requirement("STD-08")
def test_a_process_that_dies_while_it_is_opened_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = threading.Semaphore(0)
    restore, interrupted = SessionState.restore, ClientCore.interrupted
    doomed = [True]  # the first replacement connection fails

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


def test_a_loss_told_while_a_given_up_call_opens_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize("loss", ["stream", "shared stream", "session"])
def test_what_is_lost_over_http_is_asked_for_again_and_may_have_changed(loss: str) -> None:
    server = shop()
    with serve_http(server) as http:
        shared = syncmcp.Http(http.sse_url, transport="sse")
        mode: Any = STATELESS if loss == "stream" else STATEFUL
        with syncmcp.connect(shared if loss == "shared stream" else http.url, mode=mode) as client:
            with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
                for _ in range(2):
                    if loss == "session":
                        # Wait for the stream of the session: an early 404 means that it has none.
                        client.listen(tools=True, timeout=PATIENCE).close()
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


@pytest.mark.parametrize("status", [200, 503, 429])
def test_changes_without_a_stream_are_missed_in_the_same_session(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until 2025-11-25: a stream without event ids was cut, or a new one was first refused."""
    without_pauses(monkeypatch)
    with session_server() as server:
        lost = server.before = FirstStreamLost(status)
        server.capabilities = CAPABILITIES
        with syncmcp.connect(server.url, mode=STATEFUL) as client:
            schemas = client._core.schemas
            with client.listen(tools=True, uris=["a:1"], timeout=PATIENCE) as events:
                before = schemas.generation
                lost.ended.set()
                assert take(events) == EVERYTHING
                assert schemas.generation > before
                assert lost.stream is not None
                lost.stream.connection.event({"jsonrpc": "2.0", "method": CHANGED})
                assert next(events) == TOOLS
        assert server.count("initialize") == server.count("resources/subscribe") == 1


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_a_server_that_is_gone_takes_the_subscription_with_it(revision: syncmcp.Mode) -> None:
    server = shop()
    with serve_http(server, retry_ms=1) as http, FaultProxy(http.url) as network:
        retry = syncmcp.Retry(attempts=2, pause=0.01)
        with syncmcp.connect(network.url, mode=revision, retry=retry) as client:
            events = client.listen(tools=True, uris=["a:1"], timeout=6 * PATIENCE)
            network.close()
            with pytest.raises(SubscriptionLost) as caught:
                next(events)
            assert lost(caught.value) == ("connection", ("tools",), ("a:1",))
            assert isinstance(caught.value.__cause__, syncmcp.TransportError)
            events.close()


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


# -- servers over HTTP --------------------------------------------------------------------------
AGREED = {
    "jsonrpc": "2.0",
    "method": "notifications/subscriptions/acknowledged",
    "params": {"notifications": {"toolsListChanged": True}},
}
NO_STREAM = [
    script.head(200, {"content-type": "application/json"}),
    script.chunk(json.dumps(AGREED).encode()),
    script.end(),
]
AGAIN = script.expect(LISTEN)
REFUSED_AGAIN = [acknowledge(), script.cut(), AGAIN, acknowledge(x=True)]


@pytest.mark.requirement("SUB-03")
@pytest.mark.parametrize(
    ("answer", "words", "by"),
    [
        (NO_STREAM, "does not answer the request", "connection"),
        (REFUSED_AGAIN, REFUSED, "connection"),
        ([acknowledge(), script.reply(tagged())], "the server ended the subscription", "server"),
    ],
    ids=["no stream", "refused when asked again", "ended in good order"],
)
def test_a_subscription_the_server_breaks_is_lost(
    answer: list[script.Step], words: str, by: str
) -> None:
    with scripted("http", script.expect(LISTEN), *answer) as (peer, client):
        events = client.listen(tools=True, timeout=PATIENCE)
        with pytest.raises(SubscriptionLost, match=words) as caught:
            next(events)
        assert lost(caught.value) == (by, ("tools",), ())
        assert len(peer.requests(LISTEN)) == 1 + (AGAIN in answer)


def test_a_refusal_of_the_next_request_is_not_that_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, listening = threading.Event(), threading.Event()
    send, caller = StreamSubscription._send_listen, current_thread()

    def answered(*args: Any) -> ChangeFilter:
        granted = send(*args)
        if current_thread() is caller:
            assert refused.wait(PATIENCE)
        else:
            refused.set()
            assert listening.wait(PATIENCE)
        return granted

    monkeypatch.setattr(StreamSubscription, "_send_listen", answered)
    with scripted("http", script.expect(LISTEN), *REFUSED_AGAIN) as (_, client):
        events = client.listen(tools=True, timeout=PATIENCE)
        listening.set()
        assert events.lists == ("tools",)
        with pytest.raises(SubscriptionLost, match="refused to send"):
            next(events)


# -- repeated failures right after opening make the pauses longer
ENOUGH = 8


class Pauses:
    """The pauses of a client in the background; all end at once, until `ENOUGH` were made."""

    def __init__(self) -> None:
        self.made: list[float] = []
        self.enough, self.over = threading.Event(), threading.Event()

    def sleep(self, seconds: float, *_: Any) -> None:
        self.made.append(seconds)
        if len(self.made) >= ENOUGH:
            self.enough.set()
            assert self.over.wait(PATIENCE)

    def assert_grow(self) -> None:
        assert self.made[0] == 0  # a healthy server is reopened at once
        assert all(later > pause for pause, later in pairwise(self.made[:5]))
        assert max(self.made) <= 10
        assert self.made[ENOUGH - 1] == 10


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pauses]:
    made = Pauses()
    monkeypatch.setattr(ClientCore, "sleep", made.sleep)
    without_pauses(monkeypatch)
    yield made
    made.over.set()


def test_a_session_that_is_forgotten_at_once(pauses: Pauses) -> None:
    """Until 2025-11-25: the stream opens and ends, then the session is unknown."""

    def forget(one: Request) -> bool:
        if one.method != "GET":
            return False
        if server.seen[one.headers["mcp-session-id"], "GET"] > 1:
            one.connection.respond(404)
        else:
            one.connection.start_events()
            one.connection.chunk(b"retry: 0\n\n")
            one.connection.close()
        return True

    with session_server() as server:
        server.capabilities = {"tools": {"listChanged": True}}
        server.before = forget
        with syncmcp.connect(server.url, mode="2025-11-25") as client:
            with client.listen(tools=True):
                assert pauses.enough.wait(PATIENCE)
            pauses.over.set()
    pauses.assert_grow()


def test_a_subscription_that_is_accepted_and_broken_off(pauses: Pauses) -> None:
    """2026-07-28: the server accepts each request for changes, then ends the connection."""
    accepted = [script.expect(LISTEN), acknowledge(), script.cut()]
    steps = [*opening(), *accepted * (ENOUGH + 2)]
    with Scripted(steps) as peer, syncmcp.connect(peer.url, mode=NEW) as client:
        with client.listen(tools=True):
            assert pauses.enough.wait(PATIENCE)
        pauses.over.set()
    pauses.assert_grow()
