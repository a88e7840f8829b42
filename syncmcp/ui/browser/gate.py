"""Who may come in: only the browser that was given the link, and only from our own pages.

Other programs and users of this computer can reach the port, and every page that the person visits
can send requests to it. So a request needs the right `Host` (a foreign name that was made to point
here is none), must not come from another site or another port, and carries a cookie that was given
out once, for a link that nobody can guess.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flask import Request, Response

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
