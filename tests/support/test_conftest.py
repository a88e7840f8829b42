"""The leak check itself sees what it must see (on Linux, where it reads /proc)."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest

import syncmcp
from syncmcp.testing import leaks
from syncmcp.testing.leaks import PATIENCE, Footprint
from tests.support.stage import Stage


class Clock:
    """Time that passes only while somebody sleeps, and what is to happen then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.collected: list[float] = []
        self.event = threading.Event()
        monkeypatch.setattr(leaks, "time", self)
        monkeypatch.setattr(leaks, "gc", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.event.set()

    def collect(self) -> None:
        self.collected.append(self.now)
        gc.collect()


def left_thread(gate: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=gate.wait, name="syncmcp-left", daemon=True)
    thread.start()
    return thread


def test_a_thread_left_running_is_seen() -> None:
    before = Footprint()
    gate = threading.Event()
    left_thread(gate)
    try:
        assert before.left_behind(0.0) == ["thread syncmcp-left"]
    finally:
        gate.set()
    assert before.left_behind() == []


def test_a_child_nobody_waited_for_is_seen() -> None:
    before = Footprint()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert f"child process {child.pid}" in before.left_behind(0.0)
    finally:
        child.communicate(b"\n")
    assert before.left_behind() == []


def test_an_open_socket_is_seen() -> None:
    before = Footprint()
    with socket.socket():
        (leak,) = before.left_behind(0.0)
        assert "socket:" in leak
    assert before.left_behind() == []


def test_an_open_descriptor_is_seen() -> None:
    before = Footprint()
    ends = os.pipe()
    seen = before.left_behind(0.0)
    for end in ends:
        os.close(end)
    assert len(seen) == 2
    assert all("pipe:" in leak for leak in seen)
    assert before.left_behind() == []


def test_a_future_without_an_answer_is_seen_by_what_it_needs() -> None:
    stage = Stage()
    before = Footprint()
    with ExitStack() as stack:
        client = stack.enter_context(syncmcp.connect(stage.server))
        future = client.call_tool.future("hold", {"key": "a"})
        stage.inside("a")
        assert any(leak.startswith("thread syncmcp-") for leak in before.left_behind(0.0))
    assert future.done()
    assert before.left_behind() == []


@pytest.mark.filterwarnings("ignore:a client of .* was never closed:ResourceWarning")
def test_a_client_that_was_dropped_is_collected_and_counts_no_more() -> None:
    before = Footprint()
    circle: list[object] = [syncmcp.connect(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))]
    circle.append(circle)
    gc.disable()
    try:
        del circle
        assert any(leak.startswith("child process") for leak in before.left_behind(0.0))
        assert before.left_behind() == []
    finally:
        gc.enable()


def test_what_is_ending_is_waited_for_and_nothing_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Footprint()
    clock = Clock(monkeypatch)
    thread = left_thread(clock.event)

    def sleep(seconds: float) -> None:
        Clock.sleep(clock, seconds)
        thread.join()

    monkeypatch.setattr(clock, "sleep", sleep)
    assert before.left_behind() == []
    assert clock.collected == []
    assert 0 < clock.now < 0.1


def test_what_does_not_end_is_named_after_two_seconds_and_one_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Footprint()
    gate = threading.Event()
    thread = left_thread(gate)
    try:
        clock = Clock(monkeypatch)
        assert before.left_behind() == ["thread syncmcp-left"]
        assert clock.now == pytest.approx(PATIENCE) == 2.0
        assert clock.collected == [pytest.approx(0.5)]
    finally:
        gate.set()
        thread.join()
