"""What every test owes: it leaves no thread, no child process and no socket behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from syncmcp.testing.leaks import Footprint, library_threads

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


# Things that are ending may take this long, in seconds: far more than any of them needs. An idle
# thread of a pool that nobody closed, its client having been collected, stays for ten.
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves something behind; what wider fixtures hold is not counted."""
    before = Footprint()
    yield
    leaks = before.left_behind(PATIENCE)
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
