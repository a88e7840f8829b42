"""Text of the server that Tab inserts in `syncmcp shell` is one word with the same meaning.

At the end: completions in the person's own shell.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from syncmcp import CancelToken, Client, RequestCancelled
from syncmcp.cli import app, shell
from syncmcp.cli.parsing import parse_arguments
from syncmcp.cli.session import short_name
from syncmcp.cli.shell import LinePrompt, ShellCompleter
from syncmcp.types import (
    Completion,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Resource,
    Tool,
)
from tests.cli.running import DEMO, Command, run
from tests.support.stage import PATIENCE

HOSTILE = [
    *("draw --yes --force --output /victim", "--output=/victim", "-y", "--", ":=1", "plain", ""),
    *("@/etc/passwd", r"\@/etc/passwd", r"\\@/etc/passwd", "a:=@/etc/passwd", "a=@/etc/passwd"),
    *("it's", 'a "quoted" one', "a\\", "a:", "x;y $(z) `w` #v", "tab\tand\nline", "\u202egnp"),
]


class Offering:
    """A client whose server offers the same text everywhere."""

    def __init__(self, text: str, **details: Any) -> None:
        self.text = text
        self.details = details

    def list_tools(self, **_: Any) -> ListToolsResult:
        schema = {"type": "object", "properties": {"q": self.details, self.text: {}}}
        names = (self.text, "known")
        return ListToolsResult(tools=[Tool(name=name, input_schema=schema) for name in names])

    def list_prompts(self, **_: Any) -> ListPromptsResult:
        arguments = [{"name": "q"}, {"name": self.text}]
        prompts = [{"name": name, "arguments": arguments} for name in (self.text, "known")]
        return ListPromptsResult.from_wire({"prompts": prompts})

    def list_resources(self, **_: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[Resource(uri=self.text, name="r")])

    def list_resource_templates(self, **_: Any) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=[])

    def complete(self, ref: Any, name: str, value: str, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(completion=Completion(values=[self.text]))


OPTIONS = {"call": ["--input", "--output"]}


def lines(client: Offering, before: str) -> list[str]:
    """Return the lines that Tab can make of the text before the cursor."""
    completer = ShellCompleter(cast("Client", client), OPTIONS)
    found = list(completer.get_completions(Document(before), None))
    blank = " " if len(found) == 1 and not found[0].display_text.endswith("=") else ""
    assert all(one.display_text + blank == one.text for one in found)  # inserted as shown
    return [before[: len(before) + one.start_position] + one.text for one in found]


def check(text: str) -> None:
    for before in ("call ", "prompt ", "read "):
        for line in lines(Offering(text), before):
            command, word = shlex.split(line)
            assert command == before.strip()
            assert word in (text, "known")
            assert not word.startswith("-")
    for before in ("call known q=", "prompt known q="):
        for line in lines(Offering(text, type="string", enum=[text]), before):
            *settled, word = shlex.split(line)
            assert settled == before.split()[:2]
            assert parse_arguments([word]) == {"q": text}
    for line in lines(Offering(text, enum=[text, 1]), "call known q:="):
        assert parse_arguments([shlex.split(line)[-1]])["q"] in (text, 1)
    for before in ("call known ", "prompt known "):
        for line in lines(Offering(text), before):
            *settled, word = shlex.split(line)
            assert settled == before.split()
            assert not word.startswith("-")
            value = "1" if word.endswith(":=") else "x"
            assert list(parse_arguments([word + value])) in ([text], ["q"])


@pytest.mark.parametrize("text", HOSTILE)
def test_what_tab_inserts_means_what_the_server_said(text: str) -> None:
    check(text)


@given(st.text(alphabet=st.sampled_from("ab-=:@\\'\" {}$#;/漢é"), max_size=8))
def test_no_text_of_a_server_becomes_something_else(text: str) -> None:
    check(text)


def test_no_file_is_a_choice_and_choices_of_other_types_are_json() -> None:
    named = Offering("@/etc/passwd", type="string", enum=["@/etc/passwd"])
    assert lines(named, "call known q=@") == lines(named, "prompt known q=@/e") == []
    mixed = Offering("x", enum=["@a b", 1, None])
    found = [parse_arguments(shlex.split(line)[2:]) for line in lines(mixed, "call known q:=")]
    assert json.dumps(found) == json.dumps([{"q": "@a b"}, {"q": 1}, {"q": None}])


@pytest.mark.parametrize("before", ["call 'dr", 'call "known" q=\'', "call known\\ ", "read 'a b"])
def test_nothing_is_offered_within_an_open_quotation(before: str) -> None:
    assert lines(Offering("draw it"), before) == []


def test_what_passes_for_a_template_or_is_too_long_to_be_read_is_not_offered() -> None:
    for text in ("a://b", "a{b}"):
        assert lines(Offering(text), "complete ") == ["complete known "]
        assert len(lines(Offering(text), "prompt ")) == 2
    assert [len(lines(Offering("x" * length), "call x")) for length in (200, 201)] == [1, 0]


def test_a_blank_follows_the_only_completion_at_the_end_of_a_line() -> None:
    client = Offering("draw")
    assert lines(client, "ca") == ["call "]
    assert lines(client, "call ") == ["call draw", "call known"]
    assert lines(client, "call known q") == ["call known q:="]
    completer = ShellCompleter(cast("Client", client), OPTIONS)
    (found,) = completer.get_completions(Document("ca x", cursor_position=2), None)
    assert found.text == "call"


def test_arguments_are_offered_as_their_help_writes_them() -> None:
    assert lines(Offering("n", type="integer"), "call known q") == ["call known q="]
    assert lines(Offering("n", type="integer"), "call known q=1 ") == ["call known q=1 n:="]
    flag = Offering("n", type="boolean")
    assert lines(flag, "call known q=") == ["call known q=true", "call known q=false"]
    assert lines(Offering("n", type="array"), "call known q") == ["call known q:="]


def test_the_options_of_a_command_are_completed() -> None:
    assert lines(Offering("n"), "call known --o") == ["call known --output "]
    assert lines(Offering("n"), "call -") == ["call --input", "call --output"]
    assert lines(Offering("n"), "--") == lines(Offering("n"), "ping -") == []
    options = app._shell_options()
    assert {"--output", "--input", "--json", "--timeout", "--help"} <= {*options["call"]}
    assert not {"--header", "--model", "--revision"} & {*options["call"]}


def test_a_server_is_named_without_the_directory_of_its_program(command: Command) -> None:
    name = Path(sys.executable).name
    assert command("call", "fail", *DEMO).error["server"] == f"{name} -m syncmcp.testing"
    assert short_name("weather") == "weather"
    assert short_name("x" * 33) == "x" * 31 + "…"


class Silent:
    """A client whose server does not answer; a call waits until it is cancelled."""

    server = SimpleNamespace(name="silent")

    def __init__(self) -> None:
        self.asked, self.cancelled = threading.Event(), threading.Event()
        self.options: dict[str, Any] = {}

    def list_tools(self, **options: Any) -> ListToolsResult:
        self.options = options
        self.asked.set()
        token = options.get("cancel", CancelToken())
        if token.wait(PATIENCE):
            self.cancelled.set()
        raise RequestCancelled("cancelled")


@pytest.mark.parametrize("keys", ["\x15exit\r", "\x03exit\r"], ids=["Enter", "Ctrl-C"])
def test_a_completion_does_not_hold_up_the_shell(
    keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "_history", InMemoryHistory)
    monkeypatch.setattr(shell, "create_output", lambda _: DummyOutput())
    client = Silent()
    with create_pipe_input() as typed, create_app_session(input=typed):
        lines = LinePrompt(cast("Client", client), OPTIONS).lines()

        def type_on() -> None:
            client.asked.wait(PATIENCE)
            typed.send_text(keys)

        typed.send_text("call \t")
        thread = threading.Thread(target=type_on)
        thread.start()
        assert next(lines) == "exit"
        thread.join()
    assert client.cancelled.is_set()
    assert client.options["timeout"] <= 5  # limits a slow list, too


@pytest.fixture
def names(elsewhere: Path) -> Path:
    """A servers file of the current folder, which is not trusted."""
    names = ["demo", "deep", "other", "a b", "$(touch${IFS}hacked)", "x\u202ey", "*", "--trust"]
    names += ["https://example.com/mcp", "HTTP://example.com"]  # URLs are not names in a file
    servers = {name: {"command": "no-such-command-at-all"} for name in names}
    path = elsewhere / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


@pytest.fixture
def offered(command: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that completes the last word."""

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
    assert offered("tools", "--", "") == []  # a command follows


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
    assert offered("help", "re") == offered("record", "tape", "re") == ["read", "record", "replay"]
    assert offered("help", "servers", "a") == ["approve"]
    assert offered("record", "tape", "call", "r") == []
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
    ran = run("bash", "--norc", "-c", script)
    assert ran.out.split("offered: ")[1].split() == ["demo", "deep"], ran.err
