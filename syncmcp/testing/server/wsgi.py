"""The endpoint as a WSGI application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from syncmcp.testing.server.events import EventBody
from syncmcp.testing.server.http import HttpEndpoint, HttpReply
from syncmcp.testing.server.sse import SseEndpoint

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def wsgi_app(endpoint: HttpEndpoint | SseEndpoint) -> WsgiApp:
    """Return a WSGI application that serves `endpoint` at every path.

    Both addresses of an `SseEndpoint` are told apart by the method.

    The WSGI server must give each request a thread: an event stream occupies one. That its
    client has gone shows when a write fails, at the latest after `keep_alive` seconds.
    """

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        reply = _handle(endpoint, environ)
        headers = list(reply.headers.items())
        if reply.status != HTTPStatus.NO_CONTENT:
            # Strict servers want to know the type of an empty body, too.
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
