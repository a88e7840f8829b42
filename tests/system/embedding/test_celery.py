"""Celery: the processes of a prefork worker, and what they may not take with them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.programs import ROOT, environment
from tests.system.embedding.frameworks import CEILING, EXAMPLES, FRAMEWORKS, children
from tests.transports._stdio import wait_gone

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@contextmanager
def worker(program: Path, files: Path) -> Iterator[int]:
    """A prefork worker of two processes, which ends when it has done what it was given."""
    with (files / "log").open("wb") as log:
        process = subprocess.Popen(
            [FRAMEWORKS, program, "worker", "--pool", "prefork", "--concurrency", "2"],
            cwd=ROOT,
            env=environment(CELERY_FILES=str(files)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process.pid
        process.terminate()
        assert process.wait(CEILING) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        print((files / "log").read_text("utf-8"))


@contextmanager
def waiting(program: Path, files: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has sent its tasks, and waits for what comes of them."""
    with subprocess.Popen(
        [FRAMEWORKS, "-W", "error::ResourceWarning", program],
        cwd=ROOT,
        env=environment(CELERY_FILES=str(files)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert "sent" in process.stdout.readline(), process.communicate()
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> str:
    """What such a program prints when it has its results."""
    out, err = process.communicate(timeout=CEILING)
    assert process.returncode == 0, out + err
    assert "Traceback" not in err, err
    return out


def is_server(pid: int) -> bool:
    return b"syncmcp.testing" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.pitfall("3", "7", "32")
def test_each_process_of_a_worker_has_a_client_and_leaves_no_server(tmp_path: Path) -> None:
    program = EXAMPLES / "celery_tasks.py"
    with waiting(program, tmp_path) as process, worker(program, tmp_path) as parent:
        assert told(process) == "[0, 2, 4, 6, 8, 10, 12, 14]\n"
        processes = children(parent)
        assert not any(map(is_server, processes))
        servers = [pid for process in processes for pid in children(process) if is_server(pid)]
        assert servers
    assert all(map(wait_gone, servers))


@pytest.mark.pitfall("3", "32")
def test_a_client_of_the_parent_is_refused_in_a_process_of_the_worker_and_unharmed(
    tmp_path: Path,
) -> None:
    program = ROOT / "tests" / "system" / "embedding" / "forking_tasks.py"
    with waiting(program, tmp_path) as process, worker(program, tmp_path):
        refused, anew = told(process).splitlines()
    assert refused.startswith("ForkedError: this client belongs to the parent process")
    assert anew == "3"
    assert "the parent's client: 23" in (tmp_path / "log").read_text("utf-8")
