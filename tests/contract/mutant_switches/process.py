"""Mutants of child processes: pipes, starting and ending them, forks, signals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from syncmcp.errors import ConnectionLost, ProtocolError
from syncmcp.transports import _posix
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

OUTBOX = "syncmcp.transports._pipes:StdinWriter"
POSIX = "syncmcp.transports._posix"
STDERR = "syncmcp.transports._pipes"
STDIO = "syncmcp.transports.stdio:StdioTransport"


def _greet(original: Function) -> Function:
    def open(self: Any, process: Any) -> None:
        original(self, process)
        process.write(b"\n", [])

    return open


def _write_and_wait(original: Function) -> Function:
    def open(self: Any, process: Any) -> None:
        os.set_blocking(process._stdin, True)
        original(self, process)

    return open


def _leave_frames_unfinished(original: Function) -> Function:
    def withdraw(self: Any, out: Any) -> Any:
        with self._lock:
            if self._started is out:
                self._remainder = memoryview(b"")
        return original(self, out)

    return withdraw


def _take_stderr_for_failure(original: Function) -> Function:
    def open_stderr(self: Any) -> None:
        original(self)
        feed = self._stderr.feed

        def fail(chunk: bytes) -> None:
            feed(chunk)
            self._receiver.lost(ConnectionLost("the server wrote to its stderr"))

        self._stderr.feed = fail

    return open_stderr


def _leave_stderr_unread(original: Function) -> Function:
    def read_errors(self: Any) -> None:
        while not self._closing:
            time.sleep(0.01)
        original(self)

    return read_errors


def _need_a_real_stderr(original: Function) -> Function:
    def init(self: Any, *args: Any) -> None:
        os.fstat(sys.stderr.fileno())
        original(self, *args)

    return init


def _break_on_noise(original: Function) -> Function:
    def skip(self: Any, line: bytes) -> None:
        self._receiver.lost(ProtocolError("a line on stdout is no message"))

    return skip


def _spin_after_the_end(original: Function) -> Function:
    def read(self: Any) -> None:
        original(self)
        while True:
            time.sleep(0)

    return read


def _end_with_the_thread(original: Function) -> Function:
    def start(argv: Any, env: Any, cwd: Any) -> Any:
        setpriv = shutil.which("setpriv")
        assert setpriv is not None
        return original((setpriv, "--pdeathsig", "KILL", *argv), env, cwd)

    return start


def _share_the_terminal(original: Function) -> Function:
    def popen(*args: Any, **named: Any) -> Any:
        return subprocess.Popen(*args, **{**named, "start_new_session": False})

    def start(argv: Any, env: Any, cwd: Any) -> Any:
        shared = {**vars(subprocess), "Popen": popen}
        module: Any = _posix
        module.subprocess = SimpleNamespace(**shared)
        return original(argv, env, cwd)

    return start


def _signal_the_head_alone(original: Function) -> Function:
    def signal_group(self: Any, number: Any) -> None:
        if self.wait(0) is None:
            os.kill(self._popen.pid, number)

    return signal_group


def _let_children_inherit(pipes: Any) -> Any:
    for descriptor in pipes[0]:
        os.set_inheritable(descriptor, True)
    return pipes


PIPES = (
    Mutant(
        "greeting",
        "a server's stdin gets something that is no message",
        f"{OUTBOX}.open",
        _greet,
        ("STD-02",),
    ),
    Mutant(
        "writes-that-wait",
        "who sends waits until the pipe has room, and so does everybody else",
        f"{OUTBOX}.open",
        _write_and_wait,
        ("H13", "4"),
    ),
    Mutant(
        "frames-unfinished",
        "a frame that is given up in the middle stays half written",
        f"{OUTBOX}.cancel",
        _leave_frames_unfinished,
        ("H13",),
    ),
    Mutant(
        "noise-is-fatal",
        "a line that is no message ends the connection",
        f"{STDIO}._skip_noise",
        _break_on_noise,
        ("12",),
    ),
    Mutant(
        "stderr-is-fatal",
        "what a server writes to stderr ends the connection",
        f"{STDIO}._open_stderr",
        _take_stderr_for_failure,
        ("STD-03",),
    ),
    Mutant(
        "stderr-unread",
        "what a server writes to stderr is not read",
        f"{STDIO}._read_stderr",
        _leave_stderr_unread,
        ("10",),
    ),
    Mutant(
        "real-stderr-needed",
        "opening needs a `sys.stderr` with a descriptor",
        f"{STDERR}:StderrSink.__init__",
        _need_a_real_stderr,
        ("11",),
    ),
    Mutant(
        "last-words-lost",
        "what a server wrote to stderr is not kept",
        f"{STDERR}:StderrSink.tail",
        always(""),
        ("5", "10"),
    ),
    Mutant(
        "reader-spins",
        "the reader of a server that is gone goes on looking",
        f"{STDIO}._read_stdout",
        _spin_after_the_end,
        ("2",),
    ),
)

LIVES = (
    Mutant(
        "environment-passed-on",
        "a spawned server gets the whole environment",
        "syncmcp.transports._process:environment",
        lambda original: lambda given, inherit, own, **named: original(given, "all", own, **named),
        ("26",),
    ),
    Mutant(
        "variables-kept-back",
        "a spawned server does not get the variables meant for it",
        "syncmcp.transports._process:environment",
        lambda original: lambda given, inherit, own, **named: original({}, inherit, own, **named),
        ("STD-10",),
    ),
    Mutant(
        "bound-to-the-opener",
        "a server ends with the thread that started it",
        f"{POSIX}:start",
        _end_with_the_thread,
        ("STD-09", "1"),
    ),
    Mutant(
        "killed-at-once",
        "a server is killed without having been asked to end",
        f"{STDIO}._shut_down",
        always(None),
        ("STD-06",),
    ),
    Mutant(
        "grandchildren-left",
        "only the head of a server's processes is ended",
        f"{POSIX}:PosixProcess._signal_group",
        _signal_the_head_alone,
        ("7",),
    ),
    Mutant(
        "daemons-left",
        "what a server started in a session of its own outlives it",
        "syncmcp.transports._watcher:find",
        lambda original: lambda servers: [],
        ("7",),
    ),
    Mutant(
        "unwatched",
        "servers outlive a program that is killed",
        "syncmcp.transports._watching:Watch._start",
        always(None),
        ("7",),
    ),
    Mutant(
        "ctrl-c-for-all",
        "Ctrl-C at the terminal reaches the server, too",
        f"{POSIX}:start",
        _share_the_terminal,
        ("9",),
    ),
    Mutant(
        "pipes-inherited",
        "other children inherit our ends of a server's pipes",
        "syncmcp.transports._process:make_pipes",
        result(_let_children_inherit),
        ("H12",),
    ),
    Mutant(
        "pipes-kept-in-forks",
        "a forked child keeps the pipes of the parent's servers",
        f"{STDIO}._discard_in_child",
        always(None),
        ("H12",),
    ),
)

MUTANTS = PIPES + LIVES
