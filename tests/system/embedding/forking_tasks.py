"""A Celery application as it must not be: its client is opened before the worker forks."""

from __future__ import annotations

import sys

from celery.signals import worker_shutdown

import syncmcp
from examples.embedding.celery_tasks import SERVER, app

client = syncmcp.connect(SERVER)


@app.task(name="ask_the_parent")
def ask_the_parent() -> str:
    """Use the client of the parent; return what it says to that."""
    try:
        return client.call_tool("add", {"a": 1, "b": 2}).text
    except syncmcp.ForkedError as error:
        return f"ForkedError: {error.message}"


@app.task(name="ask_anew")
def ask_anew() -> str:
    """Use a client of this process."""
    with syncmcp.connect(SERVER) as mine:
        return mine.call_tool("add", {"a": 1, "b": 2}).text


@worker_shutdown.connect
def farewell(**_: object) -> None:
    """In the parent, whose client goes on."""
    print(f"the parent's client: {client.call_tool('add', {'a': 20, 'b': 3}).text}", flush=True)
    client.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        app.start(sys.argv[1:])
    else:
        asked = [ask_the_parent.delay(), ask_anew.delay()]
        print("both tasks are sent", flush=True)
        for one in asked:
            print(one.get(timeout=300))
