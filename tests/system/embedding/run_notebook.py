"""Runs cells in a kernel, as a notebook does, and prints what they say.

``python run_notebook.py FILE run``: the cells of a file in the percent format, with `nbclient`.
``python run_notebook.py FILE stop``: its first cell, then one that is stopped and one after it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat.v4
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

PATIENCE = 60

STOPPED = """
def started(steps, *_):
    if steps == 1:  # a second one would stop the next cell
        print("started", flush=True)

client.call_tool("countdown", {"steps": 100, "delay": 1}, on_progress=started)
"""
AWAITING = """
import asyncio

calls = [client.call_tool.future("add", {"a": n, "b": n}) for n in range(3)]
results = await asyncio.gather(*map(asyncio.wrap_future, calls))
print("awaited:", [result.text for result in results])
client.close()
"""


def cells(file: str) -> list[str]:
    """The code of the cells; what is before the first one describes the file."""
    _, *found = re.split(r"^# %%.*\n", Path(file).read_text("utf-8"), flags=re.MULTILINE)
    return found


def run(file: str) -> None:
    """Run all cells."""
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells(file))))
    NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    for cell in notebook.cells:
        for output in cell.outputs:
            print(output.get("text", output), end="")


def stop(file: str) -> None:
    """Press the stop button in the middle of a cell."""
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
        for code in (cells(file)[0], STOPPED, AWAITING):
            kernel.execute_interactive(code, timeout=PATIENCE, output_hook=show)
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel()


if __name__ == "__main__":
    {"stop": stop, "run": run}[sys.argv[2]](sys.argv[1])
