"""The demo server as a child process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.testing.wires import PATIENCE, Child, Http, initialize, modern


@contextmanager
def child(*arguments: str) -> Iterator[Child]:
    client = Child(*arguments)
    with client.process as process:
        try:
            yield client
        finally:
            process.kill()


def test_it_speaks_both_eras_hears_its_options_and_ends_with_stdin() -> None:
    with child("--name", "other", "--page-size", "2") as client:
        client.write(b"\n{\r\n  \n")  # noise and empty lines
        client.ask("ping")
        assert client.next()["error"]["code"] == -32700
        assert client.next()["result"] == {}
        result = client.call("tools/list", modern())["result"]
        assert len(result["tools"]) == 2
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "other"
        assert client.start("2024-11-05")["protocolVersion"] == "2024-11-05"
        assert client.tool("add", {"a": 1, "b": 2})["result"]["content"][0]["text"] == "3"
        client.ask("tools/call", {"name": "sleep", "arguments": {"seconds": 60}})
        assert client.close() == 0
    with child("--revisions", "2026-07-28") as client:
        assert client.call("initialize", initialize())["error"]["code"] == -32022
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
