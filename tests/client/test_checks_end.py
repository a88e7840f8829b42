"""A check by a schema ends with the call: by its timeout, by a cancel, when the client closes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, ClosedError, McpError, RequestCancelled, RequestTimeout
from syncmcp._protocol.schema import Schema
from syncmcp.testing import Server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire

WIRES = [Wire("memory", STATEFUL), Wire("stdio", STATELESS), Wire("http", STATELESS)]

pytestmark = [
    pytest.mark.requirement("SCHM-08"),
    pytest.mark.parametrize("wire", WIRES, ids=str),
]
both_ways = pytest.mark.parametrize("way", ["blocking", "future"])


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make checks endless, but for what they find out; it is set once one is under way."""
    inside = threading.Event()

    def endless(self: Schema, value: Any, look: Callable[[], object]) -> Any:
        inside.set()
        while True:
            look()

    monkeypatch.setattr(Schema, "problem", endless)
    return inside


def weather() -> Server:
    server = Server("weather")
    server.add_tool(lambda: {"a": 1}, name="weather", output_schema={"type": "object"})
    return server


class Call:
    """A call of the tool on a thread of its own."""

    def __init__(self, client: syncmcp.Client, way: str, **options: Any) -> None:
        self.future: Any = None
        self._outcome: Any = None
        self._submitted = threading.Event()

        def call() -> None:
            try:
                if way == "future":
                    self.future = client.call_tool.future("weather", **options)
                    self._submitted.set()
                    self._outcome = self.future.result(PATIENCE)
                else:
                    self._outcome = client.call_tool("weather", **options)
            except McpError as error:
                self._outcome = error

        self._thread = threading.Thread(target=call)
        self._thread.start()

    def outcome(self) -> Any:
        """What it raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self._outcome


@both_ways
@pytest.mark.parametrize("checks", ["arguments", "result"])
def test_a_check_ends_with_the_timeout_of_its_call(
    way: str, wire: Wire, checks: str, checking: threading.Event
) -> None:
    server = weather()
    with wire.connect(server, validate_input=checks == "arguments") as client:
        client.list_tools()
        error = Call(client, way, timeout=0.3).outcome()
    assert checking.is_set()
    assert isinstance(error, RequestTimeout)
    assert error.seconds == 0.3
    assert error.delivery == ("not_sent" if checks == "arguments" else "unknown")
    assert server.stats.requests["tools/call"] == (checks == "result")


@both_ways
@pytest.mark.parametrize("checks", ["arguments", "result"])
def test_a_check_ends_with_the_token_of_its_call(
    way: str, wire: Wire, checks: str, checking: threading.Event
) -> None:
    token = CancelToken()
    with wire.connect(weather(), validate_input=checks == "arguments") as client:
        client.list_tools()
        call = Call(client, way, cancel=token)
        assert checking.wait(PATIENCE)
        token.cancel("not wanted")
        error = call.outcome()
    assert isinstance(error, RequestCancelled)
    assert error.reason == "not wanted"


@both_ways
def test_a_check_ends_when_the_client_is_closed(
    way: str, wire: Wire, checking: threading.Event
) -> None:
    with wire.connect(weather()) as client:
        client.list_tools()
        call = Call(client, way)
        assert checking.wait(PATIENCE)
        client.close()
        assert isinstance(call.outcome(), ClosedError)


def test_a_check_ends_when_its_future_is_cancelled(
    wire: Wire, checking: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    endless = Schema.problem

    def noticed(self: Schema, value: Any, look: Callable[[], object]) -> Any:
        try:
            return endless(self, value, look)
        finally:
            ended.set()

    monkeypatch.setattr(Schema, "problem", noticed)
    with wire.connect(weather()) as client:
        client.list_tools()
        future = client.call_tool.future("weather")
        assert checking.wait(PATIENCE)
        assert future.cancel()
        assert ended.wait(PATIENCE)
        with pytest.raises(RequestCancelled):
            future.result(PATIENCE)
