"""A proxy on loopback that injects faults into HTTP exchanges."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from syncmcp._base.checks import kind_of, whole_number
from syncmcp._base.origin import split_url
from syncmcp.testing.faults import Exchange, ExchangeLog, Fault, Planned
from syncmcp.testing.faults.relay import Address, Relay
from syncmcp.testing.listener import HOST, Closing, Listener

__all__ = ["FaultProxy", "UnusedFaults"]

# Seconds to wait for aborted connections to end; they need far less.
_CLOSE_SECONDS = 10.0


class UnusedFaults(AssertionError):
    """A queued fault never happened: no exchange matched it or reached its point."""


class FaultProxy(Closing):
    """A proxy between a client and an HTTP server that injects queued faults into their exchanges.

    A thread of its own passes on each connection, without change where there is no fault. An
    exchange has at most one fault: the first of the queued faults that are due. The other faults
    happen in later exchanges that match.

    >>> from syncmcp.testing import Cut, FaultProxy, demo_server, serve_http
    >>> with serve_http(demo_server()) as http, FaultProxy(http.url) as proxy:
    ...     fault = proxy.queue(Cut("sent"), method="tools/call")
    ...     with syncmcp.connect(proxy.url) as client:
    ...         error = client.call_tool.future("add", {"a": 1, "b": 2}).exception()
    ...     print(type(error).__name__, proxy.sends("tools/call"))
    OutcomeUnknown 1

    Close the proxy, or use it in a `with` statement.

    Args:
        target: The URL of the server, ``http://``.
        tls: If it is passed, clients connect with TLS. The proxy connects to the server without
            TLS.

    Attributes:
        url: The URL that clients connect to.

    Raises:
        TypeError: The target is not a string, or `tls` has another type.
        ValueError: The target is not an ``http://`` URL.
    """

    def __init__(self, target: str, *, tls: ssl.SSLContext | None = None) -> None:
        if not isinstance(tls, ssl.SSLContext | None):
            raise TypeError(f"tls must be an ssl.SSLContext, not {kind_of(tls)}")
        self._tls = tls
        self._log = ExchangeLog()  # Its lock guards all attributes below.
        self._address, path = _split_target(target)
        self._path = path
        self._relays: set[Relay] = set()
        self._accepted = 0
        self._closed = False
        self._listener = Listener(self._accept)
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self._listener.port}{path}"

    def __repr__(self) -> str:
        return f"<FaultProxy {self.url}>"

    # Control

    def queue(
        self, fault: Fault, *, verb: str | None = None, method: str | None = None, nth: int = 1
    ) -> Planned:
        """Queue `fault` for a later exchange.

        Args:
            fault: A `Cut`, `Hold` or `Drip`.
            verb: Only requests with this HTTP method match.
            method: Only requests whose body has this JSON-RPC method match.
            nth: The number of the matching exchange from now on in which the fault happens; at
                "connect", the number of the connection.

        Returns:
            The queued fault, with methods to wait until it happens and to release it.

        Raises:
            TypeError: `fault` has another type.
            ValueError: `nth` is not a whole number of at least 1, or a fault at "connect" has a
                verb or a method.
        """
        if not isinstance(fault, Fault):
            raise TypeError(f"fault must be a Cut, Hold or Drip, not {kind_of(fault)}")
        whole_number(nth, "nth")
        if fault.at == "connect" and (verb is not None or method is not None):
            raise ValueError("a connection has neither verb nor method")
        planned = Planned(fault, verb, method, nth, self._log)
        with self._log:
            self._log.planned.append(planned)
            self._log.queue.append(planned)
        return planned

    def retarget(self, target: str) -> None:
        """Connect to another server from the next exchange on.

        Exchanges in progress stay with the previous server.

        Args:
            target: The URL of the server, with the same path as the first one.

        Raises:
            ValueError: The target is not an ``http://`` URL, or its path differs from that of the
                first one.
        """
        address, path = _split_target(target)
        if path != self._path:
            raise ValueError(f"the path of the new target is {path!r}, not {self._path!r}")
        self._address = address

    def drop_idle(self) -> None:
        """Close all connections without a running exchange; return when they are closed.

        An exchange runs until its `ended` is set, shortly after the client has the response.
        """
        with self._log.changed:
            idle = [relay for relay in self._relays if relay.idle]
            for relay in idle:
                relay.abort()
            self._log.changed.wait_for(
                lambda: not any(relay.idle for relay in idle), _CLOSE_SECONDS
            )

    @contextmanager
    def down(self) -> Iterator[None]:
        """Cut all connections and refuse new ones during the `with` block."""
        self._end_listener()
        try:
            yield
        finally:
            self._listener = Listener(self._accept, self._listener.port)

    # Observation

    @property
    def exchanges(self) -> list[Exchange]:
        """All exchanges so far, in the order of their requests."""
        with self._log.changed:
            return list(self._log.exchanges)

    def sends(self, method: str) -> int:
        """Return how many requests with this JSON-RPC method have come, passed on or not."""
        return sum(exchange.method == method for exchange in self.exchanges)

    @property
    def connections(self) -> int:
        """The number of connections accepted so far."""
        with self._log.changed:
            return self._accepted

    @property
    def open_connections(self) -> int:
        """The number of open connections; a cut connection counts until its client closes it."""
        with self._log.changed:
            return len(self._relays)

    def unused(self) -> list[Planned]:
        """Return the queued faults that have not happened: no exchange reached their points."""
        with self._log.changed:
            return [planned for planned in self._log.planned if not planned.happened]

    def wait_for(self, predicate: Callable[[FaultProxy], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(proxy)` is true; return whether it became so.

        Args:
            predicate: Called on this thread, after each change, with a lock held. It must not
                block.
            timeout: The longest time to wait, in seconds.
        """
        return self._log.wait_for(lambda _: predicate(self), timeout)

    # Closing

    def close(self) -> None:
        """Stop listening, end all connections, and wait for their threads.

        The method is idempotent.

        Raises:
            UnusedFaults: A queued fault has never happened.
        """
        with self._log.changed:
            if self._closed:
                return
            self._closed = True
        self._end_listener()
        unused = self.unused()
        if unused:
            raise UnusedFaults(f"never happened: {', '.join(map(_unused_fault, unused))}")

    def __exit__(self, *exception: object) -> None:
        try:
            self.close()
        except UnusedFaults:
            if exception[1] is None:  # The exception of the block says more.
                raise

    def _accept(self, accepted: socket.socket, number: int) -> Callable[[], None]:
        with self._log:
            relay = Relay(accepted, self._accepted, lambda: self._address, self._tls, self._log)
            self._accepted += 1
            self._relays.add(relay)

        def run() -> None:
            relay.run()
            with self._log:
                self._relays.discard(relay)

        return run

    def _end_listener(self) -> None:
        self._listener.stop()
        with self._log.changed:
            relays = list(self._relays)
        for relay in relays:
            relay.abort()
        self._listener.close()


def _unused_fault(planned: Planned) -> str:
    if planned.exchange is not None:
        why = "its exchange ended before that point"
    elif planned.fault.at == "connect":
        why = "no connection was opened"
    else:
        why = "no exchange matched"
    return f"{planned!r} ({why})"


def _split_target(target: str) -> tuple[Address, str]:
    if not isinstance(target, str):
        raise TypeError(f"target must be the URL of a server, not {kind_of(target)}")
    parts = split_url(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{target!r} is not an http:// URL")
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return (parts.hostname, parts.port or 80), path
