"""The words after a command: arguments, options, and the errors about wrong ones."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from syncmcp.cli import parsing
from syncmcp.cli.app import command_tree
from syncmcp.cli.output import CommandError, describe
from syncmcp.testing import Server, serve_http
from tests.cli.running import DEMO, Command

READ_ONLY: dict[str, Any] = {"annotations": {"readOnlyHint": True}}


def rows(table: str) -> list[list[str]]:
    """Return the cells of a table: a line for each row, with bars between the cells."""
    return [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("a=1", "a", "1"),
        ("a:=1", "a", 1),
        ("a:=[1, null]", "a", [1, None]),
        ("a=", "a", ""),
        ("a=b=c", "a", "b=c"),
        ("a=b:=c", "a", "b:=c"),
        ("a:b=c", "a:b", "c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\:=b", "a:", "b"),
        (r"a\b=c", "a\\b", "c"),
        (r"a\@b=c", "a@b", "c"),
        (r"a=\@b", "a", "@b"),
        (r"a=\=b", "a", "=b"),
        ("a=line\nbreak", "a", "line\nbreak"),
        ('a:="x"', "a", "x"),
    ],
)
def test_an_item_is_a_name_and_a_value(word: str, name: str, value: Any) -> None:
    assert parsing.parse_arguments([word]) == {name: value}


@pytest.mark.parametrize("kind", [5, True, 1.5, {"type": "integer"}])
def test_a_type_that_is_none_leaves_a_text_as_it_is(kind: object) -> None:
    assert parsing.parse_arguments(["a=1"], {"a": {"type": kind}}) == {"a": "1"}


def test_values_come_from_files_and_from_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("é\n", "utf-8")
    Path("json").write_text('{"deep": true}')
    monkeypatch.setattr("sys.stdin", io.StringIO("piped"))
    found = parsing.parse_arguments(["a=@text", "b:=@json", "c=@-"])
    assert found == {"a": "é\n", "b": {"deep": True}, "c": "piped"}
    assert parsing.parse_object("@json") == parsing.parse_object('{"deep": true}') == found["b"]
    with pytest.raises(CommandError, match="not a JSON object"):
        parsing.parse_object("[1]")
    Path("picture").write_bytes(b"\xff\xd8")
    with pytest.raises(CommandError, match="it is not UTF-8"):
        parsing.parse_arguments(["a=@picture"])


ITEM = "write name=text, name:=json or name=@file"
NOT_JSON = "the value of 'a' is not JSON: see line 1, column"
FORM = "is not of the form name=value"
QUOTES = f"{ITEM}, without blanks; a value with blanks needs quotes"


NO_ITEM = rf"""
York | 'York' {FORM} | {QUOTES}
a://b | 'a://b' {FORM} | {QUOTES}
=a | '=a' {FORM} | {ITEM}
a=1 a:=2 | the argument 'a' appears twice | None
a:=x | {NOT_JSON} 1 | write text after =, not :=
a:=['x'] | {NOT_JSON} 2 | JSON needs double quotes
a:=[x] | {NOT_JSON} 2 | write ["value"]
a:=NaN | the value of 'a' cannot be sent as JSON: NaN is not a JSON value | None
a:=1e400 | the value of 'a' cannot be sent as JSON: the number 1e400 is too large | None
a=@missing | cannot read the file 'missing': No such file or directory | None
a:=@shop.py | {NOT_JSON} 1 | write a=@shop.py to pass its text
a==x | 'a==x' {FORM}: it has two = | write a=x, or a=\=x if the text begins with =
a:1 | 'a:1' {FORM} | write a=1
- | '-' {FORM} | --input @- reads all arguments from stdin, as a JSON object
"""


@pytest.mark.parametrize(("words", "message", "hint"), rows(NO_ITEM))
def test_what_is_no_item_is_named_with_a_hint(
    words: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text("x = 1")
    with pytest.raises(CommandError) as caught:
        parsing.parse_arguments(words.split())
    assert (str(caught.value), str(caught.value.hint)) == (message, hint)


def test_where_only_strings_are_taken_json_is_refused() -> None:
    assert parsing.parse_strings(["a=1"]) == {"a": "1"}
    with pytest.raises(CommandError) as caught:
        parsing.parse_strings(["a:=1"])
    assert caught.value.hint == "write a=..."


CHECKED = (
    """
a=x b:=2 | argument 'a' is not of type integer: it is "x" | write a=INTEGER
a=x b=y | BOTH | write a=INTEGER and b=INTEGER
a:=1 | an argument is missing: b | write b=INTEGER
a=1,b=2 | an argument is missing: b | write b=INTEGER; a space separates arguments
 | 2 arguments are missing: a, b | write a=INTEGER b=INTEGER; --input @- reads them
first:=1 b:=2 | the tool has no argument 'first' | it has a, b
aa:=1 bb:=2 | the tool has no argument 'aa' and no argument 'bb' | did you mean a and b?
a:1 b:2 | 'a:1' is not of the form name=value | write a=1
1 2 | arguments need a name: '1', '2' | if these are values, write a=1 b=2
1 a=5 | arguments need a name: '1' | if these are values, write b=1
1 2 3 | '1' is not of the form name=value | QUOTES
a=New York | 'York' is not of the form name=value | QUOTES
--input a=1 | NO_OBJECT | write --input '{"name": value}' or --input @FILE
--input - | NO_OBJECT | write --input @-
--input 5 | the arguments are not a JSON object | write --input '{"name": value}'
--input {} --input {} | --input appears twice | write one object of all arguments
""".replace("QUOTES", QUOTES)
    .replace(
        "BOTH",
        "argument 'a' is not of type integer: it is \"x\";"
        " argument 'b' is not of type integer: it is \"y\"",
    )
    .replace("NO_OBJECT", "the object of arguments is not JSON: see line 1, column 1")
)


def test_arguments_are_checked_before_they_are_sent(command: Command) -> None:
    server, calls = Server("counting"), list[int]()

    @server.tool(**READ_ONLY)
    def add(a: int, b: int) -> int:
        calls.append(a)
        return a + b

    with serve_http(server) as http:
        for words, said, hint in rows(CHECKED):
            ran = command("call", http.url, "add", *shlex.split(words))
            assert (ran.code, ran.error["message"]) == (2, said)
            assert ran.error["hint"].startswith(hint), words
        twice = command("call", http.url, "add", "--input", '{"a": 1, "b": 2}', "a=5")
    assert (twice.code, twice.error["message"]) == (2, "the argument 'a' appears twice")
    assert calls == []


def test_the_hint_about_an_array_has_an_example(command: Command) -> None:
    server = Server("names")

    @server.tool(**READ_ONLY)
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
    server.add_tool(lambda **given: str(given), name="take", input_schema=schema, **READ_ONLY)
    with serve_http(server) as http:
        assert command("call", http.url, "take", "nam=Ada").out == "{'nam': 'Ada'}\n"


HINTS = f"""
tools | a URL, a name, or a command after --
tools python server.py | write a command that starts a server after --
info http://x extra | `syncmcp info --help` shows the arguments
ping http://x -- python | pass a URL or a command, not both
tools --jsn http://x | did you mean --json?
tools -q http://x | `syncmcp tools --help` lists the options
call http://x add -d '{{}}' | write name=value, or --input with a JSON object
tools http://x -u me:pw | --header and --bearer send credentials
toolz | did you mean tools?
help toolz | did you mean tools?
zzz | `syncmcp --help` lists the commands
list http://x tool | did you mean tools?
list http://x --tools | write tools after TARGET
tools http://x --timeout | --help describes --timeout
ping http://x -n x | `syncmcp ping --help` describes it
ping http://x -m gpt-4 | write PROVIDER:NAME, such as openai:gpt-4; the
auth toolz | `syncmcp auth --help` lists the commands
auth login | a URL, or a name
read http://x | `syncmcp read --help` shows the arguments
demo --foo | `syncmcp demo --help` lists the options
demo x | `syncmcp demo --help` shows the arguments
replay tape.jsonl -- python | write it after FILE, as in `syncmcp replay
record tools http://x | write `syncmcp record FILE tools`
replay call tape.jsonl add | write `syncmcp replay FILE call`
http://x tools | write the command first: syncmcp COMMAND URL
call add http://x a=1 | TARGET comes before TOOL
listen http://x tools | --tools watches the list of tools
listen http://x readme | `syncmcp list TARGET resources` shows the URIs
servers remove x | `syncmcp servers forget NAME` forgets the approval of a server
call http://x add --a 1 | a tool's arguments are written name=value
call add a=1 b=2 http://x | TARGET comes before TOOL
tools http://x --transport http | TARGET decides: HTTP for a URL
tools http://x --token x | --bearer sends a token
tools --url http://x | write the URL as TARGET
tools http://x --format json | --json prints JSON
tools http://x --output json | --json prints JSON
call http://x add --outputs json | did you mean --output?
call price | 'price' was taken as the server; `syncmcp tools TARGET` lists
read http://x x:y -o - | results go to stdout without --output
call http://x --tool add | write the name of the tool after TARGET
call http://x add --args '{{}}' | write name=value, or --input
call -- python add a=1 | TOOL and its arguments come before --
tools python -m shop.server | -m is --model: write -- before
call python -m shop | -m is --model: write -- before the command
call python -m shop.server -- add a=1 | -m is --model: write -- before the command
list tools | 'tools' was taken as the server: name the server first
resources http://x | `syncmcp list TARGET resources` lists them
list http://x prompts,resources | separate them with blanks
prompts | `syncmcp list TARGET prompts` lists them, `syncmcp prompt` gets one
list tools http://x | TARGET comes before WHAT
read demo://readme http://x | TARGET comes first
listen demo://a demo://b http://x | TARGET comes first
-- python -m shop | write the command first: syncmcp COMMAND -- PROGRAM
tools --bearer x -- python | a command gets its credentials from its
tools -H a:b weather | the file that names a server sets its headers
login http://x | did you mean `syncmcp auth login`?
version | did you mean --version?
servers add demo | add it to a file of your editor
tools ftp://x/mcp | the URL of a server begins with https:// or http://
tools http:/x:8000/mcp | write http://x:8000/mcp
tools HTTPS//x/mcp | write https://x/mcp
python server.py | write syncmcp tools -- before it
record a.jsonl record b.jsonl tools http://x | name one FILE
ping {sys.executable} | if {sys.executable} is a command, write -- before it
"""


@pytest.mark.parametrize(("words", "hint"), rows(HINTS))
def test_a_line_that_cannot_be_read_comes_with_a_hint(
    command: Command, words: str, hint: str
) -> None:
    ran = command(*shlex.split(words))
    assert ran.code == 2
    assert ran.error["hint"].startswith(hint)
    assert "--trust" not in ran.err


def _slips(name: str) -> Iterator[str]:
    """Yield the name with a letter missing, doubled, replaced, or swapped with its predecessor."""
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


WRONG = """
zzz | there is no command 'zzz'
tools http://x --zz | there is no option --zz
tools | TARGET is missing
tools http://x y z | too many arguments: y z
tools http://x --timeout | --timeout needs a value
tools http://x --json=1 | --json takes no value
tools http://x --timeout 0 | --timeout: 0 is not a positive number
tools http://x --idle-timeout nan | nan is not a positive number
tools http://x --open-timeout -1 | -1 is not a positive number of seconds
listen http://x --wait -0.5 | -0.5 is not a positive number
read http://x 'demo://cities/{city}' | is a template: it needs city=VALUE
tools http://x --timeout x | --timeout: 'x' is not a number
ping http://x -n 1.5 | --count: '1.5' is not an integer
ping http://x -n 0 | --count: it must be at least 1
call http://x add -f a=1 | -f (--force) needs --output
read http://x demo://a -f | -f (--force) needs --output
ping http://x -H 'a b:c' | --header has the name 'a b'
list http://x tool | WHAT: 'tool' is not one of 'tools',
tools http:// | is not a URL with a valid host and port, such as https://
roots remove /nowhere | no such root: file:///nowhere; `syncmcp roots` lists
replay tape.jsonl tools -- python | the server is known
replay tape.jsonl tools http://x | is known here: leave out 'http://x'
tools http://x -e A=1 | --env needs a command after --
tools x --cwd . | --cwd needs a command after --
roots add /nowhere | there is no such file or directory: '/nowhere'
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [*rows(WRONG), ("ping http://x -H 'a:b\nc'", "the value of a in --header contains")],
)
def test_what_is_wrong_is_said_in_words_of_the_command_line(
    command: Command, words: str, said: str
) -> None:
    ran = command(*shlex.split(words))
    assert (ran.code, said in ran.error["message"]) == (2, True), ran.error
    assert not ran.error["message"].endswith(".")
    assert "Did you mean" not in ran.error["message"]


EXACT = """
ping http://x -H nonsense | a header must be Name:value
ping -H X-Key:a -- true | --header and --bearer need a URL
ping http://x -H 'authorization: Bearer a' --bearer b | {two} pass two tokens: leave out one
ping http://x --bearer '' | --bearer is one word of visible ASCII characters
ping http://x --bearer @empty | --bearer is one word of visible ASCII characters
ping http://x --bearer ä | --bearer is one word of visible ASCII characters
ping -e no-name -- true | 'no-name' is not a variable: write NAME=value
ping -e NONSENSE -- true | NONSENSE is not set in your environment
ping --config nowhere.json http://x | --config needs the name of a server in that file
ping --config nowhere.json demo | {here}/nowhere.json: {unread}: No such file or directory
ping --config bad.json demo | {here}/bad.json: the file is not JSON: see line 1, column 2
"""


def test_headers_variables_and_files_are_checked(command: Command, elsewhere: Path) -> None:
    Path("token").write_text("from-a-file\n")
    made = parsing.http_target("http://127.0.0.1", ["X-Key:@token", "X-Other: a:b"])
    assert made.headers == {"X-Key": "from-a-file", "X-Other": "a:b"}
    Path("empty").write_text("\n")
    Path("bad.json").write_text("{")
    for words, said in rows(
        EXACT.format(two="--header and --bearer", here=elsewhere, unread="the file cannot be read")
    ):
        ran = command(*shlex.split(words))
        assert (ran.code, ran.error["message"]) == (2, said)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["tools", *DEMO, "--timeout=5"], "--timeout"),
        (["call", "add", "--", "a=1", "b=2", "python"], "a=1"),
    ],
)
def test_an_option_of_the_command_that_went_to_the_server_is_named(
    command: Command, words: list[str], option: str
) -> None:
    hint = command(*words).error["hint"]
    said = f"{option} went to the server: is it meant before --?"
    given = " the server got the variables " if option == "--timeout" else ""
    assert hint.startswith(said + given)


def test_an_error_of_the_library_speaks_of_options_and_commands(
    command: Command, elsewhere: Path
) -> None:
    Path("mine.py").write_text("")
    said = command("ping", "--", "./mine.py").error["message"]
    assert said.endswith("is it a script? write -- python ./mine.py")
    said = command("ping", "--", "python server.py").error["message"]
    assert said == "command not found: 'python server.py'; leave out the quotes"
    silent = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.stdin.read()"]
    late = command("ping", "--open-timeout", "0.5", "--", *silent).error["message"]
    assert late.startswith("the server was not ready within 0.5 s (--open-timeout)")
    assert "(--revision legacy skips the probe)" in late
    dies = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit('no key')"]
    error = command("ping", "--", *dies).error
    assert error["message"].startswith("connection lost before the server was ready: ")
    assert "; -e NAME passes one of yours; `syncmcp doctor`" in error["hint"]
    Path("in.json").write_text("{}")
    said = command("call", "add", "--input", "in.json", *DEMO).error["hint"]
    assert said == "write --input @in.json"
