"""What every test owes: it leaves no thread, no child process and no socket behind."""

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

# Generated examples are judged by what they show, never by how long a busy machine takes.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without a clock")
# For `make mutants`: no time goes into what is wrong with a mutant.
settings.register_profile(
    "mutants", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)


def _hide_from_the_collector() -> None:
    """Take what is there now out of the garbage collector's walks, having collected once."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What begins now is over before its test runs."""
    with no_limit_begins():
        return (yield)


def pytest_collection_finish() -> None:
    """Thousands of tests outlive every collection, which would walk through all of them."""
    _hide_from_the_collector()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """What a file has imported stays, too."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        _hide_from_the_collector()


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home folder of all tests of a worker: what they keep there is nobody else's."""
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place))
        for name in ("CACHE", "CONFIG", "DATA", "STATE"):
            patch.delenv(f"XDG_{name}_HOME", raising=False)
        patch.delenv("SYNCMCP_HOME", raising=False)
        yield place


@pytest.fixture(autouse=True)
def unknown_commands() -> None:
    """Which servers need no probe is remembered for the process: each test finds out by itself."""
    revision_memory.__init__()  # type: ignore[misc]  # as a forked child does


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves something behind; what wider fixtures hold is not counted."""
    before = Footprint()
    yield
    leaks = before.left_behind(5 * PATIENCE)  # a busy machine ends things late
    assert not leaks, "left behind: " + "; ".join(leaks)


@pytest.fixture
def moved() -> Iterator[MovedTime]:
    """Time that the test moves, for the whole library."""
    with MovedTime().installed() as time:
        yield time
