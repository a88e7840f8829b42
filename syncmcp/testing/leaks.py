"""What a test leaves behind: threads of the library, child processes, open sockets and pipes."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

PATIENCE = 2.0
"""Seconds after which what a test left behind counts as a leak: far more than any end needs."""

# Seconds of it that pass before the garbage collector runs, which costs more than most tests.
_BEFORE_COLLECTING = 0.5

# Seconds between two looks at what is left.
_LOOK = 0.002

# One per process, kept for the life of the process.
_PERMANENT = frozenset(("syncmcp-reaper", "syncmcp-timer"))


def library_threads() -> set[threading.Thread]:
    """The running threads that the library started for a client or a server."""
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("syncmcp-") and thread.name not in _PERMANENT
    }


def child_processes() -> set[int]:
    """The ids of this process's children, those not yet waited for included (Linux)."""
    children: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            children.update(int(word) for word in task.read_text().split())
        except OSError:  # the thread ended while we looked
            continue
    return children


def open_channels() -> set[tuple[int, str]]:
    """The open sockets and pipes as pairs of descriptor and identity (Linux)."""
    channels: set[tuple[int, str]] = set()
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            target = os.readlink(entry)
        except OSError:  # the descriptor that listed the directory
            continue
        if target.startswith(("socket:", "pipe:")):
            channels.add((int(entry.name), target))
    return channels


class Footprint:
    """What the process holds at one moment.

    Child processes, sockets and pipes are seen on Linux only.
    """

    def __init__(self) -> None:
        self.threads = library_threads()
        self.processes = child_processes()
        self.channels = open_channels()

    def grown_since(self, earlier: Footprint) -> list[str]:
        """What is here now and was not then, in words."""
        threads = sorted(thread.name for thread in self.threads - earlier.threads)
        processes = sorted(self.processes - earlier.processes)
        channels = sorted(self.channels - earlier.channels)
        return [
            *(f"thread {name}" for name in threads),
            *(f"child process {pid}" for pid in processes),
            *(f"descriptor {number}, {target}" for number, target in channels),
        ]

    def left_behind(self, patience: float = PATIENCE) -> list[str]:
        """What has come since then and does not go away, in words.

        Things that are ending end within milliseconds, so they are waited for first. Only if that
        was not enough, the garbage collector runs, for a client that the test abandoned.

        Args:
            patience: Seconds that everything together gets to go away.
        """
        early = min(patience, _BEFORE_COLLECTING)
        if not self._outlasting(early):
            return []
        gc.collect()
        return self._outlasting(patience - early)

    def _outlasting(self, seconds: float) -> list[str]:
        """Wait until everything new has gone away, so long at most; return what has not."""
        deadline = time.monotonic() + seconds
        while leaks := Footprint().grown_since(self):
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            # Children and descriptors cannot be joined, so all kinds are looked at alike.
            time.sleep(min(left, _LOOK))
        return leaks
