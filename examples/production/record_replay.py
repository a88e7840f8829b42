"""Record a session with a server, print the recording, and replay it without the server.

    python examples/production/record_replay.py
    python examples/production/record_replay.py https://example.com/mcp  (only lists the tools)

The recording is a text file with a line of JSON for each message. Known secrets are masked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import syncmcp
from syncmcp.testing import NotRecorded, Recording, Replay


def program(target: syncmcp.Target) -> None:
    """Use a target; the same code works with a recording and with a replay."""
    with syncmcp.connect(target) as client:
        print(f"  tools: {len(client.list_tools().tools)}")
        if len(sys.argv) == 1:
            result = client.call_tool("countdown", {"steps": 2}, on_progress=progress)
            print(f"  {result.text}")


def progress(done: float, total: float | None, message: str | None) -> None:
    """Print the progress of a call."""
    print(f"  {done:g} of {total or 0:g}: {message}")


def show(file: Path) -> None:
    """Print the direction and the method of each message in a recording."""
    for line in file.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        for direction, arrow in (("sent", "->"), ("got", "<-")):
            if direction in event:
                print(f"  {arrow} {event[direction].get('method', 'response')}")


def main() -> None:
    """Record, print and replay a session; then make a call that was not recorded."""
    server: syncmcp.Target = syncmcp.Stdio(
        sys.executable, "-m", "syncmcp.testing", env={"API_KEY": "a-secret-key"}
    )
    if len(sys.argv) > 1:
        server = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "session.jsonl"
        print("recorded:")
        program(Recording(server, file))
        print(f"{file.name}:")
        show(file)
        print("replayed:")
        program(Replay(file))
        with syncmcp.connect(Replay(file)) as client:
            try:
                client.call_tool("countdown", {"steps": 3})
            except NotRecorded as error:
                print(error)
        print("contains the API key:", "a-secret-key" in file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
