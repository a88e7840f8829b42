"""Jupyter: the cells of a notebook, in the format of VS Code, Spyder and Jupytext.

A notebook already runs an event loop. Blocking calls work there: the library needs no event loop.
"""

# %%
from __future__ import annotations

import sys
from concurrent.futures import as_completed

import syncmcp

client = syncmcp.connect(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))
print([tool.name for tool in client.list_tools().tools][:3])


# %% A call blocks its cell. The stop button or a timeout ends it; the client remains usable.
def show(progress: float, total: float | None, message: str | None) -> None:
    """Print one progress report, in the cell that made the call."""
    print(f"{progress:g} of {total or 0:g}: {message}")


print(client.call_tool("countdown", {"steps": 3, "delay": 0.05}, on_progress=show).text)

# %% Futures run in the background, while other cells run.
sums = [client.call_tool.future("add", {"a": n, "b": n}) for n in range(5)]

# %% A later cell reads the results. It may also `await asyncio.wrap_future(sums[0])`.
print(sorted(int(call.result().text) for call in as_completed(sums)))

# %%
client.close()
