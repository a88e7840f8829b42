"""Runs the examples of the embedding guide as the guide says, each in its framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.programs import ROOT, environment, is_watcher
from tests.system.peers.setup_peers import venv_python

EXAMPLES = ROOT / "examples" / "embedding"

# Of an environment that has the frameworks that are too much for the one the tests run in.
FRAMEWORKS = str(venv_python("frameworks"))

# Frameworks take their time to be loaded on a busy machine, in seconds.
CEILING = 90.0


def finished(*command: str | Path, python: str = sys.executable, **env: str) -> str:
    """Run a Python program to its end, which must be a good one; return what it printed."""
    ended = subprocess.run(
        [python, "-W", "error::ResourceWarning", *map(str, command)],
        cwd=ROOT,  # where the server that the example starts finds the library
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CEILING,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout


def children(pid: int) -> list[int]:
    """The processes that a process has started, without the watcher of its servers."""
    while True:
        found: list[int] = []
        try:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread has ended, and what it had started is another thread's now
        return [child for child in found if not is_watcher(child)]
