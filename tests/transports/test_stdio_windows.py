"""Code for Windows, with fake processes and jobs."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from syncmcp.auth import Deadline
from syncmcp.errors import UsageError
from syncmcp.transports._process import locate_on_windows, make_pipes
from syncmcp.transports._windows import WindowsProcess, check_arguments, without_current_folder
from syncmcp.transports.stdio import StdioTransport
from tests.transports._stdio import PATIENCE, Notes, frame, python

if TYPE_CHECKING:
    from collections.abc import Iterator


class FakeChild:
    """A process that runs until it is killed, or until the test ends it."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.code = 0
        self.kills = 0

    def poll(self) -> int | None:
        return self.code if self.ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired("fake", timeout or 0)
        return self.code

    def kill(self) -> None:
        self.kills += 1
        self.code = 1
        self.ended.set()


class FakeJob:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.terminated = 0
        self.closed = 0

    def terminate(self) -> None:
        self.terminated += 1
        self.server.child.kill()
        self.server.end()

    def close(self) -> None:
        self.closed += 1


class Server:
    """The server's ends of the pipes, and an echo that runs until its input ends."""

    def __init__(self, *, obedient: bool = True) -> None:
        self.child = FakeChild()
        self.job = FakeJob(self)
        self.ours, (self.stdin, self.stdout, self.stderr) = make_pipes()
        self.lock = threading.Lock()
        self.open = True
        self.obedient = obedient
        self.thread = threading.Thread(target=self.echo)
        self.thread.start()

    def echo(self) -> None:
        while data := os.read(self.stdin, 65536):
            os.write(self.stdout, data)
        if self.obedient:
            self.end()
            self.child.ended.set()

    def end(self) -> None:
        with self.lock:
            if self.open:
                self.open = False
                os.close(self.stdout)
                os.close(self.stderr)

    def process(self, *, job: bool = True) -> WindowsProcess:
        return WindowsProcess(self.child, self.job if job else None, *self.ours)

    def finish(self) -> None:
        self.thread.join(PATIENCE)
        self.end()
        os.close(self.stdin)


@contextmanager
def serving(*, obedient: bool = True) -> Iterator[Server]:
    server = Server(obedient=obedient)
    yield server
    server.finish()


@contextmanager
def opened(
    server: Server, patch: pytest.MonkeyPatch, grace: tuple[float, float] = (PATIENCE, 0.05)
) -> Iterator[tuple[StdioTransport, Notes]]:
    process, notes = server.process(), Notes()
    patch.setattr("syncmcp.transports.stdio.start", lambda *_: process)
    transport = StdioTransport(python("", grace=grace))
    transport.open(notes, Deadline(PATIENCE))
    yield transport, notes
    transport.close(Deadline(PATIENCE))


@pytest.mark.pitfall("7")
@pytest.mark.parametrize("obedient", [True, False])
def test_a_job_ends_the_tree_of_a_server_that_does_not_end_by_itself(
    obedient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace = (PATIENCE if obedient else 0.05, 0.05)
    with serving(obedient=obedient) as server:
        with opened(server, monkeypatch, grace) as (transport, notes):
            transport.send(frame())
            assert notes.wait_frames(1) == [b'{"id":1}']
        # The job also ends what the server left behind, so it is terminated even without force.
        assert server.job.terminated >= 1
        assert server.job.closed == 1
        assert notes.losses == []


@pytest.mark.pitfall("5")
def test_a_death_shows_when_the_pipes_close(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, opened(server, monkeypatch) as (_, notes):
        os.write(server.stderr, b"crash")
        server.child.code = 7
        server.child.ended.set()
        server.end()
        error: Any = notes.wait_lost()
        assert (error.exit_code, error.stderr_tail) == (7, "crash")


def test_without_a_job_the_server_alone_is_killed_and_only_while_it_lives() -> None:
    with serving() as server:
        process = server.process(job=False)
        process.terminate()
        process.kill()
        assert server.child.kills == 1
        assert process.wait(0) == 1
        process.close_input()
        process.close_output()
        process.close_errors()
        process.release()


def test_waiting_for_a_server_that_lives_gives_nothing() -> None:
    with serving() as server:
        process = server.process()
        assert process.wait(0) is None
        process.close_input()
        assert process.wait(PATIENCE) == 0
        process.end_output()
        process.end_errors()
        process.end_input()
        assert (process.read_output(), process.read_errors()) == (b"", b"")
        assert process.wait_writable() is False
        process.close_output()
        process.close_errors()


@pytest.mark.pitfall("26")
@pytest.mark.parametrize("argument", ["a&calc", "%PATH%", 'a"b', "x|y", "a\nb", "a^b", "!x!"])
def test_a_batch_file_gets_no_argument_that_its_interpreter_would_act_on(argument: str) -> None:
    with pytest.raises(ValueError, match="batch file"):
        check_arguments(["C:\\npx.CMD", "fine", argument])
    check_arguments(["C:\\node.exe", argument])
    check_arguments(["C:\\npx.cmd", "-y", "@scope/server", "C:\\Program Files\\x"])


@pytest.mark.pitfall("26")
@pytest.mark.parametrize("end", [".cmd", ".CMD.", ".bat ", ".bat. ."])
def test_the_path_of_a_batch_file_is_read_by_its_interpreter_too(end: str) -> None:
    for argv in ([f"C:\\R&D\\npx{end}"], [f"C:\\npx{end}", "\x1a"]):
        with pytest.raises(ValueError, match="batch file"):
            check_arguments(argv)
    check_arguments([f"C:\\Program Files (x86)\\npx{end}", "a\tb", "--port=1", "(x)"])
    check_arguments(["C:\\R&D\\npx.exe"])


def test_such_an_argument_is_the_mistake_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(argv: tuple[str, ...], *_: object) -> WindowsProcess:
        check_arguments(["npx.cmd", *argv[1:]])
        raise AssertionError("not refused")

    monkeypatch.setattr("syncmcp.transports.stdio.start", start)
    with pytest.raises(UsageError, match="batch file"):
        StdioTransport(python("a & b")).open(Notes(), Deadline(PATIENCE))


# -- the search for the program


NODE = "C:\\Program Files\\nodejs"


def located(command: str, *files: str, cwd: str | None = None, **env: str) -> str:
    """Return the file that is found among `files`, whose names are not case-sensitive."""
    variables = {"Path": f"{NODE};C:\\Windows", **env}
    names = {file.lower(): file for file in files}
    found = locate_on_windows(command, variables, cwd, lambda path: path.lower() in names)
    return names.get(found.lower(), found)


@pytest.mark.pitfall("26")
@pytest.mark.parametrize(
    ("path", "planted"),
    [
        (NODE, "npx.cmd"),
        (NODE, ".\\npx.cmd"),
        (f";{NODE}", "npx.cmd"),
        (f".;{NODE}", ".\\npx.cmd"),
        (f"tools;C:tools;{NODE}", "tools\\npx.cmd"),
        (f'" ";"{NODE}"', "npx.cmd"),
    ],
)
def test_a_program_of_the_current_folder_is_not_found_first(path: str, planted: str) -> None:
    real = f"{NODE}\\npx.cmd"
    assert located("npx", planted, real, Path=path) == real
    with pytest.raises(FileNotFoundError):
        located("npx", planted, Path=path)


@pytest.mark.pitfall("26")
def test_without_a_path_nothing_is_found_in_the_current_folder() -> None:
    for env in ({}, {"PATH": ""}):
        with pytest.raises(FileNotFoundError):
            locate_on_windows("npx", env, None, lambda path: not path.startswith("C:"))


def test_the_first_folder_of_the_path_counts_and_then_the_first_ending() -> None:
    exe, cmd = f"{NODE}\\npx.EXE", "C:\\Windows\\npx.CMD"
    assert located("npx", exe, cmd) == exe
    assert located("npx", cmd, f"{NODE}\\npx", f"{NODE}\\npx.ps1", f"{NODE}\\npx.JS") == cmd
    both = (f"{NODE}\\x.BAT", f"{NODE}\\x.EXE")
    assert located("x", *both) == both[1]
    assert located("x", *both, pathext=".bat;.exe;.js") == both[0]
    with pytest.raises(FileNotFoundError):
        located("x", f"{NODE}\\x.JS", PATHEXT=".JS;.EXE")  # Windows does not run such files itself
    assert located("python3.12", f"{NODE}\\python3.12.EXE") == f"{NODE}\\python3.12.EXE"
    assert located("node.exe", f"{NODE}\\node.exe") == f"{NODE}\\node.exe"
    assert located("node.exe", f"{NODE}\\node.exe.CMD") == f"{NODE}\\node.exe.CMD"


def test_a_command_with_a_folder_is_not_searched_for() -> None:
    assert located("C:\\x\\npx", "C:\\x\\npx.CMD") == "C:\\x\\npx.CMD"
    assert located("C:\\x\\tool.dat", "C:\\x\\tool.dat") == "C:\\x\\tool.dat"
    assert located("bin\\x", "D:\\work\\bin\\x.EXE", cwd="D:\\work") == "D:\\work\\bin\\x.EXE"
    assert located("bin/x", "D:\\work\\bin/x.EXE", cwd="D:\\work") == "D:\\work\\bin/x.EXE"
    assert located("bin\\x", f"{NODE}\\bin\\x.EXE") == "bin\\x"  # not found: starting it fails


@pytest.mark.pitfall("26")
def test_programs_that_a_server_starts_are_not_taken_from_the_current_folder() -> None:
    name = "NoDefaultCurrentDirectoryInExePath"
    assert without_current_folder({"A": "b"}) == {"A": "b", name: "1"}
    given = {name.upper(): "0"}
    assert without_current_folder(given) == given
