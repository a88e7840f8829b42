"""Output of a server: frames, noise, stderr, and its end."""

from __future__ import annotations

import io
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from syncmcp.errors import ConnectionLost, LimitExceeded
from syncmcp.transports._pipes import LineReader, StderrSink
from tests.support.memory import peak
from tests.support.parts import raising
from tests.support.stage import Clock
from tests.transports._stdio import (
    ECHO,
    PATIENCE,
    Notes,
    frame,
    kill,
    pid_of,
    python,
    running,
    said,
    wait_gone,
)


def writes(data: bytes) -> str:
    """Return a server that writes `data` to stdout, then waits for the end of its input."""
    return f"import sys\nsys.stdout.buffer.write({data!r})\nsys.stdout.flush()\nsys.stdin.read()"


def death_of(code: str, **options: Any) -> ConnectionLost:
    """Return the error for a server that ends without a request to do so."""
    with running(python(code, **options)) as (_, notes):
        error = notes.wait_lost()
    assert isinstance(error, ConnectionLost)
    return error


@pytest.mark.pitfall("12")
def test_noise_on_stdout_is_skipped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    noise = b"Welcome!\n\n\r\n  \n[INFO] ready\n\xff\xfe\xfa\n[1]\n"
    caplog.set_level(logging.DEBUG, "syncmcp.stdio")
    data = noise + b'{"id":1}\r\n [{"id":2}]\n {"id":"\xe2\x80\xa8"}\n'
    with running(python(writes(data))) as (transport, notes):
        assert notes.wait_frames(3) == [b'{"id":1}', b' [{"id":2}]', b' {"id":"\xe2\x80\xa8"}']
        assert transport.noise == 4
    records = [record for record in caplog.records if record.name == "syncmcp.stdio"]
    assert [record.levelname for record in records] == ["WARNING", "DEBUG"]
    assert "and 2 more like it" in records[1].getMessage()
    assert "Welcome!" in caplog.text


@pytest.mark.pitfall("12")
def test_a_flood_of_noise_is_one_record_and_a_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    caplog.set_level("DEBUG", "syncmcp.stdio")
    with running(python(writes(b"y\n" * 1500 + b"{}\n"))) as (transport, notes):
        notes.wait_frames(1)
        assert transport.noise == 1500
    told = [one.getMessage() for one in caplog.records if one.name == "syncmcp.stdio"]
    assert "not a message" in told[0]
    ends = [text.rpartition("(and ")[2] for text in told[1:]]
    assert ends == ["1498 more like it since the last record)"]


def test_a_transport_describes_what_the_server_wrote_that_was_no_message() -> None:
    code = writes(b"hello s3cr3t-canary\nworld\n{}\n").replace(
        "sys.stdout.flush()",
        "sys.stderr.write('x' * 5000 + 'last words s3cr3t-canary\\n')\n"
        "sys.stderr.flush()\nsys.stdout.flush()",
    )
    lines: list[str] = []
    came = threading.Event()

    def note(line: str) -> None:
        lines.append(line)
        came.set()

    with running(python(code, env={"KEY": "s3cr3t-canary"}, stderr=note)) as (transport, notes):
        notes.wait_frames(1)
        assert came.wait(PATIENCE)
        text = transport.describe()
    assert text.startswith("2 lines on its stdout were not messages, the first: 'hello ***'; ")
    assert text.endswith("last words ***")
    assert len(text) < 1200


def test_a_reader_that_fails_unexpectedly_ends_the_connection_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes, failure = Notes(), ZeroDivisionError("surprise")
    notes.on_receive = raising(failure)
    with running(python(writes(b"{}\n")), notes):
        error = notes.wait_lost()
    assert type(error) is ConnectionLost
    assert error.__cause__ is failure
    assert "surprise" in str(error)
    assert [one.levelname for one in caplog.records if one.exc_info] == ["ERROR"]


def test_a_reader_of_stderr_that_fails_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StderrSink, "feed", raising(ZeroDivisionError))
    error = death_of("import sys; sys.stderr.write('x\\n'); sys.stdin.read()")
    assert isinstance(error.__cause__, ZeroDivisionError)


LONGEST = b'{"text":"' + b"x" * 989 + b'"}'


@pytest.mark.pitfall("12")
def test_what_is_around_a_message_does_not_belong_to_it() -> None:
    data = b'\xef\xbb\xbf[{"id":1}]\n' + LONGEST + b"\r\n"
    with running(python(writes(data), max_frame=1000)) as (transport, notes):
        assert notes.wait_frames(2) == [b'[{"id":1}]', LONGEST]
        assert transport.noise == 0


@pytest.mark.alone
@pytest.mark.pitfall("12")
def test_a_line_of_50_megabytes_is_skipped_without_being_kept() -> None:
    line = """
import sys
for _ in range(50):
    sys.stdout.write("x" * 1_000_000)
"""

    def read() -> None:
        code = line + writes(b'\n{"id":1}\n')
        with running(python(code, max_frame=1_000_000)) as (transport, notes):
            assert notes.wait_frames(1) == [b'{"id":1}']
            assert transport.noise == 1

    assert peak(read) < 10_000_000


@pytest.mark.pitfall("12")
def test_a_message_longer_than_the_bound_ends_the_connection_with_its_name() -> None:
    code = writes(b'{"text":"' + b"x" * 2000 + b'"}\n{"id":2}\n')
    with running(python(code, max_frame=1000)) as (_, notes):
        error = notes.wait_lost()
    assert isinstance(error, LimitExceeded)
    assert "max_frame" in str(error)
    assert notes.frames == []


@pytest.mark.pitfall("12")
@pytest.mark.parametrize(("last", "taken"), [(b'{"id":2}', True), (b'{"id":2,"resu', False)])
def test_a_last_line_without_its_end_counts_only_if_it_is_whole(last: bytes, taken: bool) -> None:
    code = f"import os\nos.write(1, {b'{}' + bytes([10]) + last!r})"
    with running(python(code)) as (transport, notes):
        assert isinstance(notes.wait_lost(), ConnectionLost)
        assert notes.frames == [b"{}", *[last] * taken]
        assert transport.noise == (not taken)


def test_a_line_in_tiny_pieces_takes_no_more_memory_than_its_bytes() -> None:
    lines, line = LineReader(2**20), b"ab" * 2**15

    def read() -> None:
        for start in range(0, len(line), 2):
            assert lines.feed(line[start : start + 2]) == []

    assert peak(read) < 3 * len(line)
    assert lines.feed(b"\n") == [line]


@pytest.mark.pitfall("10")
@pytest.mark.parametrize("newline", ["\\n", ""])
def test_a_megabyte_on_stderr_does_not_stop_the_answer(newline: str) -> None:
    code = f"""
import sys
line = sys.stdin.readline()
for number in range(10_000):
    sys.stderr.write(f"{{number:05}}" + "e" * 100 + "{newline}")
sys.stderr.flush()
sys.stdout.write(line)
sys.exit(4)
"""
    with running(python(code)) as (transport, notes):
        transport.send(frame())
        assert notes.wait_frames(1) == [b'{"id":1}']
        error = notes.wait_lost()
    assert isinstance(error, ConnectionLost)
    assert error.stderr_tail.endswith("09999" + "e" * 100)
    assert len(error.stderr_tail) <= 4096
    assert error.stderr_tail.count("\n") < 20


@pytest.mark.alone
@pytest.mark.pitfall("10")
def test_stderr_without_a_newline_takes_little_memory() -> None:
    sink = StderrSink("devnull", "test", python("").secrets)

    def write() -> None:
        for _ in range(64):
            sink.feed(b"x" * 100_000)

    assert peak(write) < 1_000_000
    assert sink.tail() == "x" * 4096


@pytest.mark.requirement("STD-03")
def test_text_on_stderr_is_not_an_error() -> None:
    code = "import sys\nprint('ERROR: fatal', file=sys.stderr, flush=True)" + ECHO
    seen: list[str] = []
    said = threading.Event()

    def sink(line: str) -> None:
        seen.append(line)
        said.set()

    with running(python(code, stderr=sink)) as (transport, notes):
        assert said.wait(PATIENCE)
        transport.send(frame())
        notes.wait_frames(1)
    assert seen == ["ERROR: fatal"]
    assert (notes.losses, notes.failures, transport.noise) == ([], [], 0)


@pytest.mark.pitfall("11")
@pytest.mark.parametrize(
    ("target", "own"),
    [("log", None), ("inherit", None), ("inherit", io.StringIO()), ("devnull", None)],
)
def test_no_real_stderr_is_needed(
    target: str, own: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", own)
    assert death_of("import sys\nsys.exit('last words')", stderr=target).stderr_tail == "last words"
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == []
    if own is not None:
        assert own.getvalue() == "last words\n"


def test_stderr_is_appended_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stderr.txt"
    file.write_text("before\n")
    death_of(r"import sys; sys.exit('\x1b[1mafter')", stderr=file)
    assert file.read_text() == "before\n\x1b[1mafter\n"


NOISY = "import sys\nfor _ in range(30000): print('noise', file=sys.stderr)\n" + ECHO
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a full disk")


@pytest.mark.pitfall("10")
@pytest.mark.parametrize("sink", [pytest.param("/dev/full", marks=FULL), "a function"])
def test_where_stderr_cannot_go_it_is_dropped_and_logged_once(
    sink: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    uncaught: list[object] = []

    def raises(line: str) -> None:
        calls.append(line)
        raise ValueError("no")

    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    stderr = sink if sink == "/dev/full" else raises
    with running(python(NOISY, stderr=stderr)) as (transport, notes):
        transport.send(frame())
        assert notes.wait_frames(1)
    assert uncaught == []
    assert calls == ([] if sink == "/dev/full" else ["noise"])
    [record] = caplog.records
    assert record.name == "syncmcp.stderr"
    assert sink == "/dev/full" or record.levelname == "ERROR"


@pytest.mark.pitfall("5")
def test_a_death_is_told_once_with_exit_code_and_last_words() -> None:
    server = "import os, sys\nos.write(2, b'dying')\nsys.stdin.readline()\nsys.exit(3)"
    with running(python(server)) as (transport, notes):
        transport.send(frame())
        error = notes.wait_lost()
    assert isinstance(error, ConnectionLost)
    assert (error.exit_code, error.stderr_tail, error.delivery) == (3, "dying", "unknown")
    assert notes.losses == [error]


# A child process of the server, which holds its pipes open.
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
"""


@pytest.mark.pitfall("5")
def test_a_killed_server_is_told_though_its_child_holds_the_pipes() -> None:
    code = CHILD + "print('{\"pid\":%d}' % child.pid, flush=True)\nsys.stdin.read()"
    with running(python(code)) as (transport, notes):
        child = said(notes)
        kill(pid_of(transport))
        error = notes.wait_lost()
    assert isinstance(error, ConnectionLost)
    assert error.exit_code == -9
    assert "killed by signal 9 (SIGKILL)" in str(error)
    assert wait_gone(child)


@pytest.mark.pitfall("5")
def test_a_server_that_closes_its_stdout_and_stays_is_lost_too() -> None:
    assert death_of("import os, sys\nos.close(1)\nsys.stdin.read()").exit_code is None


@pytest.mark.parametrize("without", ["nothing", "nudge", "pidfd"])
def test_what_a_dead_server_had_written_is_still_received_though_its_child_lives(
    without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each way in which the system may report the death."""
    if without == "nudge":
        monkeypatch.setattr("syncmcp.transports._posix.PosixProcess._wake_reader", lambda *_: False)
    elif without == "pidfd":
        monkeypatch.setattr("syncmcp.transports._watcher.open_pidfd", lambda _: None)
    code = CHILD + "for n in range(5000): sys.stdout.write('{\"id\":%d}\\n' % n)\nsys.exit(5)"
    with running(python(code)) as (_, notes):
        error = notes.wait_lost()
        assert len(notes.frames) == 5000
    assert isinstance(error, ConnectionLost)
    assert error.exit_code == 5
