"""The answers of both servers, in each revision. Standard library only, for a quick start."""

from __future__ import annotations

import json
import os
from itertools import count as counter
from typing import Any, NamedTuple

STATELESS = "2026-07-28"
STATEFUL = "2025-11-25"
BATCHING = "2025-03-26"

_LINE = "The quick brown fox jumps over the lazy dog, says 'quote' and \"quote\".\n"
_INFO = {"name": "bench", "version": "1"}
_IDENTITY = {"io.modelcontextprotocol/serverInfo": _INFO}
_TOOLS = {
    "echo": {"text": "string"},
    "payload": {"size": "integer"},
    "table": {"size": "integer"},
    "notify": {"count": "integer"},
    "stir": {"count": "integer"},
    "sleep": {"seconds": "number"},
    "pid": {},
    "consult": {"count": "integer"},
    "stock": {"tools": "integer", "pages": "integer"},
}
_PARAMETERS = {"query": "string", "limit": "integer", "exact": "boolean"}
_ROW = {"id": 1_000_000, "name": "a row of the table", "score": 0.5, "tags": ["a", "b"], "ok": True}
_TABLE = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "minimum": 0},
                    "name": {"type": "string", "maxLength": 100},
                    "score": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "ok": {"type": "boolean"},
                },
                "required": ["id", "name", "score"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["rows"],
}


class Answer(NamedTuple):
    """The answer to one message.

    Attributes:
        frames: The frames without line ends, the reply last.
        delay: Seconds to wait before they are sent.
        refused: Whether the reply is a JSON-RPC error.
    """

    frames: list[bytes]
    delay: float = 0.0
    refused: bool = False


class Consultation(NamedTuple):
    """A call of the tool that asks the client's model, one question after another.

    Attributes:
        request_id: The id of the call.
        questions: The number of questions to ask.
        asked: The number of questions asked so far.
        right: The number of right answers: with the text of the question.
    """

    request_id: Any
    questions: int
    asked: int = 0
    right: int = 0

    @property
    def question(self) -> str:
        """The text of the latest question."""
        return f"question {self.asked}"

    def hear(self, result: dict[str, Any]) -> Consultation:
        """Return the call after an answer to the latest question."""
        return self._replace(right=self.right + (result["content"]["text"] == self.question))


class Answers:
    """Answers the messages of one revision's clients."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._stateless = revision == STATELESS
        # Large texts as JSON, by size: made once, so that a call costs the server only a write.
        self._texts: dict[int, bytes] = {}
        self._tables: dict[int, bytes] = {}
        # The pages that are listed instead of the real tools, after a call of the tool `stock`.
        self._catalogue: list[bytes] = []
        # Calls that wait for an answer, by the id of the question; over stdio only.
        self._consultations: dict[str, Consultation] = {}
        self._questions = counter(1)

    def answer(self, message: dict[str, Any]) -> Answer | None:
        """Return the answer, or `None` for a notification."""
        if "id" not in message:
            return None
        request_id = message["id"]
        if "method" not in message:
            return self._consult(self._consultations.pop(request_id).hear(message["result"]))
        params = message.get("params") or {}
        method = message["method"]
        if method == "tools/call":
            return self._call(request_id, params)
        if method == "tools/list" and self._catalogue:
            return Answer([self._page(request_id, int(params.get("cursor", 0)))])
        result = self._result(method)
        if result is None:
            return Answer([_error(request_id, -32601, f"no method {method}")], refused=True)
        return Answer([self._reply(request_id, result)])

    def answer_all(self, messages: list[dict[str, Any]]) -> Answer:
        """Return the answer to a batch of requests: one array, after the longest delay."""
        answers = [answer for message in messages if (answer := self.answer(message))]
        frame = b"[%b]" % b",".join(answer.frames[-1] for answer in answers)
        return Answer([frame], max(answer.delay for answer in answers))

    def _result(self, method: str) -> dict[str, Any] | None:
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
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
        if name == "table":
            return Answer([self._table(request_id, arguments["size"])])
        if name == "sleep":
            return Answer([self._reply(request_id, _text("rested"))], arguments["seconds"])
        if name == "pid":
            return Answer([self._reply(request_id, _text(str(os.getpid())))])
        if name == "consult":
            return self._consult(_resumed(request_id, params))
        if name == "notify":
            count = arguments["count"]
            token = params["_meta"]["progressToken"]
            frames = [_progress(token, number, count) for number in range(1, count + 1)]
            return Answer([*frames, self._reply(request_id, _text(str(count)))])
        if name == "stock":
            self._catalogue = self._make_catalogue(arguments["tools"], arguments["pages"])
            return Answer([self._reply(request_id, _text("stocked"))])
        if name == "stir":
            changed = _encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            count = arguments["count"]
            return Answer([*[changed] * count, self._reply(request_id, _text(str(count)))])
        return Answer([_error(request_id, -32602, f"no tool {name}")], refused=True)

    def _consult(self, call: Consultation) -> Answer:
        """Ask the next question, or answer the call: how many answers were right."""
        if call.asked == call.questions:
            return Answer([self._reply(call.request_id, _text(str(call.right)))])
        call = call._replace(asked=call.asked + 1)
        content = {"type": "text", "text": call.question}
        asked = {
            "method": "sampling/createMessage",
            "params": {"messages": [{"role": "user", "content": content}], "maxTokens": 100},
        }
        if self._stateless:
            state = json.dumps([call.asked, call.right])
            result = {
                "resultType": "input_required",
                "inputRequests": {"question": asked},
                "requestState": state,
            }
            return Answer([self._reply(call.request_id, result)])
        question_id = f"question-{next(self._questions)}"
        self._consultations[question_id] = call
        return Answer([_encode({"jsonrpc": "2.0", "id": question_id, **asked})])

    def _payload(self, request_id: Any, size: int) -> bytes:
        text = self._texts.get(size)
        if text is None:
            whole = (_LINE * (size // len(_LINE) + 1))[:size]
            text = self._texts[size] = json.dumps(whole).encode()
        empty = self._reply(request_id, _text("@"))
        return empty.replace(b'"@"', text, 1)

    def _table(self, request_id: Any, size: int) -> bytes:
        table = self._tables.get(size)
        count = size // len(_encode(_ROW))
        if table is None:
            table = self._tables[size] = _encode({"rows": [_ROW] * count})
        empty = self._reply(request_id, {**_text(str(count)), "structuredContent": "@"})
        return empty.replace(b'"@"', table, 1)

    def _make_catalogue(self, tools: int, pages: int) -> list[bytes]:
        """Return the pages of a long list of tools; no pages for 0 tools."""
        names = [f"tool_{number}" for number in range(1, tools)]
        listed = [_tool("stock", _TOOLS["stock"]), *(_tool(name, _PARAMETERS) for name in names)]
        size = max(1, tools // pages)
        return [_encode(listed[start : start + size]) for start in range(0, tools, size)]

    def _page(self, request_id: Any, number: int) -> bytes:
        result: dict[str, Any] = {"tools": "@"}
        if self._stateless:
            result |= {"ttlMs": 0, "cacheScope": "private"}
        if number + 1 < len(self._catalogue):
            result["nextCursor"] = str(number + 1)
        return self._reply(request_id, result).replace(b'"@"', self._catalogue[number], 1)

    def _reply(self, request_id: Any, result: dict[str, Any]) -> bytes:
        if self._stateless:
            result = {"resultType": "complete", **result, "_meta": _IDENTITY}
        return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def _resumed(request_id: Any, params: dict[str, Any]) -> Consultation:
    """Return the call of `consult`; a retry brings the answer to a question (2026-07-28)."""
    call = Consultation(request_id, params["arguments"]["count"])
    if "requestState" not in params:
        return call
    asked, right = json.loads(params["requestState"])
    call = call._replace(asked=asked, right=right)
    return call.hear(params["inputResponses"]["question"])


def _encode(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _tool(name: str, properties: dict[str, str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    tool = {"name": name, "description": f"The tool {name}.", "inputSchema": schema}
    return {**tool, "outputSchema": _TABLE} if name == "table" else tool


def _progress(token: Any, progress: int, total: int) -> bytes:
    params = {"progressToken": token, "progress": progress, "total": total, "message": "working"}
    return _encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def _error(request_id: Any, code: int, message: str) -> bytes:
    return _encode(
        {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
    )
