"""The player of scripts, independent of the transport, and the transcript of a scripted peer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from syncmcp.testing.script import ID, PROGRESS_TOKEN, Script, Step

# The transcript.


@dataclass(frozen=True)
class Received:
    """A message or an HTTP request that the client has sent.

    Attributes:
        message: The decoded JSON; the text if it was not JSON; `None` without a body.
        method: The JSON-RPC method; "response" for a response, "batch" for an array, "invalid" for
            anything else; over HTTP the HTTP method if there is no body.
        connection: The number of its connection, from 0.
        http: HTTP method and path, over HTTP; otherwise `None`.
        headers: The request's headers, names in lower case, over HTTP; otherwise empty.
    """

    message: Any
    method: str
    connection: int
    http: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Transcript:
    """What a scripted peer has received, and its events. May be used from any thread."""

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
        """All other events so far, in order.

        "connected", "disconnected" (the client ended a connection), "finished" (a script was
        played to its end), "failed: REASON" (a step was invalid where it was played), and of child
        processes "started: PID", "grandchild: PID", "sigterm", "exited".
        """
        with self._changed:
            return list(self._events)

    def methods(self) -> list[str]:
        """Return the `method` of everything received so far, in order."""
        return [received.method for received in self.received]

    def wait_for(self, predicate: Callable[[Transcript], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(transcript)` is true; return whether it became so.

        Args:
            predicate: Called on this thread, after each change, with a lock held; must not block.
            timeout: Seconds to wait at most.
        """
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self), timeout)

    def wait_event(self, event: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until `event` has happened `count` times; return false after `timeout` seconds."""
        return self.wait_for(lambda seen: seen.events.count(event) >= count, timeout)

    def wait_received(self, method: str, count: int = 1, timeout: float = 10.0) -> list[Received]:
        """Wait until `count` messages of `method` were received; return all of that method.

        Raises:
            TimeoutError: They were not received within `timeout` seconds.
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
    """Return the method of a message, or "response", "batch" or "invalid"."""
    if isinstance(message, list):
        return "batch"
    if isinstance(message, dict):
        method = message.get("method")
        if isinstance(method, str):
            return method
        if "result" in message or "error" in message:
            return "response"
    return "invalid"


class Channel(Protocol):
    """Sends the answers to one message of the client."""

    def frame(self, value: Any, final: bool) -> bytes:
        """Return the bytes that carry a JSON value; `final` ends an HTTP response."""
        ...

    def write(self, data: bytes) -> None:
        """Write bytes unchanged. Raises `OSError` if the client has disconnected."""

    def wait(self, seconds: float | None) -> None:
        """Wait for `seconds` (`None`: no limit). Raises `ScriptEnded`; over HTTP `ClientGone`."""

    def cut(self, step: Step) -> None:
        """End the connection."""

    def play(self, step: Step) -> bytes:
        """Play a step of this transport; return the bytes to write. Raises `ScriptError`."""
        ...


@dataclass(frozen=True)
class Incoming:
    """A message from the client, with the channel for its answers."""

    message: Any
    method: str
    channel: Channel


class ScriptError(Exception):
    """A step is invalid at its place in the script, or on this transport."""


class ScriptEnded(Exception):
    """The connection has ended, or the peer is closing: the script ends."""


class ClientGone(Exception):
    """The client has disconnected from this response; the script goes on with its next step."""


class Inbox:
    """The messages that no `expect` has taken yet, and the open gates."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Incoming] = []
        self._open_gates: set[str] = set()
        self._ended = False

    def put(self, incoming: Incoming) -> None:
        """Add a message."""
        with self._changed:
            self._waiting.append(incoming)
            self._changed.notify_all()

    def open_gate(self, name: str) -> None:
        """Let `pass_gate(name)` return."""
        with self._changed:
            self._open_gates.add(name)
            self._changed.notify_all()

    def close(self) -> None:
        """Close the inbox: waiting methods raise `ScriptEnded`."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self, method: str) -> Incoming:
        """Wait for a message of `method` and remove it. Raises `ScriptEnded`."""
        with self._changed:
            while True:
                for incoming in self._waiting:
                    if incoming.method == method:
                        self._waiting.remove(incoming)
                        return incoming
                if self._ended:
                    raise ScriptEnded
                self._changed.wait()

    def pass_gate(self, name: str) -> None:
        """Wait until the gate is open. Raises `ScriptEnded`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or name in self._open_gates)
            if name not in self._open_gates:
                raise ScriptEnded

    def wait(self, seconds: float | None) -> None:
        """Wait for `seconds` (`None`: no limit). Raises `ScriptEnded`."""
        with self._changed:
            if self._changed.wait_for(lambda: self._ended, seconds):
                raise ScriptEnded


class Player:
    """Plays one script.

    Args:
        script: The steps.
        inbox: The client's messages.
        channel: Where steps write before the first `expect`; `None` over HTTP.
    """

    def __init__(self, script: Script, inbox: Inbox, channel: Channel | None) -> None:
        self._script = script
        self._inbox = inbox
        self._start = channel
        self._current: Incoming | None = None
        self._labels: dict[str, Incoming] = {}

    def play(self) -> None:
        """Play the script to its end on this thread.

        Raises:
            ScriptEnded: The connection ended before the script did.
            ScriptError: A step is invalid.
        """
        for step in self._script:
            # The transcript has the disconnection; the script goes on with its next step.
            with suppress(ClientGone):
                self._play(step, lambda channel, data: channel.write(data))

    def _play(self, step: Step, write: Callable[[Channel, bytes], None]) -> None:
        kind = step["do"]
        if kind == "expect":
            self._current = self._inbox.take(step["method"])
            if step["label"] is not None:
                self._labels[step["label"]] = self._current
        elif kind == "delay":
            self._wait(step["seconds"])
        elif kind == "gate":
            self._inbox.pass_gate(step["name"])
        elif kind == "silence":
            self._wait(None)
        elif kind == "repeat":
            self._repeat(step, write)
        elif kind == "drip":
            self._play(step["step"], self._dripper(step["every"]))
        elif kind == "part":
            size = step["size"]
            self._play(step["step"], lambda channel, data: write(channel, data[:size]))
        else:
            self._send(step, write)

    def _send(self, step: Step, write: Callable[[Channel, bytes], None]) -> None:
        incoming = self._labels[step["to"]] if step.get("to") else self._current
        channel = incoming.channel if incoming is not None else self._start
        if channel is None:
            raise ScriptError(f"{step['do']} before any expect")
        if step["do"] == "cut":
            channel.cut(step)
            return
        if step["do"] == "message":
            data = channel.frame(_fill_placeholders(step["value"], incoming), step["final"])
        elif step["do"] == "raw":
            data = step["data"].encode("latin-1")
        else:
            filled = {**step, "value": _fill_placeholders(step.get("value"), incoming)}
            data = channel.play(filled)
        if data:
            try:
                write(channel, data)
            except OSError as error:
                raise ClientGone from error

    def _wait(self, seconds: float | None) -> None:
        channel = self._current.channel if self._current is not None else self._start
        (channel or self._inbox).wait(seconds)

    def _repeat(self, step: Step, write: Callable[[Channel, bytes], None]) -> None:
        left = step["times"]
        while left is None or left > 0:
            for inner in step["steps"]:
                self._play(inner, write)
            if left is not None:
                left -= 1

    def _dripper(self, every: float) -> Callable[[Channel, bytes], None]:
        def write(channel: Channel, data: bytes) -> None:
            for position in range(len(data)):
                channel.write(data[position : position + 1])
                channel.wait(every)

        return write


def read_frame(frame: bytes, channel: Channel) -> Incoming:
    """Return a received frame as a message; if it is not JSON, as text with "invalid"."""
    try:
        message: Any = json.loads(frame)
    except ValueError:
        return Incoming(frame.decode("latin-1"), "invalid", channel)
    return Incoming(message, method_of(message), channel)


def encode(value: Any) -> bytes:
    """Return a JSON value on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _fill_placeholders(value: Any, incoming: Incoming | None) -> Any:
    """Replace the placeholders in `value` by values of the message that is answered."""
    if isinstance(value, dict):
        return {name: _fill_placeholders(inner, incoming) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fill_placeholders(inner, incoming) for inner in value]
    if value not in (ID, PROGRESS_TOKEN):
        return value
    message = incoming.message if incoming is not None else None
    if not isinstance(message, dict):
        raise ScriptError(f"{value} stands for nothing here")
    if value == ID:
        return message.get("id")
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None
