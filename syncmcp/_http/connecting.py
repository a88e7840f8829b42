"""Looks up names and connects within the deadline of an exchange, which any thread may abort.

`getaddrinfo` has no timeout, and urllib3 gives each address of a host the whole timeout.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
from functools import partial
from typing import Any

from urllib3.util.connection import allowed_gai_family
from urllib3.util.wait import wait_for_write

from syncmcp._http.exchange import AbortableExchange, Resolve, shut_down

__all__ = ["connect", "look_up", "resolve"]

# Seconds between two checks for an abort while connecting: not every system wakes a thread that
# waits for a connection when the socket is shut down.
_CONNECT_SLICE = 0.25

_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK})  # the latter on Windows


def look_up(host: str, port: int) -> list[Any]:
    """Look up the addresses of a host with the system's resolver."""
    return list(socket.getaddrinfo(host, port, allowed_gai_family(), socket.SOCK_STREAM))


def resolve(
    host: str, port: int, exchange: AbortableExchange, find: Resolve = look_up
) -> list[Any]:
    """Look up the addresses of a host with `find`, within the exchange's deadline.

    Raises:
        TimeoutError: The deadline passed.
        ExchangeAborted: The exchange was aborted.
        Exception: Raised by `find`.
    """
    if _is_address(host):
        return find(host, port)
    # getaddrinfo cannot be interrupted, so it runs on another thread, which may outlive the wait.
    found: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            found.append(find(host, port))
        except Exception as error:  # raised again on the waiting thread
            found.append(error)
        done.set()

    try:
        threading.Thread(target=run, name=f"syncmcp-resolve[{host}]", daemon=True).start()
    except RuntimeError:  # the interpreter is ending: no thread can be started
        run()
    if not exchange.wait(done, exchange.deadline.remaining()):
        raise TimeoutError(f"resolving the name {host} took too long")
    if isinstance(found[0], BaseException):
        raise found[0]
    addresses: list[Any] = found[0]
    return addresses


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def connect(
    addresses: list[Any],
    host: str,
    exchange: AbortableExchange,
    options: Any,
    source: tuple[str, int] | None,
) -> tuple[socket.socket, str]:
    """Connect to the first address that accepts; return the socket and the IP address.

    `addresses` are the result of `resolve` for `host`, `options` are set on the socket, and
    `source` is the local address to connect from.

    Raises:
        OSError: No address accepted before the exchange's deadline.
        ExchangeAborted: The exchange was aborted.
    """
    failure: OSError = OSError(f"no address was found for {host}")
    for position, (family, kind, protocol, _, address) in enumerate(addresses):
        left = exchange.deadline.remaining()
        # An address that does not respond must leave time for the others.
        share = None if left is None else left / (len(addresses) - position)
        sock = socket.socket(family, kind, protocol)
        try:
            for option in options or ():
                sock.setsockopt(*option)
            if source:
                sock.bind(source)
            _connect_one(sock, address, share, exchange)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            sock.settimeout(exchange.deadline.remaining())
            return sock, address[0]
    raise failure


def _connect_one(
    sock: socket.socket, address: Any, seconds: float | None, exchange: AbortableExchange
) -> None:
    limit = exchange.deadline.sooner(seconds)
    sock.setblocking(False)
    # Connect first, then register: shutting down a socket that is not connecting has no effect.
    code = sock.connect_ex(address)
    exchange.abort_with(partial(shut_down, sock))
    if code in _IN_PROGRESS:
        while True:
            left = limit.remaining()
            if wait_for_write(sock, _CONNECT_SLICE if left is None else min(left, _CONNECT_SLICE)):
                break
            exchange.abort_with(partial(shut_down, sock))
            if limit.expired:
                raise TimeoutError("connecting took too long")
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
