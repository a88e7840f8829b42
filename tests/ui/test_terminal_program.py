"""A real program on a terminal of its own: a pool thread asks while the main thread waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ui.person import CTRL_C, DOWN, ENTER, WAIT, Person

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("form_program.py")
REPOSITORY = PROGRAM.parents[2]


class Program:
    """The form program; its threads are its own, so are its signals."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int) -> None:
        self.process = process
        self._commands = commands

    def tell(self, command: bytes) -> None:
        """Have its main thread do something while the question is open."""
        os.write(self._commands, command)

    def ends(self) -> int:
        """Its exit status."""
        return self.process.wait(WAIT)


@contextmanager
def running(person: Person, *, timeout: float = 60.0) -> Iterator[Program]:
    read, write = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(timeout), str(read)],
            stdin=person.slave,
            stdout=person.slave,
            stderr=person.slave,
            start_new_session=True,
            pass_fds=[read],
            env={**os.environ, "TERM": "xterm-256color"},
            cwd=REPOSITORY,
        )
        try:
            yield Program(process, write)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(read)
        os.close(write)


def outcome(person: Person) -> dict[str, object]:
    """What the program printed at its end."""
    person.sees('{"action"')
    printed = person.screen[person.screen.rindex('{"action"') :].split("\n")[0]
    result: dict[str, object] = json.loads(printed)
    return result


def test_a_form_is_filled_in_and_a_mistake_put_right(person: Person) -> None:
    with running(person) as program:
        person.sees("━━ math asks you to fill in a form ━━")
        person.answers("What do you want to do?", ENTER)
        person.answers("“Your name” *:", "Ada", ENTER)
        person.answers("“E-mail” *:", "ada", ENTER)
        person.answers("e-mail address", "@example.com", ENTER)
        person.answers("“Favourite number”:", ENTER)
        person.sees("“Favourite number”: (left out)")
        person.answers("Ready to send?", DOWN, DOWN, ENTER)
        assert program.ends() == 0
    assert outcome(person) == {
        "action": "accept",
        "content": {"name": "Ada", "email": "ada@example.com"},
    }
    assert person.cooked


@pytest.mark.parametrize(("keys", "action"), [((DOWN, ENTER), "decline"), ((CTRL_C,), "cancel")])
def test_a_form_is_declined_or_cancelled(
    person: Person, keys: tuple[str, ...], action: str
) -> None:
    with running(person) as program:
        person.answers("What do you want to do?", *keys)
        assert program.ends() == 0
    assert outcome(person) == {"action": action}
    assert person.cooked


def test_a_question_is_withdrawn(person: Person) -> None:
    with running(person) as program:
        person.sees("What do you want to do?")
        program.tell(b"withdraw")
        assert program.ends() == 0
    person.sees("Withdrawn")
    assert outcome(person) == {"action": "cancel"}
    assert person.cooked


def test_time_runs_out(person: Person) -> None:
    with running(person, timeout=1.0) as program:
        assert program.ends() == 0
    person.sees("The time to answer has run out.")
    assert outcome(person) == {"action": "cancel"}


def test_a_program_that_ends_in_the_middle_leaves_the_terminal_as_it_was(person: Person) -> None:
    with running(person) as program:
        person.sees("What do you want to do?")
        assert not person.cooked
        program.tell(b"exit")
        assert program.ends() == 3
    assert person.cooked
    assert "Traceback" not in person.screen


def test_a_signal_still_reaches_the_program(person: Person) -> None:
    with running(person) as program:
        person.sees("What do you want to do?")
        program.process.send_signal(signal.SIGINT)
        assert program.ends() == 4
    assert person.cooked
    assert "Traceback" not in person.screen
