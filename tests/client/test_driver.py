"""What the driver of operations does when an effect ends sooner than it was begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncmcp._client.background import FutureDrive
from syncmcp._client.core import core_of
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol.steps import Pause, Send, Steps
from tests.support.intercepting import MEMORY
from tests.support.stage import PATIENCE, Stage


def _at_once(callback: Callable[[], object]) -> Callable[[], object]:
    """An event that has happened before anybody waits for it."""
    callback()
    return lambda: None


def _hold() -> Steps[Any]:
    yield Pause(600.0, _at_once)
    return (yield Send("tools/call", {"name": "hold", "arguments": {"key": "a"}}))


@pytest.mark.requirement("M-01", "CAN-03")
def test_a_request_after_no_pause_at_all_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        core = core_of(client)
        # The pool's thread goes on before the thread that began the pause does.
        monkeypatch.setattr(core.pools.workers, "run", lambda job: job())
        future = FutureDrive(_hold(), core, core.resolve({}), Deadline(None)).future
        stage.inside("a")
        monkeypatch.undo()
        assert future.cancel()
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
