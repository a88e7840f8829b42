"""urllib3 connections that register their socket with the exchange on their thread.

So another thread can abort the exchange. They write and read ordinary heads of HTTP messages with
about 40 function calls; urllib3, http.client and the email package, which handle all other heads,
need 200.
"""

from __future__ import annotations

import http.client
import logging
import queue
import re
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from email.parser import HeaderParser
from functools import cache, partial
from http import HTTPStatus
from http.client import (
    HTTPException,
    HTTPMessage,
    HTTPResponse,
    LineTooLong,
    RemoteDisconnected,
    UnknownProtocol,
)
from typing import Any

import urllib3
from requests.adapters import HTTPAdapter
from requests.cookies import extract_cookies_to_jar
from requests.exceptions import InvalidSchema
from requests.models import PreparedRequest, Response
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util import SKIP_HEADER, Retry, Timeout

from syncmcp._base.text import MASK, visible
from syncmcp._http.connecting import connect, look_up, resolve
from syncmcp._http.exchange import current, shut_down
from syncmcp.errors import UsageError

__all__ = ["Adapter"]

# Loggers of urllib3 that quote URLs.
_QUOTING_LOGGERS = ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry")
_QUERY = re.compile(r"(?<!HTTP/)\?[^\s\"']*")


def _without_query(record: logging.LogRecord) -> bool:
    """Remove queries, which may contain tokens, from records of urllib3 about our exchanges."""
    exchange = current()
    if exchange is not None:
        record.msg = visible(exchange.redact(_QUERY.sub(f"?{MASK}", record.getMessage())))
        record.args = ()
    return True


for _name in _QUOTING_LOGGERS:
    logging.getLogger(_name).addFilter(_without_query)

# urllib3 adds the needed headers that are missing, and changes the head for the special ones.
_NEEDED = frozenset(("accept-encoding", "content-length", "user-agent"))
_SPECIAL = frozenset(("host", "transfer-encoding"))
# Ordinary names and values: fewer than http.client accepts.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def _plain_lines(headers: Mapping[str, Any]) -> bytes | None:
    """The lines of ordinary headers; `None` if urllib3 has to write, complete or refuse them."""
    names = {name.lower() for name in headers}
    if not names.issuperset(_NEEDED) or not names.isdisjoint(_SPECIAL):
        return None
    lines = []
    for name, value in headers.items():
        if type(value) is not str or value == SKIP_HEADER:
            return None
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return None
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")


# The limits of http.client, in bytes and lines.
_LONGEST_LINE = 65536
_MOST_LINES = 100

MAX_HEAD = 256 * 1024
"""The most bytes of the headers of one response: their parsing takes time for each byte."""

# Longer cookies are ignored: to read one takes quadratic time.
_LONGEST_COOKIE = 8 * 1024

# An ordinary header. Its value does not begin with whitespace: a line matches in one way only, so
# the search never backtracks.
_FIELD = re.compile(
    r"^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*"
    r"((?:[\x21-\x7e\x80-\xff][\t\x20-\x7e\x80-\xff]*)?)\r?\n",
    re.MULTILINE,
)


class _Response(HTTPResponse):
    """Skips interim responses, and refuses incomplete headers."""

    fp: Any = None  # for the destructor, if Ctrl-C comes before it is set
    headers: Any
    msg: Any

    def begin(self) -> None:
        """Read the status and the headers, and determine how the body ends."""
        version, status, reason = self._read_status()  # type: ignore[attr-defined]
        # RFC 9110 15.2: any number of interim responses may come.
        while 100 <= status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS:
            self._read_lines()
            version, status, reason = self._read_status()  # type: ignore[attr-defined]
        if not version.startswith(("HTTP/1.", "HTTP/0.9")):
            raise UnknownProtocol(version)
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        self.code = self.status = status
        self.reason = reason.strip()
        fields = self._read_fields()
        self.headers = HTTPHeaderDict()
        # For cookies: urllib3's mapping has the method that `http.cookiejar` calls.
        self.msg = HTTPHeaderDict()
        for name, value in fields:
            self.headers.add(name, value)
            if name.lower() == "set-cookie" and len(value) <= _LONGEST_COOKIE:
                self.msg.add(name, value)
        self._find_end({name.lower(): value for name, value in reversed(fields)})

    def _find_end(self, headers: Mapping[str, str]) -> None:
        """Set how the body ends, from the first header of each name."""
        self.chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.length = None if self.chunked else _length(headers.get("content-length", ""))
        if self.status in (204, 304) or self.status < 200:
            self.length = 0
        connection = headers.get("connection", "").lower()
        kept = "close" not in connection if self.version == 11 else "keep-alive" in connection
        self.will_close = not kept or (self.length is None and not self.chunked)

    def _read_lines(self) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while True:
            line = self.fp.readline(_LONGEST_LINE + 1)
            if not line:
                raise RemoteDisconnected("the connection was closed before the end of the headers")
            if len(line) > _LONGEST_LINE:
                raise LineTooLong("header line")
            lines.append(line)
            size += len(line)
            if len(lines) > _MOST_LINES:
                raise HTTPException(f"got more than {_MOST_LINES} headers")
            if size > MAX_HEAD:
                raise HTTPException(f"got headers of more than {MAX_HEAD} bytes")
            if line in (b"\r\n", b"\n"):
                return lines

    def _read_fields(self) -> list[tuple[str, str]]:
        lines = self._read_lines()
        head = b"".join(lines)
        fields: list[tuple[str, str]] = _FIELD.findall(head.decode("latin-1"))
        if len(fields) == len(lines) - 1:
            return fields
        # Folded or invalid lines. A fold is a space (RFC 9112 5.2). `http.client.parse_headers`
        # also reads the content type, whose parameters take quadratic time.
        items = HeaderParser(_class=HTTPMessage).parsestr(head.decode("latin-1")).items()
        return [(name, value.replace("\r\n", "").replace("\n", "")) for name, value in items]


class _Reply(urllib3.HTTPResponse):
    """Returns its connection to the pool only once, even if Ctrl-C interrupts that."""

    def release_conn(self) -> None:
        # Cleared first: in the pool it may belong to another thread, and must not be closed here.
        connection, self._connection = self._connection, None
        if self._pool and connection:
            self._pool._put_conn(connection)


def _length(value: str) -> int | None:
    try:
        length = int(value.partition(",")[0])
    except ValueError:
        return None
    return length if length >= 0 else None


class _Connection(HTTPConnection):
    """Registers its socket with the exchange on its thread; sends head and body at once."""

    response_class: Any = _Response

    # Not inherited from http.client, where a program may set it to print all headers.
    debuglevel = 0

    peer: str | None = None
    """The address of the server; `None` before it is known, and through a proxy."""

    _outbox: list[bytes] | None = None

    def _new_conn(self) -> socket.socket:
        exchange = current()
        if exchange is None:
            return super()._new_conn()
        host, proxied = self._dns_host.strip("[]"), self.proxy is not None
        find = (None if proxied else exchange.resolve) or look_up
        try:
            addresses = resolve(host, self.port, exchange, find)
            sock, address = connect(
                addresses, host, exchange, self.socket_options, self.source_address
            )
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"connecting to {self.host} timed out") from error
        except OSError as error:
            raise NewConnectionError(self, str(error)) from error
        self.peer = None if proxied else address
        return sock

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if self.sock is None:
            self.connect()
        lines = _plain_lines(headers) if type(body) is bytes and headers else None
        self._outbox = []
        try:
            if lines is None:
                super().request(method, url, body, headers, **options)
                message = b"".join(self._outbox)
            else:
                assert self.sock is not None  # `connect` sets it
                self.sock.settimeout(self.timeout)
                self.putrequest(method, url, skip_accept_encoding=True)
                self.endheaders()
                message = b"%b%b\r\n%b" % (b"".join(self._outbox)[:-2], lines, body)
        finally:
            self._outbox = None
        exchange = current()
        if exchange is not None:
            exchange.abort_with(partial(shut_down, self.sock), sending=True)
        self.send(message)

    def send(self, data: Any) -> None:
        if self._outbox is None:
            super().send(data)
        else:
            # Head and body are sent with one system call, in one segment.
            self._outbox.append(data)

    def getresponse(self) -> Any:
        """Wait for the headers; the caller reads the body."""
        self.sock.settimeout(self.timeout)
        shutdown = getattr(self.sock, "shutdown", None)  # TLS in TLS has no such method
        response: Any = http.client.HTTPConnection.getresponse(self)
        return _Reply(
            body=response,
            headers=response.headers,
            status=response.status,
            version=response.version,
            reason=response.reason,
            preload_content=False,
            decode_content=False,
            original_response=response,
            sock_shutdown=shutdown,
        )


class _SecureConnection(_Connection, HTTPSConnection):
    _handle: socket.socket | None = None

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        exchange = current()
        if exchange is not None:
            try:
                # TLS detaches the descriptor from this socket object before the handshake.
                self._handle = sock.dup()
                exchange.abort_with(partial(shut_down, self._handle))
            except BaseException:
                sock.close()
                raise
        return sock

    def connect(self) -> None:
        try:
            super().connect()
            exchange = current()
            if exchange is not None:
                exchange.abort_with(partial(shut_down, self.sock))
        except OSError as error:
            _close_half_made(error)
            raise
        finally:
            if self._handle is not None:
                self._handle.close()
                self._handle = None


def _close_half_made(error: OSError) -> None:
    """Close the TLS socket that Python 3.10 leaves open if its peer was gone before the handshake.

    Its constructor raised, so the traceback has the only reference to it.
    """
    trace = error.__traceback__
    while trace is not None:
        made = trace.tb_frame.f_locals.get("self")
        if isinstance(made, ssl.SSLSocket):
            made.close()
        trace = trace.tb_next


class _IdleConnections:
    """The connections of a pool that are not in use, the last one first. No method blocks.

    urllib3 has a `queue.LifoQueue` for them. Ctrl-C right after its lock was taken would leave it
    locked, and block all threads. This has no lock.
    """

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._items: deque[Any] = deque()

    def get(self, block: bool = False, timeout: float | None = None) -> Any:
        """Take a connection; raise `queue.Empty` without one, so that urllib3 makes one."""
        try:
            return self._items.pop()
        except IndexError:
            raise queue.Empty from None

    def put(self, item: Any, block: bool = False) -> None:
        """Add a connection; raise `queue.Full` if there are enough, so that urllib3 closes it."""
        # urllib3 fills a pool with `None`. After Ctrl-C a thread may add a connection twice.
        if item is None or item in self._items:
            return
        if len(self._items) >= self._maxsize:  # concurrent threads may add one too many
            raise queue.Full
        self._items.append(item)

    def qsize(self) -> int:
        """Return the number of idle connections."""
        return len(self._items)


class _Pool(HTTPConnectionPool):
    ConnectionCls: Any = _Connection
    QueueCls: Any = _IdleConnections

    def _put_conn(self, conn: Any) -> None:
        exchange = current()
        if exchange is not None:
            exchange.release()
        super()._put_conn(conn)


class _SecurePool(_Pool, HTTPSConnectionPool):
    ConnectionCls: Any = _SecureConnection


_POOLS: dict[str, Any] = {"http": _Pool, "https": _SecurePool}


@cache
def _socks_pools() -> dict[str, Any]:
    """Connection pools for SOCKS proxies. Only the deadline ends the wait for a connection."""
    from urllib3.contrib.socks import SOCKSConnection

    class Connection(SOCKSConnection, _Connection):
        pass

    class SecureConnection(SOCKSConnection, _SecureConnection):
        pass

    class Pool(_Pool):
        ConnectionCls = Connection

    class SecurePool(_SecurePool):
        ConnectionCls = SecureConnection

    return {"http": Pool, "https": SecurePool}


_NO_RETRIES = Retry(0, read=False)


class _Limits(Timeout):
    """Timeouts that urllib3 need not check and copy for each step of a request."""

    connect_timeout: Any = None
    read_timeout: Any = None

    def __init__(self, connect: float | None, read: float | None) -> None:
        self.connect_timeout = connect
        self.read_timeout = read

    def clone(self) -> _Limits:
        return self

    def start_connect(self) -> float:
        return 0.0


# The most URLs whose pool is cached; a server may redirect to any number of URLs.
_KNOWN_URLS = 16


class Adapter(HTTPAdapter):
    """An adapter of `requests` whose connections can be aborted, directly and through proxies.

    Its proxies and certificates never change. Therefore it chooses the connection pool once for
    each URL, while `HTTPAdapter` does so for each request.
    """

    def __init__(self, connections: int) -> None:
        """Keep up to `connections` idle connections."""
        super().__init__(pool_connections=4, pool_maxsize=connections)
        self._routes: dict[Any, tuple[HTTPConnectionPool, str]] = {}

    def send(
        self,
        request: PreparedRequest,
        stream: bool = True,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """Send the request and wait for the headers; the body is always left to be read."""
        route = self._routes.get(request.url)
        if route is None:
            pool: Any = self.get_connection_with_tls_context(request, verify, proxies, cert)
            self.cert_verify(pool, request.url, verify, cert)  # type: ignore[no-untyped-call]
            route = pool, self.request_url(request, proxies)
            if len(self._routes) < _KNOWN_URLS:
                self._routes[request.url] = route
        pool, target = route
        connect, read = timeout
        raw: Any = pool.urlopen(
            method=request.method,
            url=target,
            body=request.body,
            headers=dict(request.headers),
            retries=_NO_RETRIES,
            redirect=False,
            assert_same_host=False,
            timeout=_Limits(connect, read),
            preload_content=False,
            decode_content=False,
        )
        response = Response()
        response.status_code = raw.status
        # A plain dictionary means that no code of the program sees the response.
        plain = isinstance(request.headers, dict)
        response.headers = raw.headers if plain else CaseInsensitiveDict(raw.headers)
        response.reason = raw.reason
        response.raw = raw
        response.url = str(request.url)
        response.request = request
        response.connection = self
        if "Set-Cookie" in raw.headers:
            extract_cookies_to_jar(response.cookies, request, raw)  # type: ignore[no-untyped-call]
        return response

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        try:
            manager = super().proxy_manager_for(proxy, **kwargs)
        except InvalidSchema:
            raise UsageError("a SOCKS proxy needs PySocks: install syncmcp-client[socks]") from None
        socks = proxy.lower().startswith("socks")
        manager.pool_classes_by_scheme = _socks_pools() if socks else _POOLS
        return manager

    def close(self) -> None:
        # Otherwise urllib3 leaves the connections to the garbage collector.
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - a copy; it is not a dict
                pool = manager.pools.get(key)
                if pool is not None:
                    pool.close()
        self._routes.clear()
        super().close()
