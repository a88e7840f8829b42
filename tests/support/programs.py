"""Programs that tests run in a separate interpreter, and a child-process server for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from syncmcp import Stdio
from syncmcp.testing.leaks import child_processes

# Seconds that a program may take to end: more than ten times the documented limit (0.8 s).
CEILING = 10.0
# Seconds that a program may take to print its next line.
SILENCE = 60.0

SERVER = Path(__file__).with_name("program_server.py")

ROOT = Path(__file__).parents[2]


def server_processes() -> set[int]:
    """Return the process ids of this process's servers, without that of the watcher."""
    return {pid for pid in child_processes() if not is_watcher(pid)}


def is_watcher(pid: int) -> bool:
    """Return True if a process is the watcher, which ends the servers of a killed program."""
    try:
        return b"_watcher.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def server() -> Stdio:
    """Return the target that starts `program_server.py` as a child process."""
    return Stdio(sys.executable, str(SERVER))


PRELUDE = f"""
import atexit, os, signal, sys, threading, time
import syncmcp

SERVER = syncmcp.Stdio({sys.executable!r}, {str(SERVER)!r})

def say(*words):
    print(" ".join(map(str, words)) + "\\n", end="", flush=True)  # at once: threads say things

"""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process with `more`; `PYTHONPATH` contains the checkout."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**os.environ, "PYTHONPATH": path, **more}


class Program:
    """A running program: its lines of output, and its end."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen

    def line(self) -> str:
        """Return the next line of stdout, or "" at the end. Kill the program after `SILENCE`."""
        assert self.popen.stdout is not None
        limit = threading.Timer(SILENCE, self._kill)
        limit.start()
        try:
            return self.popen.stdout.readline().rstrip("\n")
        finally:
            limit.cancel()

    def _kill(self) -> None:
        os.killpg(self.popen.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """Send SIGINT to the program's process group, as a terminal does on Ctrl-C."""
        os.killpg(self.popen.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return the exit code, the rest of stdout, and stderr."""
        out, err = self.popen.communicate(timeout=CEILING)
        return self.popen.returncode, out, err


@contextlib.contextmanager
def running(code: str, *, python: str = sys.executable, first: str = "") -> Iterator[Program]:
    """Run the code `first`, then the prelude, then `code`; kill the program at the end."""
    with subprocess.Popen(
        [python, "-W", "error::ResourceWarning", "-c", first + PRELUDE + code],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as popen:
        try:
            yield Program(popen)
        finally:
            popen.kill()
