"""The terminal of the program: what was typed before a question answers nothing."""

from __future__ import annotations

import os
import sys

__all__ = ["ask_at_terminal", "discard_input", "has_terminal"]

# A question is asked once no line came for so many seconds, after so many attempts at most.
_SILENCE_SECONDS = 0.5
_MOST_ATTEMPTS = 100

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
    """Whether somebody can be asked on stdin."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def ask_at_terminal(prompt: str) -> str:
    """Do what `input` does, but for lines that were typed before a person can have read the prompt.

    At a terminal these are discarded, also while lines go on to come. The prompt is on stderr if
    stdout is no terminal: the output of the program goes elsewhere then.

    Raises:
        EOFError: There is no more input.
        TimeoutError: Lines come without a pause.
    """
    number = _terminal_number()
    if number is None:
        return input(prompt)
    _wait_for_silence(number)
    if sys.stdout.isatty():
        return input(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)  # noqa: T201 - it is for a person
    return input()


def _terminal_number() -> int | None:
    """The descriptor of stdin; `None` if that is no terminal, or a stand-in for one."""
    if not has_terminal():
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
