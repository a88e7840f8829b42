"""Print the progress of a call, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

SERVER = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
)


def show(
    progress: float,
    total: float | None,
    message: str | None,
) -> None:
    print(f"{progress:g} of {total:g}: {message}")


with syncmcp.connect(SERVER) as client:
    client.call_tool(
        "countdown",
        {"steps": 2},
        on_progress=show,
    )
