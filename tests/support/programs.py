"""Programs that tests run in an interpreter of their own, and a server for them to use."""

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

# Ten times what is promised for the end of a program, in seconds.
CEILING = 10.0
# How long a program may be silent while a test waits for its next line, in seconds.
SILENCE = 60.0

SERVER = Path(__file__).with_name("program_server.py")

ROOT = Path(__file__).parents[2]


def server_processes() -> set[int]:
    """The ids of the servers that this process has started, without their watcher."""
    return {pid for pid in child_processes() if not is_watcher(pid)}


def is_watcher(pid: int) -> bool:
    """Whether a process is the one that ends the servers of a program which is killed."""
    try:
        return b"_watcher.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def server() -> Stdio:
    """A child process with tools that wait, die and tell what the server has seen."""
    return Stdio(sys.executable, str(SERVER))


PRELUDE = f"""
import atexit, os, signal, sys, threading, time
import syncmcp

SERVER = syncmcp.Stdio({sys.executable!r}, {str(SERVER)!r})

def say(*words):
    print(" ".join(map(str, words)) + "\\n", end="", flush=True)  # at once: threads say things

"""


def environment(**more: str) -> dict[str, str]:
    """Everything as it is; a Python without the library finds it here."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {**os.environ, "PYTHONPATH": path, **more}


class Program:
    """A running program: what it says, line by line, and how it ends."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen

    def line(self) -> str:
        """The next line that the program says; nothing at its end. Kills it if it is silent."""
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
        """Do what a terminal does on Ctrl-C: signal the program's whole process group."""
        os.killpg(self.popen.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; the exit code, and what is left on stdout and stderr."""
        out, err = self.popen.communicate(timeout=CEILING)
        return self.popen.returncode, out, err


@contextlib.contextmanager
def running(code: str, *, python: str = sys.executable, first: str = "") -> Iterator[Program]:
    """Run `code` after the prelude, and that after what has to come `first`."""
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
