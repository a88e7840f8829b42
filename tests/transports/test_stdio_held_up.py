"""A server whose start is blocked by a file system, which must not block anything else."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from syncmcp._client.opening import revision_memory
from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.errors import ClosedError, RequestTimeout
from syncmcp.transports import _process, stdio
from syncmcp.transports.stdio import StdioTransport
from tests.transports._stdio import ECHO, PATIENCE, Notes, frame, python, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# In seconds; much shorter than the blocked start.
PROMPT = PATIENCE / 2

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases are a part of Linux")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Write a server that creates a file when it runs."""
    path = tmp_path / "server"
    path.write_text(f"#!/bin/sh\n: > {tmp_path / 'ran'}\nexec cat\n")
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def lease(path: Path) -> Iterator[None]:
    """Block everyone who opens or runs a file, as a network file system without a response does."""
    import fcntl

    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


@contextlib.contextmanager
def fifo_for_stderr(path: Path) -> Iterator[None]:
    """Block the opening of the file for stderr until it is opened for reading."""
    os.mkfifo(path)
    try:
        yield
    finally:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


@contextlib.contextmanager
def gate(owner: Any, name: str, holds: Callable[..., bool]) -> Iterator[None]:
    """Block a system function for arguments for which `holds` returns true."""
    release, function = threading.Event(), getattr(owner, name)

    def held_up(*args: Any, **named: Any) -> Any:
        if holds(*args):
            assert release.wait(3 * PATIENCE)
        return function(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, held_up)
        try:
            yield
        finally:
            release.set()


def prompt(action: Callable[[], object]) -> None:
    started = time.monotonic()
    action()
    assert time.monotonic() - started < PROMPT


def fork() -> None:
    if not (child := os.fork()):
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def nothing_waits_for(transport: StdioTransport) -> threading.Thread:
    """Open a blocked transport; check that it blocks only its own thread; return that thread."""

    def open() -> None:
        with pytest.raises(RequestTimeout, match="not started in time") as caught:
            transport.open(Notes(), Deadline(0.1))
        assert (caught.value.kind, caught.value.delivery) == ("open", "not_sent")

    def use_another() -> None:
        with running(python(ECHO)) as (another, notes):
            another.send(frame())
            notes.wait_frames(1)

    for action in (open, use_another, fork, lambda: transport.close(Deadline(PATIENCE))):
        prompt(action)
    return next(t for t in threading.enumerate() if t.name == f"syncmcp-stderr[{transport.label}]")


@pytest.mark.parametrize(
    "where", ["program", "interpreter", "link", "working folder", "PATH", "stderr"]
)
def test_a_silent_file_system_holds_up_nothing(where: str, program: Path, tmp_path: Path) -> None:
    config, held = Stdio(program), lease(program)
    if where == "interpreter":
        shell = tmp_path / "sh"
        shutil.copy("/bin/sh", shell)
        program.write_text(program.read_text().replace("/bin/sh", str(shell)))
        held = lease(shell)
    elif where == "link":
        (tmp_path / "link").symlink_to(program)
        config = Stdio("link", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    elif where == "stderr":
        config, held = Stdio(program, stderr=tmp_path / "e"), fifo_for_stderr(tmp_path / "e")
    elif where != "program":
        held = gate(os, "stat", lambda path, *_: str(path).startswith(str(tmp_path)))
        on_path = Stdio("server", env={"PATH": str(tmp_path)})
        config = on_path if where == "PATH" else Stdio(program, cwd=tmp_path)
    transport = StdioTransport(config)
    with held:
        drain = nothing_waits_for(transport)
    drain.join(PATIENCE)
    assert not drain.is_alive()
    assert not (tmp_path / "ran").exists()


@pytest.mark.pitfall("H12")
def test_a_start_that_the_system_holds_up_after_all(program: Path) -> None:
    transport = StdioTransport(Stdio(program))
    with gate(stdio, "start", lambda argv, *_: argv[0] == str(program)):
        drain = nothing_waits_for(transport)
    drain.join(PATIENCE)
    assert not drain.is_alive()
    with pytest.raises(ClosedError):
        transport.send(frame())


@pytest.mark.pitfall("H12")
def test_a_fork_waits_for_a_start_that_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    started, forking = threading.Event(), threading.Event()
    start = stdio.start

    def slow(*args: Any) -> Any:
        started.set()
        assert forking.wait(PATIENCE)
        process = start(*args)
        order.append("started")
        return process

    def deadline(seconds: float) -> Deadline:  # called when the fork starts to wait
        forking.set()
        return Deadline(seconds)

    monkeypatch.setattr(stdio, "start", slow)
    monkeypatch.setattr("syncmcp._concurrency.forks._FORK_WAIT", PATIENCE)
    monkeypatch.setattr("syncmcp._concurrency.forks.Deadline", deadline)
    transport = StdioTransport(Stdio("cat"))
    opening = threading.Thread(target=transport.open, args=(Notes(), Deadline(PATIENCE)))
    opening.start()
    assert started.wait(PATIENCE)
    fork()
    order.append("forked")
    opening.join(PATIENCE)
    transport.close(Deadline(PATIENCE))
    assert order == ["started", "forked"]


def test_what_cannot_be_reached_is_left_to_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_text("#!\n")
    (tmp_path / "circle").write_text(f"#!{tmp_path}/circle\n")
    for name in ("fifo", "empty", "circle", "missing", "", "nul\0"):
        _process.reach(name, str(tmp_path))


def test_looking_a_revision_up_reads_no_file(program: Path) -> None:
    with gate(os, "stat", lambda path, *_: "server" in str(path)):
        prompt(lambda: revision_memory.find(Stdio("server", env={"PATH": str(program.parent)})))
