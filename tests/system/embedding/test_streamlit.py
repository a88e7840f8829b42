"""Streamlit: one client outlives all runs of the script."""

from __future__ import annotations

import pytest

from tests.support.programs import ROOT
from tests.system.embedding.frameworks import EXAMPLES, FRAMEWORKS, finished

pytestmark = pytest.mark.slow


@pytest.mark.peer
@pytest.mark.pitfall("1", "3")
def test_visitors_and_their_runs_share_one_server() -> None:
    visit = ROOT / "tests" / "system" / "embedding" / "visit_streamlit.py"
    said = finished(visit, EXAMPLES / "streamlit_app.py", python=FRAMEWORKS)
    assert said.splitlines() == [
        "sum: 42",
        "after the bar: lift-off",
        "sum: 43",
        "after the bar: lift-off",
        "servers: 1",
    ]
