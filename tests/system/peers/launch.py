"""Starts a peer that listens on a port, and ends it with everything it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import syncmcp
from tests.support.ports import free_port
from tests.system.peers.peers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.peers.peers import Program

START_TIMEOUT = 60.0
STOP_TIMEOUT = 1.0
KILL_TIMEOUT = 10.0


class HttpServer:
    """A running peer.

    Attributes:
        url: Its MCP endpoint, on the loopback address.
        pid: The process that was started.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int, path: str) -> None:
        self.pid = process.pid
        self.url = f"http://127.0.0.1:{port}{path}"
        self._process = process
        self._log = log
        self._port = port
        self._stopped = False

    def output(self) -> str:
        """Everything it has written so far, stdout and stderr together."""
        return self._log.read_text("utf-8", errors="replace")

    def wait_until_it_listens(self) -> None:
        """Returns when a connection is accepted.

        Raises:
            AssertionError: The process ended, or nothing listens after `START_TIMEOUT` seconds.
        """
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
                return
            except OSError:
                try:
                    code = self._process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                raise AssertionError(f"exit code {code}:\n{self.output()}") from None
        raise AssertionError(f"nothing listens on port {self._port}:\n{self.output()}")

    def stop(self) -> None:
        """Ends the process and all its children, gently at first; it may be called again.

        Raises:
            AssertionError: Something else had killed the process.
        """
        ended, self._stopped = self._stopped, True
        code = None if ended else self._process.poll()
        self._terminate(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT)
        self._terminate(None)
        self._process.wait(KILL_TIMEOUT)
        if code is not None and code < 0:
            raise AssertionError(f"signal {-code} had ended the peer:\n{self.output()}")

    def _terminate(self, gently: signal.Signals | None) -> None:
        if sys.platform == "win32":
            self._process.kill()
            return
        # The group outlives its leader for as long as any child is in it.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, gently or signal.SIGKILL)


@contextmanager
def http_server(program: Program) -> Iterator[HttpServer]:
    """Runs the program on a free port of the loopback address for as long as the block lasts."""
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


@contextmanager
def client_of(program: Program, **options: Any) -> Iterator[syncmcp.Client]:
    """A client with these options of the program, which runs for it, over stdio or on a port."""
    if program.listens:
        with http_server(program) as server, syncmcp.connect(server.url, **options) as client:
            yield client
    else:
        target = syncmcp.Stdio(*program.ready().command, cwd=ROOT, stderr="devnull")
        with syncmcp.connect(target, **options) as client:
            yield client
