"""The end of servers: by request, by force, with their parent, and in a forked child."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.errors import ClosedError
from syncmcp.transports import stdio
from syncmcp.transports.stdio import StdioTransport
from tests.transports._stdio import (
    ECHO,
    PATIENCE,
    PROGRAM,
    ROOT,
    Notes,
    frame,
    is_running,
    kill,
    pid_of,
    python,
    run,
    running,
    said,
    threads,
    wait_gone,
)

# It writes its process id.
SAY_PID = "import os, signal\nos.write(1, b'{\"pid\":%d}\\n' % os.getpid())\n"
PAUSE = "while True: signal.pause()\n"


IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def grandchild(before: str = "", then: str = PAUSE, **options: object) -> str:
    """Return code that starts another process, which writes its id and holds the pipes open."""
    code = f"import signal\n{before}\n{SAY_PID}{then}"
    return (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-I', '-S', '-c', {code!r}], **{options!r})\n"
    )


def orphan(code: str) -> str:
    """Return code that runs `code` in an orphaned child process."""
    return f"import os\nif not os.fork():\n    exec({code!r})\n    os._exit(0)\nos.wait()\n"


@pytest.mark.requirement("STD-06")
@pytest.mark.pitfall("7")
@pytest.mark.parametrize("obedient", [True, False])
def test_a_server_ends_with_its_input_or_when_asked(obedient: bool, tmp_path: Path) -> None:
    file = tmp_path / "end"
    code = f"""
import os, signal, sys
def end(said):
    open({str(file)!r}, "a").write(said)
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: end("asked"))
{SAY_PID}
{"sys.stdin.read()" if obedient else PAUSE}
end("end of input")
"""
    with running(python(code, grace=(PATIENCE if obedient else 0.05, PATIENCE))) as (_, notes):
        pid = said(notes)
    assert file.read_text() == ("end of input" if obedient else "asked")
    assert not is_running(pid)
    assert notes.losses == []


@pytest.mark.requirement("STD-06")
@pytest.mark.pitfall("7")
def test_a_server_that_ignores_everything_is_killed_with_its_children() -> None:
    code = f"import signal\n{IGNORE}\n{grandchild(IGNORE)}{PAUSE}"
    with running(python(code, grace=(0.05, 0.05))) as (transport, notes):
        child, pid = said(notes), pid_of(transport)
    assert not is_running(pid)
    assert wait_gone(child)


@pytest.mark.pitfall("7")
@pytest.mark.parametrize(
    "started",
    [grandchild(), grandchild(IGNORE, env={}), orphan(grandchild(IGNORE, env={}))],
    ids=["marked", "unmarked", "unmarked and an orphan"],
)
def test_what_a_wrapper_leaves_behind_is_killed(started: str) -> None:
    code = f"{started}import sys\nsys.stdin.read()"
    with running(python(code, grace=(PATIENCE, 0.05))) as (_, notes):
        child = said(notes)
    assert wait_gone(child)
    assert notes.losses == []


@pytest.mark.pitfall("7")
@pytest.mark.parametrize("can_nudge", [True, False])
def test_a_process_that_escaped_with_the_pipes_does_not_hold_the_reader(
    can_nudge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_nudge:
        monkeypatch.setattr("syncmcp.transports._posix.PosixProcess._wake_reader", lambda *_: False)
    code = f"{orphan(grandchild(start_new_session=True, env={}))}import sys\nsys.stdin.read()"
    with running(python(code, grace=(PATIENCE, 0.05))) as (_, notes):
        child = said(notes)
    try:
        assert threads() == []
        assert is_running(child)
    finally:
        kill(child)
        assert wait_gone(child)


@pytest.mark.pitfall("7")
def test_a_daemon_that_is_meant_to_stay_outlives_its_server(tmp_path: Path) -> None:
    daemon = tmp_path / "daemon"
    daemon.write_text("""echo "{\\"pid\\":$$}"\nexec sleep 60 <&- >&- 2>&-\n""")
    code = f"(env -u SYNCMCP_SERVER setsid sh {daemon} &)\nexec cat"
    with running(Stdio("sh", "-c", code, grace=(PATIENCE, 0.05))) as (_, notes):
        child = said(notes)
    assert is_running(child)
    kill(child)
    assert wait_gone(child)


@pytest.mark.pitfall("7")
def test_an_escaped_process_that_writes_for_ever_does_not_hold_the_reader() -> None:
    flood = "while True:\n    os.write(1, b'{}\\n' * 1000)\n    os.write(2, b'noise\\n' * 1000)\n"
    escaped = orphan(grandchild(then=flood, start_new_session=True, env={}))
    code = f"{escaped}import sys\nsys.stdin.read()"
    with running(python(code, grace=(PATIENCE, 0.05), stderr="devnull")) as (_, notes):
        child = said(notes)
    assert threads() == []
    assert wait_gone(child)  # its pipes are closed, so its next write fails


@pytest.mark.pitfall("7")
@pytest.mark.parametrize("written", ["'noise\\n' * 100_000", "'x' * 5_000_000 + '\\n{}\\n'"])
def test_what_is_written_when_closed_is_read_but_not_looked_at(
    written: str, tmp_path: Path
) -> None:
    file = tmp_path / "end"
    code = f"""
import sys
sys.stdin.read()
sys.stdout.write({written})
sys.stdout.flush()
open({str(file)!r}, "w").write("flushed")
"""
    with running(python(code, grace=(PATIENCE, 0.0))) as (transport, notes):
        pass
    assert file.read_text() == "flushed"
    assert (transport.noise, notes.frames) == (0, [])


@pytest.mark.pitfall("1")
@pytest.mark.parametrize("where", ["receive", "lost", "stderr"])
def test_the_transport_can_be_closed_on_its_own_threads(where: str) -> None:
    notes, closed, opened = Notes(), threading.Event(), threading.Event()

    def close(*_: object) -> None:
        assert opened.wait(PATIENCE)
        transport.close(Deadline(PATIENCE))
        closed.set()

    code = "import sys\nprint('{}', flush=True)\n"
    if where == "stderr":
        code += "print('closing', file=sys.stderr)\n"
    else:
        setattr(notes, f"on_{where}", close)
    code += "" if where == "lost" else "sys.stdin.read()"
    transport = StdioTransport(python(code, stderr=close if where == "stderr" else "log"))
    transport.open(notes, Deadline(PATIENCE))
    opened.set()
    assert closed.wait(PATIENCE)
    transport.close(Deadline(PATIENCE))
    with pytest.raises(ClosedError):
        transport.send(frame())


@pytest.mark.pitfall("7")
def test_a_server_closed_while_it_is_opening_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    start = stdio.start

    def close_meanwhile(*args: object) -> object:
        closer = threading.Thread(target=transport.close, args=(Deadline(0),))
        closer.start()
        closer.join(PATIENCE)
        return start(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("syncmcp.transports.stdio.start", close_meanwhile)
    transport = StdioTransport(python(ECHO))
    with pytest.raises(ClosedError):
        transport.open(Notes(), Deadline(PATIENCE))
    assert threads() == []


@pytest.mark.pitfall("7", "H12")
def test_a_server_ends_with_a_parent_that_had_no_time_to_close() -> None:
    done = run(
        """
from syncmcp.transports._posix import watch
os.kill(watch._watcher._pid, signal.SIGKILL)  # the end of its input has to do
sleeper = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, close_fds=False,
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(pid_of(transport), sleeper.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    server, sleeper = map(int, done.stdout.split())
    try:
        assert wait_gone(server), done.stderr
        assert is_running(sleeper)
    finally:
        kill(sleeper)


@pytest.mark.pitfall("32", "H12")
def test_a_forked_child_neither_holds_nor_hurts_the_server() -> None:
    done = run(
        """
ready, release = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.close(release[1])
    with running(python(ECHO)) as (own, heard):
        own.send(frame())
        heard.wait_frames(1)
    os.write(ready[1], b"ready")
    os.read(release[0], 1)
    os._exit(0)
print(os.read(ready[0], 5))
server = pid_of(transport)
transport.send(frame())
print(notes.wait_frames(1))
transport._stdin_writer.close()  # the server sees the end, though the child lives on
print(notes.wait_lost().exit_code)
transport.close(Deadline(30))
print(is_running(server))
os.close(release[1])
print(os.waitpid(child, 0)[1])
"""
    )
    assert done.stdout.splitlines() == ["b'ready'", "[b'{\"id\":1}']", "0", "False", "0"], (
        done.stderr
    )


@pytest.mark.pitfall("9")
def test_ctrl_c_at_the_terminal_does_not_reach_the_server() -> None:
    controller, terminal = pty.openpty()
    code = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
foreground = os.tcgetpgrp(0)
with running(python(ECHO)) as (server, heard):
    try:
        print("ready", flush=True)
        threading.Event().wait(30)
    except KeyboardInterrupt:
        server.send(frame())
        print(heard.wait_frames(1), os.tcgetpgrp(0) == foreground, flush=True)
transport.close(Deadline(10))
"""
    try:
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM + code],
            cwd=ROOT,
            stdin=terminal,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            os.write(controller, b"\x03")
            assert program.stdout.readline() == "[b'{\"id\":1}'] True\n"
            assert program.wait(PATIENCE) == 0
    finally:
        os.close(controller)
        os.close(terminal)
