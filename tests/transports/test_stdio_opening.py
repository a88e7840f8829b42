"""How a server is started: where its command is looked for, what environment it gets."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.errors import ConnectFailed, RequestTimeout, UsageError
from syncmcp.transports._process import environment, search_path
from syncmcp.transports.stdio import StdioTransport
from tests.support.stage import in_threads
from tests.transports._stdio import ECHO, PATIENCE, Notes, frame, python, run, running, threads

if TYPE_CHECKING:
    from pathlib import Path

SHOW_ENVIRONMENT = """
import json, os, sys
print(json.dumps(dict(os.environ)), flush=True)
sys.stdin.read()
"""


def environment_of(**options: Any) -> dict[str, str]:
    with running(python(SHOW_ENVIRONMENT, **options)) as (_, notes):
        shown: dict[str, str] = json.loads(notes.wait_frames(1)[0])
    shown.pop("LC_CTYPE", None)  # Python sets it by itself
    shown.pop("SYNCMCP_SERVER", None)  # by which the library finds what the server has started
    return shown


def opening_fails(config: Stdio) -> ConnectFailed:
    with pytest.raises(ConnectFailed) as caught:
        StdioTransport(config).open(Notes(), Deadline(5))
    assert threads() == []
    assert caught.value.delivery == "not_sent"
    return caught.value


@pytest.mark.pitfall("26")
@pytest.mark.requirement("STD-10")
def test_a_server_gets_what_programs_need_and_what_the_caller_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_THIS_PROGRAM", "canary")
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SHELL", "() { echo; }")
    monkeypatch.setenv("TERM", "dumb")
    got = environment_of(env={"API_TOKEN": "given", "TERM": "xterm"})
    assert "SECRET_OF_THIS_PROGRAM" not in got
    assert "SHELL" not in got
    assert got["PATH"] == os.environ["PATH"]
    assert (got["HOME"], got["LC_ALL"]) == ("/somewhere", "C.UTF-8")
    assert (got["API_TOKEN"], got["TERM"]) == ("given", "xterm")


@pytest.mark.pitfall("26")
def test_everything_or_nothing_can_be_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYTHING", "at all")
    assert environment_of(inherit_env="all")["ANYTHING"] == "at all"
    assert environment_of(inherit_env="none", env={"ONLY": "this"}) == {"ONLY": "this"}


@pytest.mark.pitfall("26")
def test_on_windows_names_differ_by_more_than_case() -> None:
    own = {"Path": "a", "SystemRoot": "b", "SECRET": "c", "HOME": "d"}
    assert environment({}, "safe", own, windows=True) == {"Path": "a", "SystemRoot": "b"}
    given = environment({"PATH": "x"}, "safe", own, windows=True)
    assert given == {"PATH": "x", "SystemRoot": "b"}
    assert search_path({"Path": "a"}, windows=True) == "a"
    assert search_path({}, windows=True) == ""  # the default begins with the current folder


@pytest.mark.pitfall("8", "26")
def test_a_command_that_is_nowhere_is_reported_with_the_path_that_was_searched() -> None:
    error = opening_fails(Stdio("no-such-command", env={"PATH": "/here:/there"}))
    assert "command not found: 'no-such-command'; PATH searched: /here:/there" in str(error)
    assert isinstance(error.__cause__, FileNotFoundError)
    assert "PATH" not in str(opening_fails(Stdio("/no/such/command")))


@pytest.mark.pitfall("26")
def test_a_command_is_looked_up_on_the_path_of_the_server(tmp_path: Path) -> None:
    script = tmp_path / "our-server"
    script.write_text("#!/bin/sh\necho '{\"found\":true}'\nread line\n")
    script.chmod(0o755)
    with running(Stdio("our-server", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})) as (_, notes):
        assert notes.wait_frames(1) == [b'{"found":true}']


@pytest.mark.pitfall("26")
def test_a_command_with_a_directory_is_relative_to_the_directory_of_the_server(
    tmp_path: Path,
) -> None:
    script = tmp_path / "server.sh"
    script.write_text("#!/bin/sh\necho '{}'\nread line\n")
    script.chmod(0o755)
    with running(Stdio("./server.sh", cwd=tmp_path)) as (_, notes):
        notes.wait_frames(1)


@pytest.mark.pitfall("8")
def test_a_file_that_is_no_program_is_another_error(tmp_path: Path) -> None:
    script = tmp_path / "plain"
    script.write_text("text")
    for config in (Stdio("plain", env={"PATH": str(tmp_path)}), Stdio(script)):
        error = opening_fails(config)
        assert "not executable" in str(error)
        assert isinstance(error.__cause__, PermissionError)
    script.chmod(0o755)
    error = opening_fails(Stdio(script))
    assert f"cannot run {str(script)!r}: " in str(error)
    assert isinstance(error.__cause__, OSError)


@pytest.mark.pitfall("8")
def test_a_bad_working_directory_is_another_error(tmp_path: Path) -> None:
    error = opening_fails(python(ECHO, cwd=tmp_path / "missing"))
    assert "working directory" in str(error)
    assert isinstance(error.__cause__, FileNotFoundError)
    plain = tmp_path / "plain"
    plain.write_text("")
    error = opening_fails(python(ECHO, cwd=plain))
    assert "working directory" in str(error)
    assert isinstance(error.__cause__, NotADirectoryError)


def test_a_file_for_stderr_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    error = opening_fails(python(ECHO, stderr=tmp_path))
    assert "stderr" in str(error)
    assert isinstance(error.__cause__, IsADirectoryError)


def test_what_no_process_can_take_is_the_mistake_of_the_caller() -> None:
    with pytest.raises(UsageError) as caught:
        StdioTransport(python(ECHO, env={"A": "\ud800"})).open(Notes(), Deadline(5))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_command_line_in_one_string_is_told_to_be_separate_strings() -> None:
    error = opening_fails(Stdio("no-such-program server.py"))
    assert "separate strings" in str(error)
    assert "separate strings" not in str(opening_fails(Stdio("no-such-program")))


def test_no_server_is_started_when_no_time_is_left() -> None:
    with pytest.raises(RequestTimeout) as caught:
        StdioTransport(python(ECHO)).open(Notes(), Deadline(0))
    assert (caught.value.kind, caught.value.delivery) == ("open", "not_sent")


@pytest.mark.pitfall("7")
@pytest.mark.parametrize("started", [0, 1])
def test_a_server_whose_threads_cannot_be_started_does_not_stay(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, [started]

    def refuse(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ConnectFailed) as caught:
        StdioTransport(python(ECHO)).open(Notes(), Deadline(5))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.pitfall("7")
def test_a_server_for_which_there_are_too_few_descriptors_does_not_stay() -> None:
    done = run(
        """
import resource
from syncmcp.errors import ConnectFailed
from syncmcp.testing.leaks import child_processes
def used():
    return len(os.listdir("/proc/self/fd"))
transport.close(Deadline(10))
before, limits = used(), resource.getrlimit(resource.RLIMIT_NOFILE)
failed = opened = 0
while not opened:  # with each number of free descriptors, until it is enough
    another = StdioTransport(python(ECHO))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + failed, limits[1]))
    try:
        another.open(notes, Deadline(10))
        opened = 1
    except ConnectFailed:
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        another.close(Deadline(10))
    assert (used(), child_processes()) == (before, set()), failed
with running(python(ECHO)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # close() has to do without any
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
assert (used(), child_processes()) == (before, set())
print(failed > 12)  # three pipes to the server have both ends, and so have three others
"""
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.pitfall("26")
def test_no_shell_reads_the_arguments() -> None:
    code = "import json, sys\nprint(json.dumps({'args': sys.argv[1:]}), flush=True)"
    args = ["$HOME; `id` | > 'x'", "", "a b"]
    with running(python(code, *args)) as (_, notes):
        assert json.loads(notes.wait_frames(1)[0]) == {"args": args}


@pytest.mark.requirement("STD-09")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked for that")
def test_a_server_that_ends_with_the_thread_that_started_it_outlives_the_one_that_opened_it() -> (
    None
):
    dies_with_it = """
import ctypes, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
print("{}", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""
    transport, notes = StdioTransport(python(dies_with_it)), Notes()

    def opened() -> int:
        transport.open(notes, Deadline(PATIENCE))
        return len(notes.wait_frames(1))

    try:
        assert in_threads(opened) == [1]
        transport.send(frame())
        notes.until(lambda: len(notes.frames) == 2 or notes.losses)
        assert notes.frames[1:] == [b'{"id":1}']
    finally:
        transport.close(Deadline(PATIENCE))
