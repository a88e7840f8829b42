"""Each command on the demo server: what it prints for pipes, and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import syncmcp
from syncmcp.cli import app, parsing, session
from syncmcp.cli.app import command_tree, run_command
from syncmcp.cli.inspection import capability_names
from syncmcp.cli.output import Exit, describe
from syncmcp.cli.session import SharedClient
from syncmcp.testing import Server, ToolContext, serve_http
from syncmcp.types import (
    CallToolResult,
    ListToolsResult,
    LoggingMessageNotificationParams,
    ServerCapabilities,
)
from tests.cli.running import DEMO, Command


def test_tools_are_a_line_each(command: Command, demo: str) -> None:
    ran = command("tools", demo)
    assert (ran.code, ran.err) == (0, "")
    rows = {row[0]: row[1:] for row in ran.rows}
    assert rows["add"] == ["a: integer, b: integer", "read-only, idempotent", "Add two integers."]
    assert rows["greet"][0] == "name?: string"


def test_the_json_of_tools_is_the_protocols(command: Command, demo: str) -> None:
    result = ListToolsResult.model_validate(command("tools", demo, "--json").result)
    assert [tool.name for tool in result.tools][:2] == ["add", "echo"]


def test_everything_is_listed_with_what_it_is(command: Command, demo: str) -> None:
    kinds = {(row[0], row[1]) for row in command("list", demo).rows}
    assert kinds >= {
        ("tools", "add"),
        ("resources", "demo://readme"),
        ("templates", "demo://cities/{city}"),
        ("prompts", "translate"),
    }
    assert command("list", demo, "prompts").rows[1][:2] == ["translate", "text, language?"]
    whole = command("list", demo, "--json").result
    assert set(whole) == {"tools", "resources", "resourceTemplates", "prompts"}
    assert command("list", demo, "prompts", "--json").result["prompts"] == whole["prompts"]


def test_only_what_a_server_offers_is_listed_unless_it_is_asked_for(command: Command) -> None:
    server = Server("small")
    server.add_tool(lambda: "x", name="x")
    with serve_http(server) as http:
        assert set(command("list", http.url, "--json").result) == {"tools"}
        ran = command("list", http.url, "prompts")
    assert (ran.code, ran.error["kind"]) == (1, "NotSupported")


def test_a_call_prints_the_text_alone(command: Command, demo: str) -> None:
    assert command("call", demo, "add", "a:=1", "b:=2") == (0, "3\n", "")
    assert command("call", demo, "add", "a=1", "b=2") == (0, "3\n", "")
    assert command("call", demo, "add", '{"a": 1, "b": 2}') == (0, "3\n", "")
    assert command("call", demo, "add", '{"a": 1}', "a=1", "b=2").code == 2  # given twice
    assert command("call", demo, "echo", "text=a\x1b[31mb").out == "a\x1b[31mb\n"
    assert command("call", demo, "add", "--input", '{"a": 1}', "b:=2").out == "3\n"


def test_the_json_of_a_call_is_the_protocols(command: Command, demo: str) -> None:
    ran = command("call", demo, "weather", "city=Bergen", "--json")
    result = CallToolResult.model_validate(ran.result)
    assert result.data == {"city": "Bergen", "celsius": 9.5, "sky": "rain"}
    assert ran.result["structuredContent"] == result.data


def test_json_holds_nothing_that_a_terminal_obeys(command: Command, demo: str) -> None:
    odd = "\x1b[2J\u202e\x85\x7fé\U000e0041"
    ran = command("call", demo, "echo", "--input", json.dumps({"text": odd}), "--json")
    assert ran.result["content"][0]["text"] == odd
    assert "é" in ran.out
    assert not set(odd) - {"é"} - set("[2J") & set(ran.out)


def test_a_tool_that_fails_says_why_on_stderr(command: Command, demo: str) -> None:
    ran = command("call", demo, "fail", "message=no paper")
    assert (ran.code, ran.out) == (5, "")
    assert (ran.error["kind"], ran.error["message"]) == ("ToolError", "no paper")
    assert command("call", demo, "fail", "--json").result["isError"] is True


def test_a_name_that_is_nearly_right_is_suggested(command: Command, demo: str) -> None:
    ran = command("call", demo, "ecko", "text=x")
    assert (ran.code, ran.error["message"]) == (2, "the server has no tool 'ecko'")
    assert ran.error["hint"] == "did you mean echo?"
    assert command("prompt", demo, "hallo").error["hint"] == "did you mean hello?"
    assert "syncmcp list" in command("call", demo, "zzz").error["hint"]
    assert command("toools", demo).error["hint"] == "did you mean tools?"


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (
            ["a=x", "b:=2"],
            "argument 'a' is not of type integer: it is \"x\"",
            "write a=INTEGER",
        ),
        (["a:=1"], "an argument is missing: b", "write b=INTEGER"),
        (["a=1,b=2"], "an argument is missing: b", "write b=INTEGER; a space separates arguments"),
        ([], "2 arguments are missing: a, b", "write a=INTEGER b=INTEGER; --input @- reads them"),
        (
            ["first:=1", "b:=2"],
            "the tool has no argument 'first'",
            "it has a, b",
        ),
        (["a:1", "b:2"], "'a:1' is not an argument", "write a=1"),
        (
            ["a=New", "York"],
            "'York' is not an argument",
            "write name=text, name:=json or name=@file; a value with blanks needs quotes",
        ),
        (
            ["--input", "a=1"],
            "the object of arguments is not JSON: see line 1, column 1",
            "write --input '{\"name\": value}' or --input @FILE",
        ),
        (
            ["--input", "-"],
            "the object of arguments is not JSON: see line 1, column 1",
            "write --input @-",
        ),
        (
            ["--input", "5"],
            "the arguments are not a JSON object",
            "write --input '{\"name\": value}'",
        ),
        (["--input", '{"a": 1, "b": 2}', "a=5"], "the argument 'a' is given twice", ""),
    ],
)
def test_arguments_are_checked_before_they_are_sent(
    command: Command, words: list[str], said: str, hint: str
) -> None:
    server = Server("counting")
    calls = []

    @server.tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        calls.append(a)
        return a + b

    with serve_http(server) as http:
        ran = command("call", http.url, "add", *words)
    assert (ran.code, ran.error["message"]) == (2, said)
    assert ran.error.get("hint", "").startswith(hint)
    assert calls == []


def test_the_hint_about_an_array_has_an_example(command: Command) -> None:
    server = Server("names")

    @server.tool(annotations={"readOnlyHint": True})
    def join(names: list[str]) -> str:
        return " ".join(names)

    with serve_http(server) as http:
        hint = command("call", http.url, "join", "names=a").error["hint"]
        assert hint == "write names:=ARRAY, such as names:='[\"a\"]'"
        assert command("call", http.url, "join", hint.split()[-1].replace("'", "")).out == "a\n"


def test_an_argument_that_a_tool_would_ignore_is_refused(command: Command, demo: str) -> None:
    ran = command("call", demo, "greet", "nam=Ada")
    assert (ran.code, ran.error["message"]) == (2, "the tool has no argument 'nam'")
    assert ran.error["hint"] == "did you mean name?"
    server = Server("open")
    schema = {"type": "object", "properties": {"name": {}}, "additionalProperties": True}
    options: dict[str, Any] = {"annotations": {"readOnlyHint": True}, "input_schema": schema}
    server.add_tool(lambda **given: str(given), name="take", **options)
    with serve_http(server) as http:
        assert command("call", http.url, "take", "nam=Ada").out == "{'nam': 'Ada'}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["tools"], "a URL, a name, or a command after --"),
        (["tools", "python", "server.py"], "write a command that starts a server after --"),
        (["info", "http://x", "extra"], "`syncmcp info --help` shows the arguments"),
        (["ping", "http://x", "--", "python"], "give a URL or a command, not both"),
        (["tools", "--jsn", "http://x"], "did you mean --json?"),
        (["tools", "-q", "http://x"], "`syncmcp tools --help` lists the options"),
        (
            ["call", "http://x", "add", "-d", "{}"],
            "write name=value, or --input with a JSON object",
        ),
        (["tools", "http://x", "-u", "me:pw"], "--header and --bearer send credentials"),
        (["toolz"], "did you mean tools?"),
        (["help", "toolz"], "did you mean tools?"),
        (["zzz"], "`syncmcp --help` lists the commands"),
        (["list", "http://x", "tool"], "did you mean tools?"),
        (["list", "http://x", "--tools"], "write tools after TARGET"),
        (["tools", "http://x", "--timeout"], "--help describes --timeout"),
        (["ping", "http://x", "-n", "x"], "`syncmcp ping --help` describes it"),
        (["ping", "http://x", "-m", "gpt-4"], "write PROVIDER:NAME, such as openai:gpt-4; the "),
        (["auth", "toolz"], "`syncmcp auth --help` lists the commands"),
        (["auth", "login"], "a URL, or a name"),
        (["info"], "a URL, a name, or a command after --: syncmcp info -- python server.py"),
        (["read", "http://x"], "`syncmcp read --help` shows the arguments"),
        (["demo", "--foo"], "`syncmcp demo --help` lists the options"),
        (["demo", "x"], "`syncmcp demo --help` shows the arguments"),
        (["replay", "tape.jsonl", "--", "python"], "write it after FILE, as in `syncmcp replay"),
        (["record", "tools", "http://x"], "write `syncmcp record FILE tools`"),
        (["replay", "call", "tape.jsonl", "add"], "write `syncmcp replay FILE call`"),
        (["http://x", "tools"], "write the command first: syncmcp COMMAND URL"),
        (["call", "add", "http://x", "a=1"], "TARGET comes before TOOL"),
        (["listen", "http://x", "tools"], "--tools watches the list of tools"),
        (["listen", "http://x", "prompt"], "--prompts watches the list of prompts"),
        (["listen", "http://x", "readme"], "`syncmcp list TARGET resources` shows the URIs"),
        (
            ["servers", "remove", "x"],
            "`syncmcp servers forget NAME` forgets the approval of a server",
        ),
        (["call", "http://x", "add", "--a", "1"], "a tool's arguments are written name=value"),
        (["call", "add", "a=1", "b=2", "http://x"], "TARGET comes before TOOL"),
        (["tools", "http://x", "--transport", "http"], "TARGET tells it: HTTP for a URL"),
        (["tools", "http://x", "--token", "x"], "--bearer sends a token"),
        (["tools", "http://x", "--auth", "x"], "--bearer sends a token, `syncmcp auth login`"),
        (["tools", "--url", "http://x"], "write the URL as TARGET"),
        (["tools", "http://x", "--format", "json"], "--json prints JSON"),
        (["tools", "http://x", "--output", "json"], "--json prints JSON"),
        (["call", "http://x", "add", "--outputs", "json"], "did you mean --output?"),
        (["tools", "http://x", "--test"], "`syncmcp tools --help` lists the options"),
        (["call", "price"], "'price' was taken as the server; `syncmcp tools TARGET` lists"),
        (["read", "http://x", "x:y", "-o", "-"], "results go to stdout without --output"),
        (["tools", "http://x", "--headers", "a:b"], "did you mean --header?"),
        (["call", "http://x", "--tool", "add"], "write the name of the tool after TARGET"),
        (["call", "http://x", "add", "--args", "{}"], "write name=value, or --input"),
        (["call", "--", "python", "add", "a=1"], "TOOL and its arguments come before --"),
        (["tools", "python", "-m", "shop.server"], "-m is --model: write -- before"),
        (["call", "python", "-m", "shop"], "-m is --model: write -- before the command"),
        (["call", "add", "a=1", "python", "-m", "shop"], "-m is --model"),
        (["ping", sys.executable], f"if {sys.executable} is a command, write -- before it"),
        (["resources", "http://x"], "`syncmcp list TARGET resources` lists them"),
        (["templates", "http://x"], "`syncmcp list TARGET templates` lists them"),
        (["list", "http://x", "prompts,resources"], "separate them with blanks"),
        (["prompts"], "`syncmcp list TARGET prompts` lists them, `syncmcp prompt` gets one"),
        (["list", "tools", "http://x"], "TARGET comes before WHAT"),
        (["read", "demo://readme", "http://x"], "TARGET comes first"),
        (["listen", "demo://a", "demo://b", "http://x"], "TARGET comes first"),
        (["--", "python", "-m", "shop"], "write the command first: syncmcp COMMAND -- PROGRAM"),
        (["tools", "--bearer", "x", "--", "python"], "a command gets its credentials from its"),
        (["tools", "-H", "a:b", "weather"], "the file that names a server sets its headers"),
        (["login", "http://x"], "did you mean `syncmcp auth login`?"),
        (["logout", "http://x"], "did you mean `syncmcp auth logout`?"),
        (["version"], "did you mean --version?"),
        (["-V"], "did you mean --version?"),
        (["record", "a.jsonl", "record", "b.jsonl", "tools", "http://x"], "name one FILE"),
        (["replay", "a.jsonl", "record", "b.jsonl", "tools"], "name one FILE"),
    ],
)
def test_a_line_that_cannot_be_read_comes_with_a_hint(
    command: Command, words: list[str], hint: str
) -> None:
    ran = command(*words)
    assert ran.code == 2
    assert ran.error["hint"].startswith(hint)
    assert "--trust" not in ran.err


def _slips(name: str) -> Iterator[str]:
    """The name with one letter missing, doubled, replaced, or swapped with the one before it."""
    for at, letter in enumerate(name):
        before, after = name[:at], name[at + 1 :]
        yield from (before + after, before + 2 * letter + after, before + "x" + after)
        yield before[:-1] + letter + before[-1:] + after


def test_a_slip_in_the_name_of_a_command_names_that_command() -> None:
    tree = command_tree()
    for group in (tree, *(tree.commands[name] for name in ("auth", "servers", "roots"))):
        for name, word in ((one, word) for one in group.commands for word in _slips(one)):
            if word in group.commands:
                continue
            with pytest.raises(typer.TyperException) as caught:
                group.resolve_command(typer.Context(group, info_name="syncmcp"), [word])
            assert describe(caught.value)["hint"] == f"did you mean {name}?", word


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zzz"], "there is no command 'zzz'"),
        (["toolz"], "there is no command 'toolz'"),
        (["tools", "http://x", "--zz"], "there is no option --zz"),
        (["tools"], "TARGET is missing"),
        (["tools", "http://x", "y", "z"], "too many arguments: y z"),
        (["tools", "http://x", "--timeout"], "--timeout needs a value"),
        (["tools", "http://x", "--json=1"], "--json takes no value"),
        (["tools", "http://x", "--timeout", "0"], "--timeout: 0 is not a positive number"),
        (
            ["tools", "http://x", "--timeout", "-1"],
            "--timeout: -1 is not a positive number of seconds",
        ),
        (["tools", "http://x", "--idle-timeout", "nan"], "nan is not a positive number"),
        (["tools", "http://x", "--open-timeout", "-1"], "-1 is not a positive number of seconds"),
        (["listen", "http://x", "--wait", "-0.5"], "-0.5 is not a positive number"),
        (["read", "http://x", "demo://cities/{city}"], "is a template: it needs city=VALUE"),
        (["tools", "http://x", "--timeout", "x"], "--timeout: 'x' is not a number"),
        (["ping", "http://x", "-n", "1.5"], "--count: '1.5' is not an integer"),
        (["ping", "http://x", "-n", "0"], "--count: it must be at least 1"),
        (["call", "http://x", "add", "-f", "a=1"], "-f (--force) needs --output"),
        (["read", "http://x", "demo://a", "-f"], "-f (--force) needs --output"),
        (["ping", "http://x", "-H", "a b:c"], "--header has the name 'a b'"),
        (["ping", "http://x", "-H", "a:b\nc"], "the value of a in --header contains"),
        (["list", "http://x", "tool"], "WHAT: 'tool' is not one of 'tools', "),
        (["tools", "http://"], "is not a URL with a valid host and port, such as https://"),
        (["roots", "remove", "/nowhere"], "no such root: file:///nowhere; `syncmcp roots` lists"),
        (["replay", "tape.jsonl", "tools", "--", "python"], "the server is known"),
        (["replay", "tape.jsonl", "tools", "http://x"], "is known here: leave out 'http://x'"),
        (
            ["replay", "tape.jsonl", "call", "http://x", "add"],
            "is known here: leave out 'http://x'",
        ),
        (["tools", "http://x", "-e", "A=1"], "--env needs a command after --"),
        (["tools", "x", "--cwd", "."], "--cwd needs a command after --"),
        (["roots", "add", "/nowhere"], "there is no such directory: '/nowhere'"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_the_command_line(
    command: Command, words: list[str], said: str
) -> None:
    ran = command(*words)
    assert (ran.code, said in ran.error["message"]) == (2, True), ran.error
    assert not ran.error["message"].endswith(".")
    assert "Did you mean" not in ran.error["message"]


def test_an_option_of_the_command_that_went_to_the_server_is_named(command: Command) -> None:
    hint = command("tools", *DEMO, "--timeout=5").error["hint"]
    said = "--timeout went to the server: is it meant before --? it was given the variables "
    assert hint.startswith(said)
    hint = command("call", "add", "--", "a=1", "b=2", "python").error["hint"]
    assert hint.startswith("a=1 went to the server: is it meant before --?")
    hint = command("list", *DEMO, "tools").error["hint"]
    assert hint.startswith("tools went to the server: is it meant before --?")


def test_an_error_of_the_library_speaks_of_options_and_commands(
    command: Command, elsewhere: Path
) -> None:
    Path("mine.py").write_text("")
    assert (
        command("ping", "--", "./mine.py")
        .error["message"]
        .endswith("is it a script? write -- python ./mine.py")
    )
    silent = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.stdin.read()"]
    late = command("ping", "--open-timeout", "2", "--", *silent).error["message"]
    assert late.startswith("the server was not ready within 2 s (--open-timeout)")
    assert "(--revision legacy skips the probe)" in late
    dies = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit('no key')"]
    error = command("ping", "--", *dies).error
    assert error["message"].startswith("connection lost before the server was ready: ")
    assert "; -e NAME passes one of yours; `syncmcp doctor`" in error["hint"]
    Path("bad.json").write_text("{")
    said = command("ping", "x", "-c", "bad.json").error["message"]
    assert "bad.json is not JSON: " in said
    Path("in.json").write_text("{}")
    said = command("call", "add", "--input", "in.json", *DEMO).error["hint"]
    assert said == "write --input @in.json"


def test_a_file_of_servers_is_not_ignored_beside_another_server(command: Command) -> None:
    for server in (["https://example.com/mcp"], DEMO):
        ran = command("ping", "--config", "nowhere.json", *server)
        assert ran.code == 2
        assert ran.error["message"] == "--config needs the name of a server in that file"


def test_ctrl_c_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "run_command", lambda words: Exit.INTERRUPTED)
    with pytest.raises(typer.Exit) as ended:
        app.demo()
    assert ended.value.exit_code == 130


def test_a_command_in_quotes_is_told_to_leave_them_out(command: Command) -> None:
    said = command("ping", "--", "python server.py").error["message"]
    assert said == "command not found: 'python server.py'; leave out the quotes"


def test_who_prints_instead_of_answering_is_told_what_stdout_is_for(command: Command) -> None:
    prints = [sys.executable, "-uc", "import sys; print('hi'); sys.stdin.read()"]
    error = command("ping", "--open-timeout", "2", "--", *prints).error
    assert error["hint"] == "is it an MCP server? Its stdout may contain only messages"


def test_a_file_of_servers_that_is_not_there_is_named(command: Command) -> None:
    ran = command("ping", "--config", "nowhere.json", "demo")
    assert ran.code == 2
    assert "nowhere.json" in ran.error["message"]


def test_a_resource_that_is_not_there_comes_with_a_hint(
    command: Command, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri, hint in (
        ("demo://nothing", "`syncmcp list TARGET resources templates` shows the URIs"),
        ("demo://readm", "did you mean demo://readme?"),
        ("readme", "did you mean demo://readme?"),
    ):
        ran = command("read", demo, uri)
        assert (ran.code, ran.error["kind"]) == (1, "ResourceNotFound")
        assert ran.error["hint"] == hint

    def fail(*_: Any, **__: Any) -> None:
        raise syncmcp.ServerError("no list")

    monkeypatch.setattr(syncmcp.Client, "list_resources", fail)
    assert command("read", demo, "readme").error["kind"] == "ResourceNotFound"


def test_a_server_without_resources_is_told_without_names_of_python(command: Command) -> None:
    with serve_http(Server("empty")) as http:
        said = command("read", http.url, "a:b").error["message"]
    assert said == "the server does not declare the capability resources"


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


def test_no_text_of_a_server_passes_for_a_line_of_the_help(command: Command) -> None:
    """What a call takes comes before what the server says of it."""
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


def test_the_help_of_call_needs_no_server(command: Command, demo: str) -> None:
    said = command("call", "--help").out
    assert said == command("call", demo, "--help").out == command("help", "call").out
    for words in (["call", "-h"], ["tools", "-h"]):
        own, _, names = command(*words).out.partition("which --help describes:\n")
        assert "For example: " in own
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
    said = command("doctor", "--help").out
    assert said.index("Options:\n  -h, --help") < said.index("Options of every server command:")
    assert "which tool?" in command("call", demo).error["message"]


def test_what_may_change_something_is_not_called_unasked(command: Command) -> None:
    server = Server("bank")
    calls = []

    @server.tool()
    def pay(amount: int) -> str:
        calls.append(amount)
        return "paid"

    with serve_http(server) as http:
        ran = command("call", http.url, "pay", "amount:=5")
        assert (ran.code, ran.error["hint"]) == (2, "--yes calls it without asking")
        assert calls == []
        assert command("call", http.url, "pay", "amount:=5", "--yes").out == "paid\n"
    assert calls == [5]


def test_resources_are_read_into_pipes_and_files(command: Command, demo: str) -> None:
    text = command("read", demo, "demo://readme").out
    assert text.strip()
    wire = command("read", demo, "demo://readme", "--json").result
    assert wire["contents"][0]["text"] + "\n" == text
    assert "rain" in command("read", demo, "demo://cities/{city}", "city=Bergen").out
    saved = command("read", demo, "demo://pixel.png", "-o", "pixel.png")
    assert saved.code == 0
    assert Path("pixel.png").read_bytes().startswith(b"\x89PNG")
    again = command("read", demo, "demo://pixel.png", "-o", "pixel.png")
    assert (again.code, again.error["message"]) == (2, "'pixel.png' already exists")
    nowhere = command("read", demo, "demo://pixel.png", "-o", "no/such/place")
    assert (nowhere.code, "cannot write 'no/such/place'" in nowhere.error["message"]) == (2, True)


def test_a_blob_goes_into_a_pipe_as_it_is(
    elsewhere: Path, demo: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from syncmcp_command import main

    assert main(["read", demo, "demo://pixel.png"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"\x89PNG")


def test_prompts_are_filled_in(command: Command, demo: str) -> None:
    ran = command("prompt", demo, "translate", "text=Good day", "language=French")
    assert (ran.code, ran.out[:6]) == (0, "user: ")
    assert "Good day" in ran.out
    wire = command("prompt", demo, "translate", "text=x", "--json").result
    assert wire["messages"][0]["role"] == "user"
    missing = command("prompt", demo, "translate")
    assert (missing.code, missing.error["message"]) == (2, "an argument is missing: text")
    assert missing.error["hint"] == "write text=TEXT"


def test_arguments_of_prompts_and_templates_are_completed(command: Command, demo: str) -> None:
    assert command("complete", demo, "translate", "language", "Fr").out == "French\n"
    assert command("complete", demo, "demo://cities/{city}", "city", "B").out == "Bergen\n"
    nothing = command("complete", demo, "translate", "language", "zz")
    assert nothing == (0, "", "the server has no completion for 'zz'\n")
    for words, hint in (
        (["translat", "language"], "did you mean translate?"),
        (["translate", "nope"], "it has text, language"),
        (["translate", "language", "F", "tex=x"], "it has text, language"),
        (["demo://cities/{city}", "town"], "it has city"),
    ):
        ran = command("complete", demo, *words)
        assert (ran.code, ran.error["hint"]) == (2, hint)
    assert command("complete", demo, "translate", "language", "zz", "--json").err == ""
    wire = command("complete", demo, "translate", "language", "--json").result
    assert "German" in wire["completion"]["values"]


def test_a_revision_that_there_is_not_is_refused_by_the_name_of_the_option(
    command: Command, demo: str
) -> None:
    ran = command("ping", demo, "--revision", "new")
    assert ran.code == 2
    assert ran.error["message"].startswith("--revision must be one of auto, legacy, ")


@pytest.mark.parametrize("revision", ["auto", "legacy"])
def test_a_server_answers_a_ping_in_every_revision(
    command: Command, demo: str, revision: str
) -> None:
    ran = command("ping", demo, "--revision", revision)
    assert ran.code == 0
    assert ran.out.endswith(" ms\n")
    assert command("ping", demo, "--json", "--revision", revision).result["milliseconds"] > 0
    several = command("ping", demo, "-n", "3")
    assert len(several.out.splitlines()) == 3
    assert several.err.startswith("median ")


def test_a_server_says_what_it_is(command: Command, demo: str) -> None:
    rows = dict(row for row in command("info", demo).rows if len(row) == 2)
    assert rows["name"] == "Demo 1.0"
    assert "tools" in rows["capabilities"]
    stated = command("info", demo, "--json").result
    assert stated["serverInfo"]["name"] == "syncmcp-demo"
    assert stated["protocolVersion"] == rows["revision"]


@pytest.mark.parametrize("said", [True, 5, "yes", ["x"], {"x": True}])
def test_a_capability_that_nobody_knows_may_be_anything(said: Any) -> None:
    capabilities = ServerCapabilities.model_validate({"tools": {}, "novel": said})
    assert {name.partition(" ")[0] for name in capability_names(capabilities)} == {"tools", "novel"}


def test_waiting_for_changes_has_an_end(command: Command) -> None:
    server = Server("shop")
    server.add_tool(lambda: "x", name="sell")
    with serve_http(server) as http:
        silent = command("listen", http.url, "--wait", "0.01")
        assert (silent.code, silent.error["kind"]) == (6, "TimeoutError")
        assert command("listen", http.url, "--prompts").code == 1


def test_nothing_to_listen_to_is_said(command: Command) -> None:
    with serve_http(Server("still")) as http:
        assert command("tools", http.url).code == 1
        assert command("list", http.url) == (0, "", "the server has no lists\n")
        ran = command("listen", http.url)
    assert (ran.code, ran.error["hint"]) == (2, "name a resource to watch")


def test_roots_are_remembered_and_shown_to_servers_that_may_see_them(
    command: Command, elsewhere: Path
) -> None:
    server = Server("surveyor")

    @server.tool(annotations={"readOnlyHint": True})
    def look(context: ToolContext) -> str:
        return " ".join(root["uri"] for root in context.list_roots())

    (elsewhere / "project").mkdir()
    uri = (elsewhere / "project").as_uri()
    with serve_http(server) as http:
        assert command("call", http.url, "look").code != 0  # nothing to show: not even offered
        assert command("roots", "add", "project").out == f"{uri}\n"
        assert command("roots", "list").rows == [[str(elsewhere / "project"), "ok"]]
        assert command("roots", "list", "--json").result == {"roots": [{"uri": uri}]}
        assert command("roots").rows == command("roots", "list").rows
        # Nobody agreed to show them.
        unseen = command("call", http.url, "look")
        assert (unseen.out.strip(), unseen.err.count("got none; --yes shows them")) == ("", 1)
        assert command("call", http.url, "look", "--yes").out == f"{uri}\n"
        (elsewhere / "project").rmdir()
        assert command("roots", "list").rows == [[str(elsewhere / "project"), "missing"]]
        assert command("call", http.url, "look", "--yes").out.strip() == ""
    assert command("roots", "remove", "project").out == f"{uri}\n"
    assert command("roots", "remove", "project").code == 2
    assert command("roots", "add", "project").code == 2
    assert command("roots", "list").out == ""


def test_roots_that_cannot_be_read_are_no_roots(command: Command, elsewhere: Path) -> None:
    kept = Path.home() / ".local/state/syncmcp/roots.json"
    kept.parent.mkdir(parents=True)
    for broken, said in [
        (b"{", f"{str(kept)!r} is not JSON: see line 1, column 2"),
        (b"\xff", f"cannot read the roots in {str(kept)!r}: it is not UTF-8"),
        (b'{"a": 1}', f"{str(kept)!r} holds no list of roots"),
    ]:
        kept.write_bytes(broken)
        ran = command("roots", "list")
        assert (ran.code, ran.error["message"]) == (2, said)
    kept.unlink()
    kept.mkdir()
    said = command("roots", "list").error["message"]
    assert said == f"cannot read the roots in {str(kept)!r}: Is a directory"


def test_headers_and_variables_are_checked(command: Command, elsewhere: Path) -> None:
    (elsewhere / "token").write_text("from-a-file\n")
    made = parsing.http_target("http://127.0.0.1", ["X-Key:@token", "X-Other: a:b"])
    assert made.headers == {"X-Key": "from-a-file", "X-Other": "a:b"}
    assert command("ping", "http://127.0.0.1:9", "-H", "nonsense").code == 2
    missing = command("ping", "-e", "NONSENSE", "--", "true")
    assert (missing.code, missing.error["message"]) == (
        2,
        "NONSENSE is not set in your environment",
    )
    assert command("ping", "-e", "no-name", "--", "true").code == 2
    assert (
        command("ping", "-H", "X-Key:a", "--", "true").error["message"]
        == "--header and --bearer need a URL"
    )
    assert command("ping", "http://127.0.0.1:9", "-e", "A=b").code == 2
    (elsewhere / "empty").write_text("\n")
    for given in ("", "@empty", "Bearer a", "\u00e4"):
        ran = command("ping", "http://127.0.0.1:9", "--bearer", given)
        assert (ran.code, ran.error["message"]) == (
            2,
            "--bearer is one word of visible ASCII characters",
        )
    twice = ("-H", "authorization: Bearer a", "--bearer", "b")
    assert "give two tokens" in command("ping", "http://127.0.0.1:9", *twice).error["message"]
    assert command("ping", "--bearer", "", "--", "true").code == 2


def test_versions_and_help_need_nothing(command: Command) -> None:
    assert command("--version").out == f"syncmcp {syncmcp.__version__}\n"
    assert command().code == command("auth").code == 2
    assert "Usage: syncmcp" in command("--help").out
    assert command("roots", "--help").code == 0


def test_no_line_of_a_server_appears_within_a_question(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --verbose: its stderr and its log could pass for what is asked."""

    def options_of(target: object, **options: Any) -> Any:
        return target, options

    person = session.Person()
    monkeypatch.setattr(session, "person_at_terminal", lambda: person)
    monkeypatch.setattr(session, "Client", options_of)
    with session.Session(parsing.Settings(verbose=True), "COMMAND", ["server"]) as asking:
        made: Any = asking.make_client()
    target, options = made
    logged = LoggingMessageNotificationParams(level="info", data="logged")
    target.stderr("before")
    with person.bar.suspended():
        target.stderr("within\x1b[2J")
        options["on_log"](logged)
        assert capsys.readouterr().err == "before\n"
    assert capsys.readouterr().err == "within\u241b[2J\n[info] logged\n"
    target.stderr("after")
    assert capsys.readouterr().err == "after\n"


def test_a_person_who_asks_for_it_sees_what_the_library_warns_of(command: Command) -> None:
    code = "print('Starting up', flush=True)\nimport runpy\n"
    code += "runpy.run_module('syncmcp.testing', run_name='__main__')"
    server = ["--", sys.executable, "-c", code]
    assert "stdout that is not a message: 'Starting up'\n" in command("tools", "-v", *server).err
    assert command("tools", *server).err == ""
    ended = command("tools", "--", sys.executable, "-c", "print('What do I do?')")
    said = "1 line on its stdout was not a message: 'What do I do?'"
    assert ended.error["message"].endswith(f"; {said}")


def test_a_list_has_the_first_sentence_of_each_description_or_all_of_it(command: Command) -> None:
    server = Server("wordy")
    said = "Search v1.2 of the text.\nTakes long.\n\nSee also: find."
    server.add_tool(lambda: 1, name="search", description=said, input_schema={"type": "object"})
    with serve_http(server) as http:
        (short,) = command("tools", http.url).rows
        (long,) = command("tools", http.url, "--long").rows
    assert short[-1] == "Search v1.2 of the text. …"
    assert long[-1] == "Search v1.2 of the text. Takes long. See also: find."


def test_nothing_says_that_the_server_is_waited_for_while_an_argument_is_typed(
    elsewhere: Path, demo: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []
    person = session.Person()
    monkeypatch.setattr(person.bar, "wait", order.append)
    monkeypatch.setattr(person.bar, "hide", lambda: order.append("hidden"))

    def read() -> str:
        order.append("read")
        return "typed"

    monkeypatch.setattr(sys.stdin, "read", read)
    with syncmcp.connect(demo) as client:
        assert run_command(["call", "echo", "text=@-"], SharedClient(client, person)) == 0
    assert capsys.readouterr().out.strip() == "typed"
    assert order[order.index("read") - 1] == "hidden"


def test_help_and_hints_of_a_shell_name_commands_as_they_are_typed_there(
    elsewhere: Path, demo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with syncmcp.connect(demo) as client:
        outer = SharedClient(client, session.Person())
        for words, said in (
            (["call", "zzz"], "`list` shows what there is"),
            (["call", "add", '{"a": 1, "b": []}'], "write b=INTEGER"),
            (["call"], "`tools` lists them"),
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
