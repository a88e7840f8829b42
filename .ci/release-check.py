"""Use an installed syncmcp as a stranger would: import it, ask its version, call a tool."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
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
(plugin,) = importlib.metadata.entry_points(group="pytest11", name="pytest_syncmcp")
if importlib.util.find_spec(plugin.value) is None:
    sys.exit("the plugin for pytest is missing")

with syncmcp.connect(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")) as client:
    tools = [tool.name for tool in client.list_tools().tools]
    answer = client.call_tool("add", {"a": 1, "b": 2}).raise_for_error()
if answer.text != "3":
    sys.exit(f"1 + 2 gave {answer.text!r}")
print(f"syncmcp {version}: {len(tools)} tools, 1 + 2 = {answer.text}")
