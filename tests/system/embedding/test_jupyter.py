"""Jupyter: cells block in a kernel whose event loop runs, and are stopped like any other."""

from __future__ import annotations

import pytest

from tests.support.programs import ROOT
from tests.system.embedding.frameworks import EXAMPLES, FRAMEWORKS, finished

pytestmark = [pytest.mark.peer, pytest.mark.slow]

RUNNER = ROOT / "tests" / "system" / "embedding" / "run_notebook.py"
NOTEBOOK = EXAMPLES / "notebook.py"


@pytest.mark.pitfall("3")
def test_the_cells_run_in_a_kernel() -> None:
    assert finished(RUNNER, NOTEBOOK, "run", python=FRAMEWORKS).splitlines() == [
        "['add', 'echo', 'greet']",
        "1 of 3: 2 left",
        "2 of 3: 1 left",
        "3 of 3: 0 left",
        "lift-off",
        "[0, 2, 4, 6, 8]",
    ]


@pytest.mark.pitfall("3", "9")
def test_the_stop_button_ends_a_call_and_a_later_cell_awaits_others() -> None:
    said = finished(RUNNER, NOTEBOOK, "stop", python=FRAMEWORKS).splitlines()
    assert said[-3:] == ["started", "KeyboardInterrupt", "awaited: ['0', '2', '4']"]
