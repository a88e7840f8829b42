"""Calls end at a cancellation or deadline in each phase of their exchange.

These tests use a client. For endings within a head, a chunk or an error, by the transport alone,
see `test_http_ending.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from syncmcp import CancelToken
from syncmcp.errors import RequestCancelled, RequestTimeout
from tests.support.stage import Clock, elsewhere, tick

from .certificates import Certificates
from .phases import NOT_SENT, PHASES, WAIT, Phase, Reached, Stage, answers, arguments, stage

SOON = 20.0
"""Far longer than ending may take, in seconds."""

LIMIT = 600.0
"""The timeout of the call, in seconds; the test moves the clock past it."""

Ending = Callable[[Stage, Phase, Reached, Clock], None]


def called(stage: Stage, phase: Phase, reached: Reached, **options: Any) -> Future[Any]:
    """Start a call on its own thread; return its future once it has reached the phase."""
    call = elsewhere(lambda: stage.client.call_tool("echo", arguments(phase), **options))
    reached()
    return call


def by_token(stage: Stage, phase: Phase, reached: Reached, clock: Clock) -> None:
    token = CancelToken()
    call = called(stage, phase, reached, timeout=None, cancel=token)
    token.cancel("no longer wanted")
    error = call.exception(SOON)
    assert isinstance(error, RequestCancelled)
    assert error.reason == "no longer wanted"
    assert error.delivery == ("not_sent" if phase in NOT_SENT else "unknown")


def by_future(stage: Stage, phase: Phase, reached: Reached, clock: Clock) -> None:
    future = stage.client.call_tool.future("echo", arguments(phase), timeout=None)
    reached()
    assert elsewhere(future.cancel).result(SOON)
    with pytest.raises(CancelledError):
        future.result(WAIT)


def by_deadline(stage: Stage, phase: Phase, reached: Reached, clock: Clock) -> None:
    call = called(stage, phase, reached, timeout=LIMIT)
    clock.advance(LIMIT)
    tick()
    error = call.exception(SOON)
    assert isinstance(error, RequestTimeout)
    assert (error.kind, error.seconds) == ("total", LIMIT)
    assert error.delivery == ("not_sent" if phase in NOT_SENT else "unknown")


def rows() -> Iterator[Any]:
    """Yield each phase with a cancellation and a deadline; TLS and revisions alternate."""
    for number, phase in enumerate(PHASES):
        for step, ending in enumerate(((by_token, by_future)[number % 2], by_deadline)):
            mode = ("2025-11-25", "2026-07-28")[(number // 2 + step) % 2]
            tls = phase == "TLS" or (number + step) % 2 == 1
            name = f"{phase}-{ending.__name__}-{mode}-{'tls' if tls else 'plain'}"
            yield pytest.param(phase, ending, mode, tls, id=name)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize(("phase", "ending", "mode", "tls"), list(rows()))
@pytest.mark.pitfall("4", "14", "H1", "H1b", "H5")
def test_a_call_ends_in_every_phase_and_lets_go_of_its_connection(
    monkeypatch: pytest.MonkeyPatch,
    certificates: Certificates,
    phase: Phase,
    ending: Ending,
    mode: str,
    tls: bool,
) -> None:
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing")
    context = certificates.server_context() if tls else None
    with stage(mode, answers(phase), context, max_in_flight=1) as on:
        assert on.client.call_tool("echo").text == "0 characters"
        with PHASES[phase](on) as reached:
            ending(on, phase, reached, clock)
        # The call has released its place in flight and its resources.
        assert on.client.call_tool("echo", {"text": "abc"}).text == "3 characters"
        assert on.quiet()
        assert on.server.stats.wait_for(lambda stats: stats.running == 0)
