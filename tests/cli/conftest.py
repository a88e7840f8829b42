"""The command, run in this process or as a program, and servers for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncmcp.testing import demo_server, serve_http
from tests.cli.running import Command


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home directory and a working directory in which nothing is."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    for name in ("SYNCMCP_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def command(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""
    return Command(capsys)


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The URL of the demo server."""
    with serve_http(demo_server()) as http:
        yield http.url
