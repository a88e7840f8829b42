"""The state of one open request: when it is checked next, what it says of itself, how it ends."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from syncmcp import CancelToken
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import (
    PendingRequest,
    TimeoutWatcher,
)
from tests.support.stage import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    modules = ("syncmcp._connection.pending_request", "syncmcp._concurrency.timing")
    return Clock(monkeypatch, *modules, stands=True)


def request(
    method: str = "tools/call",
    seconds: float | None = 10.0,
    idle: float | None = None,
    cancel: CancelToken | None = None,
) -> PendingRequest:
    options = ResolvedOptions(seconds, idle)
    options.cancel = cancel
    return PendingRequest(method, options, Deadline(seconds))


class Question:
    """A question whose hold of the deadline the test ends itself."""

    def __init__(self) -> None:
        self.hold = SimpleNamespace(end=lambda: None)


def test_a_request_is_checked_next_when_the_first_of_its_limits_may_have_passed(
    clock: Clock,
) -> None:
    now = clock.now()
    assert request(seconds=None).next_check() is None
    assert request(seconds=10).next_check() == now + 10
    # Before the first message there is no silence; it is looked at again later.
    call = request(seconds=10, idle=3)
    assert call.next_check() == now + 3
    assert request(seconds=2, idle=3).next_check() == now + 2
    call.last_activity = now
    clock.advance(1)
    assert call.next_check() == now + 3
    assert call.overdue() is None
    clock.advance(2)
    error = call.overdue()
    assert error is not None
    assert (error.message, error.kind, error.seconds) == ("no message for 3 s", "idle", 3)
    # `tasks/result` waits in silence.
    assert request("tasks/result", seconds=10, idle=3).idle_timeout is None


def test_the_time_that_a_question_takes_is_no_silence(clock: Clock) -> None:
    now = clock.now()
    call = request(seconds=None, idle=3)
    asked: Any = Question()
    call.last_activity = now
    call.add_question(asked, certain=True)
    call.deadline.hold()
    clock.advance(100)
    assert call.overdue() is None
    assert call.next_check() == now + 103  # nothing is counted, so it is looked at later
    call.deadline.release()
    assert call.resume(asked)
    assert call.last_activity == now + 100
    assert not call.resume(asked)  # once
    clock.advance(2)
    assert call.overdue() is None
    clock.advance(1)
    assert call.overdue() is not None


def test_a_request_tells_a_dump_what_it_is(clock: Clock) -> None:
    token = CancelToken()
    call = request(seconds=10, cancel=token)
    call.id, call.params = 7, {"name": ["no text"]}
    facts = call.facts(clock.now())
    assert facts == {
        "id": 7,
        "method": "tools/call",
        "name": None,
        "age": None,
        "state": "queued",
        "silent": None,
        "left": 10,
        "clock": "running",
        "cancelled": False,
    }
    frame: Any = SimpleNamespace(created_at=clock.now() + 0.25, batch=None, submitted=True)
    call.out, call.params, call.last_activity = frame, {"name": "add"}, clock.now() + 0.5
    clock.advance(1.00061)
    call.deadline.hold()
    token.cancel()
    changed = {"name": "add", "age": 0.751, "state": "sent", "silent": 0.501, "clock": "paused"}
    assert call.facts(clock.now()) == {**facts, **changed, "left": None, "cancelled": True}
    call.deadline.release()
    assert call.facts(clock.now())["left"] == 8.999


def test_after_its_end_a_connection_watches_only_calls_that_are_finishing() -> None:
    watcher = TimeoutWatcher(threading.RLock(), list, lambda *_: None, lambda _: None)
    first, second = request(seconds=500), request(seconds=400)
    watcher.watch(first)
    assert watcher._alarm.at == first.deadline.at
    watcher.stop()
    assert watcher._alarm.at == math.inf
    watcher.watch(first)
    assert watcher._alarm.at == math.inf
    watcher.finishing(first)
    assert watcher.finishing_calls == {first}
    assert watcher._alarm.at == first.deadline.at
    watcher.stop()
    assert watcher._alarm.at == first.deadline.at
    watcher.watch(second)
    assert watcher._alarm.at == second.deadline.at
    watcher.finishing_calls.clear()
    watcher.stop()
    assert watcher._alarm.at == math.inf
