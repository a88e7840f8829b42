"""Starts a server that listens on a port, and ends it with all its child processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.ports import free_port
from tests.system.peers.peers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.peers.peers import Program

START_TIMEOUT = 60.0
STOP_TIMEOUT = 1.0
KILL_TIMEOUT = 10.0


class HttpServer:
    """A running server.

    Attributes:
        url: Its MCP endpoint, on the loopback address.
        pid: The id of its process.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int, path: str) -> None:
        self.pid = process.pid
        self.url = f"http://127.0.0.1:{port}{path}"
        self._process = process
        self._log = log
        self._port = port
        self._stopped = False

    def output(self) -> str:
        """Return its output so far: stdout and stderr."""
        return self._log.read_text("utf-8", errors="replace")

    def wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
                return
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0.05)
                raise AssertionError(f"exit code {code}:\n{self.output()}")
        raise AssertionError(f"nothing listens on port {self._port}:\n{self.output()}")

    def stop(self) -> None:
        """End the process and its children: SIGTERM, then SIGKILL. It may be called again."""
        ended, self._stopped = self._stopped, True
        code = None if ended else self._process.poll()
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT)
        self._signal(signal.SIGKILL)
        self._process.wait(KILL_TIMEOUT)
        assert code is None or code >= 0, f"signal {-code} had ended the peer:\n{self.output()}"

    def _signal(self, number: signal.Signals) -> None:
        # The process group exists until its last process has ended.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextmanager
def http_server(program: Program) -> Iterator[HttpServer]:
    """Run the program on a free port of the loopback address until the block ends."""
    port = free_port()
    program = program.ready(port)
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            program.command,
            cwd=ROOT,
            env={**os.environ, **program.env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = HttpServer(process, Path(log.name), port, program.path)
        try:
            server.wait_until_it_listens()
            yield server
        finally:
            server.stop()
