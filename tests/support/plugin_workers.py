"""Pytest plugin: assigns tests to the workers of pytest-xdist, and runs some tests alone.

A worker gets whole files. Files that share servers are marked ``together(name)``; one worker gets
all files of a name. A test that other tests could disturb, such as a measurement, is marked
``alone``: no worker runs another test at the same time.
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
    """Assigns tests by file, or by group, for files that name one."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(self.config.rootpath / nodeid.partition("::")[0])


@cache
def _group(file: Path) -> str:
    """Return the group that a file names, or the path of the file.

    The group is found in the source: the scheduler of xdist knows only the names of tests.
    """
    named = re.search(r"mark\.together\(\"(.+?)\"\)", file.read_text("utf-8"))
    return named[1] if named else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile:
    """Let ``--dist loadscope`` assign tests by file and group."""
    return _ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for ``-n auto``: two for each core, since tests often wait."""
    return 2 * len(os.sched_getaffinity(0))


def worker_number() -> int:
    """Return the number of this worker, from 0; without workers also 0."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def pytest_configure(config: pytest.Config) -> None:
    """Set up each worker like a process of a terminal, and let it take turns with the others."""
    if not hasattr(config, "workerinput"):
        return
    # Readline, which pytest loads, sets these two if there is no terminal.
    os.environ.pop("COLUMNS", None)
    os.environ.pop("LINES", None)
    # A shell starts background processes with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The parent of the workers' folders, so all workers lock the same files.
    config.pluginmanager.register(_Turns(Path(str(config.getoption("basetemp"))).parent))


class _Turns:
    """Lets a test marked ``alone`` wait until no other test runs; later tests wait for its end.

    `_floor` is locked while a test runs: exclusively for ``alone``, otherwise shared. A test that
    waits for it has locked `_queue`, so no later test starts before it.
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
    """Run the slowest files first: if one started last, it would prolong the whole run.

    Tests marked ``alone`` come last, when fewer workers have to wait for them.
    """
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("alone"):
        return 2
    return 0 if item.get_closest_marker("peer") or item.get_closest_marker("slow") else 1
