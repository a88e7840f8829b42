"""Detection of leaks in tests: threads of the library, child processes, open sockets and pipes."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

PATIENCE = 2.0
"""The seconds after which a resource that a test has left open counts as a leak."""

# Seconds to wait before the garbage collector runs, which takes longer than most tests.
_COLLECT_AFTER = 0.5

# The polling interval, in seconds.
_POLL_SECONDS = 0.002

# Each process has at most one of each of these threads. They never end.
_PERMANENT = frozenset(("syncmcp-reaper", "syncmcp-timer"))


def library_threads() -> set[threading.Thread]:
    """Return the running threads that the library has started for clients and servers."""
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("syncmcp-") and thread.name not in _PERMANENT
    }


def child_processes() -> set[int]:
    """Return the ids of this process's children, including zombies (Linux only)."""
    children: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            children.update(int(word) for word in task.read_text().split())
        except OSError:  # The thread has ended.
            continue
    return children


def open_channels() -> set[tuple[int, str]]:
    """Return the open sockets and pipes as pairs of descriptor and inode name (Linux only)."""
    channels: set[tuple[int, str]] = set()
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            target = os.readlink(entry)
        except OSError:  # The descriptor of the directory listing itself.
            continue
        if target.startswith(("socket:", "pipe:")):
            channels.add((int(entry.name), target))
    return channels


class Footprint:
    """A snapshot of the threads, child processes, sockets and pipes of this process.

    Child processes, sockets and pipes are found on Linux only.
    """

    def __init__(self) -> None:
        self.threads = library_threads()
        self.processes = child_processes()
        self.channels = open_channels()

    def grown_since(self, earlier: Footprint) -> list[str]:
        """Return the resources of this snapshot that `earlier` does not have, one text for each."""
        threads = sorted(thread.name for thread in self.threads - earlier.threads)
        processes = sorted(self.processes - earlier.processes)
        channels = sorted(self.channels - earlier.channels)
        return [
            *(f"thread {name}" for name in threads),
            *(f"child process {pid}" for pid in processes),
            *(f"descriptor {number}, {target}" for number, target in channels),
        ]

    def left_behind(self, patience: float = PATIENCE) -> list[str]:
        """Return the leaks since this snapshot, one text for each resource.

        A resource is a leak if it still exists after `patience` seconds. If any resource is left
        after half a second, the garbage collector runs. This closes clients that the test has
        abandoned.

        Args:
            patience: The longest time to wait until all new resources are gone, in seconds.
        """
        early = min(patience, _COLLECT_AFTER)
        if not self._wait_gone(early):
            return []
        gc.collect()
        return self._wait_gone(patience - early)

    def _wait_gone(self, seconds: float) -> list[str]:
        """Wait until all new resources are gone, at most `seconds`; return those that are left."""
        deadline = time.monotonic() + seconds
        while leaks := Footprint().grown_since(self):
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            # Descriptors cannot be waited for, so all kinds of resources are polled.
            time.sleep(min(left, _POLL_SECONDS))
        return leaks
