"""Connections that are cut at each place of an exchange: errors, retries and side effects.

A shop behind a `FaultProxy` counts its sales: a cut must not repeat a sale unnoticed. For retries,
their number and timing, see `tests/client/test_retry.py`. For calls that are held in each phase,
see `test_phases.py`.
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
from syncmcp.errors import McpError, OutcomeUnknown
from syncmcp.testing import Cut, FaultProxy, Server, serve_http

from .certificates import Certificates
from .phases import is_listening


class Wire(NamedTuple):
    """A revision, and the form of the server's responses."""

    mode: Literal["2025-11-25", "2026-07-28"]
    answers: Literal["json", "sse"]

    @property
    def resumes(self) -> bool:
        """Return whether a broken stream can be resumed."""
        return self.mode == "2025-11-25" and self.answers == "sse"


WIRES = [
    Wire("2025-11-25", "json"),
    Wire("2025-11-25", "sse"),
    Wire("2026-07-28", "json"),
    Wire("2026-07-28", "sse"),
]


class Shop:
    """A server with a tool that must not run twice, a list and a resource."""

    def __init__(self) -> None:
        self.sold = 0
        self._lock = threading.Lock()
        self.server = Server("shop")
        self.server.add_tool(self.buy)
        self.server.resource("shop://prices")(lambda: "pears: 45")

    def buy(self) -> str:
        with self._lock:
            self.sold += 1
        return "sold"


def buy(client: Client, **options: Any) -> bool:
    return client.call_tool("buy", **options).text == "sold"


def look(client: Client, **options: Any) -> bool:
    return [tool.name for tool in client.list_tools(**options).tools] == ["buy"]


def read(client: Client, **options: Any) -> bool:
    [contents] = client.read_resource("shop://prices", **options).contents
    return getattr(contents, "text", None) == "pears: 45"


class Case(NamedTuple):
    """A cut, the possible numbers of sales, and whether the client resumes the stream."""

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
# A stream may begin before the tool runs.
EVENT_CUTS = [*CUTS, *(Case(cut, PERHAPS) for cut in (Cut("head", 20), Cut("body", 10)))]
# The first event of a stateful stream has only an id.
STATEFUL_CUTS = [Case(Cut("event"), PERHAPS), Case(Cut("event", after=1), resumed=True)]


def _table() -> Iterator[Any]:
    """Yield each place of a cut on each wire; cuts alternate between ends and resets."""
    rows = 0
    for wire in WIRES:
        events = [*EVENT_CUTS, *(STATEFUL_CUTS if wire.resumes else [Case(Cut("event"))])]
        for case in JSON_CUTS if wire.answers == "json" else events:
            cut = Cut(case.cut.at, case.cut.after, reset=bool(rows % 2))
            name = f"{wire.mode}-{wire.answers}-{cut.at}-{cut.after}{'-reset' * cut.reset}"
            yield pytest.param(wire, case._replace(cut=cut), id=name)
            rows += 1


@contextmanager
def connected(
    wire: Wire, certificates: Certificates | None = None
) -> Iterator[tuple[Shop, FaultProxy, Client]]:
    """Connect a client through a proxy to a shop."""
    shop, tls = Shop(), certificates.server_context() if certificates else None
    with (
        serve_http(shop.server, response=wire.answers, retry_ms=1) as served,
        FaultProxy(served.url, tls=tls) as proxy,
        syncmcp.connect(
            Http(proxy.url, verify=certificates.authority if certificates else True),
            mode=wire.mode,
            retry=Retry(3, pause=0),
        ) as client,
    ):
        yield shop, proxy, client
        # Tools may still be running after a cut: their sales count, too.
        assert shop.server.stats.wait_for(lambda stats: stats.running == 0)


@pytest.mark.parametrize(("wire", "case"), list(_table()))
@pytest.mark.requirement("HTM-10")
@pytest.mark.pitfall("16")
def test_what_was_cut_off_is_sent_again_if_harmless_or_else_in_doubt(
    wire: Wire, case: Case
) -> None:
    with connected(wire) as (shop, proxy, client):
        cut = proxy.queue(case.cut, method="tools/call")
        if case.resumed:
            assert buy(client)
        else:
            with pytest.raises(McpError) as caught:
                buy(client)
            assert type(caught.value) is OutcomeUnknown
            assert (caught.value.delivery, caught.value.attempts) == ("unknown", 1)
        cut.wait()
        assert proxy.sends("tools/call") == 1
        times = 1 if case.resumed else 2
        again: list[tuple[str, Callable[[], bool], int]] = [
            ("tools/list", lambda: look(client), times),
            ("resources/read", lambda: read(client), times),
            ("tools/call", lambda: buy(client, idempotent=True), 1 + times),
        ]
        for method, is_done, sent in again:
            cut = proxy.queue(case.cut, method=method)
            assert is_done()
            cut.wait()
            ids = [one.message["id"] for one in proxy.exchanges if one.method == method]
            assert len(set(ids)) == len(ids) == sent
    once = 0 if case.resumed else 1  # the repeated call, which ran to its end
    assert shop.sold in {first + once + more for first in case.sold for more in case.sold}


def _all_quiet(proxy: FaultProxy) -> bool:
    return all(one.ended or one.verb == "GET" for one in proxy.exchanges)


@pytest.mark.parametrize("wire", WIRES, ids="-".join)
def test_a_connection_cut_before_tls_is_made_again(certificates: Certificates, wire: Wire) -> None:
    with connected(wire, certificates) as (shop, proxy, client):
        for method, is_done, reset in (("tools/call", buy, False), ("tools/list", look, True)):
            assert wire.mode == "2026-07-28" or proxy.wait_for(is_listening)
            assert proxy.wait_for(_all_quiet)
            proxy.drop_idle()
            cut = proxy.queue(Cut("connect", reset=reset))
            assert is_done(client)
            cut.wait()
            assert proxy.sends(method) == 1
    assert shop.sold == 1
