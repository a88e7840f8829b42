"""The endpoints behind `http.server`, and as a WSGI application."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

from syncmcp.testing.server.authorization import AuthorizationServer
from syncmcp.testing.server.events import EventBody, HttpReply
from syncmcp.testing.server.http import HttpEndpoint, SseEndpoint
from syncmcp.testing.server.server import Server

PATH = "/mcp"
SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

_MAX_BODY_SIZE = 64 * 1024 * 1024
_MAX_LINE_SIZE = 65536
_MAX_HEADERS = 100


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

    If the server speaks a revision up to 2025-11-25 it is also served over HTTP+SSE: see
    `HttpServer.sse_url`.

    Args:
        server: The server.
        port: The port; 0 picks a free one (see `HttpServer.url`).
        response: "auto", "json" or "sse"; see `HttpEndpoint`.
        retry_ms: The reconnection time in milliseconds; see `HttpEndpoint`.
        keep_alive: Seconds without an event before a comment; see `HttpEndpoint`.
        event_limit: The number of messages stored for replay; see `HttpEndpoint`.
        allowed_hosts: The accepted host names; by default those of loopback.
        authorization_server: Issues the tokens; if given, each request needs one.

    Returns:
        The running HTTP server: use it in a `with` statement, or `close()` it.
    """
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


class HttpServer:
    """An HTTP server on loopback with one thread for each connection; see `serve_http`.

    Attributes:
        endpoint: The Streamable HTTP endpoint.
        sse_endpoint: The endpoints for HTTP+SSE (2024-11-05).
        url: The URL of `endpoint`.
        sse_url: The URL of the event stream of HTTP+SSE; a POST there is answered with 405.
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
        self._listener = _Listener(endpoint, sse_endpoint, port, authorization_server)
        root = f"http://127.0.0.1:{self._listener.server_address[1]}"
        self.url = root + PATH
        self.sse_url = root + SSE_PATH
        self._thread = threading.Thread(
            target=self._listener.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="syncmcp-testing-http",
            daemon=True,
        )
        self._thread.start()

    @property
    def connections(self) -> int:
        """The number of TCP connections accepted so far."""
        return self._listener.accepted

    @property
    def open_connections(self) -> int:
        """The number of open TCP connections."""
        return len(self._listener.snapshot())

    def drop_connections(self) -> None:
        """Shut down every open TCP connection, as a server that crashes does."""
        for connection, _ in self._listener.snapshot():
            # The connection may have ended meanwhile.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening, end all sessions and connections, and wait for their threads."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
        self.endpoint.close()
        self.sse_endpoint.close()
        self.drop_connections()
        for _, thread in self._listener.snapshot():
            thread.join(5)
        self.endpoint.server.workers.stop_idle()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(
        self,
        endpoint: HttpEndpoint,
        sse_endpoint: SseEndpoint,
        port: int,
        authorization_server: AuthorizationServer | None,
    ) -> None:
        self.endpoint = endpoint
        self.sse_endpoint = sse_endpoint
        self.authorization_server = authorization_server
        self.accepted = 0
        self._lock = threading.Lock()  # Guards `accepted` and `_open`.
        self._open: dict[socket.socket, threading.Thread] = {}
        super().__init__(("127.0.0.1", port), _Handler)

    def snapshot(self) -> list[tuple[socket.socket, threading.Thread]]:
        with self._lock:
            return list(self._open.items())

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self._run,
            args=(request, client_address),
            name="syncmcp-testing-connection",
            daemon=True,
        )
        with self._lock:
            self.accepted += 1
            self._open[request] = thread
        try:
            thread.start()
        except RuntimeError:  # The interpreter is shutting down and starts no threads.
            with self._lock:
                del self._open[request]
            self.shutdown_request(request)

    def _run(self, request: socket.socket, client_address: Any) -> None:
        try:
            # Tests have clients that disconnect during a request; that is no error here.
            with suppress(ConnectionError, TimeoutError):
                self.finish_request(request, client_address)
        finally:
            with self._lock:
                del self._open[request]
            self.shutdown_request(request)

    def server_bind(self) -> None:
        # HTTPServer's own asks the resolver for this machine's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    raw_requestline: bytes  # set by the base class

    def parse_request(self) -> bool:
        """Read the head of a request, several times faster than the base class."""
        self.close_connection = True
        words = self.raw_requestline.decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._refuse(HTTPStatus.BAD_REQUEST)
            return False
        self.requestline = " ".join(words)
        self.command, self.path, self.request_version = words
        self._fields: dict[str, str] = {}
        while line := self.rfile.readline(_MAX_LINE_SIZE).strip():
            if len(self._fields) == _MAX_HEADERS:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return False
            name, _, value = line.decode("latin-1").partition(":")
            self._fields[name.lower()] = value.strip()
        wish = self._fields.get("connection", "").lower()
        if self.request_version == "HTTP/1.0":
            self.close_connection = wish != "keep-alive"
        else:
            self.close_connection = wish == "close"
        if self._fields.get("expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def do_POST(self) -> None:
        length = self._fields.get("content-length", "")
        if not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > _MAX_BODY_SIZE:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            body = self.rfile.read(int(length))
            path, _, query = self.path.partition("?")
            if not self._authorize():
                return
            if path == MESSAGES_PATH:
                self._write(self._sse_endpoint.handle_post(self._fields, body, query))
            elif path == SSE_PATH:
                self._write(HttpReply(405, {"allow": "GET"}))
            elif self._check_path():
                self._write(self._endpoint.handle_post(self._fields, body, gone=self._gone))

    def do_GET(self) -> None:
        if not self._authorize():
            return
        if urlsplit(self.path).path == SSE_PATH:
            self._write(self._sse_endpoint.handle_get(self._fields, gone=self._gone))
        elif self._check_path():
            self._write(self._endpoint.handle_get(self._fields, gone=self._gone))

    def do_DELETE(self) -> None:
        if self._authorize() and self._check_path():
            self._write(self._endpoint.handle_delete(self._fields))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: tests read `Server.stats`."""

    @property
    def _endpoint(self) -> HttpEndpoint:
        assert isinstance(self.server, _Listener)
        return self.server.endpoint

    @property
    def _sse_endpoint(self) -> SseEndpoint:
        assert isinstance(self.server, _Listener)
        return self.server.sse_endpoint

    def _authorize(self) -> bool:
        assert isinstance(self.server, _Listener)
        issuer = self.server.authorization_server
        if issuer is None:
            return True
        path = SSE_PATH if self.path.startswith((SSE_PATH, MESSAGES_PATH)) else PATH
        resource = f"http://127.0.0.1:{self.server.server_port}{path}"
        refusal = issuer.refusal(self._fields, resource)
        if refusal is not None:
            self._write(refusal)
        return refusal is None

    def _check_path(self) -> bool:
        if urlsplit(self.path).path == PATH:
            return True
        self._write(HttpReply(404, {"content-type": "text/plain"}, b"Not found"))
        return False

    def _refuse(self, status: HTTPStatus) -> None:
        # The body was not read, so the connection cannot be used again.
        self.close_connection = True
        self._write(HttpReply(status))

    def _gone(self) -> bool:
        """Return whether the client has closed the connection; does not block."""
        try:
            self.connection.setblocking(False)
            try:
                return not self.connection.recv(1, socket.MSG_PEEK)
            finally:
                self.connection.setblocking(True)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _write(self, reply: HttpReply) -> None:
        body = reply.body
        if isinstance(body, EventBody):
            try:
                self._write_events(reply, body)
            finally:
                body.close()
            return
        length = {} if reply.status == HTTPStatus.NO_CONTENT else {"content-length": str(len(body))}
        # One write: a body in a second packet would wait for the delayed ACK of the first.
        self.wfile.write(self._response_head(reply, length) + body)

    def _write_events(self, reply: HttpReply, body: EventBody) -> None:
        chunked = self.request_version == "HTTP/1.1"
        self.close_connection = self.close_connection or not chunked
        pending = self._response_head(reply, {"transfer-encoding": "chunked"} if chunked else {})
        if not body.ready:
            self.wfile.write(pending)  # Send the head now: there may be no event for a long time.
            pending = b""
        for chunk in body:
            end = b"\r\n0\r\n\r\n" if body.ended else b"\r\n"
            piece = b"%x\r\n%b%b" % (len(chunk), chunk, end) if chunked else chunk
            self.wfile.write(pending + piece)
            pending = b""
            if body.ended:
                return
        self.wfile.write(pending + (b"0\r\n\r\n" if chunked else b""))

    def _response_head(self, reply: HttpReply, more: Mapping[str, str]) -> bytes:
        status = HTTPStatus(reply.status)
        lines = [f"HTTP/1.1 {reply.status} {status.phrase}"]
        lines += [f"{name}: {value}" for name, value in {**reply.headers, **more}.items()]
        if self.close_connection:
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


# The endpoint as a WSGI application.


WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def wsgi_app(endpoint: HttpEndpoint | SseEndpoint) -> WsgiApp:
    """Return a WSGI application that serves `endpoint` at every path.

    The HTTP method distinguishes the two URLs of an `SseEndpoint`.

    The WSGI server must run each request on a thread of its own: an event stream occupies its
    thread. A disconnected client is noticed when a write fails, at the latest after `keep_alive`
    seconds.
    """

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        reply = _handle(endpoint, environ)
        headers = list(reply.headers.items())
        if reply.status != HTTPStatus.NO_CONTENT:
            # Strict WSGI servers require the content type of an empty body, too.
            if "content-type" not in reply.headers:
                headers.append(("content-type", "text/plain"))
            if not isinstance(reply.body, EventBody):
                headers.append(("content-length", str(len(reply.body))))
        phrase = HTTPStatus(reply.status).phrase
        start_response(f"{reply.status} {phrase}", headers)
        # PEP 3333: the server calls `close()` of the body, whatever happened.
        return reply.body if isinstance(reply.body, EventBody) else [reply.body]

    return application


def _handle(endpoint: HttpEndpoint | SseEndpoint, environ: dict[str, Any]) -> HttpReply:
    headers = {
        name[5:].replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers["content-type"] = environ.get("CONTENT_TYPE", "")
    method = environ["REQUEST_METHOD"]
    if method == "POST":
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if isinstance(endpoint, SseEndpoint):
            return endpoint.handle_post(headers, body, environ.get("QUERY_STRING", ""))
        return endpoint.handle_post(headers, body)
    if method == "GET":
        return endpoint.handle_get(headers)
    if isinstance(endpoint, SseEndpoint):
        return HttpReply(405, {"allow": "POST, GET"})
    if method == "DELETE":
        return endpoint.handle_delete(headers)
    return HttpReply(405, {"allow": "POST, GET, DELETE"})
