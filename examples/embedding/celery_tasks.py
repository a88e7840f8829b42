"""Celery: each process of a prefork worker has its own client.

python celery_tasks.py
python celery_tasks.py worker --pool prefork --concurrency 2    # then, in another terminal
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from celery import Celery, group
from celery.signals import worker_process_shutdown

import syncmcp

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")

# Messages and results are files, which is enough for a trial. A worker fails if it reads a message
# that is not completely written, so send the tasks before you start the worker.
FILES = Path(os.environ.get("CELERY_FILES", tempfile.gettempdir()), "celery_tasks")
MESSAGES, RESULTS = FILES / "messages", FILES / "results"
for folder in (MESSAGES, RESULTS):
    folder.mkdir(parents=True, exist_ok=True)

app = Celery("celery_tasks", broker="filesystem://", backend=RESULTS.as_uri())
app.conf.broker_transport_options = {
    "data_folder_in": str(MESSAGES),
    "data_folder_out": str(MESSAGES),
    "control_folder": str(FILES / "control"),
}

# Created before the worker forks. In each process, the first task opens the client.
client = syncmcp.Client(SERVER, lazy=True, timeout=30.0)


@worker_process_shutdown.connect
def close_client(**_: object) -> None:
    """Close the client of this process, which ends its server."""
    client.close()


# After `ConnectFailed` nothing was sent, so a retry is safe.
@app.task(autoretry_for=(syncmcp.ConnectFailed,), retry_backoff=True, max_retries=3)
def add(a: int, b: int) -> int:
    """Add two numbers with a tool of the server."""
    return int(client.call_tool("add", {"a": a, "b": b}).raise_for_error().text)


if __name__ == "__main__":
    if sys.argv[1:]:
        app.start(sys.argv[1:])
    else:
        sums = group(add.s(number, number) for number in range(8)).apply_async()
        print("eight tasks are sent; now start a worker", flush=True)
        print(sums.get(timeout=300))
