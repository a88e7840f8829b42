"""A proxy on loopback that breaks HTTP exchanges where a test wants them broken."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from urllib.parse import urlsplit

from typing_extensions import Self

from syncmcp.testing.faults import Exchange, ExchangeLog, Fault, Planned
from syncmcp.testing.faults.relay import Address, Relay

__all__ = ["FaultProxy", "UnusedFaults"]

_HOST = "127.0.0.1"
_BACKLOG = 128
# What has been told to end needs far less, in seconds.
_JOIN_SECONDS = 10.0


class UnusedFaults(AssertionError):
    """A fault was queued and never happened: what the test wanted to show, it did not."""


class FaultProxy:
    """Stands between a client and an HTTP server and does to their exchanges what is queued.

    What no fault meets passes unchanged, one thread per connection. Faults are met in the order in
    which they were queued, one by each exchange at most.

    ::

        with FaultProxy(server.url) as proxy, syncmcp.connect(proxy.url) as client:
            proxy.queue(Cut("sent"), method="tools/call")
            with pytest.raises(syncmcp.OutcomeUnknown):
                client.call_tool("order", {"item": "pear"})
        assert proxy.sends("tools/call") == 1

    Close it, or use it in a `with` statement.

    Args:
        target: The URL of the server, ``http://``.
        tls: Makes the proxy speak TLS with its clients; the server is reached without.

    Attributes:
        url: The URL for the client.

    Raises:
        ValueError: The target is no ``http://`` URL.
    """

    def __init__(self, target: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._log = ExchangeLog()
        self._changed = self._log.changed  # Guards everything below.
        self._address, path = _split_target(target)
        self._path = path
        self._relays: set[Relay] = set()
        self._accepted = 0
        self._closed = False
        self._listener_thread = _Listener(0, self._accept)
        self._port = self._listener_thread.port
        self.url = f"{'https' if tls else 'http'}://{_HOST}:{self._port}{path}"

    # What it does

    def queue(
        self, fault: Fault, *, verb: str | None = None, method: str | None = None, nth: int = 1
    ) -> Planned:
        """Let `fault` meet an exchange to come.

        Args:
            fault: A `Cut`, `Hold` or `Drip`.
            verb: Meet only requests with this HTTP method.
            method: Meet only requests whose body names this JSON-RPC method.
            nth: Meet the n-th of the matching exchanges from now on; at "connect", of the
                connections.

        Returns:
            A handle: wait there until it has happened, release there what it holds.

        Raises:
            ValueError: `nth` is less than 1, or a fault at "connect" has a verb or a method.
        """
        if nth < 1:
            raise ValueError(f"nth={nth}: the next exchange is the first")
        if fault.at == "connect" and (verb is not None or method is not None):
            raise ValueError("a connection has neither verb nor method")
        return self._log.queue(fault, verb, method, nth)

    def retarget(self, target: str) -> None:
        """Pass all exchanges from the next one on to another server.

        Those that are running stay with the old one.

        Raises:
            ValueError: The target is no ``http://`` URL, or has another path than the first.
        """
        address, path = _split_target(target)
        if path != self._path:
            raise ValueError(f"the path of the new target is {path!r}, not {self._path!r}")
        with self._changed:
            self._address = address

    def drop_idle(self) -> None:
        """End all connections that carry no exchange; return when the client can know it.

        An exchange is over when it has `ended`, a moment after the client has its answer.
        """
        with self._changed:
            idle = [relay for relay in self._relays if relay.idle]
            for relay in idle:
                relay.close_when_idle()
            self._changed.wait_for(lambda: not any(relay.idle for relay in idle), _JOIN_SECONDS)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Cut every connection and refuse new ones while the context lasts."""
        self._listener_thread.close()
        self._abort_all()
        try:
            yield
        finally:
            self._listener_thread = _Listener(self._port, self._accept)

    # What it saw

    @property
    def exchanges(self) -> list[Exchange]:
        """All exchanges so far, in the order in which their requests came."""
        with self._changed:
            return list(self._log.exchanges)

    def sends(self, method: str) -> int:
        """How many requests with this JSON-RPC method clients have sent, passed on or not."""
        return sum(exchange.method == method for exchange in self.exchanges)

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        with self._changed:
            return self._accepted

    @property
    def open_connections(self) -> int:
        """How many connections clients hold open now; one that is cut counts until they close."""
        with self._changed:
            return len(self._relays)

    def unused(self) -> list[Planned]:
        """The queued faults that have not happened: never matched, or their place not reached."""
        with self._changed:
            return [planned for planned in self._log.planned if not planned.happened]

    def wait_for(self, predicate: Callable[[FaultProxy], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(proxy)` is true; return whether it became so.

        Args:
            predicate: Called under a lock; must not block.
            timeout: Seconds to wait at most.
        """
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self), timeout)

    # Its end

    def close(self) -> None:
        """Stop listening, end all connections, wait for their threads.

        Raises:
            UnusedFaults: A queued fault has never happened.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
        self._listener_thread.close()
        self._abort_all()
        unused = self.unused()
        if unused:
            raise UnusedFaults(f"never happened: {', '.join(map(repr, unused))}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except UnusedFaults:
            if error is None:  # else that one says more
                raise

    def _accept(self, accepted: socket.socket) -> None:
        with self._changed:
            relay = Relay(
                accepted, self._accepted, self._target, self._tls, self._log, self._remove_relay
            )
            self._accepted += 1
            self._relays.add(relay)
            self._changed.notify_all()
        relay.thread.start()

    def _remove_relay(self, relay: Relay) -> None:
        with self._changed:
            self._relays.discard(relay)
            self._changed.notify_all()

    def _target(self) -> Address:
        with self._changed:
            return self._address

    def _abort_all(self) -> None:
        with self._changed:
            relays = list(self._relays)
        for relay in relays:
            relay.abort()
        for relay in relays:
            relay.thread.join(_JOIN_SECONDS)


class _Listener:
    """Accepts connections on a thread of its own."""

    def __init__(self, port: int, accept: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server((_HOST, port), backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._accept = accept
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="syncmcp-testing-proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        # Not every system wakes a thread that accepts when its socket is closed.
        with suppress(OSError), socket.create_connection((_HOST, self.port)):
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with self._listener:
            while True:
                accepted, _ = self._listener.accept()
                if self._closing:
                    accepted.close()
                    return
                self._accept(accepted)


def _split_target(target: str) -> tuple[Address, str]:
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{target!r} is no http:// URL")
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return (parts.hostname, parts.port or 80), path
