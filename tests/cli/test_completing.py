"""What Tab offers in the person's own shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import ROOT, Command
from tests.support.stage import PATIENCE


@pytest.fixture
def names(elsewhere: Path) -> Path:
    """A file of this folder, which may be anybody's."""
    names = ["demo", "deep", "other", "a b", "$(touch${IFS}hacked)", "x\u202ey", "*", "--trust"]
    names += ["https://example.com/mcp", "HTTP://example.com"]  # which no file is asked about
    servers = {name: {"command": "no-such-command-at-all"} for name in names}
    path = elsewhere / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.fixture
def offered(command: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What is offered in the place of the last word."""

    def ask(*words: str) -> list[str]:
        with monkeypatch.context() as asked:
            asked.setenv("_SYNCMCP_COMPLETE", "complete_bash")
            asked.setenv("COMP_WORDS", " ".join(("syncmcp", *words)))
            asked.setenv("COMP_CWORD", str(len(words)))
            ran = command()
        assert (ran.code, ran.err) == (0, "")
        return ran.out.split()

    return ask


def test_names_are_offered_that_are_one_word_in_a_shell(
    names: Path, offered: Callable[..., list[str]]
) -> None:
    assert offered("tools", "") == ["demo", "deep", "other"]
    assert offered("call", "de") == ["demo", "deep"]
    assert offered("servers", "approve", "o") == ["other"]
    assert offered("tools", "--", "") == []  # a command of one's own


def test_a_file_of_ones_own_has_the_names(
    names: Path, elsewhere: Path, offered: Callable[..., list[str]]
) -> None:
    (elsewhere / "own.json").write_text('{"servers": {"mine": {"url": "http://x"}}}')
    assert offered("tools", "-c", "own.json", "") == ["mine"]
    (elsewhere / "own.json").write_text("{")
    assert offered("tools", "-c", "own.json", "") == []


def test_what_the_command_itself_knows_is_offered(
    elsewhere: Path, command: Command, offered: Callable[..., list[str]]
) -> None:
    assert "doctor" in offered("")
    assert offered("servers", "") == ["list", "approve", "forget"]
    assert offered("list", "x", "p") == ["prompts"]
    assert offered("tools", "--revision", "l") == ["legacy"]
    assert offered("call", "x", "--model", "open") == ["openai:", "openai-chat:"]
    assert "--output" in offered("call", "--")
    (elsewhere / "project").mkdir()
    assert command("roots", "add", "project").code == 0
    assert offered("roots", "remove", "") == [str(elsewhere / "project")]
    (Path.home() / ".local/state/syncmcp/roots.json").write_text("{")
    assert offered("roots", "remove", "") == []


def test_a_shell_completes_by_the_script_that_it_gets(names: Path) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    script = f"""
        syncmcp() {{ '{sys.executable}' -m syncmcp "$@"; }}
        export -f syncmcp
        mkdir bin; printf '#!/bin/bash\nsyncmcp "$@"' > bin/syncmcp; chmod +x bin/syncmcp
        PATH="$PWD/bin:$PATH"
        eval "$(syncmcp --show-completion)"
        COMP_WORDS=(syncmcp tools de) COMP_CWORD=2
        _syncmcp_completion syncmcp
        echo "offered: ${{COMPREPLY[*]}}"
    """
    ran = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE,
        check=False,
    )
    assert ran.stdout.split("offered: ")[1].split() == ["demo", "deep"], ran.stderr
