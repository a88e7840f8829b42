"""Writes down what goes over a connection, and takes the secrets out of it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pydantic_core

from syncmcp._base.text import MASK, names_a_secret, redact
from syncmcp._client.opening import resolve_target
from syncmcp.config import Http, Stdio
from syncmcp.errors import ConnectFailed, ConnectionLost, McpError, UsageError
from syncmcp.testing.recording.tape import Entry, Tape
from syncmcp.transports.base import HasServerStream, Resumable, TransportSource

if TYPE_CHECKING:
    from syncmcp._client.client import Target
    from syncmcp._concurrency.timing import Deadline
    from syncmcp.errors import Delivery
    from syncmcp.transports.base import InProcessServer, Outgoing, Receiver, Transport


# Takes the secrets out of messages that are about to be written down.


MASKED = re.compile(rf"{re.escape(MASK)}\d*")
"""What stands in the place of a secret: the mask, and a number that tells secrets apart."""

# Members whose values are words of the protocol or of JSON Schema. A variable of the environment
# may well be called the same, and a message without them would be none.
_WORDS = frozenset(
    (
        "action",
        "jsonrpc",
        "level",
        "method",
        "mimeType",
        "protocolVersion",
        "resultType",
        "role",
        "stopReason",
        "type",
    )
)


class SecretMasks:
    """Replaces secrets, each by a mask of its own, the same one wherever it occurs.

    So a cursor that comes back can still be told from another one. Not to be used by several
    threads at once.

    Args:
        secrets: Values that are secret wherever they occur, names of members included.
        more: Given each text; returns it with ``***`` for what else is a secret in it.
    """

    def __init__(
        self, secrets: Iterable[str] = (), more: Callable[[str], str] | None = None
    ) -> None:
        self._secrets = frozenset(secrets)
        self._more = more
        self._known = set(self._secrets)
        self._numbers: dict[str, int] = {}

    def learn(self, secrets: Iterable[str]) -> None:
        """Note more values that are secret, except in the names of members."""
        self._known.update(secrets)

    def value(self, value: Any, member: str = "") -> Any:
        """Return a JSON value without its secrets; `member` is what it is called."""
        if isinstance(value, str):
            if member in _WORDS:
                return value
            return self._numbered(value, MASK) if self._is_secret(member) else self.text(value)
        if isinstance(value, dict):
            return {self._name(name): self.value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, member) for item in value]
        return value

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        shown = redact(text, self._known)
        return self._numbered(text, shown if self._more is None else self._more(shown))

    def _is_secret(self, member: str) -> bool:
        return bool(member) and names_a_secret(member)

    def _name(self, name: str) -> str:
        return self._numbered(name, redact(name, self._secrets)) if self._secrets else name

    def _numbered(self, text: str, shown: str) -> str:
        if shown == text or not text:
            return text
        number = self._numbers.setdefault(text, len(self._numbers) + 1)
        return shown.replace(MASK, f"{MASK}{number}")


# Shorter ones are not masked anywhere: they would be found in every text.
_SHORTEST_SECRET = 6


class Recording(TransportSource):
    """A target whose connections are written to a file, to be played by a `Replay`.

    ``syncmcp.connect(Recording(target, path))``. The file has a line for each message, which is
    there as soon as the message is, so a program that is interrupted leaves what has happened so
    far. What was in the file before is replaced when the first connection opens; connections after
    that one are added. HTTP headers are not recorded. In messages, ``***1``, ``***2`` and so on
    stand for secrets: what looks like one, or is called like one, tokens, cursors and states of
    requests among them, and every value of the environment, of a header or of a URL's query that
    the target was given.

    Args:
        target: What to connect to.
        path: The file; its directory is made if need be.
        secrets: More values that are to be masked wherever they occur.
        mask: Given each text; returns it with ``***`` in the place of what else is a secret. Runs
            on the threads that send and read, and must not block.

    Raises:
        UsageError: The target is none that can be recorded, or a secret is shorter than six
            characters.
    """

    def __init__(
        self,
        target: Target,
        path: str | os.PathLike[str],
        *,
        secrets: Iterable[str] = (),
        mask: Callable[[str], str] | None = None,
    ) -> None:
        server, _, _ = resolve_target(target, None)
        if isinstance(server, TransportSource):
            raise UsageError("what records or replays cannot be recorded")
        if isinstance(server, Http) and server.session_id is not None:
            raise UsageError("a session that another client began cannot be played again")
        self._target = server
        self._secrets = _checked(secrets)
        self._mask = mask
        self._path = Path(path)
        # Guards the masks: they learn.
        self._lock = threading.RLock()
        self._masks = SecretMasks(self._secrets, mask)
        self._masks.learn(_secrets_of(server))
        self._tape = Tape(self._path, self._masks.text(self.label))

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def label(self) -> str:
        """See `TransportSource`."""
        server = self._target
        return server.label if isinstance(server, (Stdio, Http)) else server.name

    @property
    def behind(self) -> Stdio | Http | InProcessServer:
        """See `TransportSource`."""
        return self._target

    def transport(self, inner: Transport | None) -> Recorder:
        """See `TransportSource`."""
        assert inner is not None
        return Recorder(inner, self._tape, self._clean)

    def __repr__(self) -> str:
        return f"Recording({self._target!r}, {str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._target, self._path, self._secrets, self._mask)

    def _clean(self, value: Any, secrets: Iterable[str]) -> Any:
        with self._lock:
            self._masks.learn(secrets)
            return self._masks.value(value)


def _again(
    target: Any, path: Path, secrets: tuple[str, ...], mask: Callable[[str], str] | None
) -> Recording:
    return Recording(target, path, secrets=secrets, mask=mask)


def _checked(secrets: Iterable[str]) -> tuple[str, ...]:
    if isinstance(secrets, str):
        raise UsageError("secrets are several: give a list of them")
    given = tuple(secrets)
    if any(len(secret) < _SHORTEST_SECRET for secret in given):
        raise UsageError(f"each secret must have at least {_SHORTEST_SECRET} characters")
    return given


def _secrets_of(server: Stdio | Http | InProcessServer) -> Iterator[str]:
    """What a target was given that is nobody else's business."""
    if isinstance(server, Stdio):
        yield from server.env.values()
    if not isinstance(server, Http):
        return
    if isinstance(server.headers, Mapping):
        yield from _words(server.headers.values())
    if isinstance(server.auth, tuple):
        yield from server.auth
    if server.session is not None:
        named = server.session.headers.items()
        yield from _words(str(value) for name, value in named if names_a_secret(name))
    for url in (server.url, *(server.proxies or {}).values()):
        parts = urlsplit(url)
        yield from (part for part in (parts.username, parts.password) if part)
        yield from (value for _, value in parse_qsl(parts.query))


def _words(values: Iterable[str]) -> Iterator[str]:
    """Header values, and what follows a scheme in them: that may turn up without it."""
    for value in values:
        yield value
        yield from value.split()[1:]


class Recorder:
    """Stands between a connection and its transport; each takes it for the other.

    Args:
        inner: The transport, not opened yet.
        tape: What is written.
        clean: Takes the secrets out of a value, those given with it included.
    """

    def __init__(
        self, inner: Transport, tape: Tape, clean: Callable[[Any, Iterable[str]], Any]
    ) -> None:
        self._inner = inner
        self.label = inner.label
        self.blocking = inner.blocking
        self.ordered = inner.ordered
        self._tape = tape
        self._clean = clean
        self._receiver: Receiver
        self._connection = 0
        # Guards the two below: a connection is begun once and ended once.
        self._lock = threading.RLock()
        self._recording = False

    # Towards the transport

    @property
    def session_id(self) -> str | None:
        """See `Resumable`."""
        return self._inner.session_id if isinstance(self._inner, Resumable) else None

    @property
    def last_event_id(self) -> str | None:
        """See `Resumable`."""
        return self._inner.last_event_id if isinstance(self._inner, Resumable) else None

    def wait_listening(self, deadline: Deadline) -> None:
        """See `HasServerStream`."""
        if isinstance(self._inner, HasServerStream):
            self._inner.wait_listening(deadline)

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """See `Transport`.

        Raises:
            UsageError: The file is being recorded by another client.
        """
        self._receiver = receiver
        self._inner.label = self.label  # the connection may have its own name for the server
        try:
            self._connection = self._tape.begin()
        except OSError as error:
            raise ConnectFailed(f"the recording cannot be written: {error}") from error
        self._recording = True
        self._note("opened", {"blocking": self.blocking, "ordered": self.ordered})
        try:
            self._inner.open(self, deadline)
        except McpError as error:
            self._note("failed", facts_of(error))
            raise

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """See `Transport`."""
        session = self.session_id
        self._note("adopted", {"stateful": stateful}, secrets=() if session is None else [session])
        self._inner.adopt(headers, stateful=stateful)

    def send(self, out: Outgoing) -> None:
        """See `Transport`."""
        self._note_sent(out)
        self._inner.send(out)

    def post(self, out: Outgoing) -> None:
        """See `Transport`."""
        self._note_sent(out)
        self._inner.post(out)

    def withdraw(self, out: Outgoing) -> Delivery:
        """See `Transport`."""
        delivery = self._inner.withdraw(out)
        if out.id is not None:
            self._note("withdrawn", out.id)
        return delivery

    def describe(self) -> str:
        """See `Transport`."""
        return self._inner.describe()

    def close(self, deadline: Deadline) -> None:
        """See `Transport`."""
        try:
            self._inner.close(deadline)
        finally:
            self._note("closed", True)
            with self._lock:
                ours, self._recording = self._recording, False
            if ours:
                self._tape.end()

    # Towards the connection

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """See `Receiver`."""
        about = None if out is None else out.id
        status = 0 if out is None else out.status
        try:
            self._note("got", pydantic_core.from_json(frame, allow_inf_nan=False), about, status)
        except ValueError:
            self._note("got_text", frame.decode(errors="replace"), about, status)
        return self._receiver.receive(frame, out)

    def alive(self, out: Outgoing | None) -> None:
        """See `Receiver`."""
        self._receiver.alive(out)

    def settled(self, out: Outgoing) -> bool:
        """See `Receiver`."""
        return self._receiver.settled(out)

    def silent(self, *, heard: bool) -> None:
        """See `Receiver`."""
        self._note("silent", heard)
        self._receiver.silent(heard=heard)

    def failed(self, out: Outgoing, error: McpError) -> None:
        """See `Receiver`."""
        if out.id is not None:  # what else fails concerns nobody but the connection
            self._note("failed", facts_of(error), out.id)
        self._receiver.failed(out, error)

    def lost(self, error: McpError) -> None:
        """See `Receiver`."""
        self._note("lost", facts_of(error))
        self._receiver.lost(error)

    # The tape

    def _note_sent(self, out: Outgoing) -> None:
        own = [value for name, value in out.headers.items() if not name.lower().startswith("mcp-")]
        self._note("sent", pydantic_core.from_json(out.body), secrets=own)

    def _note(
        self,
        kind: str,
        value: Any,
        about: int | None = None,
        status: int = 0,
        *,
        secrets: Iterable[str] = (),
    ) -> None:
        if not self._recording:
            return
        try:
            cleaned = self._clean(value, secrets)
            self._tape.write(self._connection, Entry(kind, cleaned, about, status))
        except Exception as error:  # the disk, or the program's `mask`
            # A session with a gap in its recording is worth nothing.
            self._recording = False
            self._tape.end()
            lost = ConnectionLost(f"the recording cannot be written: {error}")
            lost.__cause__ = error
            self._receiver.lost(lost)


def facts_of(error: McpError) -> dict[str, Any]:
    """An error as JSON: its class, its message, and what else is plain in it."""
    facts = {
        name: value
        for name, value in error.__dict__.items()
        if isinstance(value, (str, int, float)) and name not in ("server", "method", "attempts")
    }
    return {"class": type(error).__name__, "message": error.message, **facts}
