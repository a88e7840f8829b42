"""Hostile numbers and nesting: what cannot be converted is a typed error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

import syncmcp
from syncmcp import ServersFileError, Stdio, UsageError
from syncmcp.auth.token_auth import _operation
from syncmcp.cli.manage import _moment
from syncmcp.cli.output import CommandError
from syncmcp.cli.parsing import _parse_json
from syncmcp.cli.state import load_roots
from syncmcp.servers_file import MAX_BYTES, read
from syncmcp.testing import Replay, Server, ToolContext

BIG = "9" * 400
HUGE = "9" * 5000  # beyond Python's limit for conversion
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "SYNCMCP_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def servers(entry: str) -> syncmcp.ServersFile:
    Path("mcp.json").write_text(
        '{"mcpServers": {"bad": #, "good": {"command": "x"}}}'.replace("#", entry)
    )
    return read("mcp.json", trust=True)


@pytest.mark.parametrize("value", ["1e400", "-1e400", "NaN", "Infinity", BIG, HUGE, f"-{HUGE}"])
@pytest.mark.parametrize(
    "entry",
    [
        *('{"command": "x", "timeout": #}', '{"command": "x", "env": {"A": #}}'),
        *('{"url": "https://example.com", "headers": {"A": #}}', '{"command": #}', "#"),
        *('{"command": "x", "of-another": [{"a": #}]}', '{"command": "x", "disabled": #}'),
    ],
)
def test_a_number_beyond_all_numbers_is_the_problem_of_its_entry(entry: str, value: str) -> None:
    found = servers(entry.replace("#", value))
    bad = found["bad"]
    if bad.problem is None:
        # Python can convert BIG: it is valid text, but not a valid timeout.
        assert value == BIG
        assert '"timeout"' not in entry
        bad.review()
        bad.target()
        return
    assert bad.problem.server == "bad"
    assert bad.problem.file.endswith("mcp.json")
    for use in (bad.target, bad.review, bad.approve, lambda: bad.options):
        with pytest.raises(ServersFileError):
            use()
    assert isinstance(found["good"].target(), Stdio)


def test_the_longest_time_limits_are_accepted() -> None:
    for given, seconds in (("1e308", 1e305), ("9" * 300, 1e297)):
        entry = f'{{"command": "x", "timeout": {given}}}'
        assert servers(entry)["bad"].options["timeout"] == pytest.approx(seconds)


def test_what_is_nested_too_deeply_is_the_problem_of_its_entry_or_of_the_file() -> None:
    entries = [
        f'{{"command": "x", "more": {"[" * depth + "]" * depth}}}' for depth in (60, 65, 400)
    ]
    assert servers(entries[0])["bad"].problem is None
    for entry in entries[1:]:
        found = servers(entry)
        assert "nested too deeply" in str(found["bad"].problem)
        assert isinstance(found["good"].target(), Stdio)
    for opening in ("[", '{"a":', '[{"a":'):
        with pytest.raises(ServersFileError, match="nested too deeply") as caught:
            servers(opening * 100_000)
        assert caught.value.file.endswith("mcp.json")


def _members(count: int) -> str:
    return ",".join(f'"{number:08}":0' for number in range(count))


SIZE = MAX_BYTES // 8  # for this size, quadratic code takes minutes
CONTENTS: dict[str, Callable[[], str]] = {
    "one key twice": lambda: "{" + _members(SIZE // 13 - 9) + ',"last":0,"last":0}',
    "one key always": lambda: "{" + ",".join(['"a":0'] * (SIZE // 6)) + "}",
    "many objects with a key twice": lambda: "[" + ",".join(['{"b":0,"b":0}'] * (SIZE // 20)) + "]",
    "one string": lambda: '{"a":"' + "x" * (SIZE - 20) + '"}',
    "one string, and a comment": lambda: '{"a":"' + "x" * (SIZE - 20) + '"}//',
    "placeholders": lambda: '{"a":"' + "${" * (SIZE // 2 - 20) + '"}',
    "blanks": lambda: "[," + " " * (SIZE - 2),
    "comments": lambda: "/*" * (SIZE // 2),
    "quotes, and a comment": lambda: "//\n" + '"' * (SIZE - 3),
    "escapes": lambda: '"\\' * (SIZE // 2),
    "empty lists": lambda: "[" + ",".join(["[]"] * (SIZE // 3)) + "]",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_file_of_any_content_is_read_in_seconds(content: Callable[[], str]) -> None:
    Path("mcp.json").write_text(content()[:SIZE])
    before = time.process_time()
    with pytest.raises(ServersFileError) as caught:  # no content names servers
        read("mcp.json")
    assert time.process_time() - before < 5
    assert len(str(caught.value)) < 1000


def test_a_moment_beyond_the_calendar_is_shown_as_a_number() -> None:
    for seconds in (1e300, -1e300, 1e15, 1.7e308):
        assert _moment(seconds) == f"{seconds:g} seconds after 1970"
    assert _moment(86_400.0 * 365).startswith("197")


def test_too_deep_nesting_is_a_typed_error() -> None:
    for text in (DEEP, HUGE):
        with pytest.raises(CommandError):
            _parse_json(text, "the argument")
    Path("roots.json").write_text(DEEP)
    with pytest.raises(CommandError):
        load_roots()
    for recorded in (DEEP, f'{{"syncmcp-recording": 1}}\n{DEEP}'):
        Path("tape.jsonl").write_text(f"{recorded}\n")
        with pytest.raises(UsageError):
            syncmcp.connect(Replay("tape.jsonl"))
    # The key of a recorded operation can be made from any body.
    request = requests.Request("POST", "https://example.com/", data=DEEP).prepare()
    assert "https://example.com/" in _operation(request)


def test_a_last_line_that_is_nested_too_deeply_ends_a_child_process_as_any_other() -> None:
    """A line without an end is checked for completeness."""
    code = "import sys; sys.stdout.write('{\"a\":' * 100_000)"
    with pytest.raises(syncmcp.ConnectFailed) as caught:
        syncmcp.connect(Stdio(sys.executable, "-c", code), retry=None)
    assert "reader failed" not in str(caught.value)


def test_progress_beyond_all_numbers_reaches_no_callback() -> None:
    values = [int(BIG), -int(BIG), float("inf"), float("nan")]
    server = Server()

    @server.tool()
    def work(context: ToolContext) -> str:
        for number, value in enumerate(values):
            context.report_progress(value, 1)
            context.report_progress(number, value)
        return "done"

    told: list[tuple[float, float | None]] = []
    with syncmcp.connect(server) as client:
        client.call_tool("work", on_progress=lambda done, total, _: told.append((done, total)))
    assert told == [(number, None) for number in range(4)]
