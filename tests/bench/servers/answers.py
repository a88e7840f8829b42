"""What both servers answer, in either era. Standard library only, so that they start quickly."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

STATELESS = "2026-07-28"
STATEFUL = "2025-11-25"

_LINE = "The quick brown fox jumps over the lazy dog, says 'quote' and \"quote\".\n"
_INFO = {"name": "bench", "version": "1"}
_IDENTITY = {"io.modelcontextprotocol/serverInfo": _INFO}
_TOOLS = {
    "echo": {"text": "string"},
    "payload": {"size": "integer"},
    "notify": {"count": "integer"},
    "sleep": {"seconds": "number"},
    "pid": {},
}


class Answer(NamedTuple):
    """What goes back for one message.

    Attributes:
        frames: The frames without line ends, the reply last.
        delay: Seconds to wait before they are sent.
        refused: Whether the reply is an error of the protocol.
    """

    frames: list[bytes]
    delay: float = 0.0
    refused: bool = False


class Answers:
    """Answers the messages of one revision's clients."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._stateless = revision == STATELESS
        # Big texts as JSON, by size: made once, so that a call costs the server no more than a
        # write.
        self._texts: dict[int, bytes] = {}

    def answer(self, message: dict[str, Any]) -> Answer | None:
        """The answer, or `None` for a notification."""
        if "id" not in message:
            return None
        request_id = message["id"]
        params = message.get("params") or {}
        method = message["method"]
        if method == "tools/call":
            return self._call(request_id, params)
        result = self._result(method)
        if result is None:
            return Answer([_error(request_id, -32601, f"no method {method}")], refused=True)
        return Answer([self._reply(request_id, result)])

    def _result(self, method: str) -> dict[str, Any] | None:
        capabilities: dict[str, Any] = {"tools": {}}
        if method == "tools/list":
            tools = [_tool(name, properties) for name, properties in _TOOLS.items()]
            cached = {"ttlMs": 0, "cacheScope": "private"} if self._stateless else {}
            return {"tools": tools, **cached}
        if method == "server/discover" and self._stateless:
            return {
                "supportedVersions": [STATELESS],
                "capabilities": capabilities,
                "serverInfo": _INFO,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if method == "initialize" and not self._stateless:
            return {
                "protocolVersion": self._revision,
                "capabilities": capabilities,
                "serverInfo": _INFO,
            }
        return {} if method == "ping" and not self._stateless else None

    def _call(self, request_id: Any, params: dict[str, Any]) -> Answer:
        name = params["name"]
        arguments = params.get("arguments") or {}
        if name == "echo":
            return Answer([self._reply(request_id, _text(arguments["text"]))])
        if name == "payload":
            return Answer([self._payload(request_id, arguments["size"])])
        if name == "sleep":
            return Answer([self._reply(request_id, _text("rested"))], arguments["seconds"])
        if name == "pid":
            return Answer([self._reply(request_id, _text(str(os.getpid())))])
        if name == "notify":
            count = arguments["count"]
            token = params["_meta"]["progressToken"]
            frames = [_progress(token, number, count) for number in range(1, count + 1)]
            return Answer([*frames, self._reply(request_id, _text(str(count)))])
        return Answer([_error(request_id, -32602, f"no tool {name}")], refused=True)

    def _payload(self, request_id: Any, size: int) -> bytes:
        text = self._texts.get(size)
        if text is None:
            whole = (_LINE * (size // len(_LINE) + 1))[:size]
            text = self._texts[size] = json.dumps(whole).encode()
        empty = self._reply(request_id, _text("@"))
        return empty.replace(b'"@"', text, 1)

    def _reply(self, request_id: Any, result: dict[str, Any]) -> bytes:
        if self._stateless:
            result = {"resultType": "complete", **result, "_meta": _IDENTITY}
        return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _tool(name: str, properties: dict[str, str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema}


def _progress(token: Any, progress: int, total: int) -> bytes:
    params = {"progressToken": token, "progress": progress, "total": total, "message": "working"}
    return _encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def _error(request_id: Any, code: int, message: str) -> bytes:
    return _encode(
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
    )
