"""Exchanges that break, at each place, in both eras: what is done, what is said, what is repeated.

A shop behind a `FaultProxy` counts what it sells: no fault may make it sell twice in silence.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import pytest

import syncmcp
from syncmcp import Client, Retry
from syncmcp.config import Http
from syncmcp.errors import (
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    OutcomeUnknown,
    RequestTimeout,
)
from syncmcp.testing import (
    Cut,
    Drip,
    Fault,
    FaultProxy,
    Hold,
    HttpServer,
    Planned,
    Server,
    serve_http,
)
from tests.support.stage import Clock, tick

from .certificates import Certificates, make
from .http_peer import WAIT, Request, serving
from .phases import is_listening

LIMIT = 0.3
"""The time of a call that is to run out of it, in seconds."""

SOON = 20.0
"""Far more than an ending may be late, in seconds, and less than `WAIT`."""

AGAIN = Retry(3, pause=0)


class Wire(NamedTuple):
    """A revision, and how the server answers in it."""

    mode: Literal["2025-11-25", "2026-07-28"]
    answers: Literal["json", "sse"]

    @property
    def resumes(self) -> bool:
        """Whether a stream that broke can be taken up again."""
        return self.mode == "2025-11-25" and self.answers == "sse"


WIRES = [
    Wire("2025-11-25", "json"),
    Wire("2025-11-25", "sse"),
    Wire("2026-07-28", "json"),
    Wire("2026-07-28", "sse"),
]
STATEFUL, STATELESS = WIRES[:2], WIRES[2:]


class Shop:
    """A server with a tool that must not run twice, a list and something to read."""

    def __init__(self, answers: Literal["json", "sse"]) -> None:
        self.sold = 0
        self._lock = threading.Lock()
        self.server = Server("shop")
        self.server.add_tool(self.buy)
        self.server.resource("shop://prices")(lambda: "pears: 45")
        self._answers: Literal["json", "sse"] = answers

    def buy(self) -> str:
        with self._lock:
            self.sold += 1
        return "sold"

    def serve(self) -> HttpServer:
        return serve_http(self.server, response=self._answers, retry_ms=1)


class Operation(NamedTuple):
    """What a client does in the shop."""

    method: str
    run: Callable[..., Any]
    is_done: Callable[[Any], bool]


TOOL = Operation(
    "tools/call",
    lambda client, **options: client.call_tool("buy", **options),
    lambda result: result.text == "sold",
)
LIST = Operation(
    "tools/list",
    lambda client, **options: client.list_tools(**options),
    lambda result: [tool.name for tool in result.tools] == ["buy"],
)
READ = Operation(
    "resources/read",
    lambda client, **options: client.read_resource("shop://prices", **options),
    lambda result: result.contents[0].text == "pears: 45",
)


class Case(NamedTuple):
    """A cut, and what it means.

    Attributes:
        cut: The cut.
        sold: How often the tool may have run at the end of it all.
        resumed: Whether the answer comes after all where streams can be taken up again.
    """

    cut: Cut
    sold: tuple[int, ...] = (1,)
    resumed: bool = False


NEVER, PERHAPS = (0,), (0, 1)

CUTS = [
    Case(Cut("request"), NEVER),
    Case(Cut("request", after=10), NEVER),
    Case(Cut("sent"), PERHAPS),
]
JSON_CUTS = [*CUTS, Case(Cut("head")), Case(Cut("head", after=20)), Case(Cut("body", after=10))]
EVENT_CUTS = [
    *CUTS,
    # The head of a stream does not wait for the tool.
    Case(Cut("head", after=20), PERHAPS),
    Case(Cut("body", after=10), PERHAPS),
]
# The first event of a stateful stream carries an id alone.
STATEFUL_EVENT_CUTS = [
    *EVENT_CUTS,
    Case(Cut("event"), PERHAPS),
    Case(Cut("event", after=1), resumed=True),
]
STATELESS_EVENT_CUTS = [*EVENT_CUTS, Case(Cut("event"))]


def _table(*, resets: bool) -> Iterator[Any]:
    for wire in WIRES:
        if wire.answers == "json":
            cases = JSON_CUTS
        else:
            cases = STATEFUL_EVENT_CUTS if wire.resumes else STATELESS_EVENT_CUTS
        for case in cases:
            for reset in (False, True) if resets else (False,):
                place, after = case.cut.at, case.cut.after
                cut = Cut(place, after, reset)
                name = f"{wire.mode}-{wire.answers}-{place}-{after}{'-reset' if reset else ''}"
                yield pytest.param(wire, case._replace(cut=cut), id=name)


TABLE = pytest.mark.parametrize(("wire", "case"), list(_table(resets=False)))
TABLE_WITH_RESETS = pytest.mark.parametrize(("wire", "case"), list(_table(resets=True)))
ALL_WIRES = pytest.mark.parametrize("wire", WIRES, ids="-".join)


@contextmanager
def connected(shop: Shop, wire: Wire, **options: Any) -> Iterator[tuple[FaultProxy, Client]]:
    """A client in front of a proxy in front of the shop."""
    with (
        shop.serve() as served,
        FaultProxy(served.url) as proxy,
        syncmcp.connect(proxy.url, mode=wire.mode, retry=AGAIN, **options) as client,
    ):
        yield proxy, client
        # What a cut left running in the shop is to be counted, too.
        assert shop.server.stats.wait_for(lambda stats: stats.running == 0)


def failure(operation: Operation, client: Client, **options: Any) -> McpError:
    with pytest.raises(McpError) as caught:
        operation.run(client, **options)
    return caught.value


# Cut after something was sent


@TABLE_WITH_RESETS
@pytest.mark.pitfall("16")
def test_a_tool_that_was_cut_off_is_not_called_again_and_the_error_says_so(
    wire: Wire, case: Case
) -> None:
    shop = Shop(wire.answers)
    with connected(shop, wire) as (proxy, client):
        cut = proxy.queue(case.cut, method="tools/call")
        if case.resumed:
            assert client.call_tool("buy").text == "sold"
        else:
            error = failure(TOOL, client)
            assert type(error) is OutcomeUnknown
            assert error.delivery == "unknown"
            assert error.attempts == 1
        cut.wait()
        assert proxy.sends("tools/call") == 1
    assert shop.sold in case.sold


@TABLE
@pytest.mark.requirement("HTM-10")
def test_a_list_or_a_read_that_was_cut_off_is_sent_again_and_succeeds(
    wire: Wire, case: Case
) -> None:
    with connected(Shop(wire.answers), wire) as (proxy, client):
        for operation in (LIST, READ):
            cut = proxy.queue(case.cut, method=operation.method)
            assert operation.is_done(operation.run(client))
            cut.wait()
            sends = [one.message for one in proxy.exchanges if one.method == operation.method]
            assert len(sends) == (1 if case.resumed else 2)
            assert len({message["id"] for message in sends}) == len(sends)


@TABLE
@pytest.mark.requirement("HTM-10")
def test_a_tool_that_is_idempotent_in_this_call_is_called_again(wire: Wire, case: Case) -> None:
    shop = Shop(wire.answers)
    with connected(shop, wire) as (proxy, client):
        proxy.queue(case.cut, method="tools/call")
        assert client.call_tool("buy", idempotent=True).text == "sold"
        sends = [one.message for one in proxy.exchanges if one.method == "tools/call"]
        assert len(sends) == (1 if case.resumed else 2)
        assert len({message["id"] for message in sends}) == len(sends)
    assert shop.sold in ({1} if case.resumed else {1 + times for times in case.sold})


@ALL_WIRES
def test_what_is_cut_off_again_and_again_fails_after_as_many_attempts(wire: Wire) -> None:
    with connected(Shop(wire.answers), wire) as (proxy, client):
        for _ in range(AGAIN.attempts):
            proxy.queue(Cut("head"), method="tools/list")
        error = failure(LIST, client)
        assert type(error) is ConnectionLost
        assert (error.delivery, error.attempts) == ("unknown", AGAIN.attempts)
        assert proxy.sends("tools/list") == AGAIN.attempts
        assert LIST.is_done(client.list_tools())


@ALL_WIRES
@pytest.mark.pitfall("16")
def test_without_a_policy_nothing_that_was_cut_off_is_sent_again(wire: Wire) -> None:
    shop = Shop(wire.answers)
    with (
        shop.serve() as served,
        FaultProxy(served.url) as proxy,
        syncmcp.connect(proxy.url, mode=wire.mode, retry=None) as client,
    ):
        for operation in (LIST, READ, TOOL):
            proxy.queue(Cut("head"), method=operation.method)
            error = failure(operation, client, idempotent=True)
            assert isinstance(error, ConnectionLost)
            assert error.delivery == "unknown"
            assert proxy.sends(operation.method) == 1


# Not sent


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


def _all_quiet(proxy: FaultProxy) -> bool:
    return all(one.ended or one.verb == "GET" for one in proxy.exchanges)


class BeforeEachRepetition(logging.Handler):
    """Does something when a request is about to be sent again."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action

    def emit(self, record: logging.LogRecord) -> None:
        self._action()

    def __enter__(self) -> None:
        logging.getLogger("syncmcp.retry").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("syncmcp.retry").removeHandler(self)


OPERATIONS = pytest.mark.parametrize(
    "operation", [TOOL, LIST, READ], ids=lambda operation: operation.method
)


@ALL_WIRES
@OPERATIONS
def test_a_refused_connection_says_that_nothing_was_sent(wire: Wire, operation: Operation) -> None:
    shop = Shop(wire.answers)
    with connected(shop, wire) as (proxy, client):
        with proxy.down():
            error = failure(operation, client)
            assert type(error) is ConnectFailed
            assert (error.delivery, error.attempts) == ("not_sent", AGAIN.attempts)
        assert proxy.sends(operation.method) == 0
        assert operation.is_done(operation.run(client))
    assert shop.sold == (operation is TOOL)


@ALL_WIRES
@OPERATIONS
def test_what_was_not_sent_is_sent_when_the_server_is_there_again(
    wire: Wire, operation: Operation
) -> None:
    shop = Shop(wire.answers)
    with connected(shop, wire) as (proxy, client), ExitStack() as down:
        down.enter_context(proxy.down())
        with BeforeEachRepetition(down.close):
            assert operation.is_done(operation.run(client))
        assert proxy.sends(operation.method) == 1
    assert shop.sold == (operation is TOOL)


@ALL_WIRES
@OPERATIONS
@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
def test_a_connection_cut_before_the_handshake_of_tls_is_made_again(
    certificates: Certificates, wire: Wire, operation: Operation, reset: bool
) -> None:
    shop = Shop(wire.answers)
    with (
        shop.serve() as served,
        FaultProxy(served.url, tls=certificates.server_context()) as proxy,
        syncmcp.connect(
            Http(proxy.url, verify=certificates.authority), mode=wire.mode, retry=AGAIN
        ) as client,
    ):
        if wire.mode == "2025-11-25":
            assert proxy.wait_for(is_listening)
        assert proxy.wait_for(_all_quiet)
        proxy.drop_idle()
        cut = proxy.queue(Cut("connect", reset=reset))
        assert operation.is_done(operation.run(client))
        cut.wait()
        assert proxy.sends(operation.method) == 1
    assert shop.sold == (operation is TOOL)


@ALL_WIRES
@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.pitfall("16")
def test_a_connection_cut_before_a_byte_was_read_may_leave_the_client_in_doubt(
    wire: Wire, reset: bool
) -> None:
    shop = Shop(wire.answers)
    with connected(shop, wire) as (proxy, client):
        for operation in (TOOL, LIST, READ):
            assert wire in STATELESS or proxy.wait_for(is_listening)
            assert proxy.wait_for(_all_quiet)
            proxy.drop_idle()
            cut = proxy.queue(Cut("connect", reset=reset))
            doubt = None
            try:
                assert operation.is_done(operation.run(client))
            except OutcomeUnknown as error:
                doubt = error
            cut.wait()
            if operation is not TOOL:
                assert doubt is None
            elif not reset:  # which may come before anything is sent: then nothing is in doubt
                assert doubt is not None
            assert doubt is None or doubt.attempts == 1
            assert proxy.sends(operation.method) == (doubt is None)
    assert shop.sold == proxy.sends("tools/call")


# Refused


def busy(one: Request) -> None:
    one.connection.respond(429, b"later", {"Retry-After": "0"})


@ALL_WIRES
@OPERATIONS
def test_what_a_server_refuses_was_not_done_and_is_sent_again(
    wire: Wire, operation: Operation
) -> None:
    shop = Shop(wire.answers)
    with (
        shop.serve() as served,
        serving(busy) as refusing,
        FaultProxy(served.url) as proxy,
        syncmcp.connect(proxy.url, mode=wire.mode, retry=AGAIN) as client,
    ):
        proxy.retarget(refusing.url)
        error = failure(operation, client)
        assert isinstance(error, HttpError)
        assert (error.status, error.delivery) == (429, "refused")
        assert error.attempts == proxy.sends(operation.method) == AGAIN.attempts
        with BeforeEachRepetition(lambda: proxy.retarget(served.url)):
            assert operation.is_done(operation.run(client))
        assert proxy.sends(operation.method) == AGAIN.attempts + 2
    assert shop.sold == (operation is TOOL)


# Deadlines

SLOW: dict[str, list[Fault]] = {
    "json": [
        Hold("request"),
        Hold("sent"),
        Hold("head", after=20),
        Hold("body", after=10),
        Drip("head", every=0.05),
        Drip("body", every=0.05),
    ],
    "sse": [
        Hold("request"),
        Hold("sent"),
        Hold("head", after=20),
        Hold("event"),
        Drip("head", every=0.05),
        Drip("event", every=0.05),
    ],
}


def _client_left(planned: Planned, _: FaultProxy) -> bool:
    return planned.exchange is not None and planned.exchange.ended == "client left"


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        pytest.param(wire, fault, id=f"{'-'.join(wire)}-{type(fault).__name__}-{fault.at}")
        for wire in WIRES
        for fault in SLOW[wire.answers]
    ],
)
@pytest.mark.pitfall("4", "14")
def test_every_call_ends_by_its_deadline_however_slow_the_wire_is(
    monkeypatch: pytest.MonkeyPatch, wire: Wire, fault: Fault
) -> None:
    clock, limit = Clock(monkeypatch, "syncmcp._concurrency.timing"), 600.0
    shop = Shop(wire.answers)
    operations = (TOOL, LIST, READ)
    with connected(shop, wire) as (proxy, client), ThreadPoolExecutor() as pool:
        held = [proxy.queue(fault, method=operation.method) for operation in operations]
        failures = [
            pool.submit(failure, operation, client, timeout=limit) for operation in operations
        ]
        for slow in held:
            slow.wait()
        started = time.monotonic()
        clock.advance(limit)
        tick()
        errors = [failed.result() for failed in failures]
        assert time.monotonic() - started < SOON
        for operation, slow, error in zip(operations, held, errors, strict=True):
            assert type(error) is RequestTimeout
            assert (error.kind, error.seconds, error.delivery) == ("total", limit, "unknown")
            if fault.at == "request":  # who does not read does not see the end
                slow.release()
            assert proxy.wait_for(partial(_client_left, slow))
            assert proxy.sends(operation.method) == 1
            assert operation.is_done(operation.run(client))
    assert shop.sold in (1, 2)


@ALL_WIRES
@OPERATIONS
def test_a_server_that_is_away_does_not_hold_a_call_beyond_its_deadline(
    wire: Wire, operation: Operation
) -> None:
    shop = Shop(wire.answers)
    with (
        shop.serve() as served,
        FaultProxy(served.url) as proxy,
        syncmcp.connect(
            proxy.url, mode=wire.mode, retry=Retry(1000, pause=0.05, longest_pause=0.05)
        ) as client,
        proxy.down(),
    ):
        started = time.monotonic()
        error = failure(operation, client, timeout=LIMIT)
        assert time.monotonic() - started < LIMIT + SOON
        assert isinstance(error, (ConnectFailed, RequestTimeout))
        assert error.delivery == "not_sent"
    assert shop.sold == 0


# A fresh server


@contextmanager
def swapping(wire: Wire) -> Iterator[tuple[FaultProxy, Client, Callable[[], None], Shop, Shop]]:
    """A client of one shop, and what puts a fresh one into its place."""
    old, fresh = Shop(wire.answers), Shop(wire.answers)
    with (
        fresh.serve() as after,
        ExitStack() as first,
        FaultProxy(first.enter_context(old.serve()).url) as proxy,
        syncmcp.connect(proxy.url, mode=wire.mode, retry=None) as client,
    ):

        def swap() -> None:
            if wire in STATELESS:
                proxy.retarget(after.url)
                first.close()
                return
            # The listening stream is not to find out first that the session is gone.
            assert proxy.wait_for(is_listening)
            listening = proxy.queue(Hold("sent"), verb="GET")
            proxy.retarget(after.url)
            first.close()
            listening.wait()

        yield proxy, client, swap, old, fresh


@pytest.mark.parametrize("wire", STATEFUL, ids="-".join)
@OPERATIONS
@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
def test_a_fresh_server_costs_one_handshake_and_one_more_send_of_the_call(
    wire: Wire, operation: Operation
) -> None:
    with swapping(wire) as (proxy, client, swap, old, fresh):
        assert operation.is_done(operation.run(client))
        swap()
        assert operation.is_done(operation.run(client))
        assert proxy.sends("initialize") == 2
        assert proxy.sends(operation.method) == 3
        assert operation.is_done(operation.run(client))
        assert proxy.sends(operation.method) == 4
        renewed = [one for one in proxy.exchanges if one.method == "initialize"][1]
        assert "mcp-session-id" not in renewed.headers
    assert (old.sold, fresh.sold) == ((1, 2) if operation is TOOL else (0, 0))


@pytest.mark.parametrize("wire", STATEFUL, ids="-".join)
@pytest.mark.requirement("HTL-11")
@pytest.mark.pitfall("15")
def test_threads_that_meet_a_fresh_server_together_share_one_handshake(wire: Wire) -> None:
    crowd = 8
    together = threading.Barrier(crowd)
    texts: list[str] = []
    with swapping(wire) as (proxy, client, swap, old, fresh):
        swap()

        def buy() -> None:
            together.wait(WAIT)
            texts.append(client.call_tool("buy").text)

        threads = [threading.Thread(target=buy, daemon=True) for _ in range(crowd)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert texts == ["sold"] * crowd
        assert proxy.sends("initialize") == 2
        assert proxy.sends("tools/call") <= 2 * crowd
    assert (old.sold, fresh.sold) == (0, crowd)


@pytest.mark.parametrize("wire", STATELESS, ids="-".join)
def test_a_fresh_server_is_not_even_noticed_without_sessions(wire: Wire) -> None:
    with swapping(wire) as (proxy, client, swap, old, fresh):
        assert client.call_tool("buy").text == "sold"
        swap()
        assert client.call_tool("buy").text == "sold"
        assert proxy.sends("tools/call") == 2
        assert proxy.sends("server/discover") == 1
        assert proxy.connections == 1
    assert (old.sold, fresh.sold) == (1, 1)


@ALL_WIRES
@pytest.mark.pitfall("16")
def test_a_call_that_died_with_its_server_is_not_made_on_the_fresh_one(wire: Wire) -> None:
    with swapping(wire) as (proxy, client, swap, old, fresh):
        proxy.queue(Cut("head"), method="tools/call")
        assert type(failure(TOOL, client)) is OutcomeUnknown
        swap()
        assert client.list_tools().tools
        assert proxy.sends("tools/call") == 1
        assert client.call_tool("buy").text == "sold"
    assert old.sold <= 1
    assert fresh.sold == 1
