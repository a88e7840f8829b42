"""Fixtures of the tests of the command: an empty home, the command in this process, a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncmcp.testing import demo_server, serve_http
from tests.cli.running import Command


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make an empty home and an empty working directory; return the latter."""
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
    """Return an object that runs the command in this process and captures its output."""
    return Command(capsys)


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """Serve the demo server over HTTP; return its URL."""
    with serve_http(demo_server()) as http:
        yield http.url
