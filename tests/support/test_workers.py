"""Tests of `plugin_workers`: a worker gets whole files and groups; `alone` tests run alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.plugin_workers import pytest_collection_modifyitems

ROOT = Path(__file__).parents[2]

SAYS_WHERE = """
import os, pathlib, pytest
HERE = pathlib.Path(__file__).parent
WORKER = os.environ["PYTEST_XDIST_WORKER"]

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    with (HERE / "seen").open("a") as seen:
        seen.write(f"{pathlib.Path(__file__).stem} {WORKER}\\n")
"""

# A worker has a folder while its test runs; next to an `alone` test there may be no other one.
SHARES = """
import os, pathlib, pytest, threading
HERE = pathlib.Path(__file__).parent
MINE = HERE / "running" / os.environ["PYTEST_XDIST_WORKER"]

@pytest.fixture(autouse=True)
def running():
    MINE.mkdir(parents=True)
    yield
    MINE.rmdir()

def others():
    return [path.name for path in MINE.parent.iterdir() if path != MINE]

@pytest.mark.parametrize("number", range(60))
def test_shared(number):
    (HERE / "together").touch() if others() else None

@pytest.mark.alone
@pytest.mark.parametrize("number", range(20))
def test_alone(number):
    assert others() == []
    threading.Event().wait(0.001)
    assert others() == []
"""

TERMINAL = """
import os, signal, pytest

def test_it():
    assert "COLUMNS" not in os.environ
    assert "LINES" not in os.environ
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
"""


def test_workers_get_whole_files_and_are_alone_where_it_is_said(tmp_path: Path) -> None:
    """Run three workers with SIGINT ignored, as in the background of a shell; check everything."""
    grouped = SAYS_WHERE.replace("@pytest", '@pytest.mark.together("g")\n@pytest', 1)
    for name in "abcdef":
        (tmp_path / f"test_{name}.py").write_text(grouped if name in "af" else SAYS_WHERE)
    for name in "123":
        (tmp_path / f"test_{name}.py").write_text(SHARES)
    (tmp_path / "test_z.py").write_text(TERMINAL)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  alone\n  together\n  slow\n  peer\n"
    )
    words = "-m pytest -p no:cacheprovider -n 3 --dist loadscope -p tests.support.plugin_workers -q"
    command = [sys.executable, *words.split(), "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "265 passed" in ended.stdout
    lines = (tmp_path / "seen").read_text().splitlines()
    places = dict(line.split() for line in lines)
    assert len(lines) == 24
    assert len(set(lines)) == len(places) == 6
    assert places["test_a"] == places["test_f"]
    assert (tmp_path / "together").exists()  # more than one worker ran tests at the same time


def test_the_longest_files_are_begun_first_and_those_that_run_alone_last() -> None:
    marks = {"0": "alone", "a": None, "b": "slow", "c": "peer"}
    items: list[Any] = [
        SimpleNamespace(get_closest_marker={mark: name}.get) for name, mark in marks.items()
    ]
    in_order = [items[place] for place in (2, 3, 1, 0)]
    pytest_collection_modifyitems(items)
    assert items == in_order
