"""Starting a server: how its command is found, and which environment it gets."""

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
    shown.pop("LC_CTYPE", None)  # Python itself sets it
    shown.pop("SYNCMCP_SERVER", None)  # the library's mark for finding the server's processes
    return shown


def opening_fails(config: Stdio, cause: type[Exception] | None = None) -> str:
    """Return the text of the error; check its cause."""
    with pytest.raises(ConnectFailed) as caught:
        StdioTransport(config).open(Notes(), Deadline(5))
    assert threads() == []
    assert caught.value.delivery == "not_sent"
    assert cause is None or isinstance(caught.value.__cause__, cause)
    return str(caught.value)


@pytest.mark.pitfall("26")
@pytest.mark.requirement("STD-10")
def test_a_server_gets_what_programs_need_and_what_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {
        "SECRET_OF_THIS_PROGRAM": "canary",
        "HOME": "/somewhere",
        "LC_ALL": "C.UTF-8",
        "SHELL": "() { echo; }",
        "TERM": "dumb",
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    got = environment_of(env={"API_TOKEN": "given", "TERM": "xterm"})
    assert not {"SECRET_OF_THIS_PROGRAM", "SHELL"} & set(got)
    assert got["PATH"] == os.environ["PATH"]
    assert (got["HOME"], got["LC_ALL"]) == ("/somewhere", "C.UTF-8")
    assert (got["API_TOKEN"], got["TERM"]) == ("given", "xterm")
    # Other options inherit all variables or none.
    assert environment_of(inherit_env="all")["SECRET_OF_THIS_PROGRAM"] == "canary"
    assert environment_of(inherit_env="none", env={"ONLY": "this"}) == {"ONLY": "this"}


@pytest.mark.pitfall("26")
def test_on_windows_names_differ_by_more_than_case() -> None:
    own = {"Path": "a", "SystemRoot": "b", "SECRET": "c", "HOME": "d"}
    assert environment({}, "safe", own, windows=True) == {"Path": "a", "SystemRoot": "b"}
    given = environment({"PATH": "x"}, "safe", own, windows=True)
    assert given == {"PATH": "x", "SystemRoot": "b"}
    assert search_path({"Path": "a"}, windows=True) == "a"
    assert search_path({}, windows=True) == ""  # the default path includes the current folder


@pytest.mark.pitfall("8", "26")
def test_a_command_that_is_nowhere_is_reported_with_the_path_that_was_searched() -> None:
    config = Stdio("no-such-command", env={"PATH": "/here:/there"})
    text = opening_fails(config, FileNotFoundError)
    assert "command not found: 'no-such-command'; PATH searched: /here:/there" in text
    assert "separate strings" not in text
    assert "separate strings" in opening_fails(Stdio("no-such-program server.py"))
    assert "PATH" not in opening_fails(Stdio("/no/such/command"))


@pytest.mark.pitfall("26")
def test_a_command_is_looked_up_on_the_path_and_in_the_directory(tmp_path: Path) -> None:
    script = tmp_path / "our-server"
    script.write_text("#!/bin/sh\necho '{\"found\":true}'\nread line\n")
    script.chmod(0o755)
    on_path = Stdio("our-server", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    for config in (on_path, Stdio("./our-server", cwd=tmp_path)):
        with running(config) as (_, notes):
            assert notes.wait_frames(1) == [b'{"found":true}']


@pytest.mark.pitfall("8")
def test_a_file_or_folder_that_is_none_is_another_error(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("text")
    for config in (Stdio("plain", env={"PATH": str(tmp_path)}), Stdio(plain)):
        assert "not executable" in opening_fails(config, PermissionError)
    missing = python(ECHO, cwd=tmp_path / "missing")
    assert "working directory" in opening_fails(missing, FileNotFoundError)
    assert "working directory" in opening_fails(python(ECHO, cwd=plain), NotADirectoryError)
    assert "stderr" in opening_fails(python(ECHO, stderr=tmp_path), IsADirectoryError)
    plain.chmod(0o755)
    assert f"cannot run {str(plain)!r}: " in opening_fails(Stdio(plain), OSError)


def test_what_no_process_can_take_is_the_mistake_of_the_caller() -> None:
    with pytest.raises(UsageError) as caught:
        StdioTransport(python(ECHO, env={"A": "\ud800"})).open(Notes(), Deadline(5))
    assert isinstance(caught.value.__cause__, ValueError)


def test_no_server_is_started_when_no_time_is_left() -> None:
    with pytest.raises(RequestTimeout) as caught:
        StdioTransport(python(ECHO)).open(Notes(), Deadline(0))
    assert (caught.value.kind, caught.value.delivery) == ("open", "not_sent")


@pytest.mark.pitfall("7")
@pytest.mark.parametrize("started", [0, 1])
def test_a_server_without_threads_does_not_stay(
    started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, iter(range(started))

    def refuse(thread: threading.Thread) -> None:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    opening_fails(python(ECHO), RuntimeError)


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
def test_a_server_that_ends_with_the_thread_that_started_it_outlives_who_opened_it() -> None:
    dies_with_it = f"""
import ctypes, signal
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
print("{{}}", flush=True){ECHO}"""
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
