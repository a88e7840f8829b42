"""Every command at a real terminal: on the reference server, and on one that wants a sign-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncmcp.cli import app
from syncmcp.testing import AuthorizationServer, demo_server, serve_http
from tests.cli.running import ENTER, TAB, AtTerminal, Command, at_terminal, log_in
from tests.system.peers.launch import http_server
from tests.system.peers.peers import EVERYTHING, HTTP

pytestmark = pytest.mark.slow

_IN_THE_SHELL = [
    ("list", "demo://resource/dynamic/text/{resourceId}"),
    ("tools", "get-sum"),
    ("call get-sum a:=2 b:=3", "The sum of 2 and 3 is 5"),
    ("call get-sum --help", "a=NUMBER"),
    ("call trigger-long-running-operation duration:=0.2 steps:=2", "completed"),
    ("read demo://resource/dynamic/text/{resourceId} resourceId=7", "Resource 7"),
    ("prompt args-prompt city=Oslo", "Oslo"),
    ("complete completable-prompt department E", "Engineering"),
    ("ping", " ms"),
    ("info", "Everything Reference Server"),
]

_PRIVATE = [
    (["tools"], "countdown"),
    (["doctor"], "✓ sign-in: with the token of an earlier sign-in"),
    (["auth", "status"], "renewed automatically"),
]


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    with http_server(EVERYTHING.programs[HTTP]) as server:
        yield server.url


@pytest.fixture(scope="module")
def private() -> Iterator[str]:
    with (
        AuthorizationServer() as issuer,
        serve_http(demo_server(), authorization_server=issuer) as http,
    ):
        yield http.url


def runs(words: list[str], url: str, shown: str) -> None:
    place = 2 if words[0] == "auth" else 1
    with at_terminal(*words[:place], url, *words[place:]) as terminal:
        assert terminal.ends() == 0, terminal.screen
    assert shown in terminal.screen, (words, terminal.screen)
    assert '{"error"' not in terminal.screen


def says(terminal: AtTerminal, line: str) -> str:
    """Type a line in the shell; return what is below it when the prompt is there again."""
    prompt = terminal.screen.splitlines()[-1]
    terminal.types(line, ENTER)
    while True:
        _, typed, below = terminal.screen.rpartition(f"{prompt} {line}\n")
        if typed and below.splitlines()[-1] == prompt:
            return below.removesuffix(prompt)
        terminal.changes(terminal.screen)


def record_and_replay(url: str, words: list[str], shown: str) -> None:
    with at_terminal("record", "tape.jsonl", words[0], url, *words[1:]) as terminal:
        assert terminal.ends() == 0, terminal.screen
    assert shown in terminal.screen
    with at_terminal("replay", "tape.jsonl", *words) as terminal:
        assert terminal.ends() == 0, terminal.screen
    assert shown in terminal.screen


@pytest.mark.peer
@pytest.mark.timeout(300)
def test_every_command_works_on_the_reference_server(elsewhere: Path, everything: str) -> None:
    with at_terminal("shell", everything, rows=400) as terminal:
        terminal.answers("Ctrl-D ends", "call get-su", TAB)
        terminal.answers("call get-sum", " a:=2 b:=2", ENTER)
        terminal.sees("The sum of 2 and 2 is 4.\n")
        for line, shown in _IN_THE_SHELL:
            said = says(terminal, line)
            assert shown in said, (line, said)
            assert "error: " not in said
        terminal.types("quit", ENTER)
        assert terminal.ends() == 0
    runs(["doctor"], everything, " latency: median ")
    record_and_replay(everything, ["call", "get-sum", "a:=2", "b:=3"], "The sum of 2 and 3 is 5")
    with at_terminal("call", everything, "get-tiny-image", "--output", "tiny.png") as terminal:
        assert terminal.ends() == 0, terminal.screen
    assert Path("tiny.png").read_bytes().startswith(b"\x89PNG")
    with at_terminal("listen", everything, "--tools", "--wait", "0.2") as terminal:
        terminal.sees("listening to the tools")
        assert terminal.ends() == 6


@pytest.mark.timeout(300)
def test_commands_work_where_somebody_signed_in(elsewhere: Path, private: str) -> None:
    log_in(private)
    for words, shown in _PRIVATE:
        runs(words, private, shown)
    record_and_replay(private, ["call", "add", "a:=1", "b:=2"], "3")
    with at_terminal("shell", private) as terminal:
        terminal.answers("Ctrl-D ends", "call add a:=1 b:=1", ENTER)
        terminal.answers("\n2\n", "quit", ENTER)
        assert terminal.ends() == 0
    with at_terminal("auth", "logout", private) as terminal:
        assert terminal.ends() == 0
    with at_terminal("tools", private) as terminal:
        assert terminal.ends() == 3


@pytest.mark.parametrize("same", [True, False])
def test_the_demo_shows_a_python_that_has_the_package(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own", "other"):
        program = tmp_path / name / "python"
        program.parent.mkdir()
        program.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python3.13"))
    monkeypatch.setenv("PATH", str(tmp_path / ("own" if same else "other")))
    assert app._python() == ("python" if same else sys.executable)


def test_the_commands_that_need_no_server(elsewhere: Path, command: Command) -> None:
    assert command("roots", "add", ".").code == 0
    for words, shown in (
        (["roots", "list"], str(elsewhere)),
        (["servers"], "no editor configuration file"),
        (["demo"], "lift-off"),
    ):
        with at_terminal(*words) as terminal:
            assert terminal.ends() == 0, terminal.screen
        assert shown in terminal.screen
        assert '{"error"' not in terminal.screen
