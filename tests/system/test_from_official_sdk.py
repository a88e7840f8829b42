"""On the page about moving from the official SDK, both columns run and print the same."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue

import mcp.client.stdio  # not within a test: at the import, it stores `sys.stderr` for servers
import pytest
import requests

from syncmcp.testing import AuthorizationServer, Server, demo_server, serve_http
from tests.support.pages import address_behind
from tests.support.programs import CEILING, ROOT, environment
from tests.support.stage import PATIENCE
from tests.system.peers.setup_peers import venv_python

pytestmark = pytest.mark.slow

PROGRAMS = ROOT / "examples" / "from_official_sdk"
PAGE = (ROOT / "docs" / "from-the-official-sdk.md").read_text(encoding="utf-8")

SAYS = {
    "call": "{'city': 'Cairo', 'celsius': 31.0, 'sky': 'sun'}\nHello, Ada!\n",
    "errors": "the tool failed\nthe server refused\ncannot connect\n",
    "group": "True\n{'city': 'Kyoto', 'celsius': 18.0, 'sky': 'clouds'}\n",
    "limits": "timed out\ncancelled True\n",
    "pages": "14 add\n",
    "progress": "1 of 2: 1 left\n2 of 2: 0 left\n",
    "testing": "{'price': 45}\n",
    "together": "{'city': 'Bergen', 'celsius': 9.5, 'sky': 'rain'}\n"
    "{'city': 'Cairo', 'celsius': 31.0, 'sky': 'sun'}\n"
    "{'city': 'Kyoto', 'celsius': 18.0, 'sky': 'clouds'}\n",
}

Play = Callable[..., str]
both_sides = pytest.mark.parametrize("side", ["official", "syncmcp"])


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Return a function that runs a program with arguments, and returns its output."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", SAYS)
@both_sides
def test_both_sides_say_the_same(name: str, side: str, play: Play) -> None:
    assert play(f"{name}_{side}") == SAYS[name]


@both_sides
def test_both_sides_open_servers_of_each_kind(side: str, play: Play) -> None:
    with serve_http(demo_server()) as http:
        said = play(f"connect_{side}", http.url, http.sse_url)
    assert said == "14\n" * 4


@both_sides
def test_both_sides_answer_what_a_server_asks(
    side: str, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.txt").touch()
    monkeypatch.chdir(tmp_path)
    model, form, roots = play(f"handlers_{side}").splitlines()
    assert model == "A fish."
    assert '"outputFormat":"plain"' in form
    assert '"files":1' in roots


class Somebody:
    """A person with a browser, who agrees to everything and pastes the final address."""

    def __init__(self) -> None:
        self._ends: SimpleQueue[str] = SimpleQueue()

    def visit(self, address: str) -> bool:
        """Open an address, like a browser, on another thread."""
        # syncmcp opens a file that redirects to the address.
        there = address_behind(address) if address.startswith("file:") else address
        threading.Thread(target=self._go, args=(there,)).start()
        return True

    def _go(self, address: str) -> None:
        answer = requests.get(address, allow_redirects=False, timeout=PATIENCE)
        end = answer.headers["Location"]
        self._ends.put(end)
        # The program with the official SDK does not listen, but asks the person for the address.
        with suppress(requests.ConnectionError):
            requests.get(end, timeout=PATIENCE)

    def paste(self, prompt: str = "") -> str:
        """Answer an `input`: "y" to the question of syncmcp, otherwise the final address."""
        return self._ends.get(timeout=PATIENCE) if prompt else "y"


@both_sides
def test_both_sides_sign_in(side: str, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    server, somebody = Server("notebook"), Somebody()
    server.add_tool(lambda: "a line", name="read")
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setattr("webbrowser.open", somebody.visit)
    monkeypatch.setattr("builtins.input", somebody.paste)
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    with AuthorizationServer() as issuer, serve_http(server, authorization_server=issuer) as http:
        assert play(f"signing_in_{side}", http.url) == "read\n"


@pytest.mark.peer
def test_what_is_written_for_version_1_and_what_takes_its_place_say_the_same(play: Play) -> None:
    with serve_http(demo_server(page_size=4)) as http:
        said = subprocess.run(
            [venv_python("mcp-1.12"), str(PROGRAMS / "version_1.py"), http.url],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=6 * CEILING,
            check=False,
        )
        expected = "False {'city': 'Cairo', 'celsius': 31.0, 'sky': 'sun'}\n14 object\nint\n"
        assert said.stdout == expected, said.stderr
        assert play("version_1_syncmcp", http.url) == expected


def test_the_page_shows_every_program_and_names_the_version_that_runs_here() -> None:
    shown = re.findall(r"examples/from_official_sdk/(\w+)\.py", PAGE)
    assert sorted(shown) == sorted(path.stem for path in PROGRAMS.glob("*.py"))
    assert f"`mcp` {metadata.version('mcp')}" in PAGE
    assert mcp.client.stdio.__name__.startswith("mcp.")
