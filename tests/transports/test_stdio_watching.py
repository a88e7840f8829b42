"""Servers of a killed program, and processes that left their group: both are ended."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from syncmcp.config import Stdio
from syncmcp.testing.leaks import child_processes
from syncmcp.transports import _posix, _watcher
from tests.transports._stdio import (
    ECHO,
    PATIENCE,
    PROGRAM,
    ROOT,
    STUBBORN,
    is_running,
    kill,
    pid_of,
    python,
    running,
    said,
    wait_gone,
    watcher,
    with_daemon,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


IMPORTS = """
import json, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the suite may run under nohup
from syncmcp.transports import _posix
from tests.transports._stdio import STUBBORN, said, watcher, with_daemon
def opened(code):
    notes = Notes()
    transport = StdioTransport(python(code, grace=(0, 0)))
    transport.open(notes, Deadline(10))
    opened.all.append(transport)
    return said(notes)
opened.all = []
"""


@contextlib.contextmanager
def program(code: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that has opened a server; `code` prints process ids."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + IMPORTS + code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


ENDS: dict[str, Callable[[subprocess.Popen[str]], None]] = {
    "SIGKILL": lambda process: process.send_signal(signal.SIGKILL),
    "its whole group": lambda process: os.killpg(process.pid, signal.SIGINT),
    "another program": go_on,
}


@pytest.mark.pitfall("7", "H12")
@pytest.mark.parametrize("end", ENDS)
def test_servers_end_with_a_program_that_had_no_time_to_close_them(end: str) -> None:
    code = """
signal.signal(signal.SIGINT, signal.SIG_DFL)
def deaf(**options):
    code = with_daemon(STUBBORN, env={}, **options)
    return code.replace("sys.stdin.read()", "__import__('signal').pause()")
of_its_group = deaf(start_new_session=False, stdin=None, stdout=None, stderr=None)
print(*map(opened, (STUBBORN, with_daemon(STUBBORN), deaf(), of_its_group)), end=" ")
print(*map(pid_of, opened.all), watcher(), flush=True)
input()
os.execv("/bin/sleep", ["sleep", "60"])
"""
    with program(code) as process:
        pids = set(printed(process))
        ENDS[end](process)
        assert [wait_gone(pid) for pid in pids] == [True] * 8  # seven processes and the watcher


@pytest.mark.pitfall("7")
def test_a_server_that_ends_with_its_input_gets_no_signal_from_the_watcher(tmp_path: Path) -> None:
    file = tmp_path / "end"
    code = f"""
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
os.write(1, b'{{"pid":%d}}\\n' % os.getpid())
sys.stdin.read()
open({str(file)!r}, "w").write("end of input")
"""
    with program(f"print(opened({code!r}), watcher(), flush=True)\nos._exit(0)") as process:
        assert [wait_gone(pid) for pid in printed(process)] == [True] * 2
    assert file.read_text() == "end of input"


@pytest.mark.pitfall("7")
@pytest.mark.parametrize("kind", ["marked", "unmarked", "on an old kernel"])
def test_a_process_in_another_session_is_ended(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "on an old kernel":
        monkeypatch.setattr(_watcher, "open_pidfd", lambda _: None)
    options: dict[str, Any] = {"env": {}} if kind == "unmarked" else {}
    with running(python(with_daemon(STUBBORN, **options), grace=(PATIENCE, 0.1))) as (_, notes):
        daemon = said(notes)
        assert is_running(daemon)
    assert not is_running(daemon)


@pytest.mark.pitfall("7")
def test_few_descriptors_hold_however_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    held, most = set[Any](), 0

    class Counted(_watcher.Member):
        def __init__(self, pid: int) -> None:
            nonlocal most
            super().__init__(pid)
            held.add(self)
            most = max(most, len(held))

        def close(self) -> None:
            super().close()
            held.discard(self)

    monkeypatch.setattr(_watcher, "Member", Counted)
    monkeypatch.setattr(_watcher, "MAX_HELD", 2)
    start, wait = with_daemon(STUBBORN).split("sys.stdin")
    with running(python(f"{start * 6}sys.stdin{wait}", grace=(PATIENCE, 0.1))) as (_, notes):
        daemons = [json.loads(frame)["pid"] for frame in notes.wait_frames(6)]
        assert all(map(is_running, daemons))
    assert not any(map(is_running, daemons))
    assert held == set()
    # Two descendants of the server, and two processes with its mark.
    assert 0 < most <= 4


@pytest.mark.pitfall("7")
@pytest.mark.parametrize(("before", "found"), [(0, True), (_watcher.MAX_ENVIRONMENT, False)])
def test_of_an_environment_without_end_the_beginning_is_read(
    before: int, found: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark, really = b"0123456789abcdef", os.open
    environ = tmp_path / "environ"
    environ.write_bytes(bytes(before) + mark + bytes(_watcher.MAX_ENVIRONMENT))
    monkeypatch.setattr(os, "open", lambda path, *flags: really(tmp_path / Path(path).name, *flags))
    assert _watcher._has_mark(2**22 + 1, [mark], time.monotonic()) is found


@pytest.mark.pitfall("7")
@pytest.mark.parametrize(
    ("state", "addresses", "waits"),
    [("R", "0 0", 1), ("D", "7 9", 1), ("S", "7 7", 0), ("Z", "0 0", 0)],
    ids=["within execve", "after it", "without environment", "zombie"],
)
def test_a_process_that_begins_a_program_is_found(
    state: str, addresses: str, waits: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid, mark, really = 2**22 + 1, b"0123456789abcdef", os.open
    environ, stat = tmp_path / "environ", tmp_path / "stat"
    environ.touch()
    stat.write_text(f"{pid} (a) (b) {state} {'1 ' * 46}{addresses} 0\n", encoding="ascii")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        environ.write_bytes(mark)

    monkeypatch.setattr(os, "open", lambda path, *flags: really(tmp_path / Path(path).name, *flags))
    monkeypatch.setattr(_watcher, "open", lambda path, mode: stat.open(mode), raising=False)
    monkeypatch.setattr("time.sleep", wait)
    assert _watcher._has_mark(pid, [mark], time.monotonic() - 1) is False
    assert _watcher._has_mark(pid, [mark], time.monotonic() + PATIENCE) is bool(waits)
    assert len(waited) == waits


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Start a child of this process in a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_process_that_gets_the_id_of_a_descendant_is_not_ended(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = count()
    members: list[_watcher.Member] = []
    with monkeypatch.context() as patch:
        patch.setattr(_watcher, "_origin", lambda _: (os.getpid(), b"%d" % next(starts)))
        _watcher.add_descendants(members, os.getpid())
        assert members == []
    _watcher.add_descendants(members, os.getpid())
    assert sleeper.pid in {member.pid for member in members}
    _watcher.close(members)


def test_who_gets_the_id_of_a_held_one_keeps_its_children(sleeper: subprocess.Popen[bytes]) -> None:
    exited = subprocess.Popen(["sleep", "60"])
    member = _watcher.Member(exited.pid)
    exited.kill()
    exited.wait(PATIENCE)
    members = [member]
    member.pid = os.getpid()
    _watcher.add_descendants(members)
    assert members == [member]
    _watcher.close(members)


@pytest.mark.pitfall("7")
@pytest.mark.requirement("STD-06")
@pytest.mark.parametrize("options", [{}, {"env": {}}], ids=["marked", "unmarked"])
def test_such_a_process_is_asked_first(options: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "end"
    daemon = f"""
import os, signal
def end(*_):
    open({str(file)!r}, "a").write("asked")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
os.write(1, b"!")
while True:
    signal.pause()
"""
    # The server waits for the daemon's signal handler before it ends.
    code = with_daemon(daemon, stdout=subprocess.PIPE, **options)
    code = code.replace("sys.stdin.read", "child.stdout.read(1)\nsys.stdin.read")
    with running(python(code, grace=(PATIENCE, PATIENCE))) as (_, notes):
        said(notes)
    assert file.read_text() == "asked"


def test_processes_of_a_server_that_is_a_client_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCMCP_SERVER", "outer")
    show = "import json, os\nprint(json.dumps([dict(os.environ)]), flush=True)\ninput()"
    with running(python(show, inherit_env="none")) as (transport, notes):
        marks = json.loads(notes.wait_frames(1)[0])[0]["SYNCMCP_SERVER"].split(":")
        process: Any = transport._process
        assert marks == ["outer", *process._marks]
    with running(python(show, env={"SYNCMCP_SERVER": "mine"})) as (_, notes):
        assert "mine" not in notes.wait_frames(1)[0].decode()


def test_a_group_whose_leader_is_not_the_server_is_not_ended() -> None:
    mark = os.urandom(16).hex()
    code = "import os, signal\nfor _ in '12':\n    os.fork()\nos.write(1, b'.')\nsignal.pause()\n"

    def start(**env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", code]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=env, stdout=pipe, start_new_session=True)

    with start() as other, start(SYNCMCP_SERVER=f"outer:{mark}") as server:
        try:
            for process in (other, server):
                assert process.stdout is not None
                for _ in range(4):
                    process.stdout.read(1)
            assert _watcher.find({mark: other.pid}) != []
            _watcher.kill({mark: other.pid})
            assert server.wait(PATIENCE) == -signal.SIGKILL
            assert other.poll() is None
            assert _watcher.find({mark: other.pid}) == []
        finally:
            for process in (other, server):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.pitfall("32", "H12")
def test_servers_end_with_the_process_that_opened_them_whoever_was_forked() -> None:
    code = """
mine = opened(STUBBORN)
ready = os.pipe()
child = os.fork()
if not child:
    assert watcher() is None
    os.write(ready[1], b"%d %d" % (opened(STUBBORN), watcher()))
    signal.pause()
idle = os.fork()
if not idle:
    signal.pause()
print(mine, watcher(), child, os.read(ready[0], 99).decode(), idle, flush=True)
input()
"""
    with program(code) as process:
        server, mine, child, of_child, its_own, idle = printed(process)
        assert mine != its_own
        kill(child)
        assert wait_gone(of_child)
        assert wait_gone(its_own)
        assert is_running(server)
        assert is_running(mine)
        kill(process.pid)
        try:
            assert wait_gone(server)
            assert is_running(idle)
        finally:
            kill(idle)


def test_a_watcher_that_somebody_has_killed_or_stopped_is_replaced() -> None:
    code = """
servers, watchers = [opened(STUBBORN)], [watcher()]
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for how in (signal.SIGKILL, signal.SIGSTOP):
    os.kill(watchers[-1], how)
    if how == signal.SIGKILL:
        os.waitid(os.P_PID, watchers[-1], os.WEXITED | os.WNOWAIT)
    else:  # until its pipe is full
        for _ in range(20_000):
            _posix.watch.set_group("00", 0)
        _posix.watch.remove("00")
    servers.append(opened(STUBBORN))
    watchers.append(watcher())
print(*servers, *watchers, flush=True)
os._exit(0)
"""
    with program(code) as process:
        pids = printed(process)
        assert len(set(pids)) == 6
        assert [wait_gone(pid) for pid in pids] == [True] * 6


def test_a_dead_watcher_does_not_disturb_the_servers_that_it_watched() -> None:
    with running(python(ECHO)):
        pid = watcher()
        assert pid is not None
        kill(pid)
    assert watcher() is None


def test_without_a_pidfd_the_watcher_asks_for_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "watcher.py"
    script.write_text(
        f"import runpy, sys\nsys.argv[0] = {_watcher.__file__!r}\n"
        "import os\ndel os.pidfd_open\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    code = f"""
transport.close(Deadline(10))
_posix._watcher.__file__ = {str(script)!r}
mine = opened(STUBBORN)
pipe = _posix.watch._watcher._pipe
holder = subprocess.Popen(["sleep", "60"], pass_fds=pipe, stdout=subprocess.DEVNULL)
print(mine, holder.pid, watcher(), flush=True)
os._exit(0)
"""
    with program(code) as process:
        server, holder, pid = printed(process)
        try:
            assert wait_gone(server)
            assert wait_gone(pid)
            assert is_running(holder)
        finally:
            kill(holder)


def test_many_servers_have_one_watcher_and_leave_nothing() -> None:
    before = child_processes()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(running(Stdio("cat"))) for _ in range(10)]
        servers = {pid_of(transport) for transport, _ in opened}
        assert child_processes() - before - servers == {watcher()}
    assert child_processes() == before
    assert watcher() is None


@pytest.mark.parametrize("case", ["frozen", "embedded", "none", "missing"])
def test_where_no_interpreter_is_known_servers_run_without_a_watcher(
    case: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    where = {"embedded": "/usr/bin/true", "none": None, "missing": str(tmp_path / "python3")}
    monkeypatch.setattr(sys, "executable", where.get(case, sys.executable))
    monkeypatch.setattr(sys, "frozen", case == "frozen", raising=False)
    monkeypatch.setattr(_posix.watch, "_refused", False)
    caplog.set_level(logging.DEBUG, "syncmcp.stdio")
    for _ in range(2):
        with running(Stdio("cat")):
            assert watcher() is None
    assert sum("no watcher" in record.getMessage() for record in caplog.records) == 1


def test_a_watcher_that_is_started_too_late_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = _posix.Watch()
    start = watch._start

    def start_meanwhile() -> Any:
        found = start()
        watch.add("second")  # does not start a second watcher
        for mark in ("first", "second"):
            watch.remove(mark)
        return found

    monkeypatch.setattr(watch, "_start", start_meanwhile)
    watch.add("first")
    assert watch._watcher is None


@pytest.mark.pitfall("7")
def test_no_signal_goes_to_the_group_of_a_reaped_server(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: groups.append(group))
    daemon = with_daemon(STUBBORN).replace("sys.stdin.read()", "")
    with running(python(daemon, grace=(PATIENCE, 0.1))) as (transport, notes):
        left = said(notes)
        os.waitpid(pid_of(transport), 0)
    assert groups == []
    assert wait_gone(left)
