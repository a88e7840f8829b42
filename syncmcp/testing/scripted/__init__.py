"""Plays a script on any wire, and keeps a transcript of what a scripted peer saw."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from syncmcp.testing.script import ID, PROGRESS_TOKEN, Script, Step

# What a scripted peer saw, and a way to wait for it without sleeping.


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


class Channel(Protocol):
    """The way back to the client for one message it sent."""

    def frame(self, value: Any, final: bool) -> bytes:
        """Return the bytes that carry a JSON value; `final` ends an HTTP response."""
        ...

    def write(self, data: bytes) -> None:
        """Write bytes as they are. Raises `OSError` when the client has gone."""

    def wait(self, seconds: float | None) -> None:
        """Do nothing for `seconds` (`None`: for ever). Raises `Ended`, or `Gone` over HTTP."""

    def cut(self, step: Step) -> None:
        """End the connection."""

    def play(self, step: Step) -> bytes:
        """Play a step only this wire has; return what it writes. Raises `ScriptError`."""
        ...


@dataclass(frozen=True)
class Incoming:
    """A message from the client and the way back."""

    message: Any
    method: str
    channel: Channel


class ScriptError(Exception):
    """A step makes no sense where it stands."""


class ScriptEnded(Exception):
    """The connection ended, or the peer is closing: the script is over."""


class ClientGone(Exception):
    """The client no longer listens to this answer; the script goes on with its next step."""


class Inbox:
    """Messages that no `expect` has taken yet, and whether more can come."""

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
        """Say that nothing more will come; whoever waits is told."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self, method: str) -> Incoming:
        """Wait for the first message of `method`. Raises `Ended`."""
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
        """Wait until the gate is open. Raises `Ended`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or name in self._open_gates)
            if name not in self._open_gates:
                raise ScriptEnded

    def wait(self, seconds: float | None) -> None:
        """Do nothing for `seconds` (`None`: for ever). Raises `Ended`."""
        with self._changed:
            if self._changed.wait_for(lambda: self._ended, seconds):
                raise ScriptEnded


class Player:
    """Plays one script on one inbox.

    Args:
        script: The steps.
        inbox: Where the client's messages come in.
        channel: Where steps write before anything was expected; `None` over HTTP.
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
            Ended: The connection ended before the script did.
            ScriptError: A step makes no sense where it stands.
        """
        for step in self._script:
            # Who hung up shows in the transcript; what the script does then is its next step.
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
    """Return a received frame as a message; what is not JSON is kept as text, "invalid"."""
    try:
        message: Any = json.loads(frame)
    except ValueError:
        return Incoming(frame.decode("latin-1"), "invalid", channel)
    return Incoming(message, method_of(message), channel)


def encode(value: Any) -> bytes:
    """Return a JSON value on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _fill_placeholders(value: Any, incoming: Incoming | None) -> Any:
    """Replace the placeholders in `value` by facts of the message being answered."""
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
