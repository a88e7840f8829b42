"""Servers with names from servers files; `servers approve` and `servers forget`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.running import DOWN, ENTER, Command, at_terminal
from tests.support.ports import free_port


@pytest.fixture
def config(elsewhere: Path, demo: str) -> Path:
    """A servers file in the settings of the user."""
    path = Path.home() / ".cursor" / "servers.json"
    path.parent.mkdir()
    servers = {
        "web": {"url": demo},
        "program": {"command": sys.executable, "args": ["-m", "syncmcp.testing"]},
        "off": {"command": "true", "disabled": True},
        "broken": {"args": []},
        "wrong": {"command": 5},
        "secret": {"command": "serve", "args": ["--token=abcdefghijklmnop"]},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_a_file_gives_servers_names(command: Command, config: Path) -> None:
    assert command("call", "program", "greet", "-c", str(config)).out == "Hello, world!\n"
    ran = command("call", "wed", "greet", "-c", str(config))
    assert (ran.code, ran.error["hint"]) == (2, "did you mean web?")
    assert ran.error["message"] == f"no server named 'wed' in {config}"
    for name, file in (("off", str(config)), ("broken", str(config)), ("web", "no-such-file")):
        assert command("ping", name, "-c", file).code == 2


def test_servers_are_listed_without_being_touched(command: Command, config: Path) -> None:
    rows = {row[0]: row[1:] for row in command("servers", "-c", str(config)).rows}
    assert {name: row[0] for name, row in rows.items()} == {
        "web": "ready",
        "program": "ready",
        "off": "disabled",
        "broken": "invalid: the server has neither a command nor a url",
        "wrong": "invalid: command must be a non-empty string, not a number",
        "secret": "ready",
    }
    assert rows["program"][1].endswith("-m syncmcp.testing")
    assert "abcdefghijklmnop" not in str(rows)
    listed = command("servers", "-c", str(config), "--json").result["servers"]
    assert listed[0]["name"] == "web"
    assert command("servers", "-c", "no-such-file").code == 2


def test_servers_of_a_file_that_is_named_are_listed(command: Command, elsewhere: Path) -> None:
    content = json.dumps({"mcpServers": {"one": {"command": "python"}}})
    (elsewhere / "mcp.json").write_text(content)
    assert command("servers", "list", "--config", "mcp.json").rows == [
        ["one", "to be approved", "python", str(elsewhere / "mcp.json")]
    ]


def test_no_program_is_approved_for_a_sign_in(command: Command, elsewhere: Path) -> None:
    content = json.dumps({"mcpServers": {"one": {"command": "python"}}})
    (elsewhere / "mcp.json").write_text(content)
    ran = command("auth", "status", "one", "--config", "mcp.json")
    assert (ran.code, ran.error["message"]) == (2, "only HTTP servers support signing in")


def test_the_files_of_editors_are_found(command: Command, config: Path) -> None:
    none = command("servers")
    assert (none.out, "no editor configuration file" in none.err) == ("", True)
    claude = Path.home() / ".config/Claude/claude_desktop_config.json"
    claude.parent.mkdir(parents=True)
    claude.write_text(config.read_text())
    cursor = Path.home() / ".cursor/mcp.json"
    cursor.write_text("{")
    assert command("call", "web", "greet").out == "Hello, world!\n"
    hint = command("call", "mine", "greet").error["hint"]
    assert hint.startswith(f"{cursor} cannot be read: see `syncmcp servers`; ")
    rows = command("servers").rows
    assert {row[3] for row in rows} == {str(claude), str(cursor)}
    (broken,) = [row for row in rows if row[3] == str(cursor)]
    assert "is not JSON" in broken[1]


def test_a_file_of_this_folder_needs_a_word_first(
    command: Command, config: Path, elsewhere: Path
) -> None:
    own = elsewhere / "servers.json"
    own.write_text(config.read_text())
    ran = command("ping", "web", "-c", str(own))
    assert (ran.code, ran.error["kind"]) == (2, "NotApproved")
    assert ("approve=" in ran.error["message"], "--trust" in ran.error["hint"]) == (False, True)
    states = {row[0]: row[1] for row in command("servers", "-c", str(own)).rows}
    assert states["web"] == "to be approved"
    assert command("ping", "web", "-c", str(own), "--trust").code == 0
    assert command("ping", "web", "-c", str(own)).code == 2


def test_signing_in_shows_no_secret_of_a_url(
    command: Command, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENANT_KEY", "a-key-in-the-path")
    monkeypatch.setenv("QUERY_KEY", "a-key-in-the-query")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url = f"http://127.0.0.1:{free_port()}/${{env:TENANT_KEY}}/mcp?key=${{env:QUERY_KEY}}"
    config.write_text(json.dumps({"mcpServers": {"web": {"url": url}}}))
    shown = ""
    for words in (("status",), ("status", "--json"), ("logout",), ("login",)):
        ran = command("auth", *words, "web", "-c", str(config))
        shown += ran.out + ran.err
    assert shown.count("/***/mcp") == 4
    assert "a-key-in" not in shown


@pytest.fixture
def project(elsewhere: Path) -> Path:
    """A servers file in the current folder."""
    path = elsewhere / ".vscode/mcp.json"
    path.parent.mkdir()
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    servers = {
        "demo": {"command": sys.executable, "args": ["-m", "syncmcp.testing"], "env": env},
        "off": {"command": "true", "disabled": True},
        "broken": {"args": []},
        "typo": {"url": "notaurl"},
    }
    path.write_text(json.dumps({"servers": servers}))
    return path


def test_a_script_approves_by_name_and_takes_it_back(command: Command, project: Path) -> None:
    error = command("ping", "demo").error
    assert error["kind"] == "NotApproved"
    assert error["hint"].startswith("approve it with `syncmcp servers approve demo`, or ")
    named = command("ping", "demo", "-c", str(project)).error["hint"]
    assert f"`syncmcp servers approve demo -c {project}`" in named
    (step,) = command("doctor", "demo", "-c", str(project), "--json").result["steps"]
    assert step["hint"] == named
    ran = command("servers", "approve", "demo")
    assert (ran.code, ran.out, ran.error["hint"]) == (2, "", "--yes approves it without asking")
    ran = command("servers", "approve", "demo", "--yes")
    assert (ran.code, ran.out) == (0, "demo: ready\n")
    assert "-m syncmcp.testing" in ran.err  # shows the approved program
    assert command("ping", "demo").code == 0
    again = command("servers", "approve", "demo", "--json")
    assert (again.err, again.result["state"]) == ("", "ready")
    assert command("servers", "forget", "demo").out == "demo: to be approved\n"
    assert command("ping", "demo").code == 2


def test_a_person_sees_it_before_they_agree(project: Path, command: Command) -> None:
    with at_terminal("servers", "approve", "demo") as terminal:
        terminal.sees("Use it?")
        assert "-m syncmcp.testing" in terminal.screen
        terminal.types(DOWN, ENTER)
        assert terminal.ends() == 0
    assert command("servers", "list").rows[0][1] == "ready"


def test_what_needs_no_word_gets_none(command: Command, elsewhere: Path) -> None:
    own = Path.home() / ".cursor" / "mine.json"
    own.parent.mkdir()
    own.write_text('{"mcpServers": {"web": {"url": "https://example.com/mcp"}}}')
    for what in ("approve", "forget"):
        ran = command("servers", what, "web", "-c", str(own))
        assert (ran.code, ran.out, ran.err) == (0, "web: ready\n", "")
    assert list(Path.home().rglob("approved-servers.json")) == []


def test_what_cannot_be_looked_at_hides_no_other_server(command: Command, project: Path) -> None:
    words = " ".join(str(number) for number in range(20_000))
    servers = {"long": {"command": "x", "args": [words]}, "good": {"command": "y"}}
    project.write_text(json.dumps({"servers": servers}))
    assert [(row[0], row[1]) for row in command("servers").rows] == [
        ("long", "invalid: the command has more than 10,000 words that could be files"),
        ("good", "to be approved"),
    ]


def test_a_name_that_is_none_is_said(command: Command, project: Path) -> None:
    for what in ("approve", "forget"):
        assert command("servers", what, "damo").error["hint"] == "did you mean demo?"
        assert command("servers", what, "x").error["hint"] == "`syncmcp servers` lists the names"
        assert command("servers", what).code == 2
    for broken in "broken", "typo":  # no question, no approval
        ran = command("servers", "approve", broken, "--yes")
        assert (ran.code, ran.out) == (2, "")
        assert command("ping", broken).error["kind"] == "ServersFileError"
    # An approval from the time before it was broken can be discarded.
    assert "neither a command nor a url" in command("servers", "forget", "broken").out
    assert command("servers", "nonsense").code == 2
    assert command("servers", "approve", "off", "--yes").out == "off: disabled\n"


def test_a_file_where_a_name_is_expected_comes_with_a_hint(
    command: Command, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = command("tools", str(project)).error["hint"]
    assert hint == f"NAME --config {project} uses a server of this file"
    empty = project.with_name("mcp.json")
    empty.write_text('{"mcpServers": {}}')
    monkeypatch.chdir(project.parent)
    hint = command("tools", "demo").error["hint"]
    assert hint.endswith("; --config mcp.json looks in the file of this directory")
    said = f"there are no servers in {empty}"
    assert command("tools", "demo", "--config", str(empty)).error["hint"] == said
    assert command("servers", "--config", str(empty)).err == f"{said}\n"
    program = project.with_name("server.py")
    program.write_text("")
    for name, written in (
        (str(program), f"to start this program, write -- python {program}"),
        ("nowhere.js", "to start this program, write -- node nowhere.js"),
        ("python nowhere.py", "to start this program, write -- python nowhere.py"),
        ("localhost:8791/mcp", "write http://localhost:8791/mcp"),
    ):
        assert command("tools", name).error["hint"] == written
