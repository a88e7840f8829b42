"""An HTTP exchange, and how any thread aborts it.

`requests` cannot abort an exchange from another thread. Its timeouts apply to single socket
operations, closing a response that another thread reads deadlocks both threads, and until the
headers have come there is no response. So code that is about to wait registers a function with the
exchange on its thread, by `AbortableExchange.abort_with`. Calling that function ends the wait.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from syncmcp._base.text import redact
from syncmcp._concurrency.timing import Deadline

__all__ = [
    "AbortableExchange",
    "ExchangeAborted",
    "Resolve",
    "check",
    "current",
    "shut_down",
    "wait",
]


Resolve: TypeAlias = Callable[[str, int], "list[Any]"]
"""Looks up the addresses of a host and a port, as `socket.getaddrinfo` returns them."""


class ExchangeAborted(Exception):
    """The exchange on this thread was aborted by another thread; its outcome is not needed."""


@dataclass(eq=False, slots=True)
class AbortableExchange:
    """One HTTP exchange (redirects and resumptions included), run by the thread that entered it.

    Attributes:
        deadline: The deadline of all its phases together.
        sent: True if a byte of the request may have been sent.
        aborted: True if it was aborted.
        watched: True if another thread aborts it when its deadline passes.
        resolve: Looks up the addresses that it may connect to, except that of a proxy; `None` for
            the system's look-up.
        redact: Removes secrets from log records about it.
    """

    deadline: Deadline
    sent: bool = False
    aborted: bool = False
    watched: bool = False
    resolve: Resolve | None = None
    redact: Callable[[str], str] = redact
    # Guards the flags and the abort action, so that an abort never shuts down a connection that is
    # back in the pool and in use by another exchange.
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _abort_action: Callable[[], object] | None = field(default=None, init=False)
    _waker: threading.Event | None = field(default=None, init=False)
    _outer: AbortableExchange | None = field(default=None, init=False)

    def __enter__(self) -> AbortableExchange:
        self._outer = getattr(_current, "exchange", None)
        _current.exchange = self
        return self

    def __exit__(self, *_: object) -> None:
        _current.exchange = self._outer

    def abort_with(self, action: Callable[[], object], *, sending: bool = False) -> None:
        """Register how to abort the wait that this thread is about to begin.

        Args:
            action: Ends the wait; called by another thread, must not block.
            sending: True if bytes of the request may be sent from now on.

        Raises:
            ExchangeAborted: The exchange was aborted before.
        """
        with self._lock:
            if self.aborted:
                raise ExchangeAborted
            self._abort_action = action
            self.sent = self.sent or sending

    def release(self) -> None:
        """Unregister the abort action: the connection goes back to its pool."""
        with self._lock:
            self._abort_action = None

    def abort(self) -> bool:
        """Abort now, from any thread; return True if a byte of the request may have been sent."""
        with self._lock:
            self.aborted = True
            if self._waker is not None:
                self._waker.set()
            if self._abort_action is not None:
                self._abort_action()
                self._abort_action = None
            return self.sent

    def check(self) -> None:
        """Check, during long work, that the exchange was not aborted and has time left.

        Raises:
            ExchangeAborted: The exchange was aborted.
            TimeoutError: The deadline passed.
        """
        if self.aborted:
            raise ExchangeAborted
        if self.deadline.expired:
            raise TimeoutError("the response took too long")

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait until `event` is set, at most `seconds`; return True if it was set.

        Raises:
            ExchangeAborted: The exchange was aborted.
        """
        with self._lock:
            if self.aborted:
                raise ExchangeAborted
            self._waker = event
        was_set = event.wait(seconds)
        with self._lock:
            self._waker = None
            if self.aborted:
                raise ExchangeAborted
        return was_set

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`.

        Raises:
            ExchangeAborted: The exchange was aborted.
            TimeoutError: The deadline would pass within the wait; raised once it has passed.
        """
        left = self.deadline.remaining()
        if left is not None and left < seconds:
            self.wait(threading.Event(), left)
            raise TimeoutError("there was no time left")
        self.wait(threading.Event(), seconds)


_current = threading.local()


def current() -> AbortableExchange | None:
    """Return the exchange that the current thread has entered, if any."""
    exchange: AbortableExchange | None = getattr(_current, "exchange", None)
    return exchange


def check() -> None:
    """Do what `AbortableExchange.check` does, if the current thread has entered an exchange."""
    exchange = current()
    if exchange is not None:
        exchange.check()


def wait(event: threading.Event, seconds: float | None) -> bool:
    """Wait for `event`, at most `seconds`; return True if it was set.

    Raises:
        ExchangeAborted: The exchange on this thread was aborted.
    """
    exchange = current()
    return event.wait(seconds) if exchange is None else exchange.wait(event, seconds)


def shut_down(sock: Any) -> None:
    """End the operation of another thread on `sock`; that thread still has to close it."""
    # SSLSocket.shutdown() would drop the TLS state under the thread that reads from the socket, and
    # urllib3's TLS-in-TLS wrapper has no such method. An OSError means that it is not connected.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(getattr(sock, "socket", sock), socket.SHUT_RDWR)
