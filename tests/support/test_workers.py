"""The workers of pytest-xdist get whole files and groups, and leave each other alone."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SAYS_WHERE = """
import os, pathlib, pytest
HERE = pathlib.Path(__file__).parent
WORKER = os.environ["PYTEST_XDIST_WORKER"]

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    with (HERE / "seen").open("a") as seen:
        seen.write(f"{HERE.name}/{pathlib.Path(__file__).stem} {WORKER}\\n")
"""

# Each test holds a folder while it runs; nobody else may, when one that is alone begins or ends.
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


def run(folder: Path, *arguments: str, ignore_ctrl_c: bool = False) -> str:
    """Run what is in a folder with the plugin and three workers; return what pytest printed."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone\n  together\n  slow\n  peer\n")
    words = "-m pytest -p no:cacheprovider -n 3 --dist loadscope -p tests.support.plugin_workers -q"
    command = [*words.split(), *arguments, "-c", str(folder / "pytest.ini"), str(folder)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignore_ctrl_c else None
    try:
        ended = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        if ignore_ctrl_c:
            signal.signal(signal.SIGINT, before)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_files_stay_whole_and_groups_together(tmp_path: Path) -> None:
    grouped = SAYS_WHERE.replace("@pytest", '@pytest.mark.together("g")\n@pytest', 1)
    for name in "abcdef":
        (tmp_path / f"test_{name}.py").write_text(grouped if name in "af" else SAYS_WHERE)
    run(tmp_path)
    lines = (tmp_path / "seen").read_text().splitlines()
    places = dict(line.split() for line in lines)
    assert len(lines) == 24
    assert len(set(lines)) == len(places) == 6
    assert len({place for file, place in places.items() if file[-1] in "af"}) == 1
    assert len(set(places.values())) > 1


def test_what_is_to_run_alone_does(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(SHARES)
    assert re.search(r"240 passed", run(tmp_path))
    assert (tmp_path / "together").exists()


def test_a_worker_is_like_a_process_started_at_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TERMINAL)
    run(tmp_path, ignore_ctrl_c=True)


def test_the_longest_files_are_begun_first_and_those_that_run_alone_last(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): ...")
    slow = "import pytest\n@pytest.mark.{}\ndef test_{}(): ..."
    (tmp_path / "test_b.py").write_text(slow.format("slow", "b"))
    (tmp_path / "test_c.py").write_text(slow.format("peer", "c"))
    (tmp_path / "test_0.py").write_text(slow.format("alone", "0"))
    names = re.findall(r"::(test_\w)", run(tmp_path, "--collect-only"))
    assert names == ["test_b", "test_c", "test_a", "test_0"]
