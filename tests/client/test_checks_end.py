"""A check by a schema ends with the call: by its timeout, by a cancel, when the client closes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp import CancelToken, ClosedError, RequestCancelled, RequestFuture, RequestTimeout
from syncmcp._protocol.schema import Schema
from syncmcp.testing import Server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, in_threads

WIRES = [Wire("memory", STATEFUL), Wire("stdio", STATELESS), Wire("http", STATELESS)]

pytestmark = [pytest.mark.requirement("SCHM-08"), pytest.mark.parametrize("wire", WIRES, ids=str)]


class Checking:
    """Checks are endless, but for what they find out.

    Attributes:
        inside: Set once one is under way.
        ended: Set once one has ended.
    """

    def __init__(self) -> None:
        self.inside, self.ended = threading.Event(), threading.Event()

    def problem(self, value: Any, look: Callable[[], object]) -> Any:
        """Take the place of a schema's."""
        self.inside.set()
        try:
            while True:
                look()
        finally:
            self.ended.set()


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> Checking:
    made = Checking()
    monkeypatch.setattr(Schema, "problem", lambda _, *given: made.problem(*given))
    return made


@pytest.mark.parametrize(
    ("checks", "end", "way"),
    [
        *product(("arguments", "result"), ("timeout", "token", "close"), ("blocking", "future")),
        ("result", "cancel", "future"),  # there is no future while arguments are checked
    ],
)
def test_a_check_ends_with_its_call(
    end: str, way: str, wire: Wire, checks: str, checking: Checking
) -> None:
    server, token = Server("weather"), CancelToken()
    server.add_tool(lambda: {"a": 1}, name="weather", output_schema={"type": "object"})
    options: dict[str, Any] = {"cancel": token, "timeout": 0.3 if end == "timeout" else PATIENCE}
    futures: SimpleQueue[RequestFuture[Any]] = SimpleQueue()
    with wire.connect(server, validate_input=checks == "arguments") as client:
        client.list_tools()

        def call() -> object:
            if way == "blocking":
                return client.call_tool("weather", **options)
            future = client.call_tool.future("weather", **options)
            futures.put(future)
            return future.result(PATIENCE)

        def stop() -> None:
            assert checking.inside.wait(PATIENCE)
            if end == "token":
                token.cancel("not wanted")
            elif end == "close":
                client.close()
            elif end == "cancel":
                assert futures.get(timeout=PATIENCE).cancel()

        error, stopped = in_threads(call, stop)
        assert stopped is None
        assert checking.ended.wait(PATIENCE)
    kinds = {"timeout": RequestTimeout, "close": ClosedError}
    assert isinstance(error, kinds.get(end, RequestCancelled))
    if isinstance(error, RequestTimeout):
        assert error.seconds == 0.3
        assert error.delivery == ("not_sent" if checks == "arguments" else "unknown")
    elif isinstance(error, RequestCancelled):
        assert error.reason == ("not wanted" if end == "token" else None)
    assert server.stats.requests["tools/call"] == (checks == "result")
