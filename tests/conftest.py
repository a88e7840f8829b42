"""Fixtures and hooks of all tests: isolation from the user's files, and detection of leaks."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from syncmcp._client.opening import revision_memory
from syncmcp.testing.leaks import PATIENCE, Footprint
from tests.support.moved_time import MovedTime, no_limit_begins

pytest_plugins = ("tests.support.plugin_requirements", "tests.support.plugin_workers")

# A generated example must not fail because a busy machine is slow.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without a clock")
# For `make mutants`: Hypothesis spends no time on shrinking a failure.
settings.register_profile(
    "mutants", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)


def _hide_from_the_collector() -> None:
    """Collect garbage once, then exempt all remaining objects from later collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Fail if a test module makes a deadline while it is imported: it would expire too early."""
    with no_limit_begins():
        return (yield)


def pytest_collection_finish() -> None:
    """Exempt the collected tests: otherwise each collection would visit thousands of them."""
    _hide_from_the_collector()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """After the last test of a file, exempt the modules that the file has imported, too."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        _hide_from_the_collector()


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the tests of a worker a home folder, so that none uses files of the user."""
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place))
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            patch.delenv(f"XDG_{name}_HOME", raising=False)
        patch.delenv("SYNCMCP_HOME", raising=False)
        yield place


@pytest.fixture(autouse=True)
def unknown_commands() -> None:
    """Clear the process-wide memory of servers that need no probe, so no test affects another."""
    revision_memory.__init__()  # type: ignore[misc]  # as in a forked child


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaks a thread, process or socket; those of wider fixtures do not count."""
    before = Footprint()
    yield
    leaks = before.left_behind(5 * PATIENCE)  # on a busy machine, threads and processes end late
    assert not leaks, "left behind: " + "; ".join(leaks)


@pytest.fixture
def moved() -> Iterator[MovedTime]:
    """Replace the clocks and timed waits of the library; see `tests/support/moved_time.py`."""
    with MovedTime().installed() as time:
        yield time
