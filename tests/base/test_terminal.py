"""Questions at a terminal: what was typed before a person could read one answers nothing."""

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
    """A terminal that the program has as its standard streams, and the person before it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._person, program = pty.openpty()
        self._files = [os.fdopen(program, "r"), os.fdopen(os.dup(program), "w")]
        self._patch = monkeypatch
        self.shown = ""

    def attach(self, *names: str) -> None:
        """Give the program these streams. Not in a fixture: pytest sets them after that."""
        for name in names:
            self._patch.setattr(sys, name, self._files[name != "stdin"])

    def type(self, text: str) -> None:
        os.write(self._person, text.encode())

    def read_until(self, text: str) -> None:
        """Read what is on the screen, until this is there, too."""
        while text not in self.shown:
            self.shown += os.read(self._person, 4096).decode()

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
    """A question whether to sign in somewhere, asked on a thread of its own."""

    def __init__(self, make: Callable[..., Any], issuer: str = "as.example") -> None:
        request = SignInRequest("https://mcp.example/mcp", f"https://{issuer}")
        receiver = make()
        self._answer = elsewhere(lambda: receiver.agree(request, Deadline(WAIT)))

    def answer(self) -> Any:
        return self._answer.exception(2 * WAIT) or self._answer.result()


@pytest.mark.parametrize("make", [LoopbackReceiver, PasteReceiver])
def test_a_yes_that_was_typed_ahead_agrees_to_nothing(
    make: Callable[..., Any], keyboard: Keyboard
) -> None:
    keyboard.attach("stdin", "stdout")
    keyboard.type("y\ny\nyes\n")
    question = Question(make)
    keyboard.read_until("[y/N] ")
    keyboard.type("n\n")
    assert question.answer() is False


def test_lines_that_go_on_to_come_answer_nothing(
    keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is typing, or has pasted a text."""
    keyboard.attach("stdin", "stdout")
    typed: list[str] = []

    def comes(number: int, seconds: float) -> bool:
        assert seconds == 0.5
        if len(typed) == 3:
            return False
        typed.append("y\n")
        keyboard.type("y\n")
        return True

    monkeypatch.setattr(terminal, "_comes_input", comes)
    question = Question(LoopbackReceiver)
    keyboard.read_until("[y/N] ")
    keyboard.type("n\n")
    assert question.answer() is False


def test_lines_without_end_end_the_question(
    keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard.attach("stdin", "stdout")
    monkeypatch.setattr(terminal, "_comes_input", lambda number, seconds: True)
    error = Question(LoopbackReceiver).answer()
    assert isinstance(error, LoginRequired)
    assert "lines come without a pause" in str(error)


def test_a_line_answers_the_one_question_that_is_shown(keyboard: Keyboard) -> None:
    keyboard.attach("stdin", "stdout")
    first = Question(LoopbackReceiver, "first.example")
    keyboard.read_until("[y/N] ")
    assert "first.example" in keyboard.shown
    second = Question(LoopbackReceiver, "second.example")
    until(lambda: receivers._terminal.waiting == 1)
    assert "second.example" not in keyboard.shown
    keyboard.type("y\n")
    assert first.answer() is True
    keyboard.shown = ""
    keyboard.read_until("[y/N] ")
    assert "second.example" in keyboard.shown
    keyboard.type("n\n")
    assert second.answer() is False


@pytest.mark.parametrize("make", [LoopbackReceiver, PasteReceiver])
@pytest.mark.parametrize("redirected", ["stdout", "stderr"])
def test_the_question_and_its_prompt_are_on_the_screen(
    redirected: str,
    make: Callable[..., Any],
    keyboard: Keyboard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyboard.attach("stdin", "stderr" if redirected == "stdout" else "stdout")
    with io.StringIO() as elsewhere:
        monkeypatch.setattr(sys, redirected, elsewhere)
        question = Question(make)
        keyboard.read_until("[y/N] ")
        keyboard.type("y\n")
        assert question.answer() is True
        assert "https://as.example" in keyboard.shown
        assert elsewhere.getvalue() == ""


@pytest.mark.parametrize("make", [LoopbackReceiver, PasteReceiver])
def test_nobody_is_asked_who_sees_no_question(
    make: Callable[..., Any], keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard.attach("stdin")
    with io.StringIO() as elsewhere:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, elsewhere)
        keyboard.type("y\n")
        error = Question(make).answer()
        assert isinstance(error, LoginRequired)
        assert "cannot ask anybody" in str(error)
        assert elsewhere.getvalue() == ""


def test_prompts_of_the_interpreter_are_on_the_screen_too(tmp_path: Path) -> None:
    """Python itself writes prompts of `input` to the descriptor of stderr."""
    program = (
        "from syncmcp._concurrency.timing import Deadline\n"
        "from syncmcp.auth import LoopbackReceiver, SignInRequest\n"
        "request = SignInRequest('https://mcp.example/mcp', 'https://as.example')\n"
        "raise SystemExit(not LoopbackReceiver().agree(request, Deadline(60.0)))\n"
    )
    person, terminal_side = pty.openpty()
    elsewhere = tmp_path / "stderr"
    with open(elsewhere, "w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=terminal_side,
            stdout=terminal_side,
            stderr=stderr,
        )
    try:
        shown = b""
        while b"[y/N] " not in shown:
            shown += os.read(person, 4096)
        os.write(person, b"y\n")
        assert process.wait(WAIT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(person)
        os.close(terminal_side)
    assert b"https://as.example" in shown
    assert elsewhere.read_text() == ""


@pytest.mark.parametrize("stdin", ["none", "closed", "file"])
def test_without_a_terminal_nobody_is_asked(
    stdin: str, keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard.attach("stdin", "stdout")
    with open(os.devnull) as file:
        if stdin == "none":
            monkeypatch.setattr(sys, "stdin", None)
        elif stdin == "closed":
            sys.stdin.close()
        else:
            monkeypatch.setattr(sys, "stdin", file)
        error = Question(LoopbackReceiver).answer()
    assert isinstance(error, LoginRequired)
    assert "cannot ask anybody here" in str(error)


def test_lines_at_a_terminal_count_half_a_second_after_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    def comes_input(number: int, seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) < 3

    monkeypatch.setattr(terminal, "discard_input", lambda number: None)
    monkeypatch.setattr(terminal, "_comes_input", comes_input)
    terminal._wait_for_silence(0)
    assert waits == [0.5] * 3
