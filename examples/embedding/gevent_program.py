"""gevent: greenlets in the place of threads, with a server over HTTP or in a child process.

python gevent_program.py [URL]
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()  # all of it, and before syncmcp is imported

import sys

import gevent
from gevent.pool import Pool

import syncmcp


def main(target: syncmcp.Target) -> None:
    """Make twenty calls at once, and let somebody else work meanwhile."""
    with syncmcp.connect(target) as client:

        def nap(number: int) -> str:
            result = client.call_tool("sleep", {"seconds": 0.3}, timeout=30)
            return f"{number} {result.raise_for_error().text}"

        ticks = 0

        def tick() -> None:
            nonlocal ticks
            while True:
                gevent.sleep(0.01)
                ticks += 1

        ticking = gevent.spawn(tick)
        naps = Pool(20).map(nap, range(20))
        ticking.kill()
        print(f"{len(naps)} naps, the last: {naps[-1]}")
        print(f"others were at work meanwhile: {ticks > 1}")


if __name__ == "__main__":
    url = sys.argv[1:]
    main(url[0] if url else syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing"))
