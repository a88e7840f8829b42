"""An in-process server that opens sessions itself; a test sends all other messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from syncmcp.testing import Server
from tests.support.stage import PATIENCE


class Puppet:
    """A server that stores the client's requests and answers, and sends what a test wants."""

    name = "puppet"

    def __init__(self) -> None:
        self.requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.answers: list[dict[str, Any]] = []
        self._server = Server("puppet", capabilities={"tools": {}})
        self._deliver: Callable[[bytes], None]

    def connect(self, deliver: Callable[[bytes], None], on_close: Callable[[], None]) -> Puppet:
        self._deliver = deliver
        self._session = self._server.connect(deliver, on_close)
        return self

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        method = message.get("method")
        if method is None:
            self.take(message)
        elif method in {"initialize", "server/discover"}:
            self._session.receive(frame)
        elif "id" in message:
            self.requests.put(message)

    def take(self, answer: dict[str, Any]) -> None:
        self.answers.append(answer)

    def close(self) -> None:
        self._session.close()

    def say(self, *messages: Any) -> None:
        """Send JSON values, or bytes as they are."""
        for one in messages:
            self._deliver(one if isinstance(one, bytes) else json.dumps(one).encode())

    def answer(self, id: Any, **result: Any) -> None:
        self.say({"jsonrpc": "2.0", "id": id, "result": result})

    def next(self) -> dict[str, Any]:
        return self.requests.get(timeout=PATIENCE)
