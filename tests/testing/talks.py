"""Raw clients that answer what a server asks, on every wire and in both eras."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.testing.wires import MODERN, Http, Line, decoded, events, modern, read_event

EVERYTHING: dict[str, Any] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
NEWEST_STATEFUL = "2025-11-25"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}
MODEL = {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "double"}
ROOTS = {"roots": [{"uri": "file:///tmp"}]}
ANSWERS = {"elicitation/create": ACCEPT, "sampling/createMessage": MODEL, "roots/list": ROOTS}

Answer = Callable[[str, dict[str, Any]], Any]
"""Takes method and params of a question; returns the result, or raises `Refusal`."""


def reply(method: str, params: Any) -> Any:
    """Answer every question as `ANSWERS` says."""
    return ANSWERS[method]


def text_of(answer: Any) -> Any:
    """Return the text of a tool's result."""
    return answer["result"]["content"][0]["text"]


class Refusal(Exception):
    """The client answers with this JSON-RPC error (stateful revisions)."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Talk:
    """A client on one wire and in one era.

    Attributes:
        asked: Method and params of every question, in the order it came.
        rounds: How many `input_required` results came.
        notes: The notifications that came.
    """

    def __init__(
        self, wire: Line | Http, revision: str, capabilities: Mapping[str, Any] = EVERYTHING
    ) -> None:
        self.revision = revision
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.rounds = 0
        self.notes: list[dict[str, Any]] = []
        self.wire = wire
        self._capabilities = dict(capabilities)
        self._ids = itertools.count(100)
        if revision != MODERN:
            wire.start(revision, **capabilities)

    def tool(self, name: str, arguments: Any = None, answer: Answer | None = None) -> Any:
        """Call a tool, answering its questions; return the JSON-RPC answer."""
        return self.call("tools/call", {"name": name, "arguments": arguments or {}}, answer)

    def call(self, method: str, params: dict[str, Any], answer: Answer | None = None) -> Any:
        """Send a request, answering its questions; return the JSON-RPC answer."""
        message = self.leg(method, params, answer)
        while message.get("result", {}).get("resultType") == "input_required":
            self.rounds += 1
            result = message["result"]
            more: dict[str, Any] = {}
            if "requestState" in result:
                more["requestState"] = result["requestState"]
            if "inputRequests" in result:
                more["inputResponses"] = {
                    key: self._respond(question, answer)
                    for key, question in result["inputRequests"].items()
                }
            message = self.leg(method, {**params, **more}, answer)
        return message

    def leg(self, method: str, params: dict[str, Any], answer: Answer | None = None) -> Any:
        """Send one request and return its answer, whatever kind of result it has."""
        if self.revision == MODERN:
            params = {**modern(params, **{CAPABILITIES: self._capabilities})}
        number = next(self._ids)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        if isinstance(self.wire, Http):
            return self._post(self.wire, body, answer)
        self.wire.send(body)
        while True:
            message = self.wire.next()
            if self._is_answer(message, number, self.wire.send, answer):
                return message

    def _post(self, wire: Http, body: dict[str, Any], answer: Answer | None) -> Any:
        headers: dict[str, str | None] = {}
        if self.revision == MODERN:
            headers = {
                "MCP-Protocol-Version": MODERN,
                "Mcp-Method": body["method"],
                "Mcp-Name": body["params"].get("name", body["params"].get("uri")),
            }
        response = wire.request("POST", body, headers)
        if response.headers.get_content_type() != "text/event-stream":
            return decoded(response)
        while True:
            message = json.loads(read_event(response).get("data") or "null")
            if message and self._is_answer(message, body["id"], self._post_back, answer):
                assert events(response.read()) == []
                return message

    def _post_back(self, message: Any) -> None:
        assert isinstance(self.wire, Http)
        with self.wire.beside() as back:
            response = back.request("POST", message)
            assert (response.status, response.read()) == (202, b"")

    def _is_answer(
        self, message: Any, number: int, send: Callable[[Any], None], answer: Answer | None
    ) -> bool:
        if "method" not in message:
            assert message["id"] == number, message
            return True
        if "id" not in message:
            self.notes.append(message)
            return False
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = self._respond(message, answer)
        except Refusal as refusal:
            reply["error"] = {"code": refusal.code, "message": "no"}
        send(reply)
        return False

    def _respond(self, question: Any, answer: Answer | None) -> Any:
        method, params = question["method"], question.get("params", {})
        self.asked.append((method, params))
        assert answer is not None, f"{method} was asked"
        return answer(method, params)


Open = Callable[..., Talk]
"""Opens a talk: `(revision, capabilities=EVERYTHING)`."""

both_eras = pytest.mark.parametrize("revision", [NEWEST_STATEFUL, MODERN])
