"""Servers by the names that files give them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.running import Command
from tests.support.ports import free_port


@pytest.fixture
def config(elsewhere: Path, demo: str) -> Path:
    """A file among the settings of the user."""
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
    assert command("call", "web", "greet", "-c", str(config)).out == "Hello, world!\n"
    assert command("call", "program", "greet", "-c", str(config)).out == "Hello, world!\n"
    ran = command("call", "wed", "greet", "-c", str(config))
    assert (ran.code, ran.error["hint"]) == (2, "did you mean web?")
    assert command("ping", "off", "-c", str(config)).code == 2
    assert command("ping", "broken", "-c", str(config)).code == 2
    assert command("ping", "web", "-c", "no-such-file").code == 2


def test_servers_are_listed_without_being_touched(command: Command, config: Path) -> None:
    rows = {row[0]: row[1:] for row in command("servers", "-c", str(config)).rows}
    assert {name: row[0] for name, row in rows.items()} == {
        "web": "ready",
        "program": "ready",
        "off": "disabled",
        "broken": "it has neither a command nor a url",
        "wrong": "command must be a non-empty string, not a number",
        "secret": "ready",
    }
    assert rows["program"][1].endswith("-m syncmcp.testing")
    assert "abcdefghijklmnop" not in str(rows)
    listed = command("servers", "-c", str(config), "--json").result["servers"]
    assert listed[0]["name"] == "web"
    assert command("servers", "-c", "no-such-file").code == 2


def test_the_files_of_editors_are_found(command: Command, config: Path) -> None:
    assert command("servers").out == ""
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
