"""The web server of the pages: on the loopback interface, on threads that keep no program alive."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_log = logging.getLogger("syncmcp.ui.browser")

# How often, in seconds, the server looks whether it is to stop.
_GLANCE = 0.1


class PageServer(ThreadedWSGIServer):
    """Serves one application on a port that the system chooses."""

    def __init__(self) -> None:
        # Guards the open connections; held to add or remove one.
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__("127.0.0.1", 0, _no_pages_yet, _Handler)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_GLANCE,), name="syncmcp-browser", daemon=True
        )

    def start(self, pages: WSGIApplication) -> None:
        """Begin to serve."""
        self.app = pages
        self._thread.start()

    def stop(self) -> None:
        """Stop, and end the connections that a browser holds open."""
        self.shutdown()
        self._thread.join()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # the other side was faster
                continue

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def log(self, type: str, message: str, *args: Any) -> None:
        """Keep to our own log."""
        _log.log(logging.ERROR if type == "error" else logging.DEBUG, message, *args)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong with a connection."""
        _log.exception("a connection of the browser failed")


class _Handler(WSGIRequestHandler):
    # A browser that opens a connection and then sends nothing holds a thread no longer than this.
    timeout = 30.0
    protocol_version = "HTTP/1.0"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing of single requests: their addresses hold a token."""

    def version_string(self) -> str:
        return "syncmcp"


def _no_pages_yet(environ: Any, start_response: Any) -> list[bytes]:
    start_response("503 Service Unavailable", [])
    return []
