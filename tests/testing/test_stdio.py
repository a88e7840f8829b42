"""The demo server as a child process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.testing.wires import PATIENCE, Http, initialize, modern


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "syncmcp.testing", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def end(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(PATIENCE)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
def test_it_speaks_the_stateful_revisions_and_ends_with_stdin(revision: str) -> None:
    with child() as process:
        params = initialize(revision)
        tell(process, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert hear(process)["result"]["protocolVersion"] == revision
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        tell(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        assert hear(process)["result"]["content"][0]["text"] == "3"
        sleep = {"name": "sleep", "arguments": {"seconds": 60}}
        tell(process, {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": sleep})
        assert end(process) == 0


def test_it_speaks_the_new_era_and_its_options_are_heard() -> None:
    with child("--name", "other", "--page-size", "2", "--revisions", "2026-07-28") as process:
        tell(process, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": modern()})
        result = hear(process)["result"]
        assert len(result["tools"]) == 2
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "other"
        assert end(process) == 0


def test_it_survives_noise_and_empty_lines() -> None:
    with child() as process:
        assert process.stdin is not None
        process.stdin.write(b"\n{\r\n  \n")
        tell(process, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert hear(process)["error"]["code"] == -32700
        assert hear(process)["result"] == {}
        assert end(process) == 0


def test_sigterm_ends_it() -> None:
    with child() as process:
        tell(process, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        hear(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM


def test_it_serves_http_until_sigterm() -> None:
    with child("--http", "0") as process:
        assert process.stdout is not None
        client = Http(process.stdout.readline().decode().strip())
        client.start()
        assert client.post("ping")[2]["result"] == {}
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_importing_the_package_loads_no_server() -> None:
    program = "import sys, syncmcp.testing as t; before = set(sys.modules); t.Server; "
    program += "print('syncmcp.testing.server.server' in before, 'asyncio' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=PATIENCE * 3
    )
    assert done.stdout.split() == [b"False", b"False"]
