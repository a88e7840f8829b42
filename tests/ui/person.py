"""A simulated person at a terminal, who reads the screen and types keys."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
from types import TracebackType
from typing import Any

import pyte

from tests.support.stage import PATIENCE

ENTER = "\r"
DOWN = "\x1b[B"
UP = "\x1b[A"
ESC = "\x1b"
LEFT = "\x1b[D"
CTRL_C = "\x03"
CTRL_D = "\x04"
ALT_ENTER = "\x1b\r"
CLEAR_LINE = "\x15"

WAIT = 6 * PATIENCE
"""Seconds to wait for text: a program may have to start first, on a busy machine."""


class Person:
    """A person at one end of a pseudo-terminal; `stdin` and `stdout` are the program's end.

    Attributes:
        stdin: The stream that the program reads.
        stdout: The stream that the program writes.
        slave: The program's end, for another process.
    """

    def __init__(self, *, rows: int = 200, columns: int = 100) -> None:
        self._master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.stdin = os.fdopen(os.dup(self.slave), encoding="utf-8")
        self.stdout = os.fdopen(os.dup(self.slave), "w", encoding="utf-8")
        self._screen = _Emulated(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._changed = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Person:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stdin.close()
        self.stdout.close()
        os.write(self.slave, b"\x04")  # wakes the reader thread
        os.close(self.slave)
        self._reader.join(PATIENCE)
        assert not self._reader.is_alive()
        os.close(self._master)

    def sees(self, text: str, *, times: int = 1) -> None:
        """Wait until `text` is on the screen at least `times` times."""
        with self._changed:
            self._changed.wait_for(lambda: self.screen.count(text) >= times or self._over, WAIT)
            assert self.screen.count(text) >= times, f"{text!r} did not come:\n{self.screen}"

    def answers(self, text: str, *keys: str, times: int = 1) -> None:
        """Wait until `text` is on the screen, then press keys."""
        self.sees(text, times=times)
        self.types(*keys)

    def types(self, *keys: str) -> None:
        """Press keys."""
        for key in keys:
            os.write(self._master, key.encode())

    @property
    def screen(self) -> str:
        """The text on the screen."""
        with self._changed:
            return "\n".join(self._screen.rows).rstrip()

    @property
    def lines(self) -> list[str]:
        """The lines on the screen."""
        return self.screen.split("\n")

    @property
    def cooked(self) -> bool:
        """Whether the terminal is in its usual mode again: it echoes, and Ctrl-C is a signal."""
        flags = termios.tcgetattr(self.slave)[3]
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        return bool(flags & wanted == wanted)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                data = b""
            with self._changed:
                self.raw += data
                self._stream.feed(data)
                self._over = not data
                self._changed.notify_all()
            if not data:
                return


class _Emulated(pyte.Screen):
    """A screen that answers no queries, such as that of the cursor's position."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._rows = [""] * rows

    @property
    def rows(self) -> list[str]:
        """The rows without trailing blanks; faster than `display`."""
        # pyte may add a combining character to the end of the row above.
        changed = {number - above for number in self.dirty for above in (0, 1)}
        self.dirty.clear()
        for number in changed & set(range(self.lines)):
            cells, columns = self.buffer[number], range(self.columns)
            self._rows[number] = "".join(cells[at].data for at in columns).rstrip()
        return self._rows

    def set_margins(self, *margins: Any, **private: Any) -> None:
        if not private:  # pyte also calls this for some private sequences
            super().set_margins(*margins)
