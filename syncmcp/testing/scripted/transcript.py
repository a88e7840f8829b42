"""What a scripted peer saw, and a way to wait for it without sleeping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Received:
    """One thing the client sent.

    Attributes:
        message: The decoded JSON; the text itself when it was not JSON; `None` without a body.
        method: The JSON-RPC method, "response" for an answer, "batch" for an array; over HTTP
            the verb where there is no body.
        connection: The number of the connection it came on, from 0.
        http: Verb and path, over HTTP.
        headers: The request's headers, names in lower case, over HTTP.
    """

    message: Any
    method: str
    connection: int
    http: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Transcript:
    """A growing record; all methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._received: list[Received] = []
        self._events: list[str] = []

    @property
    def received(self) -> list[Received]:
        """Everything received so far, in order."""
        with self._changed:
            return list(self._received)

    @property
    def events(self) -> list[str]:
        """What happened besides, in order.

        "connected", "disconnected" (the client ended a connection), "finished" (a script was
        played to its end), "failed: REASON" (a step made no sense), and of child processes
        "started: PID", "grandchild: PID", "sigterm", "exited".
        """
        with self._changed:
            return list(self._events)

    def methods(self) -> list[str]:
        """Return the methods received so far, in order."""
        return [received.method for received in self.received]

    def wait_for(self, predicate: Callable[[Transcript], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(transcript)` is true; return whether it became so.

        Args:
            predicate: Called under a lock; must not block.
            timeout: Seconds to wait at most.
        """
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self), timeout)

    def wait_event(self, event: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until `event` has happened `count` times; return whether it has."""
        return self.wait_for(lambda seen: seen.events.count(event) >= count, timeout)

    def wait_received(self, method: str, count: int = 1, timeout: float = 10.0) -> list[Received]:
        """Wait until `method` has come `count` times and return those messages.

        Raises:
            TimeoutError: They have not come within `timeout` seconds.
        """
        if not self.wait_for(lambda seen: seen.methods().count(method) >= count, timeout):
            raise TimeoutError(f"{method} came {self.methods().count(method)} times, not {count}")
        return [received for received in self.received if received.method == method]

    def add_received(self, received: Received) -> None:
        """Record a message."""
        with self._changed:
            self._received.append(received)
            self._changed.notify_all()

    def add_event(self, event: str) -> None:
        """Record an event."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()


def method_of(message: Any) -> str:
    """Return what kind of message this is: its method, "response", "batch" or "invalid"."""
    if isinstance(message, list):
        return "batch"
    if isinstance(message, dict):
        method = message.get("method")
        if isinstance(method, str):
            return method
        if "result" in message or "error" in message:
            return "response"
    return "invalid"
