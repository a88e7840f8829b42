"""Commands whose session is written to a file, and commands on such a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.running import DEMO, Command


def test_a_command_is_recorded_and_answered_again_without_a_server(command: Command) -> None:
    ran = command("record", "tape.jsonl", "call", "add", "a:=1", "b:=2", *DEMO)
    assert (ran.code, ran.out) == (0, "3\n")
    lines = Path("tape.jsonl").read_text("utf-8").splitlines()
    assert "tools/call" in "".join(lines)
    assert all(isinstance(json.loads(line), dict) for line in lines)
    again = command("replay", "tape.jsonl", "call", "add", "a:=1", "b:=2")
    assert (again.code, again.out) == (0, "3\n")
    other = command("replay", "tape.jsonl", "call", "add", "a:=2", "b:=2")
    assert (other.code, other.error["kind"]) == (2, "NotRecorded")
    assert "record the command with `syncmcp record`" in other.error["hint"]


def test_the_exit_code_is_that_of_the_command(command: Command, demo: str) -> None:
    assert command("record", "tape.jsonl", "call", demo, "fail").code == 5
    assert command("replay", "tape.jsonl", "call", "fail").code == 5


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["call", "add", "a=1", *DEMO], 2),
        (["call", "nosuch", *DEMO], 2),
        (["tools", "--", "nosuchprog"], 4),
        (["tools", "--", sys.executable, "-c", "input(); exit(1)"], 4),
    ],
)
def test_a_session_that_is_not_worth_replaying_leaves_no_file(
    command: Command, words: list[str], code: int
) -> None:
    ran = command("record", "tape.jsonl", *words)
    assert (ran.code, len(ran.err.splitlines())) == (code, 1)
    assert not Path("tape.jsonl").exists()


def test_what_cannot_be_recorded_or_replayed_is_said(command: Command, demo: str) -> None:
    assert "which command" in command("record", "tape.jsonl").error["message"]
    assert command("record").code == command("replay").code == 2
    assert command("replay", "missing.jsonl", "tools").code == 2
    Path("broken.jsonl").write_text("{")
    assert command("replay", "broken.jsonl", "tools").code == 2
    assert command("record", "tape.jsonl", "ping", demo).code == 0
    (target,) = command("replay", "tape.jsonl", "doctor", "--json").result["steps"]
    assert target["said"] == "this command needs a server: a recording has none"
    assert target["hint"] == "leave out `replay FILE`, and name the server"
    refused = command("replay", "tape.jsonl", "ping", "--trust")
    assert (
        refused.code,
        "needs a server, but a recording has none" in refused.error["message"],
    ) == (2, True)
    assert command("record", "--help").code == 0
    nowhere = command("record", "no/such/tape.jsonl", "ping", demo)
    assert (nowhere.code, "no such directory" in nowhere.error["message"]) == (2, True)
    assert not Path("no").exists()
    if Path("/proc/self").exists():
        unwritable = command("record", "/proc/tape.jsonl", "ping", demo)
        assert (unwritable.code, "hint" in unwritable.error) == (1, False)
        assert "cannot be written: No such file" in unwritable.error["message"]
    code = "import sys\nfor _ in sys.stdin: print('{broken', flush=True)"
    broken = ("--open-timeout", "1", "--", sys.executable, "-c", code)
    said = command("record", "silent.jsonl", "ping", *broken).error["message"]
    assert "on its stdout were not messages, the first: '{broken'" in said
    assert "nothing was recorded" in command("record", "other.jsonl", "roots").err
    shown = command("replay", "tape.jsonl", "ping", "--help").out
    assert [word for word in ("TARGET", "--bearer", "https:") if word in shown] == []
    assert "--model" in shown
