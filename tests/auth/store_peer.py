"""A process that works on a `FileStore`: reads commands from stdin, answers each with a line.

It says ``ready`` first, and ends at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import ExitStack

from syncmcp.auth import Deadline
from syncmcp.auth.store import FileStore
from syncmcp.errors import McpError

KEY = "key"
WAIT = 60.0


def count(store: FileStore, threads: int, rounds: int) -> list[str]:
    """Add one to a shared number again and again; return what went wrong."""
    failures: list[str] = []

    def run() -> None:
        try:
            for _ in range(rounds):
                with store.lock(KEY, Deadline(WAIT)):
                    known = store.load(KEY) or {"count": 0}
                    store.save(KEY, {"count": known["count"] + 1})
        except McpError as error:
            failures.append(repr(error))

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return failures


def hammer(store: FileStore, until: str) -> None:
    """Take the lock again as soon as it is let go of, until another process says stop."""
    taken = 0
    while store.load(until) is None:
        for _ in range(10):
            with store.lock(KEY, Deadline(WAIT)):
                taken += 1
        if taken == 10:
            print("started", flush=True)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def main(path: str) -> None:
    store = FileStore(path)
    held = ExitStack()
    print("ready", flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "lock":
            held.enter_context(store.lock(KEY, Deadline(WAIT)))
            print("locked", flush=True)
        elif command == "unlock":
            held.close()
            print("unlocked", flush=True)
        elif command == "count":
            before = descriptors()
            failures = count(store, int(words[0]), int(words[1]))
            print(json.dumps([failures, descriptors() - before]), flush=True)
        elif command == "hammer":
            hammer(store, words[0])
            print("stopped", flush=True)
        elif command == "fork" and os.fork() == 0:
            print("forked", flush=True)
            os.read(int(words[0]), 1)  # until the test ends
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
