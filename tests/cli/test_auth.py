"""Signing in from the shell, and using what that gave."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncmcp.testing import AuthorizationServer, Server, serve_http
from tests.cli.running import Command, at_terminal, ended, program


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with AuthorizationServer(scopes=["notes:read"]) as server:
        yield server


@pytest.fixture(scope="module")
def private(issuer: AuthorizationServer) -> Iterator[str]:
    """The URL of a server that wants a token."""
    server = Server("notebook")
    server.add_tool(lambda: "a line", name="read", annotations={"readOnlyHint": True})
    with serve_http(server, authorization_server=issuer) as http:
        yield http.url


def test_who_is_not_signed_in_is_told_so_and_not_sent_anywhere(
    command: Command, private: str, issuer: AuthorizationServer
) -> None:
    ran = command("tools", private)
    assert (ran.code, ran.out, ran.error["kind"]) == (3, "", "LoginRequired")
    assert "syncmcp auth login" in ran.error["hint"]
    assert command("auth", "status", private) == (3, f"not signed in to {private}\n", "")
    assert command("auth", "status", private, "--json").result["signed_in"] is False
    assert issuer.granted == []


def test_a_person_signs_in_once_for_all_later_commands(
    elsewhere: Path, private: str, issuer: AuthorizationServer, command: Command
) -> None:
    with at_terminal("auth", "login", private, "--no-browser", columns=1000) as terminal:
        terminal.sees("code_challenge=")
        (address,) = re.findall(r"http://\S+code_challenge=\S+", terminal.screen)
        with urllib.request.urlopen(address, timeout=30) as page:
            page.read()
        assert terminal.ends() == 0
    assert f"signed in to {private}" in terminal.screen
    assert command("call", private, "read").out == "a line\n"
    issuer.expire()  # it is renewed without anybody
    # A program of its own finds it, too.
    assert ended(program("call", private, "read")).out == "a line\n"
    rows = dict(command("auth", "status", private).rows)
    assert rows["authorization server"] == issuer.issuer
    status = command("auth", "status", private, "--json").result
    assert status["signed_in"] is True
    assert "token" not in str(command("auth", "status", private, "--json").out)
    examined = command("doctor", private, "--json").result["steps"]
    assert {"step": "sign-in", "verdict": "ok", "said": "with the token of an earlier sign-in"} in (
        examined
    )
    assert command("auth", "logout", private).out == f"signed out of {private}\n"
    assert command("tools", private).code == 3


def test_a_token_can_come_from_a_file(
    command: Command, private: str, elsewhere: Path, issuer: AuthorizationServer
) -> None:
    (elsewhere / "header").write_text("Bearer nonsense")
    ran = command("tools", private, "-H", "Authorization:@header")
    assert (ran.code, ran.error["kind"], ran.error["status"]) == (3, "AuthError", 401)
    assert "nonsense" not in ran.err


def test_commands_have_no_sign_in(command: Command) -> None:
    ran = command("auth", "login", "--", "true")
    assert (ran.code, "--env" in ran.error["hint"]) == (2, True)
