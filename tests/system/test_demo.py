"""The demo shows what the server really said, not something that it knows beforehand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "examples" / "first_steps" / "demo.py"

OTHER_SERVER = """
from syncmcp.testing import Server

server = Server("other server", version="9")

@server.tool()
def add(a: int, b: int) -> str:
    "Do not add."
    return f"{a} and {b} make seventeen"

server.run_stdio()
"""


def run_demo(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", str(DEMO), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


@pytest.mark.requirement("STD-11")
def test_the_demo_lists_calls_with_progress_and_runs_eight_futures() -> None:
    output = run_demo()
    assert "connected to syncmcp-demo" in output
    assert "Add two integers." in output
    assert "3 of 3: 0 left" in output
    assert "countdown -> lift-off" in output
    sums = {f"{number} + {number} -> {2 * number}" for number in range(8)}
    assert sums <= {line.strip() for line in output.splitlines()}


def test_another_server_gives_other_output(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(OTHER_SERVER)
    output = run_demo("--", sys.executable, str(server))
    assert "connected to other server 9" in output
    assert "Do not add." in output
    assert output.count("make seventeen") == 8
    assert "countdown" not in output


def test_a_server_that_cannot_be_started_is_explained() -> None:
    ended = subprocess.run(
        [sys.executable, str(DEMO), "--", "no-such-server-command"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("ConnectFailed: ")
    assert "no-such-server-command" in ended.stderr
