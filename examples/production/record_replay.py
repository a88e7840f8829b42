"""A session with a server is recorded, looked at, and played without the server.

    python examples/production/record_replay.py
    python examples/production/record_replay.py https://example.com/mcp  (lists another server)

The recording is a file of lines that people can read; it has no secrets in it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import syncmcp
from syncmcp.testing import NotRecorded, Recording, Replay


def program(target: syncmcp.Target) -> None:
    """What is done with whatever it is connected to."""
    with syncmcp.connect(target) as client:
        print(f"  tools: {len(client.list_tools().tools)}")
        if len(sys.argv) == 1:
            told = client.call_tool("countdown", {"steps": 2}, on_progress=progress)
            print(f"  {told.text}")


def progress(done: float, total: float | None, message: str | None) -> None:
    """Say what is left."""
    print(f"  {done:g} of {total or 0:g}: {message}")


def shown(file: Path) -> None:
    """Print the methods of what went to and fro."""
    for line in file.read_text(encoding="utf-8").splitlines():
        happened = json.loads(line)
        for direction, arrow in (("sent", "->"), ("got", "<-")):
            if direction in happened:
                print(f"  {arrow} {happened[direction].get('method', 'an answer')}")


def main() -> None:
    """Record, show, play; and ask for something else."""
    server: syncmcp.Target = syncmcp.Stdio(
        sys.executable, "-m", "syncmcp.testing", env={"API_KEY": "not for anybody's eyes"}
    )
    if len(sys.argv) > 1:
        server = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "session.jsonl"
        print("recorded:")
        program(Recording(server, file))
        print(f"{file.name}:")
        shown(file)
        print("played:")
        program(Replay(file))
        with syncmcp.connect(Replay(file)) as client:
            try:
                client.call_tool("countdown", {"steps": 3})
            except NotRecorded as error:
                print(error)
        print("has the secret:", "eyes" in file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
