"""gevent: greenlets instead of threads, with a server over HTTP or in a child process.

python gevent_program.py [URL]
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()  # everything, and before `import syncmcp`

import sys

import gevent
from gevent.pool import Pool

import syncmcp


def main(target: syncmcp.Target) -> None:
    """Make twenty calls at once, and check that another greenlet runs during the calls."""
    with syncmcp.connect(target) as client:

        def call(number: int) -> str:
            result = client.call_tool("sleep", {"seconds": 0.3}, timeout=30)
            return f"{number} {result.raise_for_error().text}"

        ticks = 0

        def tick() -> None:
            nonlocal ticks
            while True:
                gevent.sleep(0.01)
                ticks += 1

        ticker = gevent.spawn(tick)
        results = Pool(20).map(call, range(20))
        ticker.kill()
        print(f"{len(results)} results, the last: {results[-1]}")
        print(f"another greenlet ran: {ticks > 1}")


if __name__ == "__main__":
    url = sys.argv[1:]
    main(url[0] if url else syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))
