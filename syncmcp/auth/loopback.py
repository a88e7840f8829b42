"""A listener on this computer that the browser comes back to (RFC 8252 §7.3)."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import ExchangeAborted, current
from syncmcp.auth.receiver import (
    ARRIVED,
    NOT_HERE,
    NOT_THIS_LOGIN,
    ConsolePrompt,
    answer_in,
    check_web,
    invitation,
    page,
    print_to_stderr,
    too_late,
)
from syncmcp.errors import LoginRequired, UsageError

if TYPE_CHECKING:
    from syncmcp.auth.receiver import Waiting
    from syncmcp.auth.steps import Redirect

__all__ = ["LoopbackReceiver"]

# Browsers try both addresses for the name.
_ADDRESSES: Final = {
    "127.0.0.1": ("127.0.0.1",),
    "::1": ("::1",),
    "localhost": ("127.0.0.1", "::1"),
}

# A browser opens connections that it may never use; and everybody on this computer can. Seconds,
# how many, and the bytes of one request.
_PATIENCE: Final = 10.0
_MOST_VISITORS: Final = 16
_LONGEST_HEAD: Final = 64 * 1024

_SEND_SECONDS: Final = 1.0

_HTTP_PORT: Final = 80

# Ctrl-C wakes no thread on Windows that waits for a socket.
_SLICE: Final = 0.5 if sys.platform == "win32" else None


class LoopbackReceiver:
    """Opens a browser, and listens on this computer for its return.

    It takes exactly one answer, to the right path, host and login. Whatever else comes is turned
    away and changes nothing. It listens for as long as one login takes.

    Where there is no browser, the address is shown, and the person may as well paste the one that
    a browser elsewhere ends up at.

    Args:
        port: The port; 0 takes any that is free, as most authorization servers allow.
        host: ``"127.0.0.1"``, ``"::1"``, or ``"localhost"`` for both, where the server insists.
        path: The path of the redirect URI.
        open_browser: Whether to open one, with `webbrowser`. That happens on a daemon thread,
            ``syncmcp-redirect[browser]``: some browsers run until they are closed.
        show: Shows a text to the person when no browser was opened; by default on stderr.
        ask: Shows a prompt and returns the line that the person enters, on a daemon thread,
            ``syncmcp-redirect[paste]``, which may outlive the login. By default `input`, if
            stdin is a terminal.

    Raises:
        UsageError: An argument makes no redirect URI.
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        path: str = "/callback",
        *,
        open_browser: bool = True,
        show: Callable[[str], object] = print_to_stderr,
        ask: Callable[[str], str] | None = None,
    ) -> None:
        if host not in _ADDRESSES:
            raise UsageError(f"host must be one of {', '.join(_ADDRESSES)}, not {host!r}")
        if not 0 <= port < 65_536:
            raise UsageError(f"port must be between 0 and 65535, not {port!r}")
        if not path.startswith("/") or not path.isascii() or set(path) & set("?# \r\n"):
            raise UsageError(f"path must be an absolute path without a query, not {path!r}")
        self._port = port
        self._host = host
        self._path = path
        self._open_browser = open_browser
        self._show = show
        self._ask = ask

    @classmethod
    def at(
        cls,
        redirect_uri: str,
        *,
        open_browser: bool = True,
        show: Callable[[str], object] = print_to_stderr,
        ask: Callable[[str], str] | None = None,
    ) -> LoopbackReceiver:
        """One for exactly this redirect URI, like ``http://localhost:8765/callback``.

        Args:
            redirect_uri: The address.
            open_browser: As of the class.
            show: As of the class.
            ask: As of the class.

        Raises:
            UsageError: It is not on this computer.
        """
        try:
            parts = urlsplit(redirect_uri)
            if parts.scheme == "http" and not (parts.query or parts.fragment or parts.username):
                return cls(
                    parts.port or _HTTP_PORT,
                    parts.hostname or "",
                    parts.path,
                    open_browser=open_browser,
                    show=show,
                    ask=ask,
                )
        except ValueError as error:  # of the port, and a UsageError
            raise UsageError(f"nothing can listen at {redirect_uri!r}: {error}") from error
        raise UsageError(
            f"a redirect URI of this computer is http, without a query: {redirect_uri!r}"
        )

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        """Begin to listen, on a port of `registered` if one is free.

        Raises:
            LoginRequired: The port is taken.
        """
        failure: OSError | None = None
        for port in self._ports(registered):
            try:
                listeners = _listen(_ADDRESSES[self._host], port)
            except OSError as error:
                failure = error
                continue
            place = f"[{self._host}]" if ":" in self._host else self._host
            if self._port != _HTTP_PORT:  # which browsers leave out
                place += f":{listeners[0].getsockname()[1]}"
            browser = _open if self._open_browser and _has_browser() else None
            return _Listening(listeners, place, self._path, browser, self._show, self._ask)
        reason = failure.strerror if failure is not None else None
        raise LoginRequired(
            f"no browser can come back to {self._host}, port {self._port}: {reason}",
            delivery="not_sent",
        ) from failure

    def _ports(self, registered: Sequence[str]) -> list[int]:
        if self._port:
            return [self._port]
        found: list[int] = []
        for uri in registered:
            with contextlib.suppress(ValueError):  # it is no URL
                parts = urlsplit(uri)
                place = (parts.scheme, parts.hostname, parts.path)
                if place == ("http", self._host, self._path) and parts.port:
                    found.append(parts.port)
        return [*found, 0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self._port}, host={self._host!r})"


class _Listening:
    """One login. Everything but the browser and the prompt happens on the thread that waits."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        place: str,
        path: str,
        browser: Callable[[str], bool] | None,
        show: Callable[[str], object],
        ask: Callable[[str], str] | None,
    ) -> None:
        self.redirect_uri = f"http://{place}{path}"
        self._place = place
        self._path = path
        self._browser = browser
        self._show = show
        self._ask = ask
        self._asking: ConsolePrompt | None = None
        self._headless = False
        self._visitors: list[_Visitor] = []
        self._answer: Mapping[str, str] | None = None
        self._listeners = listeners
        self._ear, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._ear, selectors.EVENT_READ, self._woken)
        for listener in listeners:
            listener.setblocking(False)
            welcome = partial(self._welcome, listener)
            self._selector.register(listener, selectors.EVENT_READ, welcome)

    def __enter__(self) -> _Listening:
        return self

    def __exit__(self, *_: object) -> None:
        if self._asking is not None:
            self._asking.stop()
        self._selector.close()
        for sock in (*self._listeners, *(one.sock for one in self._visitors), self._ear):
            sock.close()
        self._bell.close()

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Open the browser, and answer visitors until one brings the answer."""
        check_web(redirect.url)
        exchange = current()
        if exchange is not None:
            exchange.abort_with(self._wake)
        try:
            self._invite(redirect)
            while True:
                for key, _ in self._selector.select(self._patience(deadline)):
                    key.data(redirect)
                if exchange is not None and exchange.aborted:
                    raise ExchangeAborted
                if self._answer is not None:
                    return self._answer
                if deadline.expired:
                    raise too_late(deadline)
                for visitor in [one for one in self._visitors if one.limit.expired]:
                    self._dismiss(visitor)
        finally:
            if exchange is not None:
                exchange.release()

    def _patience(self, deadline: Deadline) -> float | None:
        limits = [deadline.remaining(), _SLICE, *(one.limit.remaining() for one in self._visitors)]
        return min((one for one in limits if one is not None), default=None)

    def _invite(self, redirect: Redirect) -> None:
        browser = self._browser
        if browser is None:
            self._go_without_browser(redirect)
            return

        def run() -> None:
            self._headless = not browser(redirect.url)
            self._wake()

        threading.Thread(target=run, name="syncmcp-redirect[browser]", daemon=True).start()

    def _go_without_browser(self, redirect: Redirect) -> None:
        ask = self._ask or (input if sys.stdin is not None and sys.stdin.isatty() else None)
        if ask is None:
            self._show(invitation(redirect, paste=False))
        else:
            self._asking = ConsolePrompt(self._show, ask, redirect, self._wake)
            self._asking.start()

    def _wake(self) -> None:
        # Full: it wakes anyhow. Closed: nobody sleeps any more.
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def _woken(self, redirect: Redirect) -> None:
        self._ear.recv(64)
        if self._headless:
            self._headless = False
            self._go_without_browser(redirect)
        if self._asking is not None and self._asking.answer is not None:
            self._answer = self._asking.answer

    def _welcome(self, listener: socket.socket, redirect: Redirect) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:  # it has gone again
            return
        sock.setblocking(False)
        visitor = _Visitor(sock)
        self._visitors.append(visitor)
        self._selector.register(sock, selectors.EVENT_READ, partial(self._hear, visitor))
        if len(self._visitors) > _MOST_VISITORS:
            self._dismiss(self._visitors[0])

    def _hear(self, visitor: _Visitor, redirect: Redirect) -> None:
        request = visitor.read()
        if request is None:
            return
        if request:
            self._reply(visitor, request, redirect)
        self._dismiss(visitor)

    def _reply(self, visitor: _Visitor, request: str, redirect: Redirect) -> None:
        path, _, query = _target(request).partition("?")
        content = NOT_HERE
        if path == self._path and _host(request) == self._place:
            content = NOT_THIS_LOGIN
            answer = answer_in(query, redirect.state)
            if answer is not None and self._answer is None:
                self._answer = answer
                content = ARRIVED
        visitor.send(page(content))

    def _dismiss(self, visitor: _Visitor) -> None:
        if visitor in self._visitors:
            self._visitors.remove(visitor)
            self._selector.unregister(visitor.sock)
            visitor.sock.close()


class _Visitor:
    """A connection to the listener."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.limit = Deadline(_PATIENCE)
        self._read = b""

    def read(self) -> str | None:
        """Return the head of the request; `None` if there is more to come, ``""`` if none will."""
        try:
            piece = self.sock.recv(_LONGEST_HEAD)
        except BlockingIOError:
            return None
        except OSError:
            return ""
        self._read += piece
        head, end, _ = self._read.partition(b"\r\n\r\n")
        if end:
            return head.decode("latin-1")
        return None if piece and len(self._read) < _LONGEST_HEAD else ""

    def send(self, response: bytes) -> None:
        """Send the response; who does not take it goes without."""
        with contextlib.suppress(OSError):
            self.sock.settimeout(_SEND_SECONDS)
            self.sock.sendall(response)
            self.sock.shutdown(socket.SHUT_WR)


def _target(request: str) -> str:
    method, _, rest = request.partition("\r\n")[0].partition(" ")
    return rest.partition(" ")[0] if method == "GET" else ""


def _host(request: str) -> str:
    """The one Host header, which a page elsewhere cannot forge by having its name lead here."""
    hosts = [
        value.strip().lower()
        for name, colon, value in (line.partition(":") for line in request.split("\r\n")[1:])
        if colon and name.lower() == "host"
    ]
    return hosts[0] if len(hosts) == 1 else ""


def _listen(addresses: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on the same port of each address that this computer has."""
    listeners: list[socket.socket] = []
    try:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                listener = socket.create_server((address, port), family=family)
            except OSError as error:
                if listeners and error.errno != errno.EADDRINUSE:
                    continue
                raise
            listeners.append(listener)
            port = listener.getsockname()[1]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _has_browser() -> bool:
    # Without a screen `webbrowser` may find one that takes the terminal.
    screen = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in screen)


def _open(url: str) -> bool:
    """Open a browser, without a shell; return whether there was one to try."""
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
