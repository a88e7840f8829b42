"""A terminal that questions share with the program; servers of files, which a person approves."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import syncmcp
from syncmcp import servers_file
from syncmcp.types import ElicitResult
from syncmcp.ui.terminal import Terminal
from tests.support.stage import PATIENCE
from tests.ui.person import CTRL_C, DOWN, ENTER, Person
from tests.ui.terminal_questions import asked, form, question


def test_the_program_keeps_off_the_terminal_while_it_is_a_question_s_turn(
    person: Person, pool: ThreadPoolExecutor
) -> None:
    inside = 0
    most = 0

    @contextmanager
    def beside() -> Iterator[None]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        person.stdout.write("<the bar is gone>\n")
        person.stdout.flush()
        try:
            yield
        finally:
            inside -= 1

    terminal = Terminal(person.stdin, person.stdout, beside=beside)
    first = pool.submit(terminal.form, form(), asked())
    person.sees("What do you want to do?")
    second = pool.submit(terminal.review, question("roots", None))
    person.sees("1 more question waiting")
    assert person.screen.count("<the bar is gone>") == 1
    person.types(DOWN, ENTER)
    assert first.result(PATIENCE) == ElicitResult.decline()
    person.sees("Tell the server?")
    assert person.screen.count("<the bar is gone>") == 2
    person.types(DOWN, ENTER)
    assert second.result(PATIENCE).allowed
    assert (inside, most) == (0, 1)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of servers in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"mine": {"command": "my-server\x1b[2J"}}}))
    return path


@pytest.mark.requirement("SEC-06")
@pytest.mark.parametrize(
    ("keys", "approved"), [((DOWN, ENTER), True), ((ENTER,), False), ((CTRL_C,), False)]
)
def test_a_person_approves_a_server_that_a_file_names(
    keys: tuple[str, ...],
    approved: bool,
    servers: Path,
    person: Person,
    terminal: Terminal,
    pool: ThreadPoolExecutor,
) -> None:
    found = servers_file.read(servers, approve=terminal.approve, approvals=servers.with_name("yes"))
    target = pool.submit(found["mine"].target)
    person.sees("━━ A file names a server ━━")
    person.sees("Use it?")
    assert "my-server" in person.screen
    assert b"\x1b[2J" not in person.raw
    person.types(*keys)
    if approved:
        assert isinstance(target.result(PATIENCE), syncmcp.Stdio)
    else:
        assert isinstance(target.exception(PATIENCE), servers_file.NotApproved)


def test_without_a_terminal_no_server_of_a_file_is_approved(servers: Path) -> None:
    with open(servers) as no_terminal:
        nobody = Terminal(no_terminal)
        found = servers_file.read(servers, approve=nobody.approve)
        with pytest.raises(servers_file.NotApproved):
            found["mine"].target()


def test_what_is_drawn_beside_may_stand_in_the_place_of_the_standard_streams(
    person: Person, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", person.stdin)
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # as a progress bar's, no terminal

    @contextmanager
    def beside() -> Iterator[None]:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(sys, "stdout", person.stdout)
            yield

    answer = pool.submit(Terminal(beside=beside).form, form(), asked())
    person.answers("What do you want to do?", CTRL_C)
    assert answer.result(PATIENCE).action == "cancel"
