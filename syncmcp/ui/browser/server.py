"""The web server of the pages: on the loopback interface, on threads that keep no program alive."""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication
    from flask import Request, Response


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


# Who may come in: only the browser that was given the link, and only from our own pages.
#
# Other programs and users of this computer can reach the port, and every page that the person
# visits can send requests to it. So a request needs the right `Host` (a foreign name that was
# made to point here is none), must not come from another site or another port, and carries a
# cookie that was given out once, for a link that nobody can guess.


COOKIE: Final = "syncmcp"

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Gate:
    """Lets requests in or says why not.

    Args:
        port: The port of the server.
    """

    def __init__(self, port: int) -> None:
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.room = secrets.token_urlsafe(9)
        """The path of all pages. Cookies know no ports: this keeps ours from other local sites."""
        self._cookie = secrets.token_urlsafe(32)
        # Guards the token; held for a comparison.
        self._lock = threading.Lock()
        self._token = secrets.token_urlsafe(32)

    @property
    def address(self) -> str:
        """A link that opens the pages once; after that there is another one."""
        with self._lock:
            return f"http://{self._hosts[0]}/open/{self._token}"

    def refusal(self, request: Request) -> str | None:
        """Say why a request is not let in, whoever sends it; `None`: it may be."""
        host = request.headers.get("Host", "")
        if host not in self._hosts:
            return "This server answers under its own address only."
        site = request.headers.get("Sec-Fetch-Site")
        # "none" is the person: an address typed or handed over by another program.
        if site not in (None, "same-origin", "none"):
            return "This page cannot be opened from another one; copy the link into a new tab."
        if request.method in ("GET", "HEAD"):
            return None
        # Under our Referrer-Policy a browser may send `null` with our own forms.
        origin = request.headers.get("Origin", "null")
        if origin not in ("null", f"http://{host}") or (origin == "null" and site != "same-origin"):
            return "This was not sent from a page of this server."
        return None

    def knows(self, request: Request) -> bool:
        """Whether a request comes from the browser that was let in."""
        sent = request.cookies.get(COOKIE, "")
        return hmac.compare_digest(sent.encode(), self._cookie.encode())

    def redeem(self, token: str) -> bool:
        """Whether `token` is that of the link; it is so once."""
        with self._lock:
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                return False
            self._token = secrets.token_urlsafe(32)
            return True

    def let_in(self, response: Response) -> None:
        """Give a browser the cookie; it forgets it when it is closed."""
        response.set_cookie(
            COOKIE, self._cookie, path=f"/{self.room}/", httponly=True, samesite="Strict"
        )

    @staticmethod
    def seal(response: Response) -> Response:
        """Tell the browser what a page may do: show itself, and talk to this server."""
        response.headers.update(_HEADERS)
        return response
