"""Messages with too many values: like too long messages, they are not decoded, on every wire."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, Http, LimitExceeded, Stdio
from syncmcp._connection import tool_schemas
from syncmcp._connection.tool_schemas import ToolSchemaCache
from syncmcp._protocol import jsonrpc
from syncmcp.testing import Server
from syncmcp.testing import script as s
from syncmcp.transports.base import Transport
from syncmcp.types import Tool
from tests.connection.puppet import Puppet
from tests.support.scripts import OLD, Scripted, opening
from tests.support.session_server import session_server
from tests.support.stage import PATIENCE, STATEFUL, Wire, every_wire
from tests.transports.http_peer import Request


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the limit, so that a small message exceeds it."""
    monkeypatch.setattr(jsonrpc, "MAX_VALUES", 3000)
    monkeypatch.setattr(Transport, "max_values", 3000)


def counting() -> Server:
    server = Server("counting")

    @server.tool()
    def zeros(count: int) -> dict[str, Any]:
        return {"zeros": [0] * count}

    @server.tool()
    def commas(count: int) -> str:
        return ',[{":' * count

    return server


@every_wire
def test_a_result_with_too_many_values_fails_its_call(wire: Wire, few_values: None) -> None:
    with wire.connect(counting()) as client:
        # A text is one value, whatever it contains.
        assert client.call_tool("commas", {"count": 10_000}).text == ',[{":' * 10_000
        with pytest.raises(LimitExceeded, match="3,000 values") as caught:
            client.call_tool("zeros", {"count": 3000})
        assert caught.value.delivery == "unknown"
        assert (caught.value.method, caught.value.server) == ("tools/call", client.server.name)
        with pytest.raises(LimitExceeded, match="3,000 values"):
            client.call_tool.future("zeros", {"count": 3000}).result(PATIENCE)
        if wire.transport == "http":  # over HTTP only the exchange ends
            assert client.call_tool("zeros", {"count": 3}).structured_content == {"zeros": [0] * 3}


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_shorter_frames_may_have_fewer_values_and_of_a_refused_one_nothing_is_held(
    wire: str,
) -> None:
    counts = (49_000, 110_000)
    replies = [s.reply({"content": [], "structuredContent": {"x": [0] * n}}) for n in counts]
    steps = [*opening(), *chain(*([s.expect("tools/call"), each] for each in replies)), s.silence()]
    with Scripted(steps) as peer:
        target: Stdio | Http = Http(peer.url, max_body=2**20)
        if wire == "stdio":
            target = Stdio(*peer.command, restart="never", max_frame=2**20)
        with Client(target, mode=OLD, retry=None) as client:
            few: Any = client.call_tool("few", timeout=PATIENCE, validate_output="off")
            assert len(few.structured_content["x"]) == 49_000
            gc.collect()
            gc.disable()
            tracemalloc.start()
            try:
                with pytest.raises(LimitExceeded, match="more than 100,000 values"):
                    client.call_tool("many", timeout=PATIENCE)
                assert tracemalloc.get_traced_memory()[0] < len(json.dumps([0] * 100_000))
            finally:
                tracemalloc.stop()
                gc.enable()


def ping(number: int, padding: str = "") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": f"{number}{padding}", "method": "ping"}


FLOOD = 1200
"""More answers than `few_owed` allows to be queued for a server."""
WHOLE_FLOOD = 12_000


@pytest.fixture
def few_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._concurrency.budget.MAX_OWED", 1000)


def pings(server: Any) -> None:
    """Send all pings as events, a hundred at once."""
    for first in range(0, FLOOD, 100):
        each = (json.dumps(ping(first + number)).encode() for number in range(100))
        server(b"".join(b"data: " + one + b"\n\n" for one in each))


@contextmanager
def over_http() -> Iterator[syncmcp.Client]:
    """Connect to a server whose stream sends pings, and which never responds to the answers."""
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


class Greedy(Puppet):
    """Blocks at each answer until `taking` is set; a tool call makes it send `flood` pings."""

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
    """Connect to such a server in this process, with the real limit."""
    return syncmcp.connect(Greedy(WHOLE_FLOOD), mode=STATEFUL)


@pytest.mark.parametrize("reached", [over_http, in_memory])
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
        assert server.called.wait(PATIENCE)  # the call is sent after the answers
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


def tool(name: str, size: int = 0) -> Tool:
    return Tool(name=name, input_schema={"type": "object", "description": "x" * size})


def test_pages_are_added_to_what_is_cached() -> None:
    cache = ToolSchemaCache()
    cache.learn([tool("a")], 0, whole=False)
    first = cache.by_name["a"]
    cache.learn([tool("a"), tool("b")], 0, whole=False)
    assert list(cache.by_name) == ["a", "b"]
    assert cache.by_name["a"] is first, "compiled schemas are kept"
    assert not cache.complete
    cache.learn([tool("b")], 0, whole=True)
    assert list(cache.by_name) == ["b"]
    assert cache.complete


def test_ever_new_tools_of_single_pages_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_schemas, "MAX_SINGLE_PAGES", 10_000)
    cache = ToolSchemaCache()
    cache.learn([tool("listed")], 0, whole=True)
    for _ in range(100):
        cache.learn([tool("page", 1000)], 0, whole=False)
    assert cache.complete, "the same page again adds nothing"
    assert list(cache.by_name) == ["listed", "page"]
    for number in range(100):
        cache.learn([tool(f"page-{number}", 1000)], 0, whole=False)
        assert f"page-{number}" in cache.by_name
        assert sum(known.size() for known in cache.by_name.values()) < 12_000
        assert cache.complete == ("listed" in cache.by_name)
    assert not cache.complete, "the cache was started again"


def test_schemas_of_single_pages_count_by_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty object has two bytes as JSON, but takes at least 64 bytes of memory."""
    monkeypatch.setattr(tool_schemas, "MAX_SINGLE_PAGES", 1_000_000)
    cache = ToolSchemaCache()
    for number in range(100):
        schema = {"type": "object", "examples": [{} for _ in range(5_000)]}
        cache.learn([Tool(name=f"page-{number}", input_schema=schema)], 0, whole=False)
        assert len(cache.by_name) <= 4
