"""docs/command-line.md shows the help that the commands have, and the exit codes they end with."""

from __future__ import annotations

import re

from syncmcp.cli.app import app
from syncmcp.cli.output import Exit
from tests.cli import help_page
from tests.cli.running import Command

PAGE = help_page.PAGE.read_text("utf-8")


def test_the_page_shows_the_help_of_every_command() -> None:
    # When a change is meant: python -m tests.cli.help_page
    assert help_page.with_help(PAGE) == PAGE
    assert help_page.documented(PAGE) == {words for words, _ in help_page.commands()}


def test_the_help_is_all_in_the_words_of_the_command(command: Command) -> None:
    for words in ((), *(words.split() for words, _ in help_page.commands())):
        shown = command(*words, "--help").out
        assert "  Show this help" in shown
        assert [
            word for word in (" and exit", "<str>", "<list", "current shell") if word in shown
        ] == []


def test_the_page_tells_every_exit_code() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert told == {int(code) for code in Exit}


def test_the_help_of_the_program_tells_every_exit_code() -> None:
    codes = str(app.info.help).partition("Exit codes: ")[2]
    assert {int(code) for code in re.findall(r"\b\d+\b", codes)} == {int(code) for code in Exit}
