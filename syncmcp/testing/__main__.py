"""`python -m syncmcp.testing`: the demo server over stdio, or over HTTP with `--http`."""

from __future__ import annotations

import argparse
import signal
import threading

from syncmcp.testing.demo import demo_server
from syncmcp.testing.server.wire import REVISIONS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m syncmcp.testing", description=__doc__)
    parser.add_argument("--name", default="syncmcp-demo", help="the server's name")
    parser.add_argument(
        "--revisions", nargs="+", default=list(REVISIONS), choices=REVISIONS, metavar="REVISION",
        help=f"protocol revisions to speak, of {', '.join(REVISIONS)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--page-size", type=int, help="entries in one page of a list")
    parser.add_argument(
        "--http", type=int, metavar="PORT", help="serve HTTP on loopback; 0 picks a free port"
    )
    parser.add_argument(
        "--response", choices=("auto", "json", "sse"), default="auto", help="how HTTP answers"
    )
    options = parser.parse_args()
    server = demo_server(options.name, revisions=options.revisions, page_size=options.page_size)
    if options.http is None:
        try:
            server.run_stdio()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        return 0
    from syncmcp.testing.server.serving import serve_http

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        serving = serve_http(server, port=options.http, response=options.response)
    except (OSError, ValueError) as error:
        parser.error(f"cannot listen on port {options.http}: {error}")
    with serving as http:
        print(http.url, flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
