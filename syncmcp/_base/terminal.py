"""Questions at the terminal of the program: a question and its prompt are on one screen.

Input that was typed before a question is discarded, so that it cannot answer the question.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

__all__ = ["ask_at_terminal", "discard_input", "dumb_terminal", "has_terminal", "show_at_terminal"]

# The values of the variable TERM of terminals that only print lines.
_DUMB = ("dumb", "unknown")

# How many seconds without input must pass before a question, and the most attempts to see them.
_SILENCE_SECONDS = 0.5
_MOST_ATTEMPTS = 100


def dumb_terminal() -> str:
    """Return the value of TERM if it names a terminal that cannot move the cursor; else ""."""
    kind = os.environ.get("TERM", "")
    return kind if kind.lower() in _DUMB else ""


if sys.platform == "win32":
    import msvcrt
    import time

    def discard_input(number: int) -> None:
        """Discard typed input that was not read yet."""
        while msvcrt.kbhit():
            msvcrt.getwch()

    def _comes_input(number: int, seconds: float) -> bool:
        time.sleep(seconds)
        return bool(msvcrt.kbhit())

else:
    import select
    import termios

    def discard_input(number: int) -> None:
        """Discard typed input that was not read yet."""
        termios.tcflush(number, termios.TCIFLUSH)

    def _comes_input(number: int, seconds: float) -> bool:
        return bool(select.select([number], [], [], seconds)[0])


def has_terminal() -> bool:
    """Return whether a person can be asked: stdin is a terminal, and stdout or stderr is one."""
    return _is_terminal(sys.stdin) and _screen() is not None


def show_at_terminal(text: str) -> None:
    """Show a text where `ask_at_terminal` prompts; `OSError` if only stdin is a terminal."""
    print(text, file=_output(), flush=True)


def ask_at_terminal(prompt: str) -> str:
    """Do what `input` does, but discard lines that were typed before the prompt was shown.

    Only the lines of a terminal are discarded, until it is silent for half a second. The prompt is
    on stdout, or on stderr if stdin and stderr are terminals and stdout is not.

    Raises:
        EOFError: There is no more input.
        TimeoutError: Input arrives without a pause.
        OSError: Only stdin is a terminal.
    """
    output = _output()
    number = _terminal_number()
    if number is not None:
        _wait_for_silence(number)
    # `input` may write a prompt to the C library's stderr, though stdout is a terminal.
    print(prompt, end="", file=output, flush=True)
    return input()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _screen() -> TextIO | None:
    return next((one for one in (sys.stdout, sys.stderr) if _is_terminal(one)), None)


def _output() -> TextIO:
    """Return the stream for prompts: a terminal if stdin is one, else stdout."""
    if not _is_terminal(sys.stdin):  # a pipe, or a notebook
        return sys.stdout
    screen = _screen()
    if screen is None:
        raise OSError("neither stdout nor stderr is a terminal")
    return screen


def _terminal_number() -> int | None:
    """Return the descriptor of stdin; `None` unless it belongs to a terminal."""
    if not _is_terminal(sys.stdin):
        return None
    try:
        number = sys.stdin.fileno()
    except OSError:
        return None
    return number if os.isatty(number) else None


def _wait_for_silence(number: int) -> None:
    for _ in range(_MOST_ATTEMPTS):
        discard_input(number)
        if not _comes_input(number, _SILENCE_SECONDS):
            return
    raise TimeoutError("lines come without a pause")
