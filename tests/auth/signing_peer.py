"""A process of threads that share a login with other processes.

Its arguments: the MCP server, the file of the store, how many threads, and by how many seconds its
clock is off. It says ``ready``, and then answers each line of stdin: ``call`` with what its calls
brought, ``hold`` once nobody else can renew the login.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

import requests

from syncmcp.auth import FileStore, OAuth
from syncmcp.errors import McpError

WAIT = 60.0


def main(url: str, path: str, threads: int, offset: float) -> None:
    right = time.time
    time.time = lambda: right() + offset
    auth = OAuth(url, receiver=None, store=FileStore(path))
    outcomes: list[str] = []
    together = threading.Barrier(threads)

    def call() -> None:
        together.wait(WAIT)
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        try:
            with requests.post(url, json=message, auth=auth, timeout=WAIT) as response:
                outcomes.append(str(response.status_code))
        except (McpError, requests.RequestException) as error:
            outcomes.append(repr(error))

    print("ready", flush=True)
    for line in sys.stdin:
        if line == "call\n":
            outcomes.clear()
            running = [threading.Thread(target=call) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
            print(json.dumps(Counter(outcomes)), flush=True)
        else:
            assert auth._manager is not None
            with auth._manager.cache.lock():
                print("held", flush=True)
                sys.stdin.readline()  # until the process is killed


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
