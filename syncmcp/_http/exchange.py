"""An HTTP exchange that another thread may end at once, in whatever phase it is.

`requests` has no such thing. Its timeouts count for one socket operation each, closing a response
that another thread reads deadlocks both, and until the headers have come there is no response. So
whatever is about to wait tells the exchange that runs on its thread how to end the wait.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from syncmcp.config import Http

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import Deadline

__all__ = ["AbortableExchange", "ExchangeAborted", "Resolve", "current", "shut_down", "wait"]


Resolve: TypeAlias = Callable[[str, int], "list[Any]"]
"""Finds the addresses of a host and a port, as `socket.getaddrinfo` returns them."""


class ExchangeAborted(Exception):
    """The exchange on this thread was ended by another one; nobody waits for its outcome."""


class AbortableExchange:
    """One HTTP exchange (redirects and resumptions included), run by the thread that entered it.

    Attributes:
        deadline: What bounds every phase of it.
        lingers: Whether it goes on though nobody waits for it any more.
        sent: Whether a byte of the request may have left.
        cut: Whether it was cut.
        watched: Whether another thread will end it when its deadline has passed.
        resolve: What finds the addresses it may connect to, except to a proxy; `None`: the system.
    """

    __slots__ = (
        "_before", "_end", "_lock", "_waker", "cut", "deadline", "lingers", "resolve", "sent",
        "watched",
    )  # fmt: skip

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.sent = False
        self.cut = False
        self.lingers = False
        self.watched = False
        self.resolve: Resolve | None = None
        # Guards the flags and what there is to be ended, so that a cut never hits a connection
        # that has gone back to the pool and carries somebody else's request.
        self._lock = threading.RLock()
        self._end: Callable[[], object] | None = None
        self._waker: threading.Event | None = None
        self._before: AbortableExchange | None = None

    def __enter__(self) -> AbortableExchange:
        self._before = getattr(_thread, "exchange", None)
        _thread.exchange = self
        return self

    def __exit__(self, *_: object) -> None:
        _thread.exchange = self._before

    def hold(self, end: Callable[[], object], *, sending: bool = False) -> None:
        """Note how to end what this thread is about to wait for.

        Args:
            end: Ends it; called by another thread, does not block.
            sending: Whether bytes of the request leave from now on.

        Raises:
            Cut: Too late.
        """
        with self._lock:
            if self.cut:
                raise ExchangeAborted
            self._end = end
            self.sent = self.sent or sending

    def let_go(self) -> None:
        """The connection is about to serve others."""
        with self._lock:
            self._end = None

    def end(self) -> bool:
        """Cut it, from any thread, at once. Returns whether a byte of the request may have left."""
        with self._lock:
            self.cut = True
            if self._waker is not None:
                self._waker.set()
            if self._end is not None:
                self._end()
                self._end = None
            return self.sent

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait until `event` is set, at most `seconds`. Returns whether it was.

        Raises:
            Cut: The exchange was cut.
        """
        with self._lock:
            if self.cut:
                raise ExchangeAborted
            self._waker = event
        happened = event.wait(seconds)
        with self._lock:
            self._waker = None
            if self.cut:
                raise ExchangeAborted
        return happened

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`.

        Raises:
            Cut: The exchange was cut.
            TimeoutError: Its deadline comes earlier, and has come.
        """
        left = self.deadline.remaining()
        if left is not None and left < seconds:
            self.wait(threading.Event(), left)
            raise TimeoutError("there was no time left")
        self.wait(threading.Event(), seconds)


_thread = threading.local()


def current() -> AbortableExchange | None:
    exchange: AbortableExchange | None = getattr(_thread, "exchange", None)
    return exchange


def wait(event: threading.Event, seconds: float | None) -> bool:
    """Wait for `event`, at most `seconds`; return whether it was set.

    Raises:
        Cut: The exchange on this thread was cut.
    """
    exchange = current()
    return event.wait(seconds) if exchange is None else exchange.wait(event, seconds)


def shut_down(sock: Any) -> None:
    """End whatever a thread does with `sock`; the thread still has to close it."""
    # An SSLSocket's own shutdown() drops its TLS state under the thread that reads from it;
    # urllib3's TLS-in-TLS wrapper has none. Not connected (any more): nothing to end.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(getattr(sock, "socket", sock), socket.SHUT_RDWR)


# As whom a request is sent: what an answer that is private may depend on.


class Identity(NamedTuple):
    """The credentials of a request. Secret: never shown, only compared and made digests of."""

    headers: tuple[tuple[str, str], ...] = ()
    """The headers that the program gave, by a mapping or a function."""

    authorization: str | None = None
    """What the program's `auth` made of the request."""

    def __repr__(self) -> str:
        return "<Identity>"


def identity(headers: Mapping[str, str] | None, authorization: str | None = None) -> Identity:
    """The identity of a request that is sent with these."""
    pairs = ((name.lower(), value) for name, value in (headers or {}).items())
    return Identity(tuple(sorted(pairs)), authorization)


@singledispatch
def authorization_of(auth: object) -> str | None:
    """The header that the next request would have; `None` if that is not known.

    The library's own kinds of `auth` are registered where they are defined.
    """
    raise TypeError(f"{auth!r} does not tell its header")


def tells_identity(target: object) -> bool:
    """Whether it can be told, before a request to `target` is sent, as whom that will be.

    Of `auth`, the library's own and user names with passwords tell. Another one may do anything to
    a request, and so may a `session`.
    """
    if not isinstance(target, Http):
        return True
    auth = target.auth
    known = (
        auth is None
        or isinstance(auth, tuple)
        or authorization_of.dispatch(type(auth)) is not authorization_of.dispatch(object)
    )
    return known and target.session is None


def next_identity(target: object) -> Identity | None:
    """As whom the next request to `target`, which tells, would be sent; `None` if nobody knows yet.

    Raises:
        Exception: What the program's own functions raise, which are asked.
    """
    if not isinstance(target, Http):
        return Identity()  # there are no credentials but those that the server was started with
    authorization = None
    auth: Any = target.auth
    if auth is not None:
        authorization = _basic(*auth) if isinstance(auth, tuple) else authorization_of(auth)
        if authorization is None:
            return None
    given = target.headers
    return identity(given() if callable(given) else given, authorization)


def _basic(user: str, password: str) -> str:
    from requests import PreparedRequest
    from requests.auth import HTTPBasicAuth

    request = PreparedRequest()
    request.prepare_headers({})
    HTTPBasicAuth(user, password)(request)
    return str(request.headers["Authorization"])
