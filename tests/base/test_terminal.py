"""Questions at a terminal: input that was typed before a question was shown does not answer it."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncmcp._base import terminal
from syncmcp.auth import Deadline, LoopbackReceiver, PasteReceiver, SignInRequest
from syncmcp.auth import receiver as receivers
from syncmcp.errors import LoginRequired
from tests.auth.authorization_server import WAIT
from tests.support.stage import elsewhere
from tests.ui.asking import until


class Keyboard:
    """A terminal that replaces the program's standard streams, and a person who types."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._person, program = pty.openpty()
        self._files = [os.fdopen(program, "r"), os.fdopen(os.dup(program), "w")]
        self.patch = monkeypatch
        self.shown = ""

    def attach(self, *names: str) -> None:
        """Replace these streams in the test itself: pytest sets them after the fixtures."""
        for name in names:
            self.patch.setattr(sys, name, self._files[name != "stdin"])

    def type(self, text: str) -> None:
        os.write(self._person, text.encode())

    def read_until(self, text: str) -> None:
        """Read the screen until it has shown this text."""
        while text not in self.shown:
            self.shown += os.read(self._person, 4096).decode()

    def reply(self, question: Question, line: str) -> Any:
        """Type a line at the prompt; return the answer of the question."""
        self.read_until("[y/N] ")
        self.type(line)
        return question.answer()

    def close(self) -> None:
        for file in self._files:
            file.close()
        os.close(self._person)


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keyboard]:
    made = Keyboard(monkeypatch)
    yield made
    made.close()


class Question:
    """A question whether to sign in, asked on a thread of its own."""

    def __init__(self, make: Callable[..., Any] = LoopbackReceiver, of: str = "as.example") -> None:
        request = SignInRequest("https://mcp.example/mcp", f"https://{of}")
        receiver = make()
        self._answer = elsewhere(lambda: receiver.agree(request, Deadline(WAIT)))

    def answer(self) -> Any:
        return self._answer.exception(2 * WAIT) or self._answer.result()

    def is_refused(self, words: str) -> None:
        error = self.answer()
        assert isinstance(error, LoginRequired)
        assert words in str(error)


BOTH = pytest.mark.parametrize("make", [LoopbackReceiver, PasteReceiver])


@BOTH
def test_a_yes_that_was_typed_ahead_agrees_to_nothing(make: Any, keyboard: Keyboard) -> None:
    keyboard.attach("stdin", "stdout")
    keyboard.type("y\ny\nyes\n")
    assert keyboard.reply(Question(make), "n\n") is False


def test_lines_that_go_on_to_come_answer_nothing(keyboard: Keyboard) -> None:
    """As when a person is still typing, or has pasted several lines."""
    keyboard.attach("stdin", "stdout")
    typed: list[str] = []

    def comes(number: int, seconds: float) -> bool:
        assert seconds == 0.5
        if len(typed) == 3:
            return False
        typed.append("y\n")
        keyboard.type("y\n")
        return True

    keyboard.patch.setattr(terminal, "_comes_input", comes)
    assert keyboard.reply(Question(), "n\n") is False


def test_lines_without_end_end_the_question(keyboard: Keyboard) -> None:
    keyboard.attach("stdin", "stdout")
    keyboard.patch.setattr(terminal, "_comes_input", lambda number, seconds: True)
    Question().is_refused("lines come without a pause")


def test_a_line_answers_the_one_question_that_is_shown(keyboard: Keyboard) -> None:
    keyboard.attach("stdin", "stdout")
    first = Question(of="first.example")
    keyboard.read_until("[y/N] ")
    assert "first.example" in keyboard.shown
    second = Question(of="second.example")
    until(lambda: receivers._terminal.waiting == 1)
    assert "second.example" not in keyboard.shown
    assert keyboard.reply(first, "y\n") is True
    keyboard.shown = ""
    assert keyboard.reply(second, "n\n") is False
    assert "second.example" in keyboard.shown


@BOTH
@pytest.mark.parametrize("redirected", ["stdout", "stderr"])
def test_question_and_prompt_are_on_the_screen(
    redirected: str, make: Any, keyboard: Keyboard
) -> None:
    keyboard.attach("stdin", "stderr" if redirected == "stdout" else "stdout")
    with io.StringIO() as file:
        keyboard.patch.setattr(sys, redirected, file)
        assert keyboard.reply(Question(make), "y\n") is True
        assert "https://as.example" in keyboard.shown
        assert file.getvalue() == ""


@BOTH
def test_nobody_is_asked_who_sees_no_question(make: Any, keyboard: Keyboard) -> None:
    keyboard.attach("stdin")
    with io.StringIO() as file:
        for name in ("stdout", "stderr"):
            keyboard.patch.setattr(sys, name, file)
        keyboard.type("y\n")
        Question(make).is_refused("cannot ask anybody")
        assert file.getvalue() == ""


def test_prompts_of_the_interpreter_are_on_the_screen_too(tmp_path: Path) -> None:
    """`input` would write its prompt to the file descriptor of stderr, which is a file here."""
    program = (
        "from syncmcp._concurrency.timing import Deadline\n"
        "from syncmcp.auth import LoopbackReceiver, SignInRequest\n"
        "request = SignInRequest('https://mcp.example/mcp', 'https://as.example')\n"
        "raise SystemExit(not LoopbackReceiver().agree(request, Deadline(60.0)))\n"
    )
    person, screen = pty.openpty()
    command, shown = [sys.executable, "-c", program], b""
    with open(tmp_path / "stderr", "w+") as stderr:
        process = subprocess.Popen(command, stdin=screen, stdout=screen, stderr=stderr)
        try:
            while b"[y/N] " not in shown:
                shown += os.read(person, 4096)
            os.write(person, b"y\n")
            assert process.wait(WAIT) == 0
        finally:
            process.kill()
            process.wait()
            os.close(person)
            os.close(screen)
        assert b"https://as.example" in shown
        stderr.seek(0)
        assert stderr.read() == ""


@pytest.mark.parametrize("stdin", ["none", "closed", "file"])
def test_without_a_terminal_nobody_is_asked(stdin: str, keyboard: Keyboard) -> None:
    keyboard.attach("stdin", "stdout")
    with open(os.devnull) as file:
        if stdin == "closed":
            sys.stdin.close()
        else:
            keyboard.patch.setattr(sys, "stdin", None if stdin == "none" else file)
        Question().is_refused("cannot ask anybody here")


def test_lines_count_half_a_second_after_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def comes_input(number: int, seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) < 3

    monkeypatch.setattr(terminal, "discard_input", lambda number: None)
    monkeypatch.setattr(terminal, "_comes_input", comes_input)
    terminal._wait_for_silence(0)
    assert waits == [0.5] * 3
