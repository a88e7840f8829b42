"""The demo server as a child process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.testing.wires import PATIENCE, Child, Http, initialize, modern


@contextmanager
def child(*arguments: str) -> Iterator[Child]:
    client = Child(*arguments)
    with client.process as process:
        try:
            yield client
        finally:
            process.kill()


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
def test_it_speaks_the_stateful_revisions_and_ends_with_stdin(revision: str) -> None:
    with child() as client:
        assert (
            client.call("initialize", initialize(revision))["result"]["protocolVersion"] == revision
        )
        assert client.tool("add", {"a": 1, "b": 2})["result"]["content"][0]["text"] == "3"
        client.ask("tools/call", {"name": "sleep", "arguments": {"seconds": 60}})
        assert client.close() == 0


def test_it_speaks_the_new_era_and_its_options_are_heard() -> None:
    with child("--name", "other", "--page-size", "2", "--revisions", "2026-07-28") as client:
        result = client.call("tools/list", modern())["result"]
        assert len(result["tools"]) == 2
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "other"
        assert client.close() == 0


def test_it_survives_noise_and_empty_lines() -> None:
    with child() as client:
        client.write(b"\n{\r\n  \n")
        client.ask("ping")
        assert client.next()["error"]["code"] == -32700
        assert client.next()["result"] == {}
        assert client.close() == 0


def test_sigterm_ends_it() -> None:
    with child() as client:
        client.call("ping")
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(PATIENCE) == -signal.SIGTERM


def test_it_serves_http_until_sigterm() -> None:
    with child("--http", "0") as server:
        client = Http(server.line().decode().strip())
        client.start()
        assert client.post("ping")[2]["result"] == {}
        client.close()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


def test_importing_the_package_loads_no_server() -> None:
    program = "import sys, syncmcp.testing as t; before = set(sys.modules); t.Server; "
    program += "print('syncmcp.testing.server.server' in before, 'asyncio' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=PATIENCE * 3
    )
    assert done.stdout.split() == [b"False", b"False"]
