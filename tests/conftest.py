"""What every test owes: it leaves no thread, no child process and no socket behind."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.plugin_requirements",)

# Generated examples are judged by what they show, never by how long a busy machine takes.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without a clock")


def pytest_collection_finish() -> None:
    """Hide what collecting has made from the garbage collector: it outlives every test.

    The leak check collects, and would go through thousands of tests each time.
    """
    gc.collect()
    gc.freeze()


# Things that are ending may take this long, in seconds; far more than any of them needs.
PATIENCE = 10.0

# One per process, kept for the life of the process.
PERMANENT_THREADS = frozenset({"syncmcp-reaper", "syncmcp-timer"})


def library_threads() -> set[threading.Thread]:
    """The running threads that the library started for a client or a server."""
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("syncmcp-") and thread.name not in PERMANENT_THREADS
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
    """What the process holds at one moment."""

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


def leaks_since(before: Footprint, patience: float = PATIENCE) -> list[str]:
    """What stays behind after `patience` seconds given to threads and children that are ending."""
    leaks = Footprint().grown_since(before)
    if not leaks:
        return []
    # An abandoned client lets go of its things when it is collected.
    gc.collect()
    deadline = time.monotonic() + patience
    while True:
        for thread in library_threads() - before.threads:
            if thread.ident is not None:  # else it is being started, and cannot be joined yet
                thread.join(max(0.0, deadline - time.monotonic()))
        leaks = Footprint().grown_since(before)
        if not leaks or time.monotonic() >= deadline:
            return leaks
        # Nothing to join: a child or a descriptor is on its way out and cannot be waited for here.
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves something behind; what wider fixtures hold is not counted."""
    before = Footprint()
    yield
    leaks = leaks_since(before)
    assert not leaks, "left behind: " + "; ".join(leaks)


@pytest.fixture
def short_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let idle threads end soon: the pool of the cancel tokens is never closed."""
    before = library_threads()
    with monkeypatch.context() as patch:
        patch.setattr("syncmcp._workers._LINGER", 0.01)
        yield
        # They look how long they may stay when they become idle, which must be within this.
        for thread in library_threads() - before:
            if thread.name.startswith("syncmcp-cancel"):
                thread.join(PATIENCE)
