"""Processes that share a store; each is told lines, and answers each with one.

A process says ``ready`` first, and ends at the end of its input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from syncmcp.auth import Deadline, FileStore
from syncmcp.errors import McpError

KEY = "key"
WAIT = 60.0


class Peer:
    """A running process."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen

    def tell(self, command: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{command}\n")
        self.popen.stdin.flush()

    def heard(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def answer(self, command: str) -> str:
        self.tell(command)
        return self.heard()


@contextmanager
def peer(path: Path, descriptors: tuple[int, ...] = ()) -> Iterator[Peer]:
    """Run this module beside; it keeps the descriptors, and is killed at the end."""
    command = [sys.executable, "-m", "tests.auth.peers", str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, pass_fds=descriptors
    ) as popen:
        try:
            yield Peer(popen)
        finally:
            popen.kill()


def commands() -> Iterator[list[str]]:
    say("ready")
    for line in sys.stdin:
        yield line.split()


def say(word: str) -> None:
    print(word, flush=True)


def in_threads(count: int, run: Callable[[], None]) -> None:
    running = [threading.Thread(target=run) for _ in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def add_ones(store: FileStore, threads: int, rounds: int) -> list[str]:
    """Add one to a shared number again and again; return what went wrong."""
    failures: list[str] = []

    def run() -> None:
        try:
            for _ in range(rounds):
                with store.lock(KEY, Deadline(WAIT)):
                    known = store.load(KEY) or {"count": 0}
                    store.save(KEY, {"count": known["count"] + 1})
        except McpError as error:
            failures.append(repr(error))

    in_threads(threads, run)
    return failures


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def work_on_store(path: str) -> None:
    """Work on a `FileStore`."""
    store = FileStore(path)
    held = ExitStack()
    for command, *words in commands():
        if command == "lock":
            held.enter_context(store.lock(KEY, Deadline(WAIT)))
            say("locked")
        elif command == "unlock":
            held.close()
            say("unlocked")
        elif command == "count":
            before = descriptors()
            failures = add_ones(store, int(words[0]), int(words[1]))
            say(json.dumps([failures, descriptors() - before]))
        elif command == "fork" and os.fork() == 0:
            say("forked")
            os.read(int(words[0]), 1)  # until the test ends
            os._exit(0)


if __name__ == "__main__":
    work_on_store(sys.argv[1])
