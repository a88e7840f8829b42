"""Tests of the support: the leak check (on Linux), `Rotation`, `in_threads`, `setup_programs`."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

import syncmcp
from syncmcp.auth import Deadline
from syncmcp.testing import leaks
from syncmcp.testing.leaks import PATIENCE, Footprint
from tests.support import setup_programs
from tests.support.moved_time import no_limit_begins
from tests.support.stage import STATEFUL_WIRES, WIRES, Rotation, Stage, in_threads


class Clock:
    """A clock that advances only in `sleep`, which calls `then` each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
        self.now = 0.0
        self.collected: list[float] = []
        self._then = then
        monkeypatch.setattr(leaks, "time", self)
        monkeypatch.setattr(leaks, "gc", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._then()

    def collect(self) -> None:
        self.collected.append(self.now)
        gc.collect()


def left_thread(gate: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=gate.wait, name="syncmcp-left", daemon=True)
    thread.start()
    return thread


def test_a_child_a_socket_and_descriptors_are_seen_until_they_are_gone() -> None:
    before = Footprint()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert f"child process {child.pid}" in before.left_behind(0.0)
    finally:
        child.communicate(b"\n")
    assert before.left_behind() == []
    with socket.socket():
        (leak,) = before.left_behind(0.0)
        assert "socket:" in leak
    assert before.left_behind() == []
    ends = os.pipe()
    seen = before.left_behind(0.0)
    for end in ends:
        os.close(end)
    assert ["pipe:" in leak for leak in seen] == [True, True]
    assert before.left_behind() == []


def test_a_future_without_an_answer_is_seen_by_what_it_needs() -> None:
    stage = Stage()
    before = Footprint()
    with syncmcp.connect(stage.server) as client:
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
    before, gate = Footprint(), threading.Event()
    thread = left_thread(gate)

    def end() -> None:
        gate.set()
        thread.join()

    clock = Clock(monkeypatch, end)
    assert before.left_behind() == []
    assert clock.collected == []
    assert 0 < clock.now < 0.1


def test_what_does_not_end_is_named_after_two_seconds_and_one_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, gate = Footprint(), threading.Event()
    thread = left_thread(gate)
    try:
        assert before.left_behind(0.0) == ["thread syncmcp-left"]
        clock = Clock(monkeypatch, lambda: None)
        assert before.left_behind() == ["thread syncmcp-left"]
        assert clock.now == pytest.approx(PATIENCE) == 2.0
        assert clock.collected == [pytest.approx(0.5)]
    finally:
        gate.set()
        thread.join()
    assert before.left_behind() == []


def a_test(number: int) -> Any:
    """Return a test function of an imaginary file."""
    made = FunctionType((lambda wire: None).__code__, {}, f"test_{number}")
    made.__module__, made.__qualname__ = "tests.some.test_file", f"test_{number}"
    return made


def cases(test: Any) -> list[tuple[Any, ...]]:
    """Return the values of the only parametrization of a test."""
    (mark,) = test.pytestmark
    return [getattr(case, "values", (case,)) for case in mark.args[1]]


@pytest.mark.parametrize(("wires", "each"), [(WIRES, 3), (STATEFUL_WIRES, 2)])
def test_over_a_file_each_wire_is_seen_as_often(wires: Any, each: int) -> None:
    rotation = Rotation(wires, each)
    of_tests = [[wire for (wire,) in cases(rotation(a_test(n)))] for n in range(len(wires))]
    assert [len(set(wires)) for wires in of_tests] == [each] * len(wires)
    assert Counter(wire for wires in of_tests for wire in wires) == dict.fromkeys(wires, each)
    again = [wire for (wire,) in cases(rotation(a_test(1)))]
    assert again == of_tests[1], "a file that is imported twice has other wires"


def test_each_row_has_a_wire_and_each_wire_a_row() -> None:
    rotation = Rotation(WIRES, 3)
    many = cases(rotation.with_rows("row", range(7))(a_test(0)))
    assert [row for _, row in many] == [*range(7)]
    assert {wire for wire, _ in many} == set(WIRES)
    few = cases(rotation.with_rows("left, right", [(1, "a"), (2, "b")])(a_test(1)))
    assert [row for _, *row in few] == [[1, "a"], [1, "a"], [2, "b"], [2, "b"]]
    assert len({wire for wire, *_ in few}) == 4


def test_no_limit_begins_while_tests_are_collected() -> None:
    with no_limit_begins(), pytest.raises(AssertionError, match=r"a limit of 1.5 s begins"):
        Deadline(1.5)
    with no_limit_begins():
        assert Deadline(None).remaining() is None
    assert Deadline(1.5).remaining()


def fail() -> None:
    raise AssertionError("of a job")


def test_what_a_job_asserts_the_test_asserts_and_other_errors_are_outcomes() -> None:
    with pytest.raises(AssertionError, match="of a job"):
        in_threads(lambda: 1, fail)
    first, second = in_threads(lambda: 1, lambda: 1 / 0)
    assert first == 1
    assert isinstance(second, ZeroDivisionError)


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_where_a_program_is_missing_the_set_up_says_what_is_left_out_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, code: int
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert setup_programs.main() == code
    missing = [f"no {each.title}: {each.tests} is left out" for each in setup_programs.PROGRAMS]
    assert capsys.readouterr().out.splitlines() == missing
    monkeypatch.setattr(shutil, "which", lambda program: f"/somewhere/{program}")
    assert setup_programs.main() == 0
    assert capsys.readouterr().out.splitlines() == ["/somewhere/chromium", "/somewhere/bwrap"]
