"""Every example runs, from a directory of its own; so does what README and quick start show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: str) -> list[str]:
    """The Python that a page shows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(command: list[str], cwd: Path) -> str:
    """Run a program as a reader would, with this Python first on the path; return its output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


def test_there_are_examples() -> None:
    assert "demo.py" in {example.name for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    assert run([str(example)], tmp_path).strip()


def test_the_script_of_the_readme_runs(tmp_path: Path) -> None:
    (script,) = blocks("README.md")
    assert run(["-c", script], tmp_path) == "3\n"


def test_the_calls_of_the_quick_start_run(tmp_path: Path) -> None:
    connect, _, *calls, _ = blocks("docs/quickstart.md")
    script = connect + textwrap.indent("\n".join(calls), "    ")
    printed = run(["-c", script], tmp_path)
    assert "syncmcp-demo" in printed
    assert "3/3" in printed
