"""The program for version 1 of the official SDK, and the one that takes its place, say the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syncmcp.testing import demo_server, serve_http
from tests.support.programs import CEILING, ROOT, environment
from tests.system.peers.setup_peers import venv_python

PROGRAMS = ROOT / "examples" / "from_official_sdk"


@pytest.mark.peer
@pytest.mark.parametrize(
    ("python", "program"),
    [
        (venv_python("mcp-1.12"), "version_1.py"),
        (Path(sys.executable), "version_1_syncmcp.py"),
    ],
    ids=["official", "syncmcp"],
)
def test_both_sides_say_the_same(python: Path, program: str) -> None:
    with serve_http(demo_server(page_size=4)) as http:
        said = subprocess.run(
            [python, str(PROGRAMS / program), http.url],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=6 * CEILING,
            check=False,
        )
    assert said.stdout == (
        "False {'city': 'Cairo', 'celsius': 31.0, 'sky': 'sun'}\n14 object\nint\n"
    ), said.stderr
