"""The state of an open request: its next check, its errors and its end."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from syncmcp import CancelToken
from syncmcp._base.secrets import Secrets
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import (
    PendingRequest,
    TimeoutWatcher,
    check_wanted,
    close_error_for,
    error_of_response,
)
from syncmcp._protocol import jsonrpc
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    InvalidParams,
    OutcomeUnknown,
    RequestCancelled,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
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
    """A question whose `hold.end` does nothing: the test itself releases the deadline."""

    hold = SimpleNamespace(end=lambda: None)


def told(call: PendingRequest) -> tuple[object, ...]:
    """Return the facts of an overdue request's error."""
    error = call.overdue()
    assert error is not None
    return error.message, error.kind, error.seconds


def test_a_new_request_is_open_and_sent_by_the_thread_that_waits_or_by_its_pool() -> None:
    call = request()
    assert (call.id, call.altered, call.may_send, call.outcome) == (-1, False, False, None)
    assert (call.taken, call.released, call.questions) == (False, False, {})
    assert call.waiter is not None
    assert call.waiter.locked()
    assert call.delegate_send(print)  # the waiting thread sends it
    assert not call.waiter.locked()
    jobs, sent = list[Any](), list[object]()
    call = PendingRequest("ping", ResolvedOptions(None, None), Deadline(None), lambda _: None)
    assert not call.delegate_send(sent.append)
    call.pool = SimpleNamespace(run=jobs.append)  # type: ignore[assignment]
    assert not call.delegate_send(sent.append)  # without a frame, nothing can be sent
    frame: Any = object()
    call.out = frame
    assert call.delegate_send(sent.append)
    jobs.pop()()
    assert sent == [frame]


def test_a_request_is_checked_next_when_its_first_limit_may_have_passed(clock: Clock) -> None:
    now = clock.now()
    assert request(seconds=None).next_check() is None
    assert request(seconds=10).next_check() == now + 10
    # `idle_timeout` does not count before the first message, but the check is still made.
    call, silent = request(seconds=10, idle=3), request(seconds=10, idle=3)
    assert call.next_check() == now + 3
    assert request(seconds=2, idle=3).next_check() == now + 2
    call.last_activity = now
    clock.advance(1)
    assert call.next_check() == now + 3
    assert call.overdue() is None
    clock.advance(2)
    assert told(call) == ("no message for 3 s", "idle", 3)
    clock.advance(6)
    assert silent.overdue() is None
    clock.advance(1)
    assert told(silent) == ("no response within 10 s", "total", 10)
    # `tasks/result` has no `idle_timeout`.
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
    assert call.next_check() == now + 103  # the idle time does not count, so the check is later
    call.deadline.release()
    assert call.resume(asked)
    assert call.last_activity == now + 100
    assert not call.resume(asked)  # only once
    clock.advance(2)
    assert call.overdue() is None
    clock.advance(1)
    assert call.overdue() is not None
    # If a question has used up the time for holding the deadline, silence counts again.
    call.deadline.hold(patience=5)
    call.last_activity = now = clock.now()
    assert call.next_check() == now + 8
    clock.advance(8)
    assert call.overdue() is not None


def test_a_request_tells_a_dump_what_it_is(clock: Clock) -> None:
    token = CancelToken()
    call = request(seconds=10, cancel=token)
    call.id, call.params = 7, {"name": ["no text"]}
    facts = call.facts(clock.now())
    assert facts == (
        {"id": 7, "method": "tools/call", "name": None, "age": None, "state": "queued"}
        | {"silent": None, "left": 10, "clock": "running", "cancelled": False}
    )
    frame: Any = SimpleNamespace(created_at=clock.now() + 0.25, batch=None, submitted=True)
    call.out, call.params, call.last_activity = frame, {"name": "add"}, clock.now() + 0.5
    clock.advance(1.00061)
    call.deadline.hold()
    token.cancel()
    changed = {"name": "add", "age": 0.751, "state": "sent", "silent": 0.501, "clock": "paused"}
    assert call.facts(clock.now()) == {**facts, **changed, "left": None, "cancelled": True}
    call.deadline.release()
    assert call.facts(clock.now())["left"] == 8.999


def test_the_error_of_a_response_has_all_that_it_says() -> None:
    secrets = Secrets()
    secrets.give("hunter22")
    message = jsonrpc.Error(1, -5, "not hunter22", {"more": 1})
    error = error_of_response(message, None, None, "shop", secrets)
    said = (error.code, error.message, error.data, error.server, error.status)
    assert said == (-5, "not ***", {"more": 1}, "shop", 0)
    out: Any = SimpleNamespace(status=418)
    assert error_of_response(message, None, out, "shop", secrets).status == 418
    message = jsonrpc.Error(1, -32000, "bad hunter22 " + "x y " * 100_000, None)
    error = error_of_response(message, None, None, "shop", secrets)
    assert error.message.startswith("bad *** x y")  # the beginning of a long text
    assert error.message.endswith(" more characters)")
    assert len(error.message) < 20_000


@pytest.mark.parametrize(
    ("method", "code", "kind"),
    [
        ("resources/read", jsonrpc.INVALID_PARAMS, ResourceNotFound),
        ("resources/read", -32000, ServerError),
        ("tools/call", jsonrpc.INVALID_PARAMS, InvalidParams),
    ],
)
def test_a_missing_resource_has_its_own_error(
    method: str, code: int, kind: type[ServerError]
) -> None:
    message = jsonrpc.Error(1, code, "no", {"uri": "a:b"})
    error = error_of_response(message, request(method), None, "shop", Secrets())
    assert type(error) is kind
    facts = (error.code, error.message, error.data, error.server)
    assert facts == (code, "no", {"uri": "a:b"}, "shop")


@pytest.mark.parametrize("blocking", [True, False])
def test_a_call_of_the_parent_process_ends_in_the_child(blocking: bool) -> None:
    call = request()
    waiter = threading.Lock()
    if blocking:
        call.waiter = waiter
        waiter.acquire()
    call.disown(ConnectionLost("in the parent", server="shop"))
    error = call.outcome
    assert isinstance(error, ConnectionLost)
    assert (error.message, error.server) == ("in the parent", "shop")
    assert (error.method, error.delivery) == ("tools/call", "unknown")
    assert (call.taken, call.released, waiter.locked()) == (True, True, False)


def test_a_call_that_has_ended_is_not_begun(clock: Clock) -> None:
    token = CancelToken()
    check_wanted(token, Deadline(1), "ping", "not_sent")
    check_wanted(None, Deadline(None), "ping", "not_sent")
    with pytest.raises(RequestTimeout, match=r"^ping \[shop\]: no time is left") as late:
        check_wanted(None, Deadline(0), "ping", "unknown", "shop")
    assert (late.value.seconds, late.value.delivery) == (0, "unknown")
    token.cancel("enough")
    with pytest.raises(RequestCancelled, match=r"^ping \[shop\]: cancelled") as cancelled:
        check_wanted(token, Deadline(0), "ping", "not_sent", "shop")
    assert (cancelled.value.reason, cancelled.value.delivery) == ("enough", "not_sent")


@pytest.mark.parametrize(
    ("method", "delivery", "kind"),
    [
        ("tools/call", "unknown", OutcomeUnknown),
        ("tools/call", "not_sent", ConnectionLost),
        ("tools/list", "unknown", ConnectionLost),
    ],
)
def test_what_may_have_run_is_in_doubt_if_twice_would_harm(
    method: str, delivery: Any, kind: type[ConnectionLost]
) -> None:
    lost = ConnectionLost("the server exited", server="shop", exit_code=3)
    lost.__cause__ = cause = OSError()
    error = close_error_for(lost, method, delivery)
    assert type(error) is kind
    assert error is not lost
    assert isinstance(error, ConnectionLost)
    assert (error.message, error.exit_code, error.server) == ("the server exited", 3, "shop")
    assert (error.method, error.delivery, error.__cause__) == (method, delivery, cause)

    assert type(close_error_for(ClosedError("closed"), method, delivery)) is ClosedError


def test_after_its_end_a_connection_watches_only_calls_that_are_finishing() -> None:
    watcher = TimeoutWatcher(threading.RLock(), list, lambda *_: None, lambda _: None)
    first, second = request(seconds=500), request(seconds=400)
    watcher.watch(first)
    assert watcher._alarm.at == first.deadline.at
    watcher.stop()
    assert watcher._alarm.at == math.inf
    watcher.watch(first)
    watcher.finishing(first)
    assert (watcher.finishing_calls, watcher._alarm.at) == ({first}, first.deadline.at)
    watcher.stop()
    assert watcher._alarm.at == first.deadline.at
    watcher.watch(second)
    assert watcher._alarm.at == second.deadline.at
    watcher.finishing_calls.clear()
    watcher.stop()
    assert watcher._alarm.at == math.inf
