"""A page on the web where a program publishes who it is, over TLS."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

PATH = "/programs/notes.json"


class Published:
    """What is at an address.

    Attributes:
        url: The address.
        document: What is there.
        asked: How often somebody looked.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.document: dict[str, Any] = {}
        self.asked = 0


@contextmanager
def published(context: ssl.SSLContext) -> Iterator[Published]:
    """Serves a document for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.asked += self.path == PATH
            body = json.dumps(page.document).encode()
            self.send_response(200 if self.path == PATH else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        page = Published(f"https://127.0.0.1:{server.server_port}{PATH}")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield page
        finally:
            server.shutdown()
            thread.join()
