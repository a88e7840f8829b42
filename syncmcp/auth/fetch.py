"""The I/O of signing in: the HTTP requests of the steps, to URLs that servers name.

The module uses no cookies, no ``~/.netrc`` and no headers of the MCP server. Bodies have a size
limit, requests have a timeout, and connections go only to IP addresses that the URL guard allows.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

import requests
from requests.models import PreparedRequest
from requests.utils import default_user_agent

from syncmcp._base.checks import check_headers
from syncmcp._base.origin import Origin, join_url, origin_of
from syncmcp._base.secrets import Secrets
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._http.connections import Adapter
from syncmcp._http.errors import WIRE_ERRORS, explain
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted, current
from syncmcp._http.session import body_of, finish
from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from syncmcp.auth.steps import FetchSteps, HttpRequest, HttpResponse, json_members
from syncmcp.errors import AuthError, ConnectFailed, LimitExceeded, McpError, RequestTimeout

if TYPE_CHECKING:
    from syncmcp.auth.signing import DPoPProver

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS: Final = 5

# Requests with one of these headers are not redirected.
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "dpop"})

# Fields of requests and members of responses that are secret (RFC 6749, 7523, 7591, 7636, 8693).
_SECRET_MEMBERS: Final = frozenset(
    {
        "access_token", "actor_token", "assertion", "client_assertion", "client_secret", "code",
        "code_verifier", "id_token", "password", "refresh_token", "registration_access_token",
        "subject_token", "token",
    }
)  # fmt: skip

# Idle connections kept for each host: the steps make one request after the other.
_CONNECTIONS: Final = 1

# The longest body, in bytes, after decoding.
_LIMIT = 1024 * 1024

# Seconds for one request with its redirects. The deadline of the exchange on the current thread may
# come sooner.
_TIMEOUT = 30.0

T = TypeVar("T")


class Driver:
    """Runs the steps of signing in for one MCP server. Methods may be called from any thread.

    The driver adds the secrets of requests and responses to `secrets`, and removes them from
    errors.

    Args:
        guard: Decides which URLs and IP addresses are allowed.
        session: Supplies `proxies`, `verify`, `cert` and `trust_env`; nothing else of the session
            is used. By default the settings come from the environment, which is read once for each
            host.
        prover: Adds DPoP proofs to token requests; `None` if tokens are not bound to a key.
    """

    def __init__(
        self,
        guard: UrlGuard,
        *,
        session: requests.Session | None = None,
        prover: DPoPProver | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.guard = guard
        self.secrets = Secrets() if secrets is None else secrets
        self._prover = prover
        self._session = requests.Session()
        if session is not None:
            for name in ("proxies", "verify", "cert", "trust_env"):
                setattr(self._session, name, getattr(session, name))
        self._initialize()
        _drivers.add(self)

    def _initialize(self) -> None:
        """Create the objects that a forked child must not share with its parent."""
        self._adapter = Adapter(_CONNECTIONS)
        # Guards the fields below. The adapter requires constant settings for each host.
        self._lock = threading.RLock()
        self._open_requests = 0
        self._settings: dict[Origin, Mapping[str, Any]] = {}

    def run(self, steps: FetchSteps[T]) -> T:
        """Run steps to their end, on this thread.

        Raises:
            AuthError: The steps raised it, or the guard refuses a URL.
            TransportError: A request failed.
            RequestTimeout: The deadline of the exchange on this thread passed.
            ExchangeAborted: The exchange on this thread was aborted.
        """
        try:
            request = next(steps)
            while True:
                request = steps.send(self._fetch_bound(request))
        except StopIteration as end:
            result: T = end.value
            return result
        except McpError as error:  # its text may quote the authorization server
            self.secrets.clean(error)
            raise
        finally:
            steps.close()
            self.close()

    def close(self) -> None:
        """Close idle connections, unless a request is in flight. The driver stays usable."""
        with self._lock:
            if not self._open_requests:
                self._adapter.close()

    def _fetch_bound(self, request: HttpRequest) -> HttpResponse:
        if self._prover is None or not request.token:
            return self.fetch(request)
        self.guard.check(request.url)  # a proof contains the URL, which may be invalid
        answer = self.fetch(self._prover.bind_token_request(request))
        if self._prover.token_request_needs_nonce(request, answer):
            # Refused without a nonce; the response contains one (RFC 9449 §8).
            if request.renew is not None:
                request = request.renew()
            answer = self.fetch(self._prover.bind_token_request(request))
            self._prover.token_request_needs_nonce(request, answer)
        return answer

    def fetch(self, request: HttpRequest) -> HttpResponse:
        """Send a request; for a GET without a secret, follow up to five redirects in its origin.

        Other redirects and error statuses are returned. The secrets of request and response are
        recorded, to be removed from errors.

        Raises:
            UnsafeUrl: The guard refuses the URL, or all IP addresses of its host. Nothing was sent.
            ConnectFailed: No connection was made.
            AuthError: The response broke off, took too long, or its body is too long.
            RequestTimeout: The deadline of the exchange on this thread passed.
            ExchangeAborted: That exchange was aborted.
        """
        self._learn_sent(request)
        check_headers(request.headers, "a sign-in request")
        with self._lock:
            self._open_requests += 1
        try:
            response = self._run(request)
        finally:
            with self._lock:
                self._open_requests -= 1
        self._learn(json_members(response).items())
        self._learn_sent(request)  # again: the oldest secrets are forgotten first
        return response

    def _learn_sent(self, request: HttpRequest) -> None:
        self.secrets.add_headers(request.headers)
        self._learn(parse_qsl((request.body or b"").decode("utf-8", "replace")))

    def _learn(self, members: Iterable[tuple[str, Any]]) -> None:
        for name, value in members:
            if name in _SECRET_MEMBERS and isinstance(value, str):
                self.secrets.add(value, "secret")

    def _run(self, request: HttpRequest) -> HttpResponse:
        outer = current()
        left = None if outer is None else outer.deadline.remaining()
        seconds = _TIMEOUT if left is None else min(left, _TIMEOUT)
        with AbortableExchange(Deadline(seconds)) as inner:
            if outer is not None:
                outer.abort_with(inner.abort)
            # The timer aborts it: neither a slow TLS handshake nor a trickling body extends it.
            inner.watched = True
            late = timer.after(seconds, inner.abort)
            try:
                return self._follow_redirects(inner, request)
            except WIRE_ERRORS as error:
                if outer is not None and outer.aborted:
                    raise ExchangeAborted from error
                if inner.aborted and outer is not None and outer.deadline.expired:
                    raise _timed_out(outer.deadline) from error
                failure = self._as_error(error, inner, request)
                raise failure from failure.__cause__
            finally:
                late.cancel()
                if outer is not None:
                    outer.release()

    def _follow_redirects(self, exchange: AbortableExchange, request: HttpRequest) -> HttpResponse:
        url = request.url
        response = self._send_once(exchange, request, url)
        for _ in range(_MOST_REDIRECTS):
            target = _redirect_target(request, url, response)
            if target is None:
                break
            url = target
            try:
                response = self._send_once(exchange, request, url)
            except UnsafeUrl:
                break
        return response

    def _send_once(
        self, exchange: AbortableExchange, request: HttpRequest, url: str
    ) -> HttpResponse:
        exchange.resolve = self.guard.pin(url)
        exchange.redact = self.secrets.redact
        prepared = _prepare(request, url)
        settings = self._settings_of(url)
        left = exchange.deadline.remaining()
        response = self._adapter.send(prepared, timeout=(left, None), **settings)
        if self.guard.is_own(url):
            self.guard.record_peer(response)
        try:
            body = b"".join(body_of(exchange, response, _LIMIT))
        finally:
            finish(exchange, response)
        names = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status_code, names, body)

    def _settings_of(self, url: str) -> Mapping[str, Any]:
        origin = origin_of(url)
        session = self._session
        with self._lock:
            if origin not in self._settings:
                settings = self._settings[origin] = session.merge_environment_settings(
                    url, {}, True, session.verify, session.cert
                )
                for proxy in settings["proxies"].values():
                    self.secrets.give_url(proxy)
            return self._settings[origin]

    def _as_error(
        self, error: Exception, exchange: AbortableExchange, request: HttpRequest
    ) -> McpError:
        found = explain(error, exchange)
        if isinstance(found, UnsafeUrl):
            return found
        cause = found.__cause__
        if exchange.aborted:
            found = AuthError(f"no response within {_TIMEOUT:g} s")
        elif isinstance(found, LimitExceeded):
            found = AuthError(f"a response is longer than {_LIMIT} bytes")
        elif not isinstance(found, ConnectFailed):
            # Its `delivery` is not that of the MCP request that needs the token.
            found = AuthError(found.message)
        found.__cause__ = cause
        # The client sets `server` to the MCP server, which is not the one that failed here.
        found.args = (f"signing in: {self.secrets.redact(request.url)}: {found.message}",)
        found.__dict__.update(delivery="not_sent")
        return found


def _redirect_target(request: HttpRequest, url: str, response: HttpResponse) -> str | None:
    """The URL to follow a redirect to, before the guard checks it; `None`: do not follow."""
    location = response.headers.get("location")
    if request.method != "GET" or response.status not in _REDIRECTS or not location:
        return None
    if not _SECRET_HEADERS.isdisjoint(name.lower() for name in request.headers):
        return None
    with contextlib.suppress(ValueError):  # the location is not a valid URL
        target = join_url(url, location)
        # Another site must not publish documents for the issuer or the MCP server.
        if origin_of(target) == origin_of(url):
            return target
    return None


def _prepare(request: HttpRequest, url: str) -> PreparedRequest:
    ours = {
        "Accept": "application/json",
        "Accept-Encoding": "gzip",
        "User-Agent": f"syncmcp {default_user_agent()}",
    }
    names = {name.lower() for name in request.headers}
    kept = {name: value for name, value in ours.items() if name.lower() not in names}
    headers = {**kept, **request.headers}
    return requests.Request(request.method, url, headers, data=request.body).prepare()


def _timed_out(deadline: Deadline) -> RequestTimeout:
    return RequestTimeout(
        "the server did not respond in time during the sign-in",
        seconds=deadline.seconds,
        delivery="not_sent",
    )


_drivers: weakref.WeakSet[Driver] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # On a shared connection, each process would receive responses for the other.
    for driver in list(_drivers):
        driver._initialize()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
