"""Resume a session in another process, which gets the notifications that it missed.

Over Streamable HTTP, before 2026-07-28; later revisions have no sessions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import syncmcp
from syncmcp.testing import Server, serve_http

UPDATED = "notifications/resources/updated"


def connect(target: syncmcp.Http, changed: SimpleQueue[str]) -> syncmcp.Client:
    """Open a client that queues the URIs of changed resources."""
    client = syncmcp.Client(target, mode="2025-11-25")
    client.on_notification(UPDATED, lambda params: changed.put(params["uri"]))
    return client.open()


def begin(server: Server, url: str, file: Path) -> None:
    """Subscribe to two resources, get a notification, and store the session for later."""
    changed: SimpleQueue[str] = SimpleQueue()
    with connect(syncmcp.Http(url, keep_session=True), changed) as client:
        for uri in ("stock://fruit", "stock://herbs"):
            client.subscribe_resource(uri)
        server.resource_updated("stock://fruit")
        print(f"the first process is notified of {changed.get(timeout=10)}")
        # Anybody with the session id can act as you: store it like a password.
        file.touch(mode=0o600)
        file.write_text(json.dumps([client.session_id, client.last_event_id]), encoding="utf-8")


def resume(url: str, file: Path) -> None:
    """Resume the stored session, without a handshake and without subscribing again."""
    session_id, last_event_id = json.loads(file.read_text(encoding="utf-8"))
    changed: SimpleQueue[str] = SimpleQueue()
    target = syncmcp.Http(url, session_id=session_id, last_event_id=last_event_id)
    with connect(target, changed) as client:
        print(f"the second process is notified of {changed.get(timeout=10)}")
        print(f"the same session: {client.session_id == session_id}")


def main() -> None:
    """Run a server and both processes; the arguments belong to the second process."""
    if len(sys.argv) == 3:
        resume(sys.argv[1], Path(sys.argv[2]))
        return
    server = Server("shop")
    server.resource("stock://fruit")(lambda: "apples, pears")
    server.resource("stock://herbs")(lambda: "sage")
    with serve_http(server) as http, TemporaryDirectory() as directory:
        file = Path(directory) / "session.json"
        begin(server, http.url, file)
        server.resource_updated("stock://herbs")  # no client is connected: the server stores it
        subprocess.run([sys.executable, __file__, http.url, str(file)], check=True)
    with server.stats as stats:
        print(f"sessions: {stats.opened}")


if __name__ == "__main__":
    main()
