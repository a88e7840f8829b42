"""Exchanges that break, at each place, in both eras: what is done, what is said, what is repeated.

A shop behind a `FaultProxy` counts what it sells: no fault may make it sell twice in silence. Which
errors and answers are repeated, when, and how often: `tests/client/test_retry.py`. Calls that are
held in each phase: `test_phases.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import pytest

import syncmcp
from syncmcp import Client, Retry
from syncmcp.config import Http
from syncmcp.errors import (
    McpError,
    OutcomeUnknown,
)
from syncmcp.testing import (
    Cut,
    FaultProxy,
    HttpServer,
    Server,
    serve_http,
)

from .certificates import Certificates
from .phases import is_listening

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
STATELESS = WIRES[2:]


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


def _table() -> Iterator[Any]:
    """Each place on each wire; ends and resets in turn."""
    rows = 0
    for wire in WIRES:
        if wire.answers == "json":
            cases = JSON_CUTS
        else:
            cases = STATEFUL_EVENT_CUTS if wire.resumes else STATELESS_EVENT_CUTS
        for case in cases:
            cut = Cut(case.cut.at, case.cut.after, reset=bool(rows % 2))
            name = f"{wire.mode}-{wire.answers}-{cut.at}-{cut.after}{'-reset' * cut.reset}"
            yield pytest.param(wire, case._replace(cut=cut), id=name)
            rows += 1


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


@pytest.mark.parametrize(("wire", "case"), list(_table()))
@pytest.mark.requirement("HTM-10")
@pytest.mark.pitfall("16")
def test_what_was_cut_off_is_sent_again_if_that_does_no_harm_and_is_in_doubt_otherwise(
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
            assert (error.delivery, error.attempts) == ("unknown", 1)
        cut.wait()
        assert proxy.sends("tools/call") == 1
        times = 1 if case.resumed else 2
        for operation, options, sent in (
            (LIST, {}, times),
            (READ, {}, times),
            (TOOL, {"idempotent": True}, 1 + times),
        ):
            cut = proxy.queue(case.cut, method=operation.method)
            assert operation.is_done(operation.run(client, **options))
            cut.wait()
            ids = [one.message["id"] for one in proxy.exchanges if one.method == operation.method]
            assert len(set(ids)) == len(ids) == sent
    once = 0 if case.resumed else 1  # what was sent again, whole
    assert shop.sold in {first + once + again for first in case.sold for again in case.sold}


def _all_quiet(proxy: FaultProxy) -> bool:
    return all(one.ended or one.verb == "GET" for one in proxy.exchanges)


@ALL_WIRES
def test_a_connection_cut_before_the_handshake_of_tls_is_made_again(
    certificates: Certificates, wire: Wire
) -> None:
    shop = Shop(wire.answers)
    with (
        shop.serve() as served,
        FaultProxy(served.url, tls=certificates.server_context()) as proxy,
        syncmcp.connect(
            Http(proxy.url, verify=certificates.authority), mode=wire.mode, retry=AGAIN
        ) as client,
    ):
        for operation, reset in ((TOOL, False), (LIST, True)):
            assert wire in STATELESS or proxy.wait_for(is_listening)
            assert proxy.wait_for(_all_quiet)
            proxy.drop_idle()
            cut = proxy.queue(Cut("connect", reset=reset))
            assert operation.is_done(operation.run(client))
            cut.wait()
            assert proxy.sends(operation.method) == 1
    assert shop.sold == 1
