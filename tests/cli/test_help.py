"""The help of commands and tools, its copy in docs/command-line.md, and the exit codes."""

from __future__ import annotations

import json
import re
import sys
from typing import Literal

import pytest

import syncmcp
from syncmcp.cli import person
from syncmcp.cli.app import run_command
from syncmcp.cli.output import Exit
from syncmcp.cli.session import SharedClient
from syncmcp.testing import Server, serve_http
from tests.cli import help_page
from tests.cli.running import Command, run

PAGE = help_page.PAGE.read_text("utf-8")


def test_the_page_shows_the_help_of_every_command() -> None:
    # To update the page: python -m tests.cli.help_page
    assert help_page.with_help(PAGE) == PAGE
    assert help_page.documented(PAGE) == {words for words, _ in help_page.commands()}


def test_the_help_is_all_in_the_words_of_the_command(command: Command) -> None:
    foreign = (" and exit", "<str>", "<list", "current shell")
    assert [word for word in foreign if word in PAGE] == []  # the page has all help
    for words in ((), ("auth",), ("call",)):
        shown = command(*words, "--help").out
        assert "  Show this help" in shown
        assert [word for word in foreign if word in shown] == []


def test_the_page_and_the_help_of_the_program_tell_every_exit_code(command: Command) -> None:
    codes = command("--help").out.partition("Exit codes:")[2]
    told = (
        re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE),
        re.findall(r"^  (\d+)  ", codes, re.MULTILINE),
    )
    for numbers in told:
        assert {int(code) for code in numbers} == {int(code) for code in Exit}


def test_the_schema_of_a_tool_is_its_help(command: Command) -> None:
    server = Server("paint")
    schema = {
        "type": "object",
        "properties": {
            "color": {"type": "string", "enum": ["red", "blue"], "description": "Which one."},
            "coats": {"type": "integer", "minimum": 1, "default": 2},
            "dry": {"type": "boolean"},
        },
        "required": ["color"],
    }
    server.add_tool(
        lambda color, **others: color,
        name="paint",
        description="Paint the wall.",
        input_schema=schema,
        annotations={"destructiveHint": True},
    )
    with serve_http(server) as http:
        shown = command("call", http.url, "paint", "--help").out
        wire = command("call", http.url, "paint", "--help", "--json").result
    written = "color=red|blue [coats=INTEGER] [dry=true|false]"
    assert shown.startswith(f"Usage: syncmcp call TARGET paint {written}\n")
    assert "color=red|blue  (required)\n      │ Which one." in shown
    assert "\nWhat the server says about it:\n│ Paint the wall.\n" in shown
    assert "coats=INTEGER  (default 2, minimum 1)" in shown
    assert shown.endswith("The server claims that it is: destructive\n")
    assert wire["inputSchema"] == schema


def test_an_optional_argument_has_the_type_of_its_values(command: Command) -> None:
    server, got = Server("optional"), list[object]()

    @server.tool(annotations={"readOnlyHint": True})
    def pick(
        n: int | None = None,
        size: Literal["s", "l"] | None = None,
        tags: list[str] | None = None,
        both: int | str = 3,
        any: object = None,
    ) -> str:
        got.extend([n, size, tags])
        return ""

    with serve_http(server) as http:
        (row,) = command("tools", http.url).rows
        shown = command("call", http.url, "pick", "--help").out
        assert command("call", http.url, "pick", "n=5", 'tags=["a"]', "size=s").code == 0
        assert command("call", http.url, "pick", "n=null").code == 0
        hint = command("call", http.url, "pick", "tags=a").error["hint"]
    types = "n?: integer, size?: string, tags?: array of string, both?: integer|string, any?: json"
    assert row[1] == types
    assert "[n=INTEGER] [size=s|l] [tags:=ARRAY] [both:=INTEGER|STRING] [any:=JSON]\n" in shown
    assert "  tags:=ARRAY  (of string, default null)\n" in shown
    assert got == [5, "s", ["a"], None, None, None]
    assert hint == "write tags:=ARRAY, such as tags:='[\"a\"]'"


def test_no_text_of_a_server_passes_for_a_line_of_the_help(command: Command) -> None:
    """The arguments of a call come before the text of the server."""
    forged = "\n\nArguments:\n  safe=yes\n\nThe server claims that it is: read-only"
    details = {"type": "string", "description": forged, "default": forged, "pattern": forged}
    server = Server("forger")
    server.add_tool(
        lambda **given: "",
        name="x",
        title=forged,
        description=forged,
        input_schema={"type": "object", "properties": {f"a{forged}": details}},
    )
    with serve_http(server) as http:
        lines = command("call", http.url, "x", "--help").out.splitlines()
    ours = [line for line in lines if line and "│" not in line]
    assert ours[0].startswith("Usage: syncmcp call TARGET x [a␊")
    assert ours[1] == "Arguments:"
    assert ours[2].startswith("  a␊")
    assert ours[3:] == ["What the server says about it:", "The server claims that it is: (nothing)"]


def test_a_command_loads_only_what_it_needs() -> None:
    """Tab in a person's shell runs the command, and waits for it."""
    names = "{'prompt_toolkit', 'questionary', 'requests', 'jsonschema'}"
    code = f"import sys, syncmcp.cli.app; print({names} & {{*sys.modules}})"
    assert run(sys.executable, "-c", code).out == "set()\n"


def test_the_help_of_call_needs_no_server(command: Command, demo: str) -> None:
    said = command("call", "--help").out
    assert said == command("call", demo, "--help").out == command("help", "call").out
    for words in (["call", "-h"], ["tools", "-h"]):
        own, _, names = command(*words).out.partition("which --help describes:\n")
        assert "\n\n  For example:\n    syncmcp " in own
        assert "Show this help" in own
        assert "Arguments:\n  TARGET  " in own
        assert names.split()[:2] == ["--json", "--yes"]
        assert all(name.startswith("--") and name[-1] != "-" for name in names.split())
    own, _, common = said.partition("\nOptions of every server command:\n")
    assert "--output" in own
    assert "--timeout" not in own
    assert "--timeout" in common
    assert command("call", "--nothing", "--", "python", "-h").code == 2
    assert command("call").code == 2
    said = command("ping", "--help").out
    assert said.index("Options:\n  -n, --count") < said.index("Options of every server command:")
    assert "which tool?" in command("call", demo).error["message"]


def test_help_and_hints_of_a_shell_name_commands_as_they_are_typed_there(
    elsewhere: object, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with syncmcp.connect(demo) as client:
        outer = SharedClient(client, person.Person())
        for words, said in (
            (["call", "zzz"], "`list tools` shows its 14 tools"),
            (["call", "add", '{"a": 1, "b": []}'], "write b=INTEGER"),
            (["call"], "`tools` lists them"),
            (["prompt", "add"], "it is a tool: write `call add`"),
            (["ping", "x"], "`ping --help` shows the arguments"),
            (["call", demo, "add"], f"the server is known here: leave out {demo!r}"),
        ):
            assert run_command(words, outer) == 2
            error = json.loads(capsys.readouterr().err)["error"]
            assert error.get("hint", error["message"]) == said
        for words in (["tools", "-h"], ["call", "-h"], ["call", "add", "-h"]):
            assert run_command(words, outer) == 0
            shown = capsys.readouterr().out
            assert shown.startswith(f"Usage: {words[0]} ")
            assert [word for word in ("TARGET", "--revision", "syncmcp") if word in shown] == []
