"""The progress of a call, passed to a callback or iterated over while the call runs."""

from __future__ import annotations

import sys

import syncmcp


def main() -> None:
    """Follow one call with a callback, and another one with an iterator."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server) as client:
        print("with a callback, before the call returns:")
        client.call_tool("countdown", {"steps": 3, "delay": 0.05}, on_progress=show)

        print("with an iterator, while the call runs:")
        call = client.call_tool.future("countdown", {"steps": 3, "delay": 0.05})
        for report in call.progress(timeout=10):
            show(*report)
        print(call.result().text)


def show(progress: float, total: float | None, message: str | None) -> None:
    """Print one progress report."""
    share = f"{100 * progress / total:3.0f} %" if total else f"{progress:g}"
    print(f"  {share}  {message or ''}")


if __name__ == "__main__":
    main()
