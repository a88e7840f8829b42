"""Raw clients that answer the questions of a server, in stateful and stateless revisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from tests.testing.wires import MODERN, Line, modern

EVERYTHING: dict[str, Any] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
NEWEST_STATEFUL: Final = "2025-11-25"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}
MODEL = {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "double"}
ROOTS = {"roots": [{"uri": "file:///tmp"}]}
ANSWERS = {"elicitation/create": ACCEPT, "sampling/createMessage": MODEL, "roots/list": ROOTS}

Answer = Callable[[str, dict[str, Any]], Any]
"""Takes method and params of a question; returns the result."""


def reply(method: str, params: Any) -> Any:
    """Answer every question as `ANSWERS` says."""
    return ANSWERS[method]


def text_of(answer: Any) -> Any:
    """Return the text of a tool's result."""
    return answer["result"]["content"][0]["text"]


class Talk:
    """A client of one revision.

    Attributes:
        asked: The method and params of every question, in order.
        rounds: The number of `input_required` results.
        notes: The received notifications.
    """

    def __init__(
        self, line: Line, revision: str, capabilities: Mapping[str, Any] = EVERYTHING
    ) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.rounds = 0
        self.notes: list[dict[str, Any]] = []
        self._modern = revision == MODERN
        self._line = line
        self._capabilities = dict(capabilities)
        if not self._modern:
            line.start(revision, **capabilities)

    def tool(self, name: str, arguments: Any = None, answer: Answer | None = None) -> Any:
        """Call a tool, answering its questions; return the JSON-RPC answer."""
        return self.call("tools/call", {"name": name, "arguments": arguments or {}}, answer)

    def call(self, method: str, params: dict[str, Any], answer: Answer | None = None) -> Any:
        """Send a request, answering its questions; return the JSON-RPC answer."""
        message = self._leg(method, params, answer)
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
            message = self._leg(method, {**params, **more}, answer)
        return message

    def _leg(self, method: str, params: dict[str, Any], answer: Answer | None) -> Any:
        """Send one request and return its answer, whatever kind of result it has."""
        if self._modern:
            params = modern(params, **{CAPABILITIES: self._capabilities})
        number = self._line.ask(method, params)
        while "method" in (message := self._line.next()):
            if "id" not in message:
                self.notes.append(message)
                continue
            reply = {"jsonrpc": "2.0", "id": message["id"]}
            self._line.send({**reply, "result": self._respond(message, answer)})
        assert message["id"] == number, message
        return message

    def _respond(self, question: Any, answer: Answer | None) -> Any:
        method, params = question["method"], question.get("params", {})
        self.asked.append((method, params))
        assert answer is not None, f"{method} was asked"
        return answer(method, params)


Open = Callable[..., Talk]
"""Opens a talk: `(revision, capabilities=EVERYTHING)`."""

both_eras = pytest.mark.parametrize("revision", [NEWEST_STATEFUL, MODERN])
