"""Runs the command: in this process, as a program, and at a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pexpect
import pyte
import pytest

from syncmcp_command import main
from tests.support.stage import PATIENCE

ROOT = Path(__file__).parents[2]
DEMO = ("--", sys.executable, "-m", "syncmcp.testing")
"""The words that run the demo server as a program."""

ENTER, DOWN, CTRL_C, CTRL_D, TAB = "\r", "\x1b[B", "\x03", "\x04", "\t"


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """The JSON on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which is the last line on stderr."""
        error: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        assert error["exit_code"] == self.code
        return error

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table."""
        return [line.split("\t") for line in self.out.splitlines()]


class Command:
    """Runs the command in this process, without a terminal."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = main([*words])
        captured = self._capsys.readouterr()
        return Ran(code, str(captured.out), str(captured.err))


def program(*words: str, stdout: Any = subprocess.PIPE, **env: str) -> subprocess.Popen[str]:
    """Start the command as a program."""
    return subprocess.Popen(
        [sys.executable, "-m", "syncmcp", *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(env),
    )


def ended(process: subprocess.Popen[str]) -> Ran:
    """Wait for the end of a process, and return its result."""
    with process:
        out, err = process.communicate(timeout=6 * PATIENCE)
        return Ran(process.returncode, out or "", err)


def run(*command: str, path: str = str(ROOT), cwd: Path | None = None) -> Ran:
    """Run a program to its end, with this `PYTHONPATH`."""
    env = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        return ended(process)


def _environment(more: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


class AtTerminal:
    """A program at a terminal, and the person who uses it.

    Attributes:
        raw: All bytes that the program wrote.
    """

    def __init__(
        self, child: pexpect.spawn[bytes], columns: int, rows: int, patience: float
    ) -> None:
        self._child = child
        self._patience = patience
        self._screen = _Screen(child, columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""

    def sees(self, words: str) -> None:
        """Wait until `words` are on the screen."""
        while words not in self.screen:
            assert self._reads(), f"{words!r} did not come:\n{self.screen}"

    def changes(self, before: str) -> None:
        """Wait until the screen differs from `before`."""
        while self.screen == before:
            assert self._reads(), f"nothing changed:\n{self.screen}"

    def answers(self, words: str, *keys: str) -> None:
        """Wait until `words` are on the screen, then press keys."""
        self.sees(words)
        self.types(*keys)

    def types(self, *keys: str) -> None:
        """Press keys."""
        for key in keys:
            self._child.send(key.encode())

    def ends(self) -> int:
        """Wait for the end of the program; return its exit code."""
        while self._reads():
            pass
        self._child.wait()  # `close` would wait only a tenth of a second
        self._child.close()
        code: int = self._child.exitstatus if self._child.exitstatus is not None else -1
        return code

    @property
    def screen(self) -> str:
        """The text on the screen."""
        columns, buffer = range(self._screen.columns), self._screen.buffer
        rows = (buffer[number] for number in range(self._screen.lines))  # `display` is slow
        lines = ("".join(row[column].data for column in columns) for row in rows)
        return "\n".join(line.rstrip() for line in lines).rstrip()

    def picture(self, typed: str) -> str:
        """Return a drawing (SVG) of the screen, below the command line that a person typed."""
        rows = [f"<tspan font-weight='bold'>$ {escape(typed)}</tspan>"]
        for number in range(self.screen.count("\n") + 1):
            cells = [self._screen.buffer[number][column] for column in range(self._screen.columns)]
            row = "".join(_span(*each) for each in groupby(cells, lambda one: one.fg))
            row = row.rstrip("\N{NO-BREAK SPACE}")
            rows += [row] if row or number else []
        width, height = 9 * self._screen.columns, 20 * len(rows) + 20
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            f"<title>{escape(typed)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>',
            '<g font-family="monospace" font-size="14" fill="#1f2328">',
            *(f'<text x="12" y="{24 + 20 * at}">{row}</text>' for at, row in enumerate(rows)),
            "</g>",
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _reads(self) -> bool:
        try:
            data: bytes = self._child.read_nonblocking(65536, self._patience)
        except pexpect.EOF:
            return False
        except pexpect.TIMEOUT:
            pytest.fail(f"nothing more came:\n{self.screen}")
        self.raw += data
        self._stream.feed(data)
        return True


def _span(color: str, cells: Iterable[Any]) -> str:
    # SVG viewers collapse other spaces.
    text = escape("".join(cell.data for cell in cells)).replace(" ", "\N{NO-BREAK SPACE}")
    return text if color == "default" else f"<tspan fill='{_INK.get(color, color)}'>{text}</tspan>"


# On white, the colours of terminals are too light.
_INK = {"cyan": "#0a7080", "brown": "#7a5700", "green": "#1a7f37", "red": "#b3261e"}


class _Screen(pyte.Screen):
    """A screen that answers queries of the cursor's position."""

    def __init__(self, child: Any, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._child = child

    def write_process_input(self, data: str) -> None:
        self._child.send(data.encode())

    def set_margins(self, *margins: Any, **private: Any) -> None:
        if not private:  # pyte also calls this for some private sequences
            super().set_margins(*margins)


@contextmanager
def at_terminal(
    *words: str,
    columns: int = 120,
    rows: int = 120,
    shell: str | None = None,
    patience: float = 6 * PATIENCE,
    **env: str,
) -> Iterator[AtTerminal]:
    """Run the command at a new terminal.

    Args:
        words: The command line.
        columns: The width of the terminal.
        rows: The height of the terminal.
        patience: The longest silence of the program, in seconds, while a test waits for output.
        shell: A line for ``sh`` instead, in which ``$SYNCMCP`` is the command.
        env: Additional environment variables.
    """
    command = [sys.executable, "-m", "syncmcp", *words]
    if shell is not None:
        env["SYNCMCP"] = f"{sys.executable} -m syncmcp"
        command = ["/bin/sh", "-c", shell]
    child = pexpect.spawn(
        command[0],
        command[1:],
        env=_environment({"TERM": "xterm-256color", **env}),
        dimensions=(rows, columns),
        timeout=6 * PATIENCE,
        echo=False,
    )
    try:
        yield AtTerminal(child, columns, rows, patience)
    finally:
        child.close(force=True)


def log_in(url: str) -> str:
    """Sign in as a person who agrees and visits the shown address; return the last screen."""
    with at_terminal("auth", "login", url, "--no-browser", columns=1000) as terminal:
        terminal.sees(f"The server {url}")
        terminal.answers("Sign in there? [y/N]", "y\r")
        terminal.sees("The browser goes to a page")  # comes after the address
        (address,) = re.findall(r"http://\S+code_challenge=\S+", terminal.screen)
        with urllib.request.urlopen(address, timeout=30) as page:
            page.read()
        assert terminal.ends() == 0
    return terminal.screen
