"""Each command on the demo server: its output for pipes and as JSON; recordings; `--model`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import typer

import syncmcp
from syncmcp.cli import app, parsing, session
from syncmcp.cli.inspection import capability_names
from syncmcp.cli.output import Exit
from syncmcp.cli.parsing import PROVIDERS, sampling_model
from syncmcp.cli.person import Person
from syncmcp.llm import OpenAISampling
from syncmcp.testing import Server, ToolContext, serve_http
from syncmcp.types import (
    CallToolResult,
    ListToolsResult,
    LoggingMessageNotificationParams,
    ServerCapabilities,
)
from syncmcp_command import main
from tests.cli.running import DEMO, Command
from tests.llm.double import Double, double
from tests.llm.providers import OpenAIChat


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """The URL of a server that has only one tool."""
    server = Server("small")
    said = "Search v1.2 of the text.\nTakes long.\n\nSee also: find."
    server.add_tool(lambda: 1, name="search", description=said, input_schema={"type": "object"})
    with serve_http(server) as http:
        yield http.url


def test_tools_are_a_line_each_and_their_json_is_the_protocols(
    command: Command, demo: str, small: str
) -> None:
    ran = command("tools", demo)
    assert (ran.code, ran.err) == (0, "")
    rows = {row[0]: row[1:] for row in ran.rows}
    assert rows["add"] == ["a: integer, b: integer", "read-only, idempotent", "Add two integers."]
    assert rows["greet"][0] == "name?: string"
    result = ListToolsResult.model_validate(command("tools", demo, "--json").result)
    assert [tool.name for tool in result.tools][:2] == ["add", "echo"]
    (short,) = command("tools", small).rows
    (long,) = command("tools", small, "--long").rows
    assert short[-1] == "Search v1.2 of the text. …"
    assert long[-1] == "Search v1.2 of the text. Takes long. See also: find."


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


def test_only_what_a_server_offers_is_listed_unless_it_is_asked_for(
    command: Command, small: str
) -> None:
    assert set(command("list", small, "--json").result) == {"tools"}
    assert {row[0] for row in command("list", small).rows} == {"tools"}  # as with a larger server
    ran = command("list", small, "prompts")
    assert (ran.code, ran.error["kind"]) == (1, "NotSupported")
    silent = command("listen", small, "--wait", "0.01")
    assert (silent.code, silent.error["kind"]) == (6, "TimeoutError")
    assert command("listen", small, "--prompts").code == 1
    with serve_http(Server("still")) as http:
        assert command("tools", http.url).code == 1
        assert command("list", http.url) == (0, "", "the server has no lists\n")
        ran = command("listen", http.url)
        said = command("read", http.url, "a:b").error["message"]
    assert (ran.code, ran.error["hint"]) == (2, "name a resource to watch")
    assert said == "the server does not declare the capability resources"


def test_a_call_prints_the_text_alone(command: Command, demo: str) -> None:
    for words in (["a:=1", "b:=2"], ["a=1", "b=2"], ['{"a": 1, "b": 2}']):
        assert command("call", demo, "add", *words) == (0, "3\n", "")
    assert command("call", demo, "add", '{"a": 1}', "a=1", "b=2").code == 2  # given twice
    assert command("call", demo, "echo", "text=a\x1b[31mb").out == "a\x1b[31mb\n"
    assert command("call", demo, "add", "--input", '{"a": 1}', "b:=2").out == "3\n"
    failed = command("call", demo, "fail", "message=no paper")
    assert (failed.code, failed.out) == (5, "")
    assert (failed.error["kind"], failed.error["message"]) == ("ToolError", "no paper")


def test_the_json_of_a_call_is_the_protocols_and_holds_nothing_that_a_terminal_obeys(
    command: Command, demo: str
) -> None:
    ran = command("call", demo, "weather", "city=Bergen", "--json")
    result = CallToolResult.model_validate(ran.result)
    assert result.data == {"city": "Bergen", "celsius": 9.5, "sky": "rain"}
    assert ran.result["structuredContent"] == result.data
    assert command("call", demo, "fail", "--json").result["isError"] is True
    odd = "\x1b[2J\u202e\x85\x7fé\U000e0041"
    ran = command("call", demo, "echo", "--input", json.dumps({"text": odd}), "--json")
    assert ran.result["content"][0]["text"] == odd
    assert "é" in ran.out
    assert not set(odd) - {"é"} - set("[2J") & set(ran.out)


def test_a_name_that_is_nearly_right_is_suggested(command: Command, demo: str) -> None:
    ran = command("call", demo, "ecko", "text=x")
    assert (ran.code, ran.error["message"]) == (2, "the server has no tool 'ecko'")
    assert ran.error["hint"] == "did you mean echo?"
    assert command("prompt", demo, "hallo").error["hint"] == "did you mean hello?"
    assert "syncmcp list" in command("call", demo, "zzz").error["hint"]
    assert command("call", demo, "a=1").error["hint"] == "name the tool before its arguments"


def test_a_resource_that_is_not_there_comes_with_a_hint(
    command: Command, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri, hint in (
        ("demo://nothing", "`syncmcp list TARGET resources templates` shows the URIs"),
        ("demo://readm", "did you mean demo://readme?"),
        ("readm", "did you mean demo://readme?"),
        ("readme", "it is a resource: write `syncmcp read TARGET demo://readme`"),
        ("hello", "it is a prompt: write `syncmcp prompt TARGET hello`"),
    ):
        ran = command("read", demo, uri)
        assert (ran.code, ran.error["kind"]) == (1, "ResourceNotFound")
        assert ran.error["hint"] == hint

    def fail(*_: Any, **__: Any) -> None:
        raise syncmcp.ServerError("no list")

    monkeypatch.setattr(syncmcp.Client, "list_resources", fail)
    assert command("read", demo, "readme").error["kind"] == "ResourceNotFound"


def test_a_name_of_another_kind_comes_with_its_command(command: Command, demo: str) -> None:
    for words, hint in (
        (("call", demo, "hello"), "it is a prompt: write `syncmcp prompt TARGET hello`"),
        (("call", demo, "pixel"), "it is a resource: write `syncmcp read TARGET demo://pixel.png`"),
        (("prompt", demo, "add"), "it is a tool: write `syncmcp call TARGET add`"),
    ):
        ran = command(*words)
        assert (ran.code, ran.error["hint"]) == (2, hint)


def test_a_uri_of_a_server_is_quoted_in_a_command(command: Command) -> None:
    server = Server("sly")
    server.add_tool(lambda: "", name="other", description="")

    @server.resource("a://b;reboot", name="notes")
    def notes() -> str:
        return ""

    with serve_http(server) as http:
        hint = command("call", http.url, "notes").error["hint"]
    assert hint == "it is a resource: write `syncmcp read TARGET 'a://b;reboot'`"


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
    misspelt = command("prompt", demo, "translate", "txt=x").error["message"]
    assert misspelt.startswith("the prompt 'translate' has no argument 'txt'")


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


def test_a_server_answers_a_ping_in_every_revision(command: Command, demo: str) -> None:
    for revision in ("auto", "legacy"):
        ran = command("ping", demo, "--revision", revision)
        assert (ran.code, ran.out[-4:]) == (0, " ms\n")
        assert command("ping", demo, "--json", "--revision", revision).result["milliseconds"] > 0
    several = command("ping", demo, "-n", "3")
    assert len(several.out.splitlines()) == 3
    assert several.err.startswith("median ")
    ran = command("ping", demo, "--revision", "new")
    assert ran.code == 2
    assert ran.error["message"].startswith("--revision must be one of auto, legacy, ")


def test_a_server_says_what_it_is(command: Command, demo: str) -> None:
    rows = dict(row for row in command("info", demo).rows if len(row) == 2)
    assert (rows["name"], "tools" in rows["capabilities"]) == ("Demo 1.0", True)
    stated = command("info", demo, "--json").result
    assert stated["serverInfo"]["name"] == "syncmcp-demo"
    assert stated["protocolVersion"] == rows["revision"]


@pytest.mark.parametrize("said", [True, 5, "yes", ["x"], {"x": True}])
def test_a_capability_that_nobody_knows_may_be_anything(said: Any) -> None:
    capabilities = ServerCapabilities.model_validate({"tools": {}, "novel": said})
    assert {name.partition(" ")[0] for name in capability_names(capabilities)} == {"tools", "novel"}


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
        assert command("call", http.url, "look").code != 0  # without roots, not declared
        assert command("roots", "add", "project").out == f"{uri}\n"
        assert command("roots", "list").rows == [[str(elsewhere / "project"), "ok"]]
        assert command("roots", "list", "--json").result == {"roots": [{"uri": uri}]}
        assert command("roots").rows == command("roots", "list").rows
        # Without --yes or a person, the roots are not shown.
        unseen = command("call", http.url, "look")
        assert (unseen.out.strip(), unseen.err.count("got none; --yes sends them")) == ("", 1)
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


def test_versions_and_help_need_nothing(command: Command) -> None:
    assert command("--version").out == f"syncmcp {syncmcp.__version__}\n"
    assert command().code == command("auth").code == 2
    assert "Usage: syncmcp" in command("--help").out
    assert command("roots", "--help").code == 0


def test_no_line_of_a_server_appears_within_a_question(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --verbose, the server's stderr and log could look like a part of the question."""

    def options_of(target: object, **options: Any) -> Any:
        return target, options

    person = Person()
    monkeypatch.setattr(session, "person_at_terminal", lambda: person)
    monkeypatch.setattr(session, "Client", options_of)
    with closing(session.Session(parsing.Settings(verbose=True), "COMMAND", ["server"])) as asking:
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


def test_ctrl_c_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "run_command", lambda words: Exit.INTERRUPTED)
    with pytest.raises(typer.Exit) as ended:
        app.demo()
    assert ended.value.exit_code == 130


@pytest.mark.parametrize("same", [True, False])
def test_the_demo_shows_a_python_that_has_the_package(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python3.13"))
    monkeypatch.setenv("PATH", str(tmp_path / ("own" if same else "other")))
    assert app._python() == ("python" if same else sys.executable)


def test_a_command_is_recorded_and_answered_again_without_a_server(
    command: Command, demo: str
) -> None:
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
    assert command("replay", "tape.jsonl", "ping", "-n", "2").code == 0
    assert command("record", "failed.jsonl", "call", demo, "fail").code == 5
    assert command("replay", "failed.jsonl", "call", "fail").code == 5


def test_a_session_that_is_not_worth_replaying_leaves_no_file(command: Command, demo: str) -> None:
    for words, code in (
        (["call", demo, "add", "a=1"], 2),
        (["call", demo, "nosuch"], 2),
        (["tools", "--", "nosuchprog"], 4),
    ):
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
    said = "needs a server, but a recording has none"
    assert (refused.code, said in refused.error["message"]) == (2, True)
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
    error = command("record", "silent.jsonl", "ping", *broken).error
    assert "on its stdout were not messages, the first: '{broken'" in error["message"]
    assert "nothing was recorded" in command("record", "other.jsonl", "call", "--help").err
    for words in (("record", "other.jsonl", "demo"), ("replay", "no.jsonl", "roots", "list")):
        ran = command(*words)
        said = f"`{words[2]}` has no session to record"
        assert (ran.code, ran.out, ran.error["message"]) == (2, "", said)
    shown = command("replay", "tape.jsonl", "ping", "--help").out
    assert [word for word in ("TARGET", "--bearer", "https:") if word in shown] == []
    assert "--model" in shown


ASKED = ("request_llm_help", "question=Why?")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    """A simulated provider; its clients are closed at the end, as a program would do it."""
    with double() as there, ExitStack() as clients:
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{there.url}/v1")
        new_client = OpenAISampling._new_client
        monkeypatch.setattr(
            OpenAISampling, "_new_client", lambda self: clients.enter_context(new_client(self))
        )
        yield there


def test_a_model_answers_for_the_server(command: Command, demo: str, provider: Double) -> None:
    provider.say(OpenAIChat().turn("Because."))
    ran = command("call", demo, *ASKED, "--model", "openai-chat:m-1", "--yes")
    assert (ran.code, ran.out) == (0, "Because.\n")
    assert provider.asked[-1].path.endswith("/chat/completions")
    assert provider.body["model"] == "m-1"


def test_without_a_model_or_without_anybody_to_agree_nothing_is_offered(
    command: Command, demo: str, provider: Double
) -> None:
    for words in ([], ["--model", "openai:m"], ["--yes"]):
        ran = command("call", demo, *ASKED, *words)
        assert (ran.code, ran.error["kind"]) == (1, "MissingCapability")
        assert "--model" in ran.error["hint"]
    assert provider.asked == []


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("opanai:m", "did you mean openai:m?"),
        ("zzz:m", "the providers are anthropic, gemini, openai, openai-chat"),
        ("openai", "write --model openai:NAME"),
        ("openai:", "write --model openai:NAME"),
    ],
)
def test_a_model_that_is_none_is_refused(command: Command, demo: str, word: str, hint: str) -> None:
    ran = command("tools", demo, "--model", word)
    assert (ran.code, ran.error["hint"]) == (2, hint)


def test_every_provider_makes_a_handler() -> None:
    kinds = {name: type(sampling_model(f"{name}:m")).__name__ for name in PROVIDERS}
    assert kinds == {
        "anthropic": "AnthropicSampling",
        "gemini": "GeminiSampling",
        "openai": "OpenAISampling",
        "openai-chat": "OpenAISampling",
    }
