"""Holds a call of a client in one phase of its HTTP exchange, until it is ended or let go."""

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
"""A ceiling for everything that has to happen soon, in seconds."""

HOST = "mcp.test"

# More than the socket buffers of both sides hold.
_LONG = 16 * 1024 * 1024


class Resolver:
    """A name service for one name, which may answer late, or with another port than was asked."""

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
        """Let nobody have an answer while the context lasts."""
        self._answering.clear()
        self.asked.clear()
        try:
            yield
        finally:
            self._answering.set()

    @contextmanager
    def elsewhere(self, port: int) -> Iterator[None]:
        """Send new connections to another port while the context lasts."""
        self.port = port
        try:
            yield
        finally:
            self.port = None


@contextmanager
def full_backlog() -> Iterator[int]:
    """The port of a socket that listens, accepts nothing and has no room for another connection."""
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
    """Accepts one connection, reads what comes, and never says a word."""

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
    """A client, and everything between it and its server, which it knows as `HOST`."""

    client: Client
    proxy: FaultProxy
    resolver: Resolver
    server: Server

    def quiet(self) -> bool:
        """Wait until all exchanges have ended but that of the listening GET."""
        return self.proxy.wait_for(
            lambda seen: all(one.ended or one.verb == "GET" for one in seen.exchanges)
        )

    def drop_connections(self) -> None:
        """Have the next call make a connection of its own."""
        assert self.quiet()
        self.proxy.drop_idle()


def is_listening(proxy: FaultProxy) -> bool:
    """Whether a client of the stateful era has its own stream."""
    return any(one.verb == "GET" and one.status == 200 for one in proxy.exchanges)


@contextmanager
def stage(
    mode: Any, answers: Literal["json", "sse"], tls: ssl.SSLContext | None = None, **options: Any
) -> Iterator[Stage]:
    """Open a client; with `tls` it trusts whoever answers."""
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
"""Waits until the call is in the phase."""


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
    """Of TLS."""
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
        if fault.at == "request":  # who does not read does not see the end
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
"""Arms a phase for the next call of the stage. The context says how to wait until the call is
there; when it ends, the peer must see, or have seen, that the client has gone."""

NOT_SENT: frozenset[Phase] = frozenset(("resolving", "connecting", "TLS"))
"""The phases before anything of the request leaves."""


def arguments(phase: Phase) -> dict[str, str]:
    """The arguments of the tool `echo` for a call that is to be held in this phase."""
    return {"text": "x" * _LONG} if phase == "sending" else {}


def answers(phase: Phase) -> Literal["json", "sse"]:
    """How the server has to answer."""
    return "sse" if phase == "SSE" else "json"
