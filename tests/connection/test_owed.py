"""What a client owes a server that takes nothing: bounded on every wire, and seen in a dump.

Over stdio the bound is in `tests/transports/test_stdio_writing.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

import syncmcp
from syncmcp import LimitExceeded
from tests.connection.puppet import Puppet
from tests.support.session_server import session_server
from tests.support.stage import PATIENCE, STATEFUL
from tests.transports.http_peer import Request
from tests.transports.old_peer import connected, old_server


def ping(number: int, padding: str = "") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": f"{number}{padding}", "method": "ping"}


FLOOD = 1200
"""More answers than are kept for a server where these are a thousand."""
WHOLE_FLOOD = 12_000


@pytest.fixture
def few_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._concurrency.budget.MAX_OWED", 1000)


def pings(server: Any) -> None:
    """Send all of them as events, a hundred at once."""
    for first in range(0, FLOOD, 100):
        each = (json.dumps(ping(first + number)).encode() for number in range(100))
        server(b"".join(b"data: " + one + b"\n\n" for one in each))


@contextmanager
def over_http() -> Iterator[syncmcp.Client]:
    """Pings on the stream of the server; the POSTs of their answers are left without a response."""
    streams: list[Any] = []
    listening, over = threading.Event(), threading.Event()

    def script(one: Request) -> bool:
        if one.method == "GET":
            one.connection.start_events()
            streams.append(one.connection)
            listening.set()
        elif one.method == "POST" and b'"method"' not in one.body:
            over.wait(PATIENCE)
        elif b'"tools/call"' in one.body:
            assert listening.wait(PATIENCE)
            pings(streams[0].chunk)
        else:
            return False
        return True

    with session_server() as server:
        server.before = script
        try:
            with syncmcp.connect(server.url, mode=STATEFUL) as client:
                yield client
        finally:
            over.set()


@contextmanager
def over_sse() -> Iterator[syncmcp.Client]:
    """The same over HTTP+SSE."""
    over = threading.Event()
    with old_server() as old:
        take = old.take

        def flood(request: Request) -> None:
            if "method" not in request.message:
                over.wait(PATIENCE)
            elif request.message["method"] == "tools/call":
                request.connection.respond(202)
                pings(old.write)
            else:
                take(request)

        old.take = flood  # type: ignore[method-assign]
        try:
            with connected(old) as client:
                yield client
        finally:
            over.set()


class Greedy(Puppet):
    """A server in this process that takes no answer until `taking` is set.

    Attributes:
        flood: How many pings follow a call of a tool.
    """

    def __init__(self, flood: int) -> None:
        super().__init__()
        self.flood = flood
        self.taking, self.blocked, self.called = (threading.Event() for _ in range(3))
        self.changed = threading.Condition()

    def take(self, answer: dict[str, Any]) -> None:
        self.blocked.set()
        assert self.taking.wait(PATIENCE)
        with self.changed:
            super().take(answer)
            self.changed.notify_all()

    def receive(self, frame: bytes) -> None:
        super().receive(frame)
        if b'"tools/call"' in frame:
            self.called.set()
            self.say(*map(ping, range(self.flood)))

    def close(self) -> None:
        self.taking.set()
        super().close()


def in_memory() -> AbstractContextManager[syncmcp.Client]:
    """The same in one process, with the real bound."""
    return syncmcp.connect(Greedy(WHOLE_FLOOD), mode=STATEFUL)


@pytest.mark.parametrize("reached", [over_http, over_sse, in_memory])
def test_a_server_that_pings_and_takes_no_answer_loses_the_connection(
    reached: Callable[[], AbstractContextManager[syncmcp.Client]], request: pytest.FixtureRequest
) -> None:
    if reached is not in_memory:
        request.getfixturevalue("few_owed")
    with reached() as client:
        with pytest.raises(LimitExceeded, match="does not read its messages") as caught:
            client.call_tool("flood", timeout=PATIENCE)
        assert caught.value.delivery == "unknown"
        assert client.dump().facts["client"]["state"] == "lost"


def test_calls_that_had_not_left_yet_were_not_sent(few_owed: None) -> None:
    server = Greedy(1)
    with syncmcp.connect(server, mode=STATEFUL) as client:
        sent = client.call_tool.future("flood", timeout=PATIENCE)
        assert server.blocked.wait(PATIENCE)
        queued = client.call_tool.future("flood", timeout=PATIENCE)
        server.say(*map(ping, range(FLOOD)))
        for future, delivery in ((sent, "unknown"), (queued, "not_sent")):
            error = future.exception(PATIENCE)
            assert isinstance(error, LimitExceeded)
            assert error.delivery == delivery


def test_a_dump_shows_what_is_owed_and_nothing_once_it_was_taken() -> None:
    server, heard = Greedy(0), threading.Event()

    def hear(method: str, params: object) -> None:
        heard.set()

    with syncmcp.connect(server, mode=STATEFUL, on_notification=hear) as client:
        assert client.dump().facts["queues"]["owed"] == 0
        server.say(*map(ping, range(300)))
        server.say({"jsonrpc": "2.0", "method": "acme/read"})
        assert heard.wait(PATIENCE)
        facts = client.dump().facts["queues"]
        assert facts["owed"] == 300
        assert facts["owed bytes"] > 300 * 30
        assert "owed 300" in str(client.dump())
        server.taking.set()
        future = client.call_tool.future("wait")
        assert server.called.wait(PATIENCE)  # the call is behind the answers
        facts = client.dump().facts["queues"]
        assert (facts["owed"], facts["owed bytes"]) == (0, 0)
        future.cancel()
    assert [answer["id"] for answer in server.answers] == [str(number) for number in range(300)]


def unanswered(number: int) -> dict[str, Any]:
    method = ("acme/unknown", "sampling/createMessage")[number % 2]
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {}}


@pytest.mark.parametrize("bound", ["bytes", "refusals"])
def test_the_bound_is_one_of_bytes_too_and_refusals_count_like_answers(
    bound: str, few_owed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed = [unanswered(number) for number in range(FLOOD)]
    if bound == "bytes":
        monkeypatch.setattr("syncmcp._concurrency.budget.MAX_BYTES", 1_000_000)
        owed = [ping(number, "x" * 200_000) for number in range(8)]
    server = Greedy(0)
    with syncmcp.connect(server, mode=STATEFUL) as client:
        future = client.call_tool.future("wait", timeout=PATIENCE)
        assert server.called.wait(PATIENCE)
        server.say(*owed)
        assert isinstance(future.exception(PATIENCE), LimitExceeded)


def test_a_burst_of_thousands_of_pings_is_answered() -> None:
    server = Greedy(2000)
    server.taking.set()
    with syncmcp.connect(server, mode=STATEFUL) as client:
        future = client.call_tool.future("flood", timeout=PATIENCE)
        with server.changed:
            assert server.changed.wait_for(lambda: len(server.answers) == 2000, PATIENCE)
        assert client.dump().facts["client"]["state"] == "open"
        future.cancel()
