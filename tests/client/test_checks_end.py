"""A check by a schema ends with the call: by its timeout, by a cancel, when the client closes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from syncmcp import CancelToken, ClosedError, RequestCancelled, RequestTimeout
from syncmcp._protocol.schema import Schema
from syncmcp.testing import Server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, in_threads

WIRES = [Wire("memory", STATEFUL), Wire("stdio", STATELESS), Wire("http", STATELESS)]

pytestmark = [
    pytest.mark.requirement("SCHM-08"),
    pytest.mark.parametrize("wire", WIRES, ids=str),
]


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


@pytest.mark.parametrize("end", ["timeout", "token", "close"])
@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.parametrize("checks", ["arguments", "result"])
def test_a_check_ends_with_its_call(
    end: str, way: str, wire: Wire, checks: str, checking: threading.Event
) -> None:
    server, token = weather(), CancelToken()
    options: dict[str, Any] = {"cancel": token, "timeout": 0.3 if end == "timeout" else PATIENCE}
    with wire.connect(server, validate_input=checks == "arguments") as client:
        client.list_tools()

        def call() -> object:
            if way == "future":
                return client.call_tool.future("weather", **options).result(PATIENCE)
            return client.call_tool("weather", **options)

        def stop() -> None:
            assert checking.wait(PATIENCE)
            if end == "token":
                token.cancel("not wanted")
            elif end == "close":
                client.close()

        error, _ = in_threads(call, stop)
    kinds = {"timeout": RequestTimeout, "token": RequestCancelled, "close": ClosedError}
    assert isinstance(error, kinds[end])
    if isinstance(error, RequestTimeout):
        assert error.seconds == 0.3
        assert error.delivery == ("not_sent" if checks == "arguments" else "unknown")
    elif isinstance(error, RequestCancelled):
        assert error.reason == "not wanted"
    assert server.stats.requests["tools/call"] == (checks == "result")


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
