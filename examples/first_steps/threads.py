"""One client for many threads: any thread may open, call or close it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import syncmcp


def main() -> None:
    """Call a tool on eight threads, and close the client on another one."""
    client = syncmcp.connect(syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))

    def add(number: int) -> int:
        return int(client.call_tool("add", {"a": number, "b": number}).raise_for_error().text)

    with ThreadPoolExecutor(max_workers=8) as pool:
        print(sum(pool.map(add, range(100))))

    closer = Thread(target=client.close)
    closer.start()
    closer.join()
    print(client)


if __name__ == "__main__":
    main()
