"""A call ends when it is cancelled or out of time, in every phase of its exchange, TLS or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from syncmcp import CancelToken
from syncmcp.errors import McpError, RequestCancelled, RequestTimeout
from tests.support.stage import Clock, tick

from .certificates import Certificates, make
from .phases import NOT_SENT, PHASES, WAIT, Phase, Reached, Stage, answers, arguments, stage

SOON = 20.0
"""Far more than ending may take, in seconds, and less than `WAIT`."""

LIMIT = 600.0
"""How long the call may take, in seconds; the test moves the clock over it."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


class Calling:
    """A call on a thread of its own, and how and when it ended."""

    def __init__(self, stage: Stage, phase: Phase, **options: Any) -> None:
        self.error: BaseException | None = None
        self.at = 0.0

        def run() -> None:
            try:
                stage.client.call_tool("echo", arguments(phase), **options)
            except BaseException as error:
                self.error = error
            self.at = time.monotonic()

        self._thread = threading.Thread(target=run, name="test-call", daemon=True)
        self._thread.start()

    def join(self) -> McpError:
        self._thread.join(WAIT)
        assert not self._thread.is_alive(), "the call did not end"
        assert isinstance(self.error, McpError), self.error
        return self.error


def by_token(stage: Stage, phase: Phase, reached: Reached, clock: Clock) -> None:
    token = CancelToken()
    call = Calling(stage, phase, timeout=None, cancel=token)
    reached()
    started = time.monotonic()
    token.cancel("no longer wanted")
    error = call.join()
    assert call.at - started < SOON
    assert isinstance(error, RequestCancelled)
    assert error.reason == "no longer wanted"
    assert error.delivery == ("not_sent" if phase in NOT_SENT else "unknown")


def by_future(stage: Stage, phase: Phase, reached: Reached, clock: Clock) -> None:
    future = stage.client.call_tool.future("echo", arguments(phase), timeout=None)
    reached()
    started = time.monotonic()
    assert future.cancel()
    assert time.monotonic() - started < SOON
    with pytest.raises(CancelledError):
        future.result(WAIT)


def by_deadline(stage: Stage, phase: Phase, reached: Reached, clock: Clock) -> None:
    call = Calling(stage, phase, timeout=LIMIT)
    reached()
    started = time.monotonic()
    clock.advance(LIMIT)
    tick()
    error = call.join()
    assert call.at - started < SOON
    assert isinstance(error, RequestTimeout)
    assert (error.kind, error.seconds) == ("total", LIMIT)
    assert error.delivery == ("not_sent" if phase in NOT_SENT else "unknown")


Ending = Callable[[Stage, Phase, Reached, Clock], None]


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("ending", [by_token, by_future, by_deadline])
@pytest.mark.pitfall("4", "14", "H1", "H1b", "H5")
def test_a_call_ends_in_every_phase_and_lets_go_of_its_connection(
    monkeypatch: pytest.MonkeyPatch,
    certificates: Certificates,
    mode: str,
    tls: bool,
    phase: Phase,
    ending: Ending,
) -> None:
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing")
    context = certificates.server_context() if tls else None
    with stage(mode, answers(phase), context, max_in_flight=1) as on:
        assert on.client.call_tool("echo").text == "0 characters"
        with PHASES[phase](on) as reached:
            if phase == "TLS" and not tls:
                # What was said first is the request, then.
                phase = "headers"
            ending(on, phase, reached, clock)
        # Its place among the calls in flight is free, and so is everything it had.
        assert on.client.call_tool("echo", {"text": "abc"}).text == "3 characters"
        assert on.quiet()
        assert on.server.stats.wait_for(lambda stats: stats.running == 0)
