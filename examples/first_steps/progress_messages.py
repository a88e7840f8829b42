"""The progress of a call, told to a function or iterated over while the call runs."""

from __future__ import annotations

import sys

import syncmcp


def main() -> None:
    """Count down twice."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server) as client:
        print("to a function, before the call returns:")
        client.call_tool("countdown", {"steps": 3, "delay": 0.05}, on_progress=show)

        print("as a loop of one's own:")
        call = client.call_tool.future("countdown", {"steps": 3, "delay": 0.05})
        for report in call.progress(timeout=10):
            show(*report)
        print(call.result().text)


def show(progress: float, total: float | None, message: str | None) -> None:
    """Print one report."""
    share = f"{100 * progress / total:3.0f} %" if total else f"{progress:g}"
    print(f"  {share}  {message or ''}")


if __name__ == "__main__":
    main()
