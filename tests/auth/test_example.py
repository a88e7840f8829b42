"""The example of signing in, at a server that it is told about, in a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from syncmcp.testing import AuthorizationServer, HttpServer, Server, serve_http
from tests.support.pages import address_behind

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAIT = 60.0


@pytest.fixture
def issuer() -> Iterator[AuthorizationServer]:
    """An authorization server."""
    with AuthorizationServer() as issuer:
        yield issuer


@pytest.fixture
def http(issuer: AuthorizationServer) -> Iterator[HttpServer]:
    """An MCP server behind it."""
    server = Server("notebook")
    server.add_tool(lambda: "a line", name="read", description="Reads.")
    with serve_http(server, authorization_server=issuer) as http:
        yield http


def start(*arguments: str) -> subprocess.Popen[str]:
    """The example; what would open the browser prints what it is given."""
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            str(ROOT / "examples" / "production" / "sign_in.py"),
            *arguments,
        ],
        env={**os.environ, "BROWSER": "echo %s", "DISPLAY": ":0", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.requirement("M-33")
def test_the_browser_opens_once_and_the_login_is_there_the_next_time(
    issuer: AuthorizationServer, http: HttpServer, tmp_path: Path
) -> None:
    arguments = [http.url, "--store", str(tmp_path / "private" / "tokens.json")]
    allowed = [*arguments, "--allow", issuer.issuer]
    said = f"{http.url} lets us in and has the tools: read\n"
    with start(*allowed) as process:
        assert process.stdout is not None
        address = address_behind(process.stdout.readline().strip())
        assert address.startswith(f"{issuer.issuer}/authorize?")
        assert "Back to your program" in requests.get(address, timeout=WAIT).text
        printed, _ = process.communicate(timeout=WAIT)
    assert (process.returncode, printed) == (0, said)
    issuer.expire()
    with start(*arguments) as process:
        printed, _ = process.communicate(timeout=WAIT)
    assert (process.returncode, printed) == (0, said)
    assert issuer.granted == ["authorization_code", "refresh_token"]
