"""HTTP sessions: connections, TLS, proxies and cookies of one URL; and reading bodies."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from functools import partial
from http.cookiejar import Cookie
from typing import Any, Final, TypeAlias, cast

import requests
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar, extract_cookies_to_jar, get_cookie_header
from requests.hooks import dispatch_hook
from requests.models import PreparedRequest
from requests.structures import CaseInsensitiveDict
from requests.utils import default_user_agent, select_proxy
from urllib3.exceptions import HTTPError

from syncmcp._base.checks import kind_of, program_failed
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import logger, redact_url, whole
from syncmcp._http.connections import Adapter
from syncmcp._http.errors import WIRE_ERRORS
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp.config import Http
from syncmcp.errors import HttpError, LimitExceeded, McpError, UsageError

__all__ = [
    "HttpSession",
    "body_of",
    "connection_settings",
    "content_type",
    "content_type_as_sent",
    "finish",
]

_log = logger("syncmcp.http")

_READ = 256 * 1024

# A connection goes back to its pool only after the response was read to its end. Reading more bytes
# or for more seconds than this costs more than a new connection.
_DRAIN_SECONDS = 0.1
_DRAIN_BYTES = 64 * 1024


class HttpSession:
    """The connections, TLS settings, proxies and cookies that the exchanges with one URL share.

    Proxies and certificates are read from the environment once, here. `~/.netrc` is never read: it
    would replace an Authorization header. At most `connections` idle connections are kept open.
    """

    def __init__(self, config: Http, connections: int) -> None:
        theirs = config.session
        self._adapter: Adapter | None = None
        if theirs is not None and _has_custom_sending(theirs):
            session = theirs
        else:
            session = _copied_session(theirs)
            self._adapter = Adapter(connections)
        self._session = session
        self._settings = connection_settings(config, session)
        self._proxies_given = config.proxies is not None
        template = PreparedRequest()
        template.prepare(
            method="POST", url=config.url, params=session.params, hooks=session.hooks, cookies={}
        )
        self.url: str = template.url or config.url
        headers: CaseInsensitiveDict[Any] = CaseInsensitiveDict(session.headers)
        if headers.get("User-Agent") == default_user_agent():
            headers["User-Agent"] = f"syncmcp {default_user_agent()}"
        if "Authorization" in template.headers:  # from user and password in the URL
            headers["Authorization"] = template.headers["Authorization"]
        headers.pop("Content-Length", None)  # each body has its own
        self.headers = {name.lower(): (name, value) for name, value in headers.items()}
        self._auth = config.auth or session.auth
        self._secrets = config.secrets
        # The URL may have parameters of the session, and the proxies may be of the environment.
        for known in (self.url, *self._settings["proxies"].values()):
            self._secrets.give_url(known)
        learned = getattr(self._auth, "secrets", None)
        if isinstance(learned, Secrets):  # the secrets received by signing in
            self._secrets.include(learned)
        self._template = template
        self._hooked = self._auth is not None or bool(template.hooks["response"])
        self._cookies = ServerCookies(
            session.cookies, filled=theirs is not None, by_requests=self._adapter is None
        )

    def proxy(self) -> str:
        """The proxy to the server and where it was set, for errors; without its password."""
        url = select_proxy(self.url, self._settings["proxies"]) or ""
        if self._proxies_given:
            source = "option proxies"
        elif url in self._session.proxies.values():
            source = "of the session"
        else:
            names = [name for name in os.environ if name.lower().endswith("_proxy")]
            source = " ".join(name for name in names if os.environ[name] == url) or "of the system"
        return f"{redact_url(url)} ({source})"

    def merged(self, fields: Mapping[str, tuple[str, Any]]) -> MutableMapping[str, Any]:
        """The headers of one request, from names and values by their names in lower case.

        A plain dictionary, unless code of the program reads it or adds to it.
        """
        headers = dict(fields.values())
        if self._hooked or self._adapter is None:
            return CaseInsensitiveDict(headers)
        return headers

    def send(
        self,
        exchange: AbortableExchange,
        method: str,
        url: str,
        headers: MutableMapping[str, Any],
        body: bytes | None = None,
    ) -> requests.Response:
        """Send one HTTP request on this thread, and wait for the status and headers.

        `exchange` must have been entered on this thread. `headers` come from `merged`; the other
        headers of the request are added to them.

        Raises:
            Exception: Raised by requests, urllib3, ssl or socket.
            ExchangeAborted: The exchange was aborted.
        """
        # PreparedRequest.copy() would copy the cookie jar, too, which costs more.
        request = PreparedRequest.__new__(PreparedRequest)
        request.__dict__.update(self._template.__dict__)
        request.method = method
        request.url = url
        request.headers = cast("CaseInsensitiveDict[Any]", headers)
        request.body = body
        if body is not None:
            headers["Content-Length"] = str(len(body))
        session = self._session
        if self._cookies.filled:
            cookies = self._cookies.header(request)
            if cookies is not None and "cookie" not in map(str.lower, headers):
                headers["Cookie"] = cookies
        if self._auth is not None:
            request.hooks = {event: list(hooks) for event, hooks in request.hooks.items()}
            self._authenticate(request)
        seen = self._secrets.seen
        for name, value in headers.items():
            if seen.get(name) != value and name != "Content-Length":
                self._secrets.add_headers(headers)
                break
        exchange.redact = self._secrets.redact
        left = exchange.deadline.remaining()
        if left is not None and left <= 0:
            raise TimeoutError("there was no time left")
        if self._adapter is None:
            # A connection of the program's own adapter cannot be aborted before it responds.
            exchange.abort_with(_cannot_abort, sending=True)
            try:
                response = session.send(
                    request, allow_redirects=False, timeout=(left, left), **self._settings
                )
            except WIRE_ERRORS:
                raise
            except Exception as error:
                raise program_failed("the session", error) from error
            _release_before_pool(exchange, response.raw)
            try:
                exchange.abort_with(partial(_shut_down_response, response.raw))
            except BaseException:  # aborted before the response came: no other code has it
                response.close()
                raise
        else:
            patience = None if exchange.watched else left
            options: dict[str, Any] = {**self._settings, "timeout": (left, patience)}
            response = self._adapter.send(request, **options)
            if request.hooks["response"]:
                try:
                    response = dispatch_hook(  # type: ignore[no-untyped-call]
                        "response", request.hooks, response, **options
                    )
                except WIRE_ERRORS:  # of a request that a hook has sent
                    raise
                except Exception as error:
                    exchange.release()
                    response.close()
                    what = "a response hook" if self._auth is None else "auth"
                    raise program_failed(what, error) from error
        if response.request is not request:  # sent again by a hook, with other credentials
            self._secrets.add_headers(response.request.headers)
        if "Set-Cookie" in response.headers:
            for cookie in self._cookies.keep(response):
                self._secrets.add(cookie, "cookie")
            self._secrets.add_headers(response.request.headers)  # so they stay among the newest
        return response

    def _authenticate(self, request: PreparedRequest) -> None:
        try:
            request.prepare_auth(self._auth)
        except (McpError, ExchangeAborted):
            raise
        except Exception as error:
            failed = program_failed("auth", error)
            if isinstance(error, AttributeError) and error.name == "__dict__":
                failed = UsageError(f"auth must return the request, not {kind_of(error.obj)}")
            raise failed from error

    def close(self) -> None:
        """Close all idle connections, but not a session of the program's that is used unchanged."""
        if self._adapter is not None:
            self._adapter.close()


def connection_settings(config: Http, session: requests.Session) -> dict[str, Any]:
    """How the server of `config` is reached and checked: ``verify``, ``cert``, ``proxies``.

    Settings that `config` lacks are those of the session, and of the environment at this moment.
    """
    verify = config.verify if config.verify is not True else session.verify
    settings: dict[str, Any] = {
        **session.merge_environment_settings(
            config.url, {}, True, verify, config.cert or session.cert
        )
    }
    if config.proxies is not None:
        settings["proxies"] = dict(config.proxies)
    return settings


def _cannot_abort() -> None:
    """Do nothing: a connection of another adapter cannot be reached before it responds."""


def _shut_down_response(raw: Any) -> None:
    # ValueError: no connection to shut down; RuntimeError: other code uses its connection.
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        raw.shutdown()


def _release_before_pool(exchange: AbortableExchange, raw: Any) -> None:
    """Have the exchange release a connection before a pool of another adapter gets it back."""

    def release_conn() -> None:
        del raw.release_conn  # uncovers the method of the class, and leaves no reference cycle
        exchange.release()
        raw.release_conn()

    raw.release_conn = release_conn


def _has_custom_sending(session: requests.Session) -> bool:
    if type(session).send is not requests.Session.send:
        return True
    return set(session.adapters) != {"http://", "https://"} or any(
        type(adapter) is not HTTPAdapter or adapter.max_retries.total
        for adapter in session.adapters.values()
    )


def _copied_session(theirs: requests.Session | None) -> requests.Session:
    ours = requests.Session()
    if theirs is not None:
        for name in (
            "headers", "auth", "proxies", "hooks", "params", "verify", "cert", "cookies",
            "trust_env",
        ):  # fmt: skip
            setattr(ours, name, getattr(theirs, name))
    return ours


def content_type(response: requests.Response) -> str:
    """The media type, without parameters, in lower case; empty if there is none."""
    return content_type_as_sent(response).lower()


def content_type_as_sent(response: requests.Response) -> str:
    """The media type, without parameters, as the server wrote it; it may contain a secret."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip()


def body_of(
    exchange: AbortableExchange, response: requests.Response, limit: int | None = None
) -> Iterator[bytes]:
    """Yield the decoded pieces of a response body as they arrive.

    `limit` is the longest body accepted after decoding, in bytes.

    Raises:
        LimitExceeded: The body is longer than `limit`.
        HttpError: The body has a Content-Encoding that was not asked for.
        TimeoutError: The exchange's deadline passed.
        ExchangeAborted: Another thread aborted the exchange.
        EOFError: The compressed body is incomplete.
        Exception: Raised by urllib3, ssl or zlib.
    """
    raw: Any = response.raw
    encoding = response.headers.get("Content-Encoding", "").strip()
    if encoding.lower() in ("", "identity"):
        inflate = None
    elif encoding.lower() in ("gzip", "x-gzip"):
        inflate = _Gzip()
    else:
        raise HttpError(
            f"the server used the Content-Encoding {whole(encoding, 40)}, which the client did"
            " not ask for",
            status=response.status_code,
            delivery="unknown",
        )
    length = raw.length_remaining if inflate is None else None
    if limit is not None and length is not None and length > limit:
        raise _too_long(limit)
    size = 0
    while True:
        piece = raw.read1(_READ, decode_content=False)
        if not piece:
            if inflate is not None and not inflate.complete:
                raise EOFError("the compressed body ended early")
            return
        # A piece may inflate to a thousand times its size: each part checks the deadline.
        for part in (piece,) if inflate is None else inflate.feed(piece):
            exchange.check()
            size += len(part)
            if limit is not None and size > limit:
                raise _too_long(limit)
            if part:
                yield part
        if inflate is None and raw.length_remaining == 0:
            return


def _too_long(limit: int) -> LimitExceeded:
    return LimitExceeded(f"a response of the server is longer than max_body={limit} bytes")


class _Gzip:
    """Decompresses gzip in bounded pieces, some empty: a small body may expand to gigabytes."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def complete(self) -> bool:
        return self._member.eof

    def feed(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
            part = self._member.decompress(piece, _READ)
            piece = self._member.unconsumed_tail or self._member.unused_data
            yield part


def finish(exchange: AbortableExchange, response: requests.Response) -> None:
    """Close a response on the exchange's own thread; keep its connection if that is cheap.

    The rest of the body is read for a short time. If it has not ended by then, the connection is
    closed.
    """
    raw: Any = response.raw
    try:
        connection = raw.connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            _drain(exchange, raw, sock)
    except (HTTPError, OSError) as error:
        _log.debug("the rest of a response was dropped: %s", type(error).__name__)
    finally:
        if not raw.closed:
            exchange.release()
            response.close()


def _drain(exchange: AbortableExchange, raw: Any, sock: socket.socket) -> None:
    limit = exchange.deadline.sooner(_DRAIN_SECONDS)
    size = 0
    # At its end a response releases its connection, and another thread may use it at once.
    while raw.connection is not None and size <= _DRAIN_BYTES:
        left = limit.remaining()
        if not left:
            return
        sock.settimeout(left)
        piece = raw.read1(_DRAIN_BYTES, decode_content=False)
        if not piece:
            return
        size += len(piece)


MAX_COOKIES: Final = 50
"""The most cookies of a server that are kept."""

MAX_COOKIE: Final = 4_096
"""The longest cookie that is kept: name, value and attributes together, in characters."""

MAX_ALL: Final = 16_384
"""The most characters of all kept cookies of a server together."""

_Key: TypeAlias = tuple[str, str, str]


class _ReceivedCookies(RequestsCookieJar):
    """The cookies of one response, and the keys of those that it deletes."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[_Key] = []

    def clear(
        self, domain: str | None = None, path: str | None = None, name: str | None = None
    ) -> None:
        """Called by `http.cookiejar` for a cookie whose expiry is in the past."""
        if domain is not None and path is not None and name is not None:
            self.deleted.append((domain, path, name))
        super().clear(domain, path, name)


class ServerCookies:
    """Keeps the cookies that a server sets, in a jar. Used from any thread.

    When there are too many, the oldest cookies of the server are dropped. Those that the program
    has put into the jar are neither counted nor dropped.

    `filled` says whether the jar may have cookies: a look-up in an empty jar takes ten function
    calls. With `by_requests`, `requests` itself puts the cookies of responses into the jar.
    """

    def __init__(self, jar: RequestsCookieJar, *, filled: bool, by_requests: bool = False) -> None:
        self._jar = jar
        self._by_requests = by_requests
        self.filled = filled
        # Guards the sizes of the server's cookies, the oldest first.
        # Reentrant: a signal handler may make a call.
        self._lock = threading.RLock()
        self._sizes: dict[_Key, int] = {}

    def header(self, request: PreparedRequest) -> str | None:
        """The header `Cookie` for a request; `None` if there are no cookies for it."""
        header: str | None = get_cookie_header(self._jar, request)  # type: ignore[no-untyped-call]
        return header

    def keep(self, response: requests.Response) -> list[str]:
        """Put the cookies of a response into the jar, except those that are too long.

        Earlier cookies of the server that the response deletes are dropped. Returns the values of
        all received cookies.
        """
        received = _ReceivedCookies()
        extract_cookies_to_jar(received, response.request, response.raw)  # type: ignore[no-untyped-call]
        with self._lock:
            for key in received.deleted:
                if key in self._sizes:  # the jar may have cookies of the program, for any site
                    self._drop(key)
            for cookie in received:
                self._keep(cookie)
            while len(self._sizes) > MAX_COOKIES or sum(self._sizes.values()) > MAX_ALL:
                self._drop(next(iter(self._sizes)))
        self.filled = True
        return [cookie.value or "" for cookie in received]

    def _keep(self, cookie: Cookie) -> None:
        key = (cookie.domain, cookie.path, cookie.name)
        size = sum(len(str(one)) for one in vars(cookie).values())
        if size > MAX_COOKIE:
            if self._by_requests or key in self._sizes:  # else it would be one of the program
                self._drop(key)
            return
        self._sizes.pop(key, None)
        self._sizes[key] = size
        self._jar.set_cookie(cookie)

    def _drop(self, key: _Key) -> None:
        self._sizes.pop(key, None)
        with contextlib.suppress(KeyError):  # it has expired, or the program has dropped it
            self._jar.clear(*key)
