"""Pytest plugin: how the workers of pytest-xdist share the tests and the machine.

A worker gets whole files. Files whose tests build on each other are marked ``together(name)`` and
go to one worker. A test that measures what others would disturb is marked ``alone``: no worker runs
another test meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import IO

    from xdist.remote import Producer


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out whole files, and all files that name one group."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(self.config.rootpath / nodeid.partition("::")[0])


@cache
def _group(file: Path) -> str:
    """What a file is handed out with: the others of the group that it names, or itself alone.

    It is read: xdist tells the process that hands out the tests their names and nothing else.
    """
    named = re.search(r"mark\.together\(\"(.+?)\"\)", file.read_text("utf-8"))
    return named[1] if named else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile:
    """Have ``--dist loadscope`` mean files and groups."""
    return _ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto``: two for each core, as tests wait for a part of their time."""
    return 2 * len(os.sched_getaffinity(0))


def worker_number() -> int:
    """Which worker this process is, from 0; it is 0 without workers, too."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker what a process started at a terminal has, and a place in the queue."""
    if not hasattr(config, "workerinput"):
        return
    # Readline, which pytest loads, sets these two where there is no terminal.
    os.environ.pop("COLUMNS", None)
    os.environ.pop("LINES", None)
    # Ignored in what a shell starts in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Above the folders of the workers.
    config.pluginmanager.register(_Turns(Path(str(config.getoption("basetemp"))).parent))


class _Turns:
    """Has tests marked ``alone`` wait for the other workers, and these for them.

    Two locked files say whose turn it is. Who waits for the second one holds the first, so a test
    that wants to be alone waits for those that run, and for no later ones.
    """

    def __init__(self, folder: Path) -> None:
        self._queue, self._floor = (folder / "queue").open("w"), (folder / "floor").open("w")

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # waiting does not count for the test's timeout
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        alone = item.get_closest_marker("alone") is not None
        with _locked(self._queue, fcntl.LOCK_EX):
            fcntl.flock(self._floor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            return (yield)
        finally:
            fcntl.flock(self._floor, fcntl.LOCK_UN)

    def pytest_unconfigure(self) -> None:
        self._queue.close()
        self._floor.close()


@contextmanager
def _locked(file: IO[str], operation: int) -> Iterator[None]:
    fcntl.flock(file, operation)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: begun last, one of them would end long after all.

    Those that have nothing but tests that run alone come last, when fewer have to wait for them.
    """
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("alone"):
        return 2
    return 0 if item.get_closest_marker("peer") or item.get_closest_marker("slow") else 1
