"""Raw clients for the tests of the test server: they only exchange frames."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from syncmcp.testing import HttpEndpoint, ScriptedPeer, Server, SseEndpoint, wsgi_app

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE = 10.0
MODERN: Final = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


def initialize(revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    return {
        "protocolVersion": revision,
        "capabilities": capabilities,
        "clientInfo": {"name": "raw", "version": "1"},
    }


def modern(params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {**(params or {}), "_meta": {**META, **meta}}


class Closed:
    """A base class of connections that the end of a `with` block closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Line(Closed):
    """A connection that carries frames one by one."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def send(self, message: Any) -> None:
        raise NotImplementedError

    def line(self) -> bytes:
        raise NotImplementedError

    def next(self) -> Any:
        return json.loads(self.line())

    def answer(self, question: Any, result: Any) -> None:
        """Answer a question of the server."""
        self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})

    def start(self, revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
        answer = self.call("initialize", initialize(revision, **capabilities))
        self.notify("notifications/initialized")
        result: dict[str, Any] = answer["result"]
        return result

    def ask(self, method: str, params: Any = None, identifier: Any = None) -> Any:
        number = next(self._ids) if identifier is None else identifier
        body = {"jsonrpc": "2.0", "id": number, "method": method}
        self.send(body if params is None else {**body, "params": params})
        return number

    def notify(self, method: str, params: Any = None) -> None:
        body = {"jsonrpc": "2.0", "method": method}
        self.send(body if params is None else {**body, "params": params})

    def call(self, method: str, params: Any = None) -> Any:
        """Send a request and return its answer, which must be the next frame."""
        number = self.ask(method, params)
        answer = self.next()
        assert answer.get("id") == number, answer
        return answer

    def tool(self, name: str, arguments: Any = None, **more: Any) -> Any:
        return self.call("tools/call", {"name": name, "arguments": arguments or {}, **more})


class Memory(Line):
    """A connection in memory whose frames arrive in a queue."""

    def __init__(
        self, server: Server | ScriptedPeer, closed: Callable[[], None] | None = None
    ) -> None:
        super().__init__()
        self.frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.session: Any = server.connect(self.frames.put, closed)

    def send(self, message: Any) -> None:
        self.session.receive(json.dumps(message).encode())

    def line(self) -> bytes:
        return self.frames.get(timeout=PATIENCE)

    def quiet(self) -> bool:
        """Whether no frame has arrived."""
        return self.frames.empty()

    def close(self) -> None:
        self.session.close()


class Child(Line):
    """A server as a child process."""

    def __init__(self, *command: str) -> None:
        super().__init__()
        process = subprocess.Popen(command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.process, self.stdin, self.stderr = process, process.stdin, process.stderr
        self._lines = process.stdout

    def send(self, message: Any) -> None:
        self.stdin.write(json.dumps(message).encode() + b"\n")

    def line(self) -> bytes:
        """Return the next line; empty at the end of stdout."""
        return self._lines.readline().rstrip(b"\n")

    def close(self) -> None:
        self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.__exit__(None, None, None)


class Http(Closed):
    """One persistent connection to an HTTP endpoint."""

    def __init__(self, url: str) -> None:
        self.parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(self.parts.netloc, timeout=PATIENCE)
        self.session: str | None = None
        self.version: str | None = None
        self._ids = itertools.count(1)

    @property
    def address(self) -> tuple[str, int]:
        assert self.parts.hostname
        assert self.parts.port
        return self.parts.hostname, self.parts.port

    def request(
        self, verb: str, body: Any = None, headers: dict[str, str | None] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request and return the response with unread body. `None` removes a header."""
        sent: dict[str, str | None] = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Mcp-Session-Id": self.session,
            "MCP-Protocol-Version": self.version,
            **(headers or {}),
        }
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(
            verb,
            self.parts.path or "/",
            None if verb != "POST" else data,
            {name: value for name, value in sent.items() if value is not None},
        )
        return self.connection.getresponse()

    def post(self, method: str, params: Any = None, **headers: str | None) -> Any:
        """POST a request and return `(status, headers, decoded body or event list)`."""
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        if params is not None:
            body["params"] = params
        response = self.request(
            "POST", body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        return response.status, response.headers, decoded(response)

    def start(self, revision: str = "2025-11-25", **capabilities: Any) -> Any:
        status, headers, answer = self.post("initialize", initialize(revision, **capabilities))
        assert status == 200, answer
        self.session, self.version = headers["mcp-session-id"], revision
        response = self.request("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (response.status, response.read()) == (202, b"")
        return answer

    def open_modern(
        self, method: str, params: Any = None, identifier: Any = None, **meta: Any
    ) -> http.client.HTTPResponse:
        """Send a request of 2026-07-28 and return the response with unread body."""
        given = params or {}
        number = next(self._ids) if identifier is None else identifier
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": modern(given, **meta)}
        name = given.get("name", given.get("uri"))
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": name}
        return self.request("POST", body, headers)

    def modern(self, method: str, params: Any = None, **meta: Any) -> Any:
        """Send a request of 2026-07-28; return `(status, headers, decoded body or events)`."""
        response = self.open_modern(method, params, **meta)
        return response.status, response.headers, decoded(response)

    def beside(self) -> Http:
        """Return another connection to the same session."""
        other = Http(self.parts.geturl())
        other.session, other.version = self.session, self.version
        return other

    def close(self) -> None:
        self.connection.close()


def decoded(response: http.client.HTTPResponse) -> Any:
    body = response.read()
    if response.headers.get_content_type() == "text/event-stream":
        return events(body)
    return json.loads(body) if body else None


def events(body: bytes) -> list[dict[str, str]]:
    """Return the fields of each event in a body, by name."""
    return [
        {name: value for name, _, value in (line.partition(": ") for line in block.split("\n"))}
        for block in body.decode().split("\n\n")
        if block
    ]


def read_event(response: http.client.HTTPResponse) -> dict[str, str]:
    """Read the next event of an open stream."""
    lines: list[bytes] = []
    while (line := response.readline()) != b"\n":
        assert line, "the stream ended"
        lines.append(line)
    return events(b"".join(lines).rstrip(b"\n"))[0]


class _Threading(ThreadingMixIn, WSGIServer):
    daemon_threads = False


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def wsgi_served(endpoint: HttpEndpoint | SseEndpoint, app: Any = None) -> Iterator[str]:
    """Serve an endpoint, or `app`, with `wsgiref`; yield the URL without a path."""
    app = app or wsgi_app(endpoint)
    with make_server("127.0.0.1", 0, app, _Threading, _Quiet) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}"
        finally:
            endpoint.close()
            listener.shutdown()
            thread.join()
