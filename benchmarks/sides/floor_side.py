"""The floor: a pipe or `http.client`, and `json`; no errors, limits, timeouts or models."""

from __future__ import annotations

import json
import subprocess
import threading
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count as counter
from typing import Any, cast

from benchmarks.servers.answers import STATELESS
from benchmarks.sides.base import ROOT, Reply, Side, Target


class FloorSide(Side):
    """Uses the floor for the transport of its target."""

    _floor: _Floor

    def open(self, target: Target) -> None:
        self._floor = _PipeFloor(target) if target.wire == "stdio" else _HttpFloor(target)

    def close(self) -> None:
        self._floor.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        return self._floor.call(tool, arguments)

    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        return self._floor.burst(tool, arguments, count)

    def notified(self, count: int) -> int:
        return self._floor.notified(count)


class _Floor:
    def __init__(self, target: Target) -> None:
        self._ids = counter(1)
        self._stateless = target.revision == STATELESS
        self._meta: dict[str, Any] = {}
        if self._stateless:
            self._meta = {
                "io.modelcontextprotocol/protocolVersion": STATELESS,
                "io.modelcontextprotocol/clientInfo": {"name": "floor", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def call(self, tool: str, arguments: dict[str, Any]) -> Reply: ...

    @abstractmethod
    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]: ...

    @abstractmethod
    def notified(self, count: int) -> int: ...

    def _encode(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any]) -> bytes:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        request = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": "tools/call",
            "params": params,
        }
        return json.dumps(request, separators=(",", ":")).encode()

    def _reporting(self) -> dict[str, Any]:
        return {**self._meta, "progressToken": 1}


class _PipeFloor(_Floor):
    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._server = subprocess.Popen(
            target.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 18
        )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._to = self._server.stdin
        self._from = self._server.stdout
        # Guards the pipe: held while a caller writes its request and reads its reply.
        self._turn = threading.Lock()

    def close(self) -> None:
        self._to.close()
        self._server.wait()
        self._from.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        with self._turn:
            self._send(self._encode(tool, arguments, self._meta))
            while "method" in (message := json.loads(self._from.readline())):
                self._send(_answer(message))
            return _read(message)

    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        for _ in range(count):
            self._send(self._encode(tool, arguments, self._meta))
        return [_read(json.loads(self._from.readline())) for _ in range(count)]

    def notified(self, count: int) -> int:
        self._send(self._encode("notify", {"count": count}, self._reporting()))
        seen: list[float] = []
        while "id" not in (message := json.loads(self._from.readline())):
            seen.append(message["params"]["progress"])
        assert _read(message).text == str(count)
        return len(seen)

    def _send(self, frame: bytes) -> None:
        self._to.write(frame + b"\n")
        self._to.flush()


class _HttpFloor(_Floor):
    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._port = target.port
        self._path = f"/{target.wire}/{target.revision}"
        self._stream = target.wire == "sse"
        self._own = threading.local()
        self._connections: list[HTTPConnection] = []
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for connection in self._connections:
            connection.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        body = self._post(tool, self._encode(tool, arguments, self._meta))
        return _read(_messages(body)[-1] if self._stream else json.loads(body))

    def burst(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(count)
        return [
            call.result()
            for call in [self._pool.submit(self.call, tool, arguments) for _ in range(count)]
        ]

    def notified(self, count: int) -> int:
        body = self._post("notify", self._encode("notify", {"count": count}, self._reporting()))
        *reports, reply = _messages(body)
        assert _read(reply).text == str(count)
        return len([report["params"]["progress"] for report in reports])

    def _post(self, tool: str, body: bytes) -> bytes:
        connection = cast("HTTPConnection | None", getattr(self._own, "connection", None))
        if connection is None:
            connection = self._own.connection = HTTPConnection("127.0.0.1", self._port)
            self._connections.append(connection)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if self._stateless:
            headers |= {
                "MCP-Protocol-Version": STATELESS,
                "Mcp-Method": "tools/call",
                "Mcp-Name": tool,
            }
        connection.request("POST", self._path, body, headers)
        return connection.getresponse().read()


def _messages(stream: bytes) -> list[dict[str, Any]]:
    return [
        json.loads(event[len(b"event: message\ndata: ") :])
        for event in stream.split(b"\n\n")
        if event
    ]


def _answer(question: dict[str, Any]) -> bytes:
    """Return the answer of a model that repeats the question."""
    content = question["params"]["messages"][0]["content"]
    result = {"role": "assistant", "content": content, "model": "none"}
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
    return json.dumps(answer, separators=(",", ":")).encode()


def _read(message: dict[str, Any]) -> Reply:
    result = message["result"]
    return Reply(result["content"][0]["text"], result["isError"])
