"""Time limits of closing, and of waiting while another thread opens or closes."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock

import pytest

import syncmcp
from syncmcp import CancelToken, Client, ClientGroup, McpError
from syncmcp._client import lifetime
from syncmcp._client.retrying import can_reconnect
from syncmcp._client.session_state import ResourceSubscriptions
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.connection import Connection
from syncmcp.errors import ConnectionLost, RequestTimeout, SubscriptionLost
from syncmcp.testing import FaultProxy, Hold, Server, serve_http
from syncmcp.testing import script as s
from tests.client.test_listening_lost import acknowledge
from tests.client.test_listening_lost import opening as news
from tests.support.moved_time import MovedTime
from tests.support.people import nobody
from tests.support.scripts import NEW, OLD, Scripted, opening
from tests.support.session_server import session_server
from tests.support.shops import Silent
from tests.support.stage import PATIENCE

LIMIT = 600.0

UNHEARD = [*news(), s.expect("subscriptions/listen"), s.silence()]
REFUSES = [s.expect("initialize"), s.error(-32600, "no")]
DIES = [*opening(OLD), s.expect("tools/call"), s.cut()]


class Closings:
    """Notes the time limit of each connection that closes, and can delay the closing at a gate."""

    def __init__(self) -> None:
        self.noted: SimpleQueue[float | None] = SimpleQueue()
        self.gate = threading.Event()
        self.gate.set()

    def next(self, number: int = 1) -> list[float | None]:
        """Return the next limits, in order."""
        return [self.noted.get(timeout=PATIENCE) for _ in range(number)]


@pytest.fixture
def closings(moved: MovedTime, monkeypatch: pytest.MonkeyPatch) -> Closings:
    """Note the limits of closing. The clock does not move, so they are exact."""
    closings, close = Closings(), Connection.close

    def closing(connection: Connection, deadline: Deadline) -> None:
        closings.noted.put(deadline.remaining())
        closings.gate.wait(3 * PATIENCE)
        close(connection, deadline)

    monkeypatch.setattr(Connection, "close", closing)
    return closings


def test_the_program_says_how_long_closing_may_take(closings: Closings) -> None:
    client = syncmcp.connect(Server("one"), close_timeout=LIMIT)
    client.close()
    client.open()
    client.close(7.0)
    assert closings.next(2) == [LIMIT, 7.0]


def test_what_could_not_be_opened_is_dropped_within_a_second(closings: Closings) -> None:
    with Scripted(REFUSES) as peer, pytest.raises(McpError):
        syncmcp.connect(peer, mode=OLD, open_timeout=None, close_timeout=LIMIT)
    assert closings.next(2) == [1.0, LIMIT]


def test_a_connection_that_dies_of_the_probe_is_dropped_within_a_second(closings: Closings) -> None:
    with Scripted([s.expect("server/discover"), s.cut()], opening()) as peer:
        client = syncmcp.connect(peer, open_timeout=None)
        assert closings.next() == [1.0]
        client.close()


def test_an_opening_that_is_cancelled_is_closed(closings: Closings) -> None:
    token = CancelToken()
    with Scripted([s.expect("initialize"), s.silence()]) as peer:
        client = Client(peer, mode=OLD, lazy=True, open_timeout=None, close_timeout=LIMIT)
        call = client.call_tool.future("x", cancel=token, timeout=None)
        peer.requests("initialize")
        token.cancel()
        assert sorted(closings.next(2), key=lambda limit: limit or 0.0) == [1.0, LIMIT]
        assert isinstance(call.exception(PATIENCE), syncmcp.RequestCancelled)
        client.close()


def test_a_server_that_died_is_closed_and_started_again_at_once(
    closings: Closings, moved: MovedTime
) -> None:
    with Scripted(DIES, [*opening(OLD), s.expect("ping"), s.reply({})]) as peer:
        client = syncmcp.connect(peer, mode=OLD, timeout=None, close_timeout=LIMIT, retry=None)
        with pytest.raises(McpError):
            client.call_tool("x")
        assert moved.start(client.ping).get(timeout=PATIENCE) is None
        assert closings.next() == [LIMIT]
        client.close()


def test_a_session_that_was_lost_is_closed_in_the_background(closings: Closings) -> None:
    with session_server() as server:
        client = syncmcp.connect(server.url, mode=OLD, timeout=None, close_timeout=LIMIT)
        server.forget()
        client.list_tools()
        assert closings.next() == [LIMIT]
        client.close()


def test_an_abandoned_client_is_closed_within_five_seconds(closings: Closings) -> None:
    client = syncmcp.connect(Server("one"), close_timeout=LIMIT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del client
        gc.collect()
    assert closings.next() == [5.0]


def test_the_end_of_the_program_takes_less_than_a_second(closings: Closings) -> None:
    with syncmcp.connect(Server("one"), close_timeout=LIMIT):
        lifetime.close_all()
        assert closings.next() == [pytest.approx(0.8)]


# -- groups
def test_a_group_says_how_long_closing_may_take(closings: Closings) -> None:
    for servers in ("a", "ab"):
        group = ClientGroup({name: Server(name) for name in servers}, close_timeout=LIMIT)
        group.open()
        group.close()
        assert closings.next(len(servers)) == [LIMIT] * len(servers)
    with ClientGroup({"a": Server("a"), "b": Server("b")}, close_timeout=LIMIT) as group:
        group.remove("a", timeout=7.0)
        assert closings.next() == [7.0]


def test_a_group_waits_a_second_more_for_servers_that_do_not_end(
    closings: Closings, moved: MovedTime
) -> None:
    closings.gate.clear()
    group = ClientGroup({"a": Server("a"), "b": Server("b")})
    group.open()

    def is_waiting() -> None:
        closings.next(2)
        moved.waits_for(LIMIT + 1.0)

    closed = moved.ending(LIMIT + 1.0, partial(group.close, LIMIT), is_waiting)
    closings.gate.set()
    assert closed is None


def test_a_server_of_a_group_that_cannot_be_opened_is_closed(
    closings: Closings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    close = Client.close

    def closing(client: Client, timeout: float | None = None, **options: Any) -> None:
        limits.append(timeout)
        close(client, timeout, **options)

    monkeypatch.setattr(Client, "close", closing)
    with Scripted(REFUSES) as peer:
        group = ClientGroup({"a": peer}, mode=OLD, close_timeout=LIMIT)
        with suppress(McpError):
            group.open()
    group.close()
    assert limits[0] == LIMIT


@pytest.mark.parametrize(
    ("script", "limit", "last"),
    [
        ([s.expect("server/discover"), s.silence()], LIMIT, "server/discover"),
        (UNHEARD, 5.0, "subscriptions/listen"),
    ],
    ids=["silent", "without news"],
)
def test_the_servers_of_a_group_are_opened_until_their_limit(
    script: Any, limit: float, last: str, moved: MovedTime
) -> None:
    with Scripted(script) as peer:
        group = ClientGroup({"a": peer}, mode=NEW, open_timeout=LIMIT, timeout=None)
        opened = moved.start(group.open)
        peer.requests(last)
        moved.waits_for(limit)
        group.close()
        assert isinstance(opened.get(timeout=PATIENCE), (McpError, ClientGroup))


def test_fetching_the_lists_is_part_of_opening_a_group(moved: MovedTime) -> None:
    server = Silent("slow", capabilities={"tools": {}}).leave("tools/list")
    group = ClientGroup({"a": server}, open_timeout=LIMIT, timeout=None)
    moved.ending(LIMIT, group.open, server.was_asked)
    assert isinstance(group.status["a"].error, RequestTimeout)
    group.close()


# -- subscriptions
def deaf() -> Silent:
    """Return a server with one resource that never answers `resources/unsubscribe`."""
    server = Silent("deaf")
    server.resource("acme://one")(lambda: "one")
    return server.leave("resources/unsubscribe")


NEWS = ["acme://one"]


ENDLESS: dict[str, Any] = {"timeout": None, "idle_timeout": None}


@pytest.mark.parametrize(
    "how",
    [
        lambda client: partial(client.listen(uris=NEWS).close, None),
        lambda client: partial(client.listen(uris=NEWS).close, LIMIT),
        lambda client: client.on_resource_updated(NEWS[0], lambda _: None).stop,
    ],
    ids=["the client's", "its own", "stopped"],
)
def test_the_end_of_a_subscription_is_told_until_the_limit(
    how: Callable[[Client], Callable[[], object]], moved: MovedTime
) -> None:
    server = deaf()
    with syncmcp.connect(server, mode=OLD, close_timeout=LIMIT, **ENDLESS) as client:
        moved.ending(LIMIT, how(client), server.was_asked)


@pytest.mark.parametrize("limit", [None, LIMIT])
def test_the_end_of_a_subscription_to_a_group_is_told_until_the_limit(
    limit: float | None, moved: MovedTime
) -> None:
    server, own = deaf(), {"a": {"close_timeout": LIMIT}}
    with ClientGroup({"a": server}, mode=OLD, per_server=own, **ENDLESS) as group:
        changes = group.listen(uris=NEWS)
        moved.ending(LIMIT, partial(changes.close, limit), server.was_asked)


def test_the_end_of_an_abandoned_subscription_is_told_for_thirty_seconds(moved: MovedTime) -> None:
    server = deaf()
    with syncmcp.connect(server, mode=OLD, open_timeout=None, timeout=None) as client:
        changes: Any = client.listen(uris=NEWS)
        del changes
        gc.collect()
        server.was_asked()
        moved.waits_for(30.0)


def test_who_joins_a_subscription_waits_until_their_own_limit(moved: MovedTime) -> None:
    subscriptions, asked, gate = ResourceSubscriptions(), threading.Event(), threading.Event()

    def ask(*_: object) -> None:
        asked.set()
        gate.wait(3 * PATIENCE)

    first = moved.start(lambda: subscriptions.acquire(NEWS[0], ask, Deadline(None)))
    assert asked.wait(PATIENCE)
    second = partial(subscriptions.acquire, NEWS[0], ask, Deadline(LIMIT))
    error = moved.ending(LIMIT, second, partial(moved.waits_for, LIMIT))
    gate.set()
    assert first.get(timeout=PATIENCE) is None
    assert isinstance(error, RequestTimeout)


def test_a_subscription_that_was_lost_is_asked_for_again_at_once_until_the_limit(
    moved: MovedTime,
) -> None:
    listened = [*news(), s.expect("subscriptions/listen"), acknowledge(), s.cut()]
    with Scripted(listened, UNHEARD) as peer:
        client = syncmcp.connect(peer, mode=NEW, open_timeout=LIMIT, timeout=None)
        changes = client.listen(tools=True)
        peer.requests("subscriptions/listen", 2)
        error = moved.ending(LIMIT, partial(next, changes), lambda: None)
        client.close()
    assert isinstance(error, SubscriptionLost)


# -- streams of servers
@pytest.mark.requirement("HTL-08")
def test_a_stream_that_a_server_holds_back_is_waited_for_half_a_second(moved: MovedTime) -> None:
    with serve_http(Server("asking")) as running, FaultProxy(running.url) as proxy:
        held = proxy.queue(Hold("head"), verb="GET")
        client = Client(proxy.url, mode=OLD, elicitation=nobody, open_timeout=None)
        opened = moved.ending(0.5, client.open, partial(moved.waits_for, 0.5))
        assert not isinstance(opened, BaseException)
        held.release()
        client.close()


def test_who_listens_waits_for_the_stream_until_the_limit(moved: MovedTime) -> None:
    server = Server("news")
    server.add_tool(lambda: "", name="one")
    with serve_http(server) as running, FaultProxy(running.url) as proxy:
        held = proxy.queue(Hold("head"), verb="GET")
        with syncmcp.connect(proxy.url, mode=OLD, timeout=LIMIT) as client:
            listen = partial(client.listen, tools=True)
            moved.ending(LIMIT, listen, partial(moved.waits_for, LIMIT))
            held.release()


# -- in real time
def test_the_end_of_a_server_that_takes_no_request_is_waited_for_a_fifth_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = ConnectionLost("the server no longer reads")
    monkeypatch.setattr(Connection, "request", Mock(side_effect=lost))
    monkeypatch.setattr(Connection, "wait_closed", wait := Mock(return_value=False))
    with Scripted([s.silence()]) as peer, pytest.raises(McpError):
        syncmcp.connect(peer, mode=OLD, retry=None)
    wait.assert_called_once_with(0.2)


def test_the_death_of_a_server_is_waited_for_a_fifth_of_a_second() -> None:
    over = Mock(transport=Mock(blocking=False))
    can_reconnect(over)
    over.wait_closed.assert_called_once_with(0.2)
