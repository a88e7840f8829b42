"""The command at a pseudo-terminal, used by a person."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncmcp.testing import Server, ToolContext, serve_http
from syncmcp.testing import script as s
from tests.cli.running import (
    CTRL_C,
    CTRL_D,
    DEMO,
    DOWN,
    ENTER,
    TAB,
    Command,
    at_terminal,
)
from tests.support.scripts import OLD, Scripted, opening
from tests.support.stage import PATIENCE
from tests.ui.person import UP

pytestmark = pytest.mark.slow

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"

HOSTILE = "before\x1b[2J\x1b[31mafter\u202e\x07"


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    """The URL of a server whose texts contain control sequences."""
    server = Server("hostile")

    @server.tool(annotations={"readOnlyHint": True})
    def speak() -> str:
        """Say it\x1b[2J."""
        return HOSTILE

    @server.tool()
    def change(context: ToolContext) -> str:
        """Change something."""
        return "changed"

    @server.tool(annotations={"readOnlyHint": True})
    def slow(context: ToolContext) -> str:
        context.report_progress(1, 3, "one\x1b[2Jof three")
        context.cancelled.wait(6 * PATIENCE)
        return "cancelled"

    with serve_http(server) as http:
        yield http.url


def test_a_narrow_terminal_gets_all_of_a_table_too(elsewhere: Path, demo: str) -> None:
    with at_terminal("tools", demo, columns=24, rows=200, NO_COLOR="1") as terminal:
        assert terminal.ends() == 0
    assert b"\x1b[3" not in terminal.raw
    lines = terminal.screen.splitlines()
    shown = " ".join(line.strip() for line in lines)
    rows = "add  a: integer, b: integer Add two integers. Claims to be: read-only, idempotent echo"
    assert shown.startswith(rows)


def test_a_servers_words_do_nothing_to_the_terminal(elsewhere: Path, hostile: str) -> None:
    for words, is_table in ((["call", hostile, "speak"], False), (["tools", hostile], True)):
        with at_terminal(*words) as terminal:
            assert terminal.ends() == 0
        assert b"\x1b[2J" not in terminal.raw
        assert "␛[2J" in terminal.screen
        assert ("Claims to be" in terminal.screen) is (b"\x1b[1m" in terminal.raw) is is_table


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        ((ENTER,), 1, "error: the tool call was denied"),
        (("rum", ENTER, ENTER), 1, "“rum” is not “run”, so nothing was called."),
        (("run", CTRL_C), 130, "error: interrupted"),
    ],
)
def test_what_may_change_something_is_called_after_a_yes(
    elsewhere: Path, hostile: str, keys: tuple[str, ...], code: int, said: str
) -> None:
    with at_terminal("call", hostile, "change") as terminal:
        terminal.sees("Type “run” to call it, or press Enter to deny:")
        assert "change" in terminal.screen
        assert "Call it?" not in terminal.screen  # the word decides
        terminal.sees("server: ")  # the last line that is drawn
        assert "Allow all calls" not in terminal.screen  # this program makes one
        terminal.types(*keys)
        assert terminal.ends() == code
    # On a tall terminal, empty rows would be more than its buffer holds while nobody reads.
    assert len(terminal.raw) < 8_192
    assert said in terminal.screen


def test_a_call_that_a_person_allows(elsewhere: Path) -> None:
    """With ``SYNCMCP_PICTURES=1``, the test saves a picture in ``docs/pictures/``."""
    server = Server("books")

    @server.tool(annotations={"destructiveHint": True})
    def delete_book(id: int) -> str:
        """Delete a book for ever."""
        return f"Book {id} is gone."

    with serve_http(server) as http:
        with at_terminal("call", http.url, "delete_book", "id=7", columns=90) as terminal:
            terminal.answers("server: ", "run", ENTER)
            assert terminal.ends() == 0
        drawn = terminal.picture(f"syncmcp call {http.url} delete_book id=7")
    assert terminal.screen.endswith("Book 7 is gone.")
    assert "delete_book" in drawn
    if os.environ.get("SYNCMCP_PICTURES"):
        (PICTURES / "terminal.svg").write_text(drawn, encoding="utf-8")


def test_progress_is_a_bar_and_ctrl_c_ends_the_call(elsewhere: Path, hostile: str) -> None:
    with at_terminal("call", hostile, "slow") as terminal:
        terminal.answers("one␛[2Jof three", CTRL_C)
        assert terminal.ends() == 130
    assert "error: cancelled" in terminal.screen or "error: interrupted" in terminal.screen
    assert "Traceback" not in terminal.screen


def test_a_wait_shows_its_seconds(elsewhere: Path) -> None:
    server = Server("silent")

    @server.tool(annotations={"readOnlyHint": True})
    def think(context: ToolContext) -> str:
        context.cancelled.wait(6 * PATIENCE)
        return "cancelled"

    with serve_http(server) as http, at_terminal("call", http.url, "think") as terminal:
        terminal.sees("waiting for the server")
        terminal.sees("1 s")
        terminal.types(CTRL_C)
        assert terminal.ends() == 130
    assert "waiting" not in terminal.screen


def test_a_person_who_types_the_argument_is_told_how_to_end_it(elsewhere: Path, demo: str) -> None:
    with at_terminal("call", demo, "echo", "text=@-") as terminal:
        terminal.answers("reading stdin; Ctrl-D ends it", "typed", ENTER, CTRL_D)
        assert terminal.ends() == 0
    assert b"waiting" not in terminal.raw
    assert terminal.screen.endswith("typed")


@pytest.mark.parametrize(("keys", "fails"), [((DOWN, DOWN, ENTER), True), ((CTRL_C,), False)])
def test_a_form_that_was_cancelled_has_an_exit_code_of_its_own(
    elsewhere: Path, keys: tuple[str, ...], fails: bool
) -> None:
    server = Server("asking")

    @server.tool(annotations={"readOnlyHint": True})
    def ask(context: ToolContext) -> str:
        answer = context.elicit("What?", {"type": "object", "properties": {}})
        if fails:
            raise ValueError(f"it was {answer['action']}")
        return str(answer["action"])

    with serve_http(server) as http, at_terminal("call", http.url, "ask") as terminal:
        terminal.answers("What do you want to do?", *keys)
        assert terminal.ends() == 7
    assert ("error: you cancelled; " in terminal.screen) == fails


def test_a_form_is_filled_in_while_the_result_goes_into_a_pipe(elsewhere: Path) -> None:
    line = f"$SYNCMCP call ask_user_preferences -- {sys.executable} -m syncmcp.testing | cat > got"
    with at_terminal(shell=line) as terminal:
        terminal.sees("asks you to fill in a form")
        terminal.answers("What do you want to do?", ENTER)
        for number in (1, 2, 3):
            terminal.answers(f"Field {number} of 3", ENTER)
        terminal.answers("Ready to send?", UP, ENTER)
        assert terminal.ends() == 0
    got = Path("got").read_text()
    assert got.strip()
    assert "━━" not in got
    assert "\x1b" not in got


def test_a_server_named_in_this_folder_is_used_after_a_yes(
    elsewhere: Path, command: Command
) -> None:
    (elsewhere / ".cursor").mkdir()
    demo = {"command": sys.executable, "args": ["-m", "syncmcp.testing"]}
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    servers = {"mcpServers": {"demo": {**demo, "env": path}}}
    (elsewhere / ".cursor/mcp.json").write_text(json.dumps(servers))
    with at_terminal("call", "demo", "greet") as terminal:
        terminal.sees("Use it?")
        assert "-m syncmcp.testing" in terminal.screen
        terminal.types(ENTER)  # “No” is preselected
        assert terminal.ends() == 2
    assert "servers approve" not in terminal.screen
    with at_terminal("call", "demo", "greet") as terminal:
        terminal.answers("Use it?", DOWN, ENTER)
        assert terminal.ends() == 0
    assert "Hello, world!" in terminal.screen
    assert command("call", "demo", "greet", "name=again").out == "Hello, again!\n"


def test_the_shell_keeps_one_connection_and_completes_from_it(elsewhere: Path) -> None:
    with at_terminal("shell", *DEMO) as terminal:
        terminal.answers("Ctrl-D ends", "call ad", TAB)
        terminal.answers("call add", "a", TAB)  # a blank follows the name
        terminal.answers("call add a=", "1 b:=2", ENTER)
        terminal.answers("\n3\n", "prompt translate language=Fr", TAB)
        terminal.answers("language=French", "text=Hi", ENTER)
        terminal.answers("user: ", "call fail --json", ENTER)
        terminal.answers('"exit_code": 5', "nonsense", ENTER)
        terminal.answers(
            "there is no command 'nonsense'\n  `help` lists the commands; `call TOOL` calls a tool",
            "syncmcp tools",
            ENTER,
        )
        terminal.answers("leave out `syncmcp` in this shell", "shell", ENTER)
        terminal.answers("`syncmcp shell` works outside this shell", "hello", ENTER)
        terminal.answers("there is no command 'hello'", "add a:=1", ENTER)
        terminal.answers("it is a tool: write `call add`", "tools | grep add", ENTER)
        terminal.answers("'|' works only outside the shell", "--help", ENTER)
        terminal.sees("call      Call a tool.\n")
        terminal.answers("help COMMAND says more.", "call add a:=1 'b:=2", ENTER)
        terminal.answers("close the quotation, or put a backslash before it", "ping --trust", ENTER)
        terminal.answers("must be passed when you start the shell", "help ping", ENTER)
        terminal.answers("Usage: ping", "call countdown steps:=1000 delay:=0.2", ENTER)
        terminal.sees(" left ━")  # the call runs, and the prompt reads no keys
        terminal.types("read 'demo://rea", CTRL_C)  # discards this input
        terminal.answers("error: interrupted", "ping", ENTER)
        terminal.answers(" ms\npython -m syncmcp.testing>", CTRL_D)  # the prompt reads keys again
        assert terminal.ends() == 0


def test_the_shell_says_that_the_server_was_started_again(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        "import os\n"
        "from syncmcp.testing import Server\n"
        "server = Server('fragile')\n"
        "@server.tool(annotations={'readOnlyHint': True})\n"
        "def end() -> str: os._exit(3)\n"
        "server.run_stdio()\n"
    )
    with at_terminal("shell", "--", sys.executable, str(tmp_path / "server.py")) as terminal:
        terminal.answers("connected to python", "call end", ENTER)
        terminal.answers("exit code 3", "ping", ENTER)
        terminal.answers("the connection had been lost; the server was connected", "info", ENTER)
        terminal.answers("fragile", "exit", ENTER)
        assert terminal.ends() == 0
    assert terminal.screen.count("had been lost") == 1


def test_lines_of_the_command_are_broken_between_words_and_commands_are_not(
    elsewhere: Path, demo: str
) -> None:
    words = [f"an_unknown_{number}=1" for number in range(4)]
    with at_terminal("call", demo, "add", *words, columns=60) as terminal:
        assert terminal.ends() == 2
    assert terminal.screen.splitlines() == [
        "error: the tool has no argument 'an_unknown_0' and no",
        "    argument 'an_unknown_1' and no argument 'an_unknown_2'",
        "    and no argument 'an_unknown_3'",
        "  it has a, b",
    ]
    with at_terminal("call", demo, "nothing", columns=30) as terminal:
        assert terminal.ends() == 2
    assert b"  `syncmcp list TARGET tools`\r\n      shows its 14 tools\r\n" in terminal.raw
    with at_terminal("call", demo, "count_files", "--help", columns=30) as terminal:
        assert terminal.ends() == 0
    assert "│ Count the files below a\n│ directory, if it is inside\n│ the" in terminal.screen


ON_ONE_LINE = {
    '{"a":[1.5,"\\u00e9"]}': '{\n  "a": [\n    1.5,\n    "é"\n  ]\n}',
    '{"a": "é"}': '{\n  "a": "é"\n}',
    '{"price": 1.50}': '{"price": 1.50}',  # indented, it would lose a digit
    '{"a": 1, "a": 2}': '{"a": 1, "a": 2}',
    "[bracketed]": "[bracketed]",
}


def test_json_on_one_line_is_indented_for_a_person_unless_something_would_be_lost(
    elsewhere: Path,
) -> None:
    server = Server("texts")

    @server.tool(annotations={"readOnlyHint": True})
    def text(number: int) -> str:
        return list(ON_ONE_LINE)[number]

    with serve_http(server) as http:
        for number, shown in enumerate(ON_ONE_LINE.values()):
            with at_terminal("call", http.url, "text", f"number={number}") as terminal:
                assert terminal.ends() == 0
            assert terminal.screen == shown


@pytest.mark.requirement("M-20")
def test_the_shell_leaves_the_keys_to_a_question_and_goes_on_with_what_was_typed(
    elsewhere: Path,
) -> None:
    question = {"message": "May I?", "requestedSchema": {"type": "object", "properties": {}}}
    asked = [s.gate("typed"), s.request("elicitation/create", question), s.expect("response")]
    script = [*opening(), *asked, s.expect("ping"), s.reply({})]
    with (
        Scripted(script) as peer,
        at_terminal("shell", "--revision", OLD, "--", *peer.command) as terminal,
    ):
        terminal.answers("Ctrl-D ends", "pin")
        terminal.sees("…> pin")
        peer.open("typed")
        terminal.sees("What do you want to do?")
        terminal.types(DOWN, DOWN, ENTER)
        (answer,) = peer.requests("response")
        assert answer["result"]["action"] != "accept"
        terminal.answers("…> pin", "g", ENTER)
        terminal.answers(" ms\npython -m ", CTRL_D)
        assert terminal.ends() == 0


def test_a_wait_for_a_program_that_is_no_server_shows_what_it_printed(elsewhere: Path) -> None:
    code = "print('Serving HTTP on port 8000, since now', flush=True)\nwhile True: input()"
    with at_terminal("ping", "--", sys.executable, "-c", code) as terminal:
        terminal.sees("connecting; its stdout is not MCP: Serving HTTP on port 800…")
        terminal.types(CTRL_C)
        assert terminal.ends() == 130
    assert "Serving" not in terminal.screen


def test_a_stray_line_of_a_server_that_answers_is_not_left_on_the_screen(elsewhere: Path) -> None:
    code = (
        "import runpy; print('Welcome', flush=True);"
        " runpy.run_module('syncmcp.testing', None, '__main__')"
    )
    with at_terminal("ping", "--", sys.executable, "-c", code) as terminal:
        assert terminal.ends() == 0
    assert "Welcome" not in terminal.screen


def test_servers_are_listed_below_the_name_of_their_file(elsewhere: Path) -> None:
    entries = {name: {"command": "python", "args": [20 * "long "]} for name in ("one", "two")}
    files = [
        Path.home() / ".cursor" / "mcp.json",
        Path.home() / ".config/Claude/claude_desktop_config.json",
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": entries}))
    with at_terminal("servers", columns=160) as terminal:
        assert terminal.ends() == 0
    rows = [line.split() for line in terminal.screen.splitlines()]
    starts = [rows.index([str(file)]) for file in files]
    for at in starts:
        assert [row[:2] for row in rows[at + 1 : at + 4]] == [
            ["Name", "State"],
            ["one", "ready"],
            ["two", "ready"],
        ]


def test_a_terminal_that_cannot_move_the_cursor_is_named(
    command: Command, hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for words in (("shell", hostile), ("call", hostile, "change")):
        assert command(*words).error["message"].endswith(" cannot move the cursor (TERM=dumb)")


def test_without_a_terminal_there_is_no_shell(command: Command, demo: str) -> None:
    ran = command("shell", demo)
    assert (ran.code, ran.error["message"]) == (2, "the shell does not work without a terminal")


def test_the_page_shows_what_the_doctor_prints(elsewhere: Path) -> None:
    npx = elsewhere / "npx"
    npx.write_text("#!/bin/sh\nread line\necho 'Error: API_KEY is not set' >&2\nexit 1\n")
    npx.chmod(0o755)
    words = ("doctor", "--", "npx", "some-server")
    path = f"{elsewhere}{os.pathsep}{os.environ['PATH']}"
    with at_terminal(*words, columns=400, PATH=path) as terminal:
        assert terminal.ends() == 4
    page = (PICTURES.parent / "command-line.md").read_text("utf-8")
    _, _, shown = page.partition("$ syncmcp doctor -- npx some-server\n")
    # The variables depend on the machine.
    printed, expected = (
        re.sub(r"variables [\w, ]+", "variables", text)
        for text in (terminal.screen.replace(str(npx), "/usr/bin/npx"), shown.partition("\n```")[0])
    )
    assert printed == expected
