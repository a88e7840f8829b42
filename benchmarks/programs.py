"""Whole programs, each in a new process: the costs of importing, connecting and exiting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.sides.base import ROOT, SideName, Target

HEAVY = ("requests", "urllib3", "jsonschema", "referencing", "sseclient")
INTERFACES = ("tkinter", "curses", "webbrowser", "syncmcp.ui", "syncmcp.cli", "syncmcp.testing")

_IMPORT = {
    "bare": "",
    "syncmcp": "import syncmcp",
    "official": "import mcp, anyio.from_thread",
}
_CONNECT = {
    "bare": "{memory}",
    "syncmcp": """
import syncmcp
with syncmcp.connect({server}):
    {memory}
""",
    "official": """
from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters
with start_blocking_portal() as portal:
    with portal.wrap_async_context_manager(Client({server})):
        {memory}
""",
}
_MEMORY = "print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
_EXIT = {
    "bare": "import time; print(time.monotonic())",
    "syncmcp": """
import time
import syncmcp
client = syncmcp.connect({server})
call = client.call_tool.future("sleep", {{"seconds": 60.0}})
print(time.monotonic())
""",
}
_LOADED = "import json, sys, syncmcp; print(json.dumps(sorted(sys.modules)))"


class Run(NamedTuple):
    """The measurements of one run of a program.

    Attributes:
        wall: Seconds.
        cpu: Seconds of processor time, including children for which the program waited.
        output: Its stdout.
        ended: The time of its end, by the monotonic clock.
    """

    wall: float
    cpu: float
    output: str
    ended: float


class Cost(NamedTuple):
    """The cost of a program, minus that of a bare Python.

    Attributes:
        wall: Seconds from start to end, or for ``"exit"`` from its last statement to its end.
        cpu: Seconds of processor time.
        memory: MB of resident memory while it is connected.
    """

    wall: float
    cpu: float
    memory: float = 0.0


def cost(program: str, sides: Sequence[SideName], target: Target) -> dict[SideName, Cost]:
    """Run a program once for each side, and once for a bare Python."""
    bare = _run(_source(program, "bare", target))
    return {side: _above(bare, _run(_source(program, side, target)), program) for side in sides}


def loaded_by_import() -> list[str]:
    """Return the modules that `import syncmcp` loads but should not."""
    modules: list[str] = json.loads(_run(_LOADED).output)
    return sorted({*HEAVY, *INTERFACES}.intersection(modules))


def _run(source: str) -> Run:
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", source], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    ended = time.monotonic()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode} of {source}")
    return Run(ended - began, usage.ru_utime + usage.ru_stime, output, ended)


def _above(bare: Run, run: Run, program: str) -> Cost:
    cpu = run.cpu - bare.cpu
    if program == "exit":
        since, bare_since = (one.ended - float(one.output) for one in (run, bare))
        return Cost(since - bare_since, cpu)
    if program == "connect":
        return Cost(run.wall - bare.wall, cpu, (int(run.output) - int(bare.output)) / 1024)
    return Cost(run.wall - bare.wall, cpu)


def _source(program: str, name: str, target: Target) -> str:
    if program == "import":
        return _IMPORT[name]
    server = repr(target.url)
    if target.wire == "stdio":
        command = target.command
        server = (
            f"syncmcp.Stdio(*{command!r})"
            if name == "syncmcp"
            else f"StdioServerParameters(command={command[0]!r}, args={command[1:]!r})"
        )
    return {"connect": _CONNECT, "exit": _EXIT}[program][name].format(server=server, memory=_MEMORY)
