"""A listener on this computer that the browser is redirected to (RFC 8252 §7.3)."""

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
from typing import Final

from syncmcp._base.checks import flag
from syncmcp._base.origin import split_url
from syncmcp._base.terminal import ask_at_terminal, has_terminal
from syncmcp._base.text import redact_url
from syncmcp._concurrency.private_page import PrivatePage, page_to
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import ExchangeAborted, current, wait
from syncmcp.auth.agreement import SignInRequest, not_agreed
from syncmcp.auth.receiver import (
    PAGE_ARRIVED,
    PAGE_NOT_FOUND,
    PAGE_WRONG_LOGIN,
    ConsolePrompt,
    Waiting,
    ask_for_agreement,
    callback_prompt,
    check_browser_url,
    check_prompts,
    login_timed_out,
    page,
    parse_callback,
    print_to_stderr,
)
from syncmcp.auth.steps import Redirect
from syncmcp.errors import LoginRequired, UsageError

# Browsers try both addresses of `localhost`.
_ADDRESSES: Final = {
    "127.0.0.1": ("127.0.0.1",),
    "::1": ("::1",),
    "localhost": ("127.0.0.1", "::1"),
}

# Browsers open connections that they may never use, and so can any program on this computer. The
# limits: seconds for a request, open connections, bytes of a request's head.
_REQUEST_SECONDS: Final = 10.0
_MAX_CONNECTIONS: Final = 16
_MAX_HEAD: Final = 64 * 1024

_SEND_SECONDS: Final = 1.0

# How long to wait, in seconds, if no descriptor is free for a new connection.
_PAUSE_SECONDS: Final = 0.1

_HTTP_PORT: Final = 80

# On Windows, Ctrl-C does not interrupt a wait for a socket.
_SLICE: Final = 0.5 if sys.platform == "win32" else None


class LoopbackReceiver:
    """Opens a browser, and receives the callback on a port of this computer.

    The receiver accepts exactly one callback, with the right path, host and `state`. Other requests
    get an error page and have no effect. The port is open only while a login is in progress.

    Without a browser on this computer, the receiver shows the URL. The person may open the URL on
    another computer, and paste the URL that the browser there ends up at. After ten lines that are
    not an answer, the receiver no longer asks the person.

    The browser is opened on a daemon thread, ``syncmcp-redirect[browser]``. `show` and `ask` run on
    another, ``syncmcp-redirect[prompt]``. Both threads may outlive the login. A private file leads
    the browser to the URL. Otherwise other users of the computer could read the URL.

    Args:
        port: The port; 0 for any free port, which most authorization servers allow.
        host: ``"127.0.0.1"`` or ``"::1"``; or ``"localhost"`` for both, if the authorization server
            requires that name.
        path: The path of the redirect URI.
        open_browser: Whether to open a browser, with `webbrowser`. If ``BROWSER`` is set, the URL
            is also shown, because such a command may open the URL on another computer.
        show: Shows a text to the person, before a prompt or if no browser was opened; by default on
            stderr. Without `ask`, the prompt whether to sign in appears at the terminal instead.
        ask: Shows a prompt and returns the line that the person enters. The default is `input`, if
            stdin is a terminal, and stdout or stderr is one. The default ignores input until no
            line has come for half a second.

    Raises:
        UsageError: The arguments make no valid redirect URI, or `show` or `ask` cannot be called
            with one text.
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
        if type(port) is not int or not 0 <= port < 65_536:
            raise UsageError(f"port must be between 0 and 65535, not {port!r}")
        if not path.startswith("/") or not path.isascii() or set(path) & set("?# \r\n"):
            raise UsageError(f"path must be an absolute path without a query, not {path!r}")
        self._show = check_prompts(show, ask)
        self._port = port
        self._host = host
        self._path = path
        self._open_browser = flag(open_browser, "open_browser")
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
        """Make a receiver for exactly this redirect URI, like ``http://localhost:8765/callback``.

        Args:
            redirect_uri: The redirect URI.
            open_browser: See the class.
            show: See the class.
            ask: See the class.

        Raises:
            UsageError: The URI is not ``http``, not on this computer, or contains a user, a query
                or a fragment.
        """
        shown = redact_url(redirect_uri)
        try:
            parts = split_url(redirect_uri)
            if parts.scheme == "http" and not (parts.query or parts.fragment or parts.username):
                return cls(
                    parts.port or _HTTP_PORT,
                    parts.hostname or "",
                    parts.path,
                    open_browser=open_browser,
                    show=show,
                    ask=ask,
                )
        except UsageError as error:
            raise UsageError(f"cannot listen at {shown!r}: {error}") from error
        except ValueError:  # its text may contain a part of a password
            raise UsageError(f"cannot listen at {shown!r}: host or port is invalid") from None
        raise UsageError(f"a local redirect URI must be http:// without a query, not {shown!r}")

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        """Ask the person, who enters ``y`` to agree.

        Raises:
            LoginRequired: There is no `ask` and no terminal, or ten lines were neither a yes nor a
                no.
            RequestTimeout: The deadline passed.
        """
        ask = self._ask or _terminal_input()
        if ask is None:
            raise not_agreed(request, "cannot ask anybody here whether")
        return ask_for_agreement(self._show, ask, request, deadline)

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        """Open the port, that of one of `registered` if possible.

        Raises:
            LoginRequired: No port can be opened.
        """
        failure: OSError | None = None
        for port in self._ports(registered):
            try:
                listeners = _listen(_ADDRESSES[self._host], port)
            except OSError as error:
                failure = error
                continue
            return _LoopbackLogin(self, listeners)
        reason = failure.strerror if failure is not None else None
        raise LoginRequired(
            f"cannot wait for the browser at {self._host}, port {self._port}: {reason}",
            delivery="not_sent",
        ) from failure

    def _ports(self, registered: Sequence[str]) -> list[int]:
        if self._port:
            return [self._port]
        found: list[int] = []
        for uri in registered:
            with contextlib.suppress(ValueError):  # not a URL
                parts = split_url(uri)
                origin = (parts.scheme, parts.hostname, parts.path)
                if origin == ("http", self._host, self._path) and parts.port:
                    found.append(parts.port)
        return [*found, 0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self._port}, host={self._host!r})"


class _LoopbackLogin:
    """One login. Browser and prompt run on threads of their own, the rest on the caller's."""

    def __init__(self, receiver: LoopbackReceiver, listeners: Sequence[socket.socket]) -> None:
        host = receiver._host
        self._host_and_port = f"[{host}]" if ":" in host else host
        if receiver._port != _HTTP_PORT:  # browsers omit this port
            self._host_and_port += f":{listeners[0].getsockname()[1]}"
        self._path = receiver._path
        self.redirect_uri = f"http://{self._host_and_port}{self._path}"
        self._with_browser = receiver._open_browser and _has_browser()
        self._show = receiver._show
        self._ask = receiver._ask
        self._prompts: list[ConsolePrompt[Mapping[str, str]]] = []
        self._browser_failed = False
        self._ended = False
        self._file: PrivatePage | None = None
        self._connections: list[_BrowserConnection] = []
        self._answer: Mapping[str, str] | None = None
        self._listeners = listeners
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._wake_reader.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._on_wake)
        for listener in listeners:
            listener.setblocking(False)
            accept = partial(self._accept, listener)
            self._selector.register(listener, selectors.EVENT_READ, accept)

    def __enter__(self) -> _LoopbackLogin:
        return self

    def __exit__(self, *_: object) -> None:
        for prompt in self._prompts:
            prompt.stop()
        self._ended = True
        self._remove_file()
        self._selector.close()
        for sock in (*self._listeners, *(one.sock for one in self._connections), self._wake_reader):
            sock.close()
        self._wake_writer.close()

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Open the browser, and answer requests until one is the callback."""
        check_browser_url(redirect.url)
        exchange = current()
        if exchange is not None:
            exchange.abort_with(self._wake)
        try:
            self._show_page(redirect)
            while True:
                for key, _ in self._selector.select(self._select_timeout(deadline)):
                    key.data(redirect)
                if exchange is not None and exchange.aborted:
                    raise ExchangeAborted
                if self._answer is not None:
                    return self._answer
                if deadline.expired:
                    raise login_timed_out(deadline)
                for connection in [one for one in self._connections if one.limit.expired]:
                    self._disconnect(connection)
        finally:
            if exchange is not None:
                exchange.release()

    def _select_timeout(self, deadline: Deadline) -> float | None:
        limits = [
            deadline.remaining(),
            _SLICE,
            *(one.limit.remaining() for one in self._connections),
        ]
        return min((one for one in limits if one is not None), default=None)

    def _show_page(self, redirect: Redirect) -> None:
        if not self._with_browser:
            self._prompt(redirect, self._ask or _terminal_input())
            return

        def run() -> None:
            try:
                self._file = PrivatePage("sign-in.html", page_to(redirect.url, "Sign in"))
                if self._ended:  # the login ended before the file existed
                    self._remove_file()
                    return
                self._browser_failed = not _open_browser_page(self._file.url)
            except Exception:  # a full disk, no home, no command in BROWSER
                self._browser_failed = True
            self._wake()

        if os.environ.get("BROWSER"):
            self._prompt(redirect, None)
        threading.Thread(target=run, name="syncmcp-redirect[browser]", daemon=True).start()

    def _remove_file(self) -> None:
        if self._file is not None:
            self._file.remove()

    def _prompt(self, redirect: Redirect, ask: Callable[[str], str] | None) -> None:
        prompt = callback_prompt(self._show, ask, redirect, self._wake)
        self._prompts.append(prompt)
        prompt.start()

    def _wake(self) -> None:
        # OSError: the buffer is full, so the select wakes anyway; or the login has ended.
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"!")

    def _on_wake(self, redirect: Redirect) -> None:
        self._wake_reader.recv(64)
        if self._browser_failed:
            self._browser_failed = False
            self._prompt(redirect, self._ask or _terminal_input())
        for prompt in self._prompts:
            self._answer = self._answer or prompt.result()

    def _accept(self, listener: socket.socket, redirect: Redirect) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:  # closed by the browser
            if error.errno in (errno.EMFILE, errno.ENFILE):  # still readable: avoid a busy loop
                wait(threading.Event(), _PAUSE_SECONDS)
            return
        sock.setblocking(False)
        connection = _BrowserConnection(sock)
        self._connections.append(connection)
        self._selector.register(sock, selectors.EVENT_READ, partial(self._read_request, connection))
        if len(self._connections) > _MAX_CONNECTIONS:
            self._disconnect(self._connections[0])

    def _read_request(self, connection: _BrowserConnection, redirect: Redirect) -> None:
        request = connection.read()
        if request is None:
            return
        if request:
            self._reply(connection, request, redirect)
        self._disconnect(connection)

    def _reply(self, connection: _BrowserConnection, request: str, redirect: Redirect) -> None:
        path, _, query = _target(request).partition("?")
        content = PAGE_NOT_FOUND
        if path == self._path and _host(request) == self._host_and_port:
            content = PAGE_WRONG_LOGIN
            answer = parse_callback(query, redirect.state)
            if answer is not None and self._answer is None:
                self._answer = answer
                content = PAGE_ARRIVED
        connection.send(page(content))

    def _disconnect(self, connection: _BrowserConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()


class _BrowserConnection:
    """A connection to the port, normally from a browser."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.limit = Deadline(_REQUEST_SECONDS)
        self._read = b""

    def read(self) -> str | None:
        """Return the request's head; `None` if it is not complete yet, ``""`` if it never will."""
        try:
            piece = self.sock.recv(_MAX_HEAD)
        except BlockingIOError:
            return None
        except OSError:
            return ""
        self._read += piece
        head, end, _ = self._read.partition(b"\r\n\r\n")
        if end:
            return head.decode("latin-1")
        return None if piece and len(self._read) < _MAX_HEAD else ""

    def send(self, response: bytes) -> None:
        """Send the response, ignoring errors of the connection."""
        with contextlib.suppress(OSError):
            self.sock.settimeout(_SEND_SECONDS)
            self.sock.sendall(response)
            self.sock.shutdown(socket.SHUT_WR)


def _target(request: str) -> str:
    method, _, rest = request.partition("\r\n")[0].partition(" ")
    return rest.partition(" ")[0] if method == "GET" else ""


def _host(request: str) -> str:
    """The Host header: checking it prevents DNS rebinding. Empty unless there is exactly one."""
    hosts = [
        value.strip().lower()
        for name, colon, value in (line.partition(":") for line in request.split("\r\n")[1:])
        if colon and name.lower() == "host"
    ]
    return hosts[0] if len(hosts) == 1 else ""


def _listen(addresses: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on the same port of each address; skip addresses that this computer does not have."""
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


def _terminal_input() -> Callable[[str], str] | None:
    return ask_at_terminal if has_terminal() else None


def _has_browser() -> bool:
    # Without a display `webbrowser` may start a browser that takes over the terminal.
    screen = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in screen)


def _open_browser_page(url: str) -> bool:
    """Open a browser, without a shell; return whether one was found."""
    return webbrowser.open(url)
