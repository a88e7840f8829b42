"""Phases of an HTTP exchange: a call can be held in each of them."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

import urllib3.util.wait

import syncmcp
from syncmcp import Client
from syncmcp.config import Http
from syncmcp.testing import FaultProxy, Hold, Server, serve_http
from syncmcp.testing.faults import Fault, Planned

WAIT = 30.0
"""The time limit for anything that should happen soon, in seconds."""

HOST = "mcp.test"

# Exceeds the socket buffers of both sides together.
_LONG = 16 * 1024 * 1024


class Resolver:
    """Resolves one name; it can delay its answer, or return another port."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.port: int | None = None
        self._answering = threading.Event()
        self._answering.set()
        self._original = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != HOST:
            return self._original(host, port, *args, **kwargs)
        self.asked.set()
        assert self._answering.wait(WAIT)
        address = ("127.0.0.1", self.port or port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Delay all answers within the context."""
        self._answering.clear()
        self.asked.clear()
        try:
            yield
        finally:
            self._answering.set()

    @contextmanager
    def elsewhere(self, port: int) -> Iterator[None]:
        """Redirect new connections to another port within the context."""
        self.port = port
        try:
            yield
        finally:
            self.port = None


@contextmanager
def full_backlog() -> Iterator[int]:
    """Yield the port of a listening socket whose backlog is full."""
    with ExitStack() as fillers:
        listener = fillers.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        with suppress(TimeoutError):
            while True:
                filler = fillers.enter_context(socket.socket())
                filler.settimeout(0.2)
                filler.connect(address)
        yield address[1]


class Mute:
    """Accepts one connection, and reads from it without an answer."""

    def __init__(self) -> None:
        self.heard, self.left = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="test-mute", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._listener:
            accepted, _ = self._listener.accept()
        with accepted, suppress(ConnectionError):
            while accepted.recv(65536):
                self.heard.set()
        self.left.set()

    def close(self) -> None:
        self._thread.join(WAIT)
        assert self.left.is_set(), "the client did not end its connection"


@dataclass
class Stage:
    """A client with its server, and a proxy and a name service between them."""

    client: Client
    proxy: FaultProxy
    resolver: Resolver
    server: Server

    def quiet(self) -> bool:
        """Wait until no exchange is open, except listening GETs."""
        return self.proxy.wait_for(
            lambda seen: all(one.ended or one.verb == "GET" for one in seen.exchanges)
        )

    def drop_connections(self) -> None:
        """Close idle connections, so that the next call makes a new one."""
        assert self.quiet()
        self.proxy.drop_idle()


def is_listening(proxy: FaultProxy) -> bool:
    """Return whether a client of the stateful era has opened its listening stream."""
    return any(one.verb == "GET" and one.status == 200 for one in proxy.exchanges)


@contextmanager
def stage(
    mode: Any, answers: Literal["json", "sse"], tls: ssl.SSLContext | None = None, **options: Any
) -> Iterator[Stage]:
    """Open a client; with `tls` it does not check certificates."""
    server = Server("phases")
    resolver = Resolver()

    @server.tool()
    def echo(text: str = "") -> str:
        return f"{len(text)} characters"

    with (
        serve_http(server, response=answers, allowed_hosts=None) as served,
        FaultProxy(served.url, tls=tls) as proxy,
        patch.object(socket, "getaddrinfo", resolver),
    ):
        config = Http(proxy.url.replace("127.0.0.1", HOST), verify=tls is None)
        with syncmcp.connect(config, mode=mode, **options) as client:
            if client.server.revision != "2026-07-28":
                assert proxy.wait_for(is_listening)
            yield Stage(client, proxy, resolver, server)


Reached = Callable[[], None]
"""Waits until the call has reached its phase."""


def _event(event: threading.Event) -> Reached:
    def wait() -> None:
        assert event.wait(WAIT)

    return wait


@contextmanager
def resolving(stage: Stage) -> Iterator[Reached]:
    stage.drop_connections()
    with stage.resolver.stuck():
        yield _event(stage.resolver.asked)


@contextmanager
def connecting(stage: Stage) -> Iterator[Reached]:
    stage.drop_connections()
    begun = threading.Event()
    original = urllib3.util.wait.wait_for_write

    def wait(sock: socket.socket, timeout: float | None = None) -> bool:
        begun.set()
        return original(sock, timeout)

    with (
        full_backlog() as port,
        stage.resolver.elsewhere(port),
        patch("syncmcp._http.connecting.wait_for_write", wait),
    ):
        yield _event(begun)


@contextmanager
def handshake(stage: Stage) -> Iterator[Reached]:
    """Hold a call in the TLS handshake."""
    stage.drop_connections()
    mute = Mute()
    try:
        with stage.resolver.elsewhere(mute.port):
            yield _event(mute.heard)
    finally:
        mute.close()


def _held(fault: Fault) -> Callable[[Stage], AbstractContextManager[Reached]]:
    @contextmanager
    def hold(stage: Stage) -> Iterator[Reached]:
        planned = stage.proxy.queue(fault, method="tools/call")
        yield planned.wait
        if fault.at == "request":  # a proxy that does not read cannot see the end
            planned.release()
        assert stage.proxy.wait_for(lambda _: _ended(planned)), planned.exchange

    return hold


def _ended(planned: Planned) -> bool:
    return planned.exchange is not None and planned.exchange.ended == "client left"


Phase = Literal["resolving", "connecting", "TLS", "sending", "headers", "JSON", "SSE"]

PHASES: Mapping[Phase, Callable[[Stage], AbstractContextManager[Reached]]] = {
    "resolving": resolving,
    "connecting": connecting,
    "TLS": handshake,
    "sending": _held(Hold("request")),
    "headers": _held(Hold("sent")),
    "JSON": _held(Hold("body", after=20)),
    "SSE": _held(Hold("event")),
}
"""Context managers that hold the next call of a stage in a phase. The yielded function waits until
the call is there. On exit, the peer must have seen the client end the connection."""

NOT_SENT: frozenset[Phase] = frozenset(("resolving", "connecting", "TLS"))
"""The phases before any byte of the request is sent."""


def arguments(phase: Phase) -> dict[str, str]:
    """Return arguments for `echo` that allow to hold the call in this phase."""
    return {"text": "x" * _LONG} if phase == "sending" else {}


def answers(phase: Phase) -> Literal["json", "sse"]:
    """Return the form of the server's responses that this phase needs."""
    return "sse" if phase == "SSE" else "json"
