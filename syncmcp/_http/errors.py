"""Translates exceptions of requests, urllib3, ssl and socket into errors of the library."""

from __future__ import annotations

import http.client
import socket
import ssl
import traceback
import zlib
from collections.abc import Callable, Iterator

import requests
import urllib3.exceptions
from urllib3.util.ssl_match_hostname import CertificateError

from syncmcp._base.text import redact, visible
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp.errors import (
    ConnectFailed,
    ConnectionLost,
    McpError,
    RequestTimeout,
    UsageError,
)

__all__ = ["WIRE_ERRORS", "explain", "release_frames"]

WIRE_ERRORS = (
    McpError,
    ExchangeAborted,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,  # including errors of socket and ssl
    EOFError,
    zlib.error,
)
"""Exceptions that an exchange may raise because of the network, the server or the program."""

_URL_ERRORS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidHeader,
    urllib3.exceptions.LocationValueError,
)
_TLS_ERRORS = (ssl.SSLError, CertificateError)
# Not urllib3's TimeoutError: the error for a refused connection is a subclass of it.
_TIMEOUTS = (TimeoutError, urllib3.exceptions.ReadTimeoutError, requests.Timeout)


def explain(
    error: Exception, exchange: AbortableExchange, proxy: Callable[[], str] = lambda: ""
) -> McpError:
    """Return the library's error for `error`, which was raised in `exchange`.

    `proxy` returns the proxy that was used, as text for people.

    Its `__cause__` is the innermost exception: the wrappers of requests and urllib3 quote URLs with
    secrets. If the text of that exception has a secret or a control character, there is no cause.
    """
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, McpError):
            return one
    found = _classify(chain, exchange, proxy)
    text = str(chain[-1])
    if redact(text) == text and visible(text) == text:
        found.__cause__ = chain[-1]
    return found


def release_frames(error: Exception) -> None:
    """Clear the frames in the tracebacks of `error`: they may hold a response of many megabytes.

    An error and its traceback form a cycle, which otherwise lives until a garbage collection.
    """
    for one in _chain(error):
        traceback.clear_frames(one.__traceback__)
        if isinstance(one, McpError):
            return  # its cause was raised by the program


def _classify(
    chain: list[BaseException], exchange: AbortableExchange, proxy: Callable[[], str]
) -> McpError:
    root = chain[-1]
    if any(isinstance(one, _TIMEOUTS) for one in chain) and exchange.deadline.expired:
        return RequestTimeout(
            "the server did not answer in time",
            seconds=exchange.deadline.seconds,
            delivery="unknown" if exchange.sent else "not_sent",
        )
    text = redact(_describe(root))
    if exchange.sent:
        if any(isinstance(one, _TLS_ERRORS) for one in chain):
            return ConnectionLost(f"TLS failed in the middle of the exchange: {text}")
        return ConnectionLost(f"the connection ended before the response: {text}")
    if any(isinstance(one, urllib3.exceptions.ProxyError) for one in chain):
        return ConnectFailed(f"cannot use the proxy {proxy()}: {text}")
    if any(isinstance(one, _TLS_ERRORS) for one in chain):
        if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
            return ConnectFailed(
                f"the server does not speak TLS here (should the URL begin with http://?): {text}"
            )
        return ConnectFailed(f"TLS failed (see verify= and cert=): {text}")
    if any(isinstance(one, socket.gaierror) for one in chain):
        return ConnectFailed(f"cannot resolve the host name (DNS): {text}")
    if any(isinstance(one, _TIMEOUTS) for one in chain):
        return ConnectFailed("the connection attempt timed out")
    if any(isinstance(one, _URL_ERRORS) for one in chain) or isinstance(
        root, (ValueError, TypeError)
    ):
        return UsageError(f"the request cannot be sent over HTTP: {text}")
    if isinstance(root, ConnectionRefusedError):
        return ConnectFailed("the connection was refused: is the server running on this port?")
    return ConnectFailed(f"cannot connect: {text}")


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)  # without the error number
    kind, said = type(error).__name__, str(error)
    return said if said.startswith(kind) else f"{kind}: {said}" if said else kind


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = _inner(current)


def _inner(error: BaseException) -> BaseException | None:
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return reason
    for argument in reversed(error.args):
        if isinstance(argument, BaseException):
            return argument
    return error.__cause__
