"""A terminal that questions share with the program: its other output, and its end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from syncmcp.types import ElicitResult
from syncmcp.ui.terminal import Terminal
from tests.support.stage import PATIENCE
from tests.ui.person import CTRL_C, DOWN, ENTER, WAIT, Person
from tests.ui.terminal_questions import asked, form, question


def test_the_program_keeps_off_the_terminal_while_it_is_a_question_s_turn(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    inside = 0
    most = 0

    @contextmanager
    def beside() -> Iterator[None]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        person.stdout.write("<the bar is gone>\n")
        person.stdout.flush()
        try:
            yield
        finally:
            inside -= 1

    terminal = Terminal(person.stdin, person.stdout, beside=beside)
    first = pool.submit(terminal.form, form(), asked())
    person.sees("What do you want to do?")
    second = pool.submit(terminal.review, question("roots", None))
    person.sees("1 more question waiting")
    assert person.screen.count("<the bar is gone>") == 1
    person.types(DOWN, ENTER)
    assert first.result(PATIENCE) == ElicitResult.decline()
    person.sees("Tell the server?")
    assert person.screen.count("<the bar is gone>") == 2
    person.types(DOWN, ENTER)
    assert second.result(PATIENCE).allowed
    assert (inside, most) == (0, 1)


def test_what_is_drawn_beside_may_stand_in_the_place_of_the_standard_streams(
    person: Person, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", person.stdin)
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # not a terminal, as with a progress bar

    @contextmanager
    def beside() -> Iterator[None]:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(sys, "stdout", person.stdout)
            yield

    answer = pool.submit(Terminal(beside=beside).form, form(), asked())
    person.answers("What do you want to do?", CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"


PROGRAM = """
import fcntl, signal, sys, termios, threading
from syncmcp.ui.terminal import Terminal
from tests.ui.asking import context, form

fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal that a shell would have given to it
threading.Thread(target=lambda: Terminal().form(form(), context()), daemon=True).start()
try:
    signal.pause()
except KeyboardInterrupt:
    sys.exit(4)
"""


@pytest.mark.slow
def test_a_program_that_ends_in_the_middle_leaves_the_terminal_as_it_was(person: Person) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=person.slave,
        stdout=person.slave,
        stderr=person.slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            person.sees("What do you want to do?")
            assert not person.cooked
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT) == 4
        finally:
            process.kill()
    assert person.cooked
    assert "Traceback" not in person.screen
