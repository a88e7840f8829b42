"""Runs cells in a kernel, like a notebook, and prints their output: ``run_notebook.py FILE``.

It runs the cells of a file in the percent format, then a cell that is interrupted, then another.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

PATIENCE = 60

STOPPED = """
def started(steps, *_):
    if steps == 1:  # a second one would stop the next cell
        print("started", flush=True)

client = syncmcp.connect(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))
client.call_tool("countdown", {"steps": 100, "delay": 1}, on_progress=started)
"""
AWAITING = """
import asyncio

calls = [client.call_tool.future("add", {"a": n, "b": n}) for n in range(3)]
results = await asyncio.gather(*map(asyncio.wrap_future, calls))
print("awaited:", [result.text for result in results])
client.close()
"""


def main(file: str) -> None:
    """Run all cells, and interrupt the kernel, as the stop button does, in one of them."""
    # The text before the first cell describes the file.
    _, *cells = re.split(r"^# %%.*\n", Path(file).read_text("utf-8"), flags=re.MULTILINE)
    manager, kernel = start_new_kernel(kernel_name="python3")

    def show(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            print(content["text"], end="")
            if content["text"].startswith("started"):
                manager.interrupt_kernel()
        elif message["msg_type"] == "error":
            print(content["ename"])

    try:
        for code in (*cells, STOPPED, AWAITING):
            kernel.execute_interactive(code, timeout=PATIENCE, output_hook=show)
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel()


if __name__ == "__main__":
    main(sys.argv[1])
