"""The player of scripts, independent of the transport, and the transcript of a scripted peer."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from syncmcp._base.similar import did_you_mean
from syncmcp.testing.listener import Watched
from syncmcp.testing.script import ID, PROGRESS_TOKEN, Script, Step

_logger = logging.getLogger(__name__)

# The transcript.

_EVENTS = ("connected", "disconnected", "finished", "exited")
_OPENINGS = {"initialize", "server/discover"}
_LONGER_EVENTS = ("failed: ", "started: ")  # a reason or a process id follows


@dataclass(frozen=True)
class Received:
    """A message or an HTTP request that the client has sent.

    Attributes:
        message: The decoded JSON; the text if it was not JSON; `None` without a body.
        method: The JSON-RPC method; "response" for a response, "batch" for an array, "invalid" for
            anything else. Over HTTP, it is the HTTP method if there is no body.
        connection: The number of its connection, from 0.
        http: The HTTP method and path, over HTTP; otherwise `None`.
        headers: The request's headers, with names in lower case, over HTTP; otherwise empty.
    """

    message: Any
    method: str
    connection: int
    http: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Transcript(Watched):
    """The messages that a scripted peer has received, and its events.

    A transcript may be used from any thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._received: list[Received] = []
        self._events: list[str] = []
        self._gates: set[str] = set()
        self._steps: dict[Player, str] = {}

    def __repr__(self) -> str:
        """Name the step of each unfinished script: pytest shows it when an assertion fails."""
        with self.changed:
            parts = [f"{len(self._received)} messages", *self._steps.values()]
        return f"<Transcript of {'; '.join(parts)}>"

    @property
    def received(self) -> list[Received]:
        """Everything received so far, in order."""
        with self.changed:
            return list(self._received)

    @property
    def events(self) -> list[str]:
        """All other events so far, in order.

        The events are "connected", "disconnected" (the client ended a connection), "finished" (a
        script was played to its last step), and "failed: REASON" (a step was invalid where it was
        played). Those of child processes are "started: PID" and "exited". To fail a test whose
        script still has steps, write ``assert transcript.wait_event("finished"), transcript``.
        Its failure names the step at which the script is.
        """
        with self.changed:
            return list(self._events)

    def methods(self) -> list[str]:
        """Return the `method` of everything received so far, in order."""
        return [received.method for received in self.received]

    def wait_event(self, event: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until `event` has happened `count` times; return `False` after `timeout` seconds.

        Raises:
            ValueError: There is no such event; see `events`.
        """
        if event not in _EVENTS and not event.startswith(_LONGER_EVENTS):
            hint = did_you_mean(event, _EVENTS) or f"the events are {', '.join(_EVENTS)}"
            raise ValueError(f"no event {event!r}: {hint}")
        return self.wait_for(lambda seen: seen.events.count(event) >= count, timeout)

    def wait_received(self, method: str, count: int = 1, timeout: float = 10.0) -> list[Received]:
        """Wait until `count` messages of `method` were received; return all of that method.

        Raises:
            TimeoutError: The messages were not received within `timeout` seconds.
        """
        if not self.wait_for(lambda seen: seen.methods().count(method) >= count, timeout):
            came = self.methods()
            raise TimeoutError(
                f"{method} came {came.count(method)} times, not {count}; received: {came}"
            )
        return [received for received in self.received if received.method == method]

    def add_received(self, received: Received) -> None:
        """Record a message."""
        with self:
            self._received.append(received)

    def add_event(self, event: str) -> None:
        """Record an event."""
        with self:
            self._events.append(event)


def note_step(transcript: Transcript, player: Player, step: str | None) -> None:
    """Record the step that a player begins; `None` after its last step."""
    with transcript:
        transcript._steps.pop(player, None)
        if step is not None:
            transcript._steps[player] = step


def open_gate(transcript: Transcript, name: str) -> None:
    with transcript:
        transcript._gates.add(name)


class Channel:
    """Sends the responses to one message of the client. This class sends lines.

    It is for connections in memory or over stdio. The methods for steps have the names of the
    steps, and return the bytes to write.
    """

    place = "in memory"

    unended_status: int | None = None
    """The status of an error response of which only the head was written, over HTTP."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox

    def write(self, data: bytes) -> None:
        """Write bytes unchanged; raise `OSError` if the client has disconnected."""
        raise NotImplementedError

    def wait(self, seconds: float | None) -> None:
        """Wait for `seconds` (`None` for no limit); raise `ScriptEnded`, over HTTP `ClientGone`."""
        self.inbox.wait(seconds)

    # Steps

    def message(self, value: Any, final: bool) -> bytes:
        """Send a JSON value; `final` ends an HTTP response."""
        return encode(value) + b"\n"

    def raw(self, data: bytes) -> bytes:
        return data

    def accept(self, status: int) -> bytes:
        return b""


@dataclass(frozen=True)
class Incoming:
    """A message from the client, with the channel for its responses."""

    message: Any
    method: str
    channel: Channel

    @property
    def is_request(self) -> bool:
        """Whether the client waits for a response."""
        return isinstance(self.message, dict) and {"id", "method"} <= self.message.keys()


class ScriptError(Exception):
    """A step is invalid where it was played, or waited for a message while other requests came."""


class ScriptEnded(Exception):
    """The connection has ended, or the peer is closing: the script ends."""


class ClientGone(Exception):
    """The client has disconnected from this response; the script goes on with its next step."""


class Inbox:
    """The messages for one script that no `expect` has taken yet."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript  # Its lock guards all attributes below.
        self._waiting: list[Incoming] = []
        self._ended = False
        self._finished = False

    def receive(self, frame: bytes, channel: Channel, number: int) -> None:
        """Record a frame of the connection with this number, and queue it for the script."""
        message, method = read_frame(frame)
        self.transcript.add_received(Received(message, method, number))
        self.put(Incoming(message, method, channel))

    def put(self, incoming: Incoming) -> None:
        with self.transcript:
            self._waiting.append(incoming)
            finished = self._finished
        if finished:
            _warn_unanswered([incoming])

    def finish(self) -> None:
        """Record that the script was played to its end: requests get no response any more."""
        with self.transcript:
            self._finished = True
            left = list(self._waiting)
        _warn_unanswered(left)
        self.transcript.add_event("finished")

    def close(self) -> bool:
        """Make waiting methods raise `ScriptEnded`; return whether this was the first call."""
        with self.transcript:
            was_open, self._ended = not self._ended, True
            return was_open

    def take(self, method: str) -> Incoming:
        """Wait for a message of `method` and remove it.

        Raises `ScriptEnded`, or `ScriptError` if requests have come that no step has expected.
        """
        with self.transcript.changed:
            try:
                self._wait_for(lambda: any(each.method == method for each in self._waiting))
            except ScriptEnded:
                left = {each.method for each in self._waiting if each.is_request}
                if not left:
                    raise
                came = ", ".join(map(repr, sorted(left)))
                hint = did_you_mean(method, left)
                if left & _OPENINGS:
                    probe = "probe=True" if "server/discover" in left else "..."
                    hint = f"begin the script with *script.handshake({probe})"
                told = f"waited for {method!r}, while {came} came{hint and ': '}{hint}"
                raise ScriptError(told) from None
            incoming = next(each for each in self._waiting if each.method == method)
            self._waiting.remove(incoming)
            return incoming

    def pass_gate(self, name: str) -> None:
        self._wait_for(lambda: name in self.transcript._gates)

    def wait(self, seconds: float | None) -> None:
        self._wait_for(lambda: False, seconds)

    def _wait_for(self, happened: Callable[[], bool], seconds: float | None = None) -> None:
        with self.transcript.changed:
            self.transcript.changed.wait_for(lambda: happened() or self._ended, seconds)
            if self._ended and not happened():
                raise ScriptEnded


def _warn_unanswered(left: list[Incoming]) -> None:
    for incoming in left:
        if incoming.is_request:
            text = "the script has no step for %s: it gets no response"
            if incoming.channel.place == "over HTTP":
                text += " (over HTTP, the first script is played once for all connections)"
            if incoming.method == "server/discover":
                text += "; script.handshake(probe=True) answers it"
            _logger.warning(text, incoming.method)


class Player:
    """Plays one script."""

    def __init__(self, script: Script, inbox: Inbox, channel: Channel | None) -> None:
        self._script = script
        self._inbox = inbox
        self._start = channel
        self._current: Incoming | None = None
        self._labels: dict[str, Incoming] = {}
        self._number = 0

    def play(self) -> None:
        """Play the script to its end on this thread; raise `ScriptEnded` and `ScriptError`."""
        for number, step in enumerate(self._script, 1):
            self._number = number
            try:
                # The transcript shows the disconnection; the script continues with its next step.
                with suppress(ClientGone):
                    self._play(step, lambda channel, data: channel.write(data))
            except ScriptEnded:
                if number == len(self._script) and step["do"] in ("cut", "silence"):
                    self._note_step(None)
                    self._inbox.transcript.add_event("finished")
                raise
        self._warn_unended()
        self._note_step(None)

    def cut(self) -> None:
        """End the connection of the message to which the step responds."""
        if (channel := self._channel) is not None:
            with suppress(ScriptEnded):
                cast("Any", channel).cut(code=0, reset=False)

    def _note_step(self, step: Step | None) -> None:
        text = None
        if step is not None:
            name = step.get("method", step.get("name"))
            shown = step["do"] if name is None else f"{step['do']} {name!r}"
            text = f"the script is at step {self._number} of {len(self._script)}: {shown}"
        note_step(self._inbox.transcript, self, text)

    def _warn_unended(self) -> None:
        if self._channel is not None and (status := self._channel.unended_status) is not None:
            _logger.warning(
                "the client waits for the rest of a response: write script.end() after"
                " script.head(%d), or script.silence() if it is to wait",
                status,
            )

    @property
    def _channel(self) -> Channel | None:
        return self._start if self._current is None else self._current.channel

    def _play(self, step: Step, write: Callable[[Channel, bytes], None]) -> None:
        kind = step["do"]
        if kind == "expect":
            self._warn_unended()
        self._note_step(step)
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
            times = step["times"]
            for _ in itertools.count() if times is None else range(times):
                for inner in step["steps"]:
                    self._play(inner, write)
        elif kind == "drip":
            self._play(step["step"], partial(_drip, step["every"]))
        else:
            self._send(write, **step)

    def _send(
        self, write: Callable[[Channel, bytes], None], do: str, to: str | None = None, **given: Any
    ) -> None:
        if to is not None and to not in self._labels:
            raise ScriptError(f"no message was expected with the label {to!r}")
        incoming = self._current if to is None else self._labels[to]
        channel = self._start if incoming is None else incoming.channel
        if "value" in given:
            given["value"] = _fill_placeholders(given["value"], incoming)
        if channel is None:
            raise ScriptError(f"over HTTP, a {do} needs an expect before it")
        if not hasattr(channel, do):
            raise ScriptError(f"{do} has no meaning {channel.place}")
        try:
            if data := getattr(channel, do)(**given):
                write(channel, data)
        except OSError as error:
            raise ClientGone from error

    def _wait(self, seconds: float | None) -> None:
        (self._channel or self._inbox).wait(seconds)


def _drip(every: float, channel: Channel, data: bytes) -> None:
    for position in range(len(data)):
        channel.write(data[position : position + 1])
        channel.wait(every)


def read_frame(frame: bytes) -> tuple[Any, str]:
    """Return a received frame and its method; if it is not JSON, its text and "invalid"."""
    try:
        message: Any = json.loads(frame)
    except ValueError:
        return frame.decode("latin-1"), "invalid"
    if isinstance(message, list):
        return message, "batch"
    if isinstance(message, dict):
        if isinstance(message.get("method"), str):
            return message, message["method"]
        if "result" in message or "error" in message:
            return message, "response"
    return message, "invalid"


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _fill_placeholders(value: Any, incoming: Incoming | None) -> Any:
    """Replace the placeholders in `value` by values of the message to which the step responds."""
    if isinstance(value, dict):
        return {name: _fill_placeholders(inner, incoming) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fill_placeholders(inner, incoming) for inner in value]
    if value not in (ID, PROGRESS_TOKEN):
        return value
    if incoming is None:
        kind = "a reply" if value == ID else "a progress notification"
        raise ScriptError(f"{kind} needs an expect before it, which takes the client's request")
    message = incoming.message
    if not isinstance(message, dict):
        raise ScriptError(f"{value} has no value: the message before it is not a JSON object")
    if value == ID:
        if incoming.method == "response":
            raise ScriptError(
                "the last expect is a response, which gets no reply: pass label= to the expect of"
                " the request, and the same to= to the reply"
            )
        return message.get("id")
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None
