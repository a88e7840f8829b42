"""Helpers that run the examples of the embedding guide, each in its framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.programs import ROOT, environment, is_watcher
from tests.system.peers.setup_peers import venv_python

EXAMPLES = ROOT / "examples" / "embedding"

# The Python of an environment with the frameworks that the environment of the tests lacks.
FRAMEWORKS = str(venv_python("frameworks"))

# Seconds for a program: on a busy machine, frameworks load slowly.
CEILING = 90.0


def finished(*command: str | Path, python: str = sys.executable, **env: str) -> str:
    """Run a Python program, which must exit with code 0; return its output."""
    ended = subprocess.run(
        [python, "-W", "error::ResourceWarning", *map(str, command)],
        cwd=ROOT,  # so that the server of the example can import the library
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
    """Return the children of a process, without the watcher of its servers."""
    while True:
        found: list[int] = []
        try:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread has ended, and another thread is now the parent of its children
        return [child for child in found if not is_watcher(child)]
