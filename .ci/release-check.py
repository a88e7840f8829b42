"""Use an installed syncmcp as a stranger would: import it, run what its README shows."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import syncmcp

location = Path(syncmcp.__file__).resolve()
if not location.is_relative_to(Path(sys.prefix).resolve()):
    sys.exit(f"syncmcp was imported from {location}, not from {sys.prefix}")
version = importlib.metadata.version("syncmcp-client")
if version != syncmcp.__version__:
    sys.exit(f"the distribution says {version}, the package says {syncmcp.__version__}")
if not importlib.resources.files("syncmcp").joinpath("py.typed").is_file():
    sys.exit("py.typed is missing")
for group, name in (("pytest11", "pytest_syncmcp"), ("console_scripts", "syncmcp")):
    (entry,) = importlib.metadata.entry_points(group=group, name=name)
    if importlib.util.find_spec(entry.module) is None:
        sys.exit(f"the module {entry.module} is missing")

# The README is in the archive, too: as the description of the distribution.
readme = str(importlib.metadata.metadata("syncmcp-client").get_payload())
pair = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?"
scripts = re.findall(pair, readme, re.DOTALL | re.MULTILINE)
commands = re.findall(r"^\$ (python -[cm] .*)", readme, re.MULTILINE)
if len(scripts) < 2 or len(commands) < 2:
    sys.exit(f"the README shows {len(scripts)} scripts and {len(commands)} commands only")
runs = [(["-W", "error", "-c", script], output) for script, output in scripts]
runs += [(shlex.split(command, comments=True)[1:], None) for command in commands]

environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
for arguments, output in runs:
    ended = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ended.returncode or "Traceback" in ended.stderr or not ended.stdout:
        sys.exit(f"{arguments[-1]}\n{ended.stdout}{ended.stderr}exit code {ended.returncode}")
    if output is not None and ended.stdout != output:
        sys.exit(f"{arguments[-1]}\nprinted {ended.stdout!r}, and the README shows {output!r}")
print(f"syncmcp {version}: {len(scripts)} scripts and {len(commands)} commands of the README run")
