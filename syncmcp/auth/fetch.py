"""Makes the requests of signing in: to addresses that servers name, with nothing but what is due.

No cookies, no ``~/.netrc``, no headers of the MCP server. A body has a limit, all of it has a
deadline, and each connection goes to an address that the guard has agreed to.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.utils import default_user_agent

from syncmcp._base.checks import check_headers
from syncmcp._base.text import redact
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._http.connections import Adapter
from syncmcp._http.errors import WIRE_ERRORS, explain
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted, current
from syncmcp._http.session import body_of, finish
from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from syncmcp.auth.steps import HttpRequest, HttpResponse
from syncmcp.errors import AuthError, ConnectFailed, LimitExceeded, McpError, RequestTimeout

if TYPE_CHECKING:
    from requests.models import PreparedRequest

    from syncmcp.auth.signing import Binder
    from syncmcp.auth.steps import FetchSteps

__all__ = ["Driver", "Fetcher"]


_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS: Final = 3

# A request with one of these goes to whom it was meant for, or to nobody.
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "dpop"})

# Idle connections that are kept for each host: the flow makes one request after the other.
_CONNECTIONS: Final = 1

_PORTS: Final = {"http": 80, "https": 443}


class Fetcher:
    """Executes the `HttpRequest`es of a flow. Used from any thread.

    Args:
        guard: What agrees to URLs and to the addresses behind their hosts.
        session: Where `proxies`, `verify`, `cert` and `trust_env` come from; nothing else of it is
            used. By default the environment says, once for each host.
        limit: The longest body, in bytes, after decoding.
        timeout: Seconds for one request with its redirects. The deadline of the exchange that
            runs on the thread may come sooner.
    """

    def __init__(
        self,
        guard: UrlGuard,
        *,
        session: requests.Session | None = None,
        limit: int = 1024 * 1024,
        timeout: float = 30.0,
    ) -> None:
        self._guard = guard
        self._limit = limit
        self._timeout = timeout
        self._session = requests.Session()
        if session is not None:
            for name in ("proxies", "verify", "cert", "trust_env"):
                setattr(self._session, name, getattr(session, name))
        self._start()
        _all.add(self)

    def _start(self) -> None:
        """Set up what belongs to this process."""
        self._adapter = Adapter(_CONNECTIONS)
        # Guards what follows. The adapter needs the settings of a host to stay the same.
        self._lock = threading.RLock()
        self._running = 0
        self._settings: dict[tuple[str, str, int], Mapping[str, Any]] = {}

    def fetch(self, request: HttpRequest) -> HttpResponse:
        """Make a request, and if it is a GET follow up to three redirects.

        They may lead to where the request went, or to another ``https`` that the guard agrees to.
        Any other is returned as it came, like every status.

        Raises:
            UnsafeUrl: The URL, or each address of its host, is refused. Nothing was sent.
            ConnectFailed: No connection came about.
            AuthError: It ended early, took too long, or its body is too long.
            RequestTimeout: The deadline of the exchange on this thread passed.
            Cut: That exchange was cut.
        """
        check_headers(request.headers, "a request of signing in")
        with self._lock:
            self._running += 1
        try:
            return self._run(request)
        finally:
            with self._lock:
                self._running -= 1

    def close(self) -> None:
        """Close idle connections, unless another thread makes a request. It can go on later."""
        with self._lock:
            if not self._running:
                self._adapter.close()

    def _run(self, request: HttpRequest) -> HttpResponse:
        outer = current()
        left = None if outer is None else outer.deadline.remaining()
        seconds = self._timeout if left is None else min(left, self._timeout)
        with AbortableExchange(Deadline(seconds)) as inner:
            if outer is not None:
                outer.abort_with(inner.abort)
            # So that neither a trickle nor a slow handshake makes it longer.
            inner.watched = True
            late = timer.after(seconds, inner.abort)
            try:
                return self._follow(inner, request)
            except WIRE_ERRORS as error:
                if outer is not None and outer.aborted:
                    raise ExchangeAborted from error
                if inner.aborted and outer is not None and outer.deadline.expired:
                    raise _too_late(outer.deadline) from error
                failure = self._failure(error, inner, request)
                raise failure from failure.__cause__
            finally:
                late.cancel()
                if outer is not None:
                    outer.release()

    def _follow(self, exchange: AbortableExchange, request: HttpRequest) -> HttpResponse:
        url, headers = request.url, dict(request.headers)
        fetched = self._once(exchange, request, url, headers)
        for _ in range(_MOST_REDIRECTS):
            target = _target(request, url, fetched)
            if target is None:
                break
            if _origin(target) != _origin(url):
                headers = {}
            url = target
            try:
                fetched = self._once(exchange, request, url, headers)
            except UnsafeUrl:
                break
        return fetched

    def _once(
        self,
        exchange: AbortableExchange,
        request: HttpRequest,
        url: str,
        headers: Mapping[str, str],
    ) -> HttpResponse:
        exchange.resolve = self._guard.pin(url)
        prepared = _prepare(request, url, headers)
        settings = self._settings_of(url)
        left = exchange.deadline.remaining()
        response = self._adapter.send(prepared, timeout=(left, None), **settings)
        try:
            body = b"".join(body_of(exchange, response, self._limit))
        finally:
            finish(exchange, response)
        names = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status_code, names, body)

    def _settings_of(self, url: str) -> Mapping[str, Any]:
        origin = _origin(url)
        session = self._session
        with self._lock:
            if origin not in self._settings:
                self._settings[origin] = session.merge_environment_settings(
                    url, {}, True, session.verify, session.cert
                )
            return self._settings[origin]

    def _failure(
        self, error: Exception, exchange: AbortableExchange, request: HttpRequest
    ) -> McpError:
        found = explain(error, exchange)
        if isinstance(found, UnsafeUrl):
            return found
        cause = found.__cause__
        if exchange.aborted:
            found = AuthError(f"no answer came within {self._timeout:g} s")
        elif isinstance(found, LimitExceeded):
            found = AuthError(f"an answer is longer than {self._limit} bytes")
        elif not isinstance(found, ConnectFailed):
            # How far this request came says nothing about the one that needs the token.
            found = AuthError(found.message)
        found.__cause__ = cause
        found.__dict__.update(delivery="not_sent", server=redact(request.url))
        return found


def _target(request: HttpRequest, url: str, fetched: HttpResponse) -> str | None:
    """Where a redirect leads, if it may be followed as far as can be told."""
    location = fetched.headers.get("location")
    if request.method != "GET" or fetched.status not in _REDIRECTS or not location:
        return None
    if not _SECRET_HEADERS.isdisjoint(name.lower() for name in request.headers):
        return None
    with contextlib.suppress(ValueError):  # of urljoin and of the port
        target = urljoin(url, location)
        if _origin(target) == _origin(url) or urlsplit(target).scheme == "https":
            return target
    return None


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


def _prepare(request: HttpRequest, url: str, headers: Mapping[str, str]) -> PreparedRequest:
    ours = {
        "Accept": "application/json",
        "Accept-Encoding": "gzip",
        "User-Agent": f"syncmcp {default_user_agent()}",
    }
    names = {name.lower() for name in headers}
    kept = {name: value for name, value in ours.items() if name.lower() not in names}
    return requests.Request(request.method, url, {**kept, **headers}, data=request.body).prepare()


def _too_late(deadline: Deadline) -> RequestTimeout:
    return RequestTimeout(
        "no answer came in time while signing in", seconds=deadline.seconds, delivery="not_sent"
    )


_all: weakref.WeakSet[Fetcher] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # On a connection of the parent's, each process would get answers that are for the other.
    for fetcher in list(_all):
        fetcher._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# Runs the steps of signing in: makes their requests, with proofs where a key is in play.


T = TypeVar("T")


class Driver:
    """Runs steps for one MCP server. Used from any thread.

    Args:
        url: The MCP server.
        session: Where proxies and certificates come from.
        allow_private: Whether a public server may name private addresses.
        binder: Adds proofs to token requests.
    """

    def __init__(
        self,
        url: str,
        *,
        session: requests.Session | None = None,
        allow_private: bool = False,
        binder: Binder | None = None,
    ) -> None:
        self.guard = UrlGuard(url, allow_private=allow_private)
        self._fetcher = Fetcher(self.guard, session=session)
        self._binder = binder

    def run(self, steps: FetchSteps[T]) -> T:
        """Run steps to their end, on this thread.

        Raises:
            AuthError: What the steps raise, or a URL must not be used.
            TransportError: A request failed.
            RequestTimeout: A request took too long.
            Cut: The exchange on this thread was cut.
        """
        try:
            request = next(steps)
            while True:
                request = steps.send(self._fetch(request))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
            self._fetcher.close()

    def _fetch(self, request: HttpRequest) -> HttpResponse:
        if self._binder is None or not request.token:
            return self._fetcher.fetch(request)
        answer = self._fetcher.fetch(self._binder.bind_token_request(request))
        if self._binder.token_nonce(request, answer):
            # It was refused for want of the nonce that came with the answer (RFC 9449 §8).
            if request.renew is not None:
                request = request.renew()
            answer = self._fetcher.fetch(self._binder.bind_token_request(request))
            self._binder.token_nonce(request, answer)
        return answer
