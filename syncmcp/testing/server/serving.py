"""The endpoints behind an HTTP server on loopback, and as a WSGI application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Literal

from syncmcp._base.checks import kind_of
from syncmcp.testing.listener import HOST, LOOPBACK, Closing
from syncmcp.testing.server.authorization import AuthorizationServer
from syncmcp.testing.server.events import EventBody, HttpReply
from syncmcp.testing.server.http import HttpEndpoint, SseEndpoint
from syncmcp.testing.server.http_listener import HttpRequest, find_foreign_host, listen_http
from syncmcp.testing.server.server import Server

PATH = "/mcp"
SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"


def serve_http(
    server: Server,
    port: int = 0,
    *,
    response: Literal["auto", "json", "sse"] = "auto",
    retry_ms: int | None = None,
    keep_alive: float | None = 15.0,
    event_limit: int = 1000,
    allowed_hosts: Iterable[str] | None = LOOPBACK,
    authorization_server: AuthorizationServer | None = None,
) -> HttpServer:
    """Serve `server` at `http://127.0.0.1:<port>/mcp`, on threads of its own, until it is closed.

    >>> from syncmcp.testing import demo_server, serve_http
    >>> with serve_http(demo_server()) as http, syncmcp.connect(http.url) as client:
    ...     print(client.server.revision)
    2026-07-28

    If the server speaks a revision before 2026-07-28, it is also served over HTTP+SSE; see
    `HttpServer.sse_url`.

    Args:
        server: The server.
        port: The port; 0 picks a free port (see `HttpServer.url`).
        response: "auto", "json" or "sse"; see `HttpEndpoint`.
        retry_ms: The reconnection time in milliseconds; see `HttpEndpoint`.
        keep_alive: The seconds without an event before a comment; see `HttpEndpoint`.
        event_limit: The number of messages stored for replay; see `HttpEndpoint`.
        allowed_hosts: The accepted host names; by default those of loopback.
        authorization_server: Issues the tokens. If it is passed, each request needs a token.

    Returns:
        The running HTTP server. Use it in a `with` statement, or `close()` it.

    Raises:
        TypeError: `server`, `port` or `authorization_server` has another type.
        ValueError: `port` is not within 0 to 65535, or `response` has another value.
        OSError: The port is taken.
    """
    if not isinstance(server, Server):
        raise TypeError(f"server must be a Server, not {kind_of(server)}")
    if not isinstance(port, int):
        raise TypeError(f"port must be a number, not {kind_of(port)}")
    if not isinstance(authorization_server, AuthorizationServer | None):
        kind = kind_of(authorization_server)
        raise TypeError(f"authorization_server must be an AuthorizationServer, not {kind}")
    endpoint = HttpEndpoint(
        server,
        response=response,
        retry_ms=retry_ms,
        keep_alive=keep_alive,
        event_limit=event_limit,
        allowed_hosts=allowed_hosts,
    )
    legacy = SseEndpoint(
        server, messages=MESSAGES_PATH, keep_alive=keep_alive, allowed_hosts=allowed_hosts
    )
    return HttpServer(endpoint, legacy, port, authorization_server)


class HttpServer(Closing):
    """An HTTP server on loopback with one thread for each connection; see `serve_http`.

    Attributes:
        endpoint: The Streamable HTTP endpoint.
        sse_endpoint: The endpoints for HTTP+SSE (2024-11-05).
        url: The URL of `endpoint`.
        sse_url: The URL of the event stream of HTTP+SSE. A POST there gets 405.
    """

    def __init__(
        self,
        endpoint: HttpEndpoint,
        sse_endpoint: SseEndpoint,
        port: int = 0,
        authorization_server: AuthorizationServer | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.sse_endpoint = sse_endpoint
        self._issuer = authorization_server
        self._listener = listen_http(self._answer, port)
        self._root = f"http://{HOST}:{self._listener.port}"
        self.url = self._root + PATH
        self.sse_url = self._root + SSE_PATH

    def __repr__(self) -> str:
        return f"<HttpServer of {self.endpoint.server!r} at {self.url}>"

    @property
    def connections(self) -> int:
        """The number of TCP connections accepted so far."""
        return self._listener.accepted

    @property
    def open_connections(self) -> int:
        """The number of open TCP connections."""
        return len(self._listener.open)

    def drop_connections(self) -> None:
        """Shut down every open TCP connection, as a server that crashes does."""
        self._listener.drop()

    def close(self) -> None:
        """Stop listening, end all sessions and connections, and wait for their threads."""
        self._listener.stop()
        self.endpoint.close()
        self.sse_endpoint.close()
        self._listener.close()

    def _answer(self, request: HttpRequest) -> HttpReply:
        path = request.path
        sse = path in (SSE_PATH, MESSAGES_PATH)
        if self._issuer is not None:
            resource = self._root_of(request) + (SSE_PATH if sse else PATH)
            refusal = self._issuer.refusal(request.headers, resource)
            if refusal is not None:
                return refusal
        if sse and (request.verb == "GET") is not (path == SSE_PATH):
            return HttpReply(405, {"allow": "GET" if path == SSE_PATH else "POST"})
        if not sse and path != PATH:
            return HttpReply(404, {"content-type": "text/plain"}, b"Not found")
        return _call(self.sse_endpoint if sse else self.endpoint, request)

    def _root_of(self, request: HttpRequest) -> str:
        """Return the URL that the client uses, without a path: a proxy may be between."""
        host = request.headers.get("host")
        ours = host is not None and find_foreign_host({"host": host}, LOOPBACK) is None
        return f"http://{host}" if ours else self._root


def _call(endpoint: HttpEndpoint | SseEndpoint, request: HttpRequest) -> HttpReply:
    headers, body = request.headers, request.body
    if request.verb == "GET":
        return endpoint.handle_get(headers, gone=request.gone)
    if isinstance(endpoint, SseEndpoint):
        if request.verb == "POST":
            return endpoint.handle_post(headers, body, request.query)
        return HttpReply(405, {"allow": "POST, GET"})
    if request.verb == "POST":
        return endpoint.handle_post(headers, body, gone=request.gone)
    if request.verb == "DELETE":
        return endpoint.handle_delete(headers)
    return HttpReply(405, {"allow": "POST, GET, DELETE"})


# The endpoint as a WSGI application.


WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def wsgi_app(endpoint: HttpEndpoint | SseEndpoint) -> WsgiApp:
    """Return a WSGI application that serves `endpoint` at every path.

    The HTTP method distinguishes the two URLs of an `SseEndpoint`.

    The WSGI server must run each request on a thread of its own: an event stream occupies its
    thread. A disconnected client is noticed when a write fails, at the latest after `keep_alive`
    seconds.

    Raises:
        TypeError: `endpoint` is a `Server`.
    """
    if isinstance(endpoint, Server):
        raise TypeError("endpoint must not be a Server: write wsgi_app(HttpEndpoint(server))")

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        reply = _call(endpoint, _request(environ))
        headers = list(reply.headers.items())
        if reply.status != HTTPStatus.NO_CONTENT:
            # Strict WSGI servers require the content type of an empty body, too.
            if "content-type" not in reply.headers:
                headers.append(("content-type", "text/plain"))
            if not isinstance(reply.body, EventBody):
                headers.append(("content-length", str(len(reply.body))))
        phrase = HTTPStatus(reply.status).phrase
        start_response(f"{reply.status} {phrase}", headers)
        # PEP 3333: the server calls `close()` of the body in any case, also after an error.
        return reply.body if isinstance(reply.body, EventBody) else [reply.body]

    return application


def _request(environ: dict[str, Any]) -> HttpRequest:
    headers = {
        name[5:].replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    query = environ.get("QUERY_STRING", "")
    return HttpRequest(environ["REQUEST_METHOD"], "", query, headers, body)
