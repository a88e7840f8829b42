"""Jupyter: the cells of a notebook, as VS Code, Spyder and Jupytext read them.

A notebook has an event loop that runs already. That is no obstacle: nothing here needs one.
"""

# %%
from __future__ import annotations

import sys
from concurrent.futures import as_completed

import syncmcp

client = syncmcp.connect(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))
print([tool.name for tool in client.list_tools().tools][:3])


# %% A call blocks its cell; the stop button (or a limit) ends it, and the client goes on.
def show(progress: float, total: float | None, message: str | None) -> None:
    """Print one report, in the cell that made the call."""
    print(f"{progress:g} of {total or 0:g}: {message}")


print(client.call_tool("countdown", {"steps": 3, "delay": 0.05}, on_progress=show).text)

# %% Futures go on in the background while other cells run ...
sums = [client.call_tool.future("add", {"a": n, "b": n}) for n in range(5)]

# %% ... and are looked at in a later one; or `await asyncio.wrap_future(sums[0])`.
print(sorted(int(call.result().text) for call in as_completed(sums)))

# %%
client.close()
