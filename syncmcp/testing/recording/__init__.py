"""Recordings: their format, and the target that writes them with secrets masked.

A recording is a file with one line of JSON for each event of a connection, in order.

The first line is the header: ``{"syncmcp-recording": 1, "server": ...}``. Every other line has the
number of a connection, ``connection``, and one of these members:

``opened``
    A connection was opened; ``blocking`` and ``ordered`` of its transport.
``sent``, ``got``
    A message or a batch that the client sent or received. ``for`` is the id of the request on whose
    own stream it was received, ``status`` the HTTP status of an error.
``got_text``
    A frame of the server that was not JSON, as text.
``withdrawn``
    The id of a request that the client stopped waiting for.
``failed``
    An error instead of an answer to the request ``for``; without ``for``, the error with which
    opening the connection failed.
``adopted``
    A revision was negotiated; whether it is ``stateful``.
``missed``
    Messages that belong to no request may be missing: their stream was interrupted.
``silent``
    The stream for messages that belong to no request has ended; whether it had been opened.
``lost``
    The error with which the connection was lost.
``closed``
    The client has closed the connection.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pydantic_core

from syncmcp._base.checks import kind_of
from syncmcp._base.secrets import Secrets, change_texts
from syncmcp._base.text import MASK, logger, names_a_secret, reason, redact
from syncmcp._client.client import Target
from syncmcp._client.opening import resolve_target
from syncmcp._concurrency.files import try_lock
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol.jsonrpc import check_values
from syncmcp._protocol.revisions import (
    KNOWN_NOTIFICATIONS,
    KNOWN_QUESTIONS,
    KNOWN_REQUESTS,
    REVISIONS,
)
from syncmcp.config import Http, Stdio
from syncmcp.errors import ConnectFailed, ConnectionLost, Delivery, McpError, UsageError
from syncmcp.transports.base import InProcessServer, Outgoing, Receiver, Transport, TransportSource

_log = logger("syncmcp.testing")

VERSION = 1
_HEADER = "syncmcp-recording"
_KINDS = frozenset(
    (
        "adopted",
        "closed",
        "failed",
        "got",
        "got_text",
        "lost",
        "missed",
        "opened",
        "sent",
        "silent",
        "withdrawn",
    )
)

# Without O_TRUNC: another client may be recording to this file.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Entry(NamedTuple):
    """One line, which is an event of a connection."""

    kind: str
    value: Any
    id: int | None = None
    """The id of the request on whose stream the message was received, or that has failed."""
    status: int = 0


class RecordingFile:
    """A recording that is being written.

    The methods may be called from any thread.

    While a connection is open, the file is open and locked against other writers.
    """

    def __init__(self, path: Path, server: str) -> None:
        self.path = path
        self._server = server
        # Guards all attributes below, and the order of the lines. It is held during a write: other
        # threads that record must wait for the write in any case.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file: int | None = None
        self._open_connections = 0
        self._connections = 0

    def begin_connection(self) -> int:
        """Begin a connection and return its number; raise `OSError`, or `UsageError` if locked."""
        with self._lock:
            if self._process != os.getpid():
                # After a fork, the file and its lock belong to the parent process.
                self._process = os.getpid()
                self._file, self._open_connections, self._connections = None, 0, 0
            if self._file is None:
                self._file = self._open_file()
            self._open_connections += 1
            self._connections += 1
            if self._connections == 1:
                try:
                    self._write({_HEADER: VERSION, "server": self._server})
                except BaseException:
                    self._connections = 0
                    self.end_connection()
                    raise
            return self._connections

    def write(self, connection: int, entry: Entry) -> None:
        line: dict[str, Any] = {"connection": connection, entry.kind: entry.value}
        if entry.id is not None:
            line["for"] = entry.id
        if entry.status:
            line["status"] = entry.status
        with self._lock:
            self._write(line)

    def end_connection(self) -> None:
        """End a connection; after the last one, close the file."""
        with self._lock:
            self._open_connections -= 1
            if self._open_connections == 0 and self._file is not None:
                file, self._file = self._file, None
                os.close(file)

    def _open_file(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, _FLAGS, 0o600)
        try:
            if not try_lock(file):
                raise UsageError(f"{self.path} is being recorded by another client")
            if not self._connections:
                os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_END)
        except BaseException:
            os.close(file)
            raise
        return file

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return  # Events after the end of the last connection are not recorded.
        # A lone surrogate cannot be encoded; `backslashreplace` writes it as the JSON escape.
        text = json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace")
        left = memoryview(text + b"\n")
        while left:
            left = left[os.write(self._file, left) :]


def read(path: Path) -> list[list[Entry]]:
    """Read the entries of each connection; skip an incomplete last line, with a warning."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"cannot read the recording {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8") from error
    # Not `splitlines`: JSON strings may have other line separators in them.
    lines = text.split("\n")
    ended = lines.pop() == "" if text.endswith("\n") else False
    _check_header(path, lines[0] if lines else "")
    sessions: dict[int, list[Entry]] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            connection, entry = _entry(line)
        except ValueError as error:
            if number == len(lines) and not ended:
                _log.warning("%s ends in the middle of line %d, which is left out", path, number)
                break
            raise UsageError(f"{path}, line {number}: {error}") from error
        sessions.setdefault(connection, []).append(entry)
    return [session for _, session in sorted(sessions.items())]


def _check_header(path: Path, line: str) -> None:
    try:
        header = json.loads(line)
        version = header[_HEADER]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{path} is not a recording: its first line does not say so") from error
    if version != VERSION:
        raise UsageError(
            f"{path} is a recording of version {version!r}; this library reads only {VERSION}"
        )


def _entry(line: str) -> tuple[int, Entry]:
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict) or type(value.get("connection")) is not int:
        raise ValueError("it is not an object with a connection number")
    kinds = _KINDS & value.keys()
    if len(kinds) != 1:
        raise ValueError(f"it must have one of {', '.join(sorted(_KINDS))}")
    (kind,) = kinds
    about, status = value.get("for"), value.get("status", 0)
    if (about is not None and type(about) is not int) or type(status) is not int:
        raise ValueError("for and status are whole numbers")
    return value["connection"], Entry(kind, value[kind], about, status)


# Masking of secrets.


MASK_PATTERN = re.compile(rf"{re.escape(MASK)}\d*")
"""Matches a masked secret: the mask and the number of the secret."""

_SERVER_NOTIFICATIONS = frozenset(
    f"notifications/{name}"
    for name in (
        "cancelled", "elicitation/complete", "message", "progress", "prompts/list_changed",
        "resources/list_changed", "resources/updated", "subscriptions/acknowledged", "tasks/status",
        "tools/list_changed",
    )
)  # fmt: skip

# The values of members that are keywords of the protocol or of JSON Schema. These are never masked:
# an environment variable may have the same value, and a message without them would be invalid.
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "action": frozenset(("accept", "cancel", "decline")),
    "level": frozenset(
        ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    ),
    "method": KNOWN_REQUESTS | KNOWN_NOTIFICATIONS | KNOWN_QUESTIONS | _SERVER_NOTIFICATIONS,
    "protocolVersion": frozenset(REVISIONS),
    "resultType": frozenset(("complete", "input_required", "task")),
    "role": frozenset(("assistant", "user")),
    "type": frozenset(
        (
            "array", "audio", "boolean", "image", "integer", "null", "number", "object",
            "ref/prompt", "ref/resource", "resource", "resource_link", "string", "text",
            "tool_result", "tool_use",
        )
    ),
}  # fmt: skip

# Matches names of the protocol and of JSON Schema. The value of a variable may be such a name.
_WORD = re.compile(r"[$_]?[A-Za-z]+(?:_[A-Za-z]+)*")


class _SecretMasks:
    """Replaces each secret by a numbered mask, the same mask at each occurrence.

    Different cursors, for example, get different masks. The class is not thread-safe. In names of
    members that are words, only `secrets` are masked: a secret `of_target` may equal a name of the
    protocol.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        of_target: Secrets | None = None,
        more: Callable[[str], str] | None = None,
    ) -> None:
        self._secrets = frozenset(secrets)
        self._more = more
        self._known = Secrets()
        for secret in self._secrets:
            self._known.give(secret)
        if of_target is not None:
            self._known.include(of_target)
        # Stored by the digest of the text, because texts of a server may be long.
        self._numbers: dict[bytes, int] = {}

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Mask the secrets in these headers from now on."""
        self._known.add_headers(headers)

    def mask_value(self, value: Any) -> Any:
        """Return a JSON value with its secrets masked."""
        masked = self._known.masked_texts(value)
        return change_texts(value, partial(self._mask_scalar, masked), partial(self._name, masked))

    def _mask_scalar(
        self, masked: Mapping[str, str], value: str | float, member: str
    ) -> str | float:
        if not isinstance(value, str):
            text = str(value)
            return self._number(text, masked[text]) if text in masked else value
        if value in _KEYWORDS.get(member, ()):
            return value
        if member and names_a_secret(member):
            return self._number(value, MASK)
        return self._foreign(value, masked.get(value, value))

    def mask_text(self, text: str) -> str:
        return self._foreign(text, self._known.mask(text))

    def _foreign(self, text: str, masked: str) -> str:
        shown = redact(masked)
        if self._more is not None:
            shown = self._more(shown)
            if not isinstance(shown, str):
                raise UsageError(f"mask returned {kind_of(shown)}, not a str")
        return self._number(text, shown)

    def _name(self, masked: Mapping[str, str], name: str) -> str:
        shown = name if _WORD.fullmatch(name) else masked.get(name, name)
        return self._number(name, redact(shown, self._secrets) if self._secrets else shown)

    def _number(self, text: str, shown: str) -> str:
        if shown == text or not text:
            return text
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        number = self._numbers.setdefault(digest, len(self._numbers) + 1)
        return shown.replace(MASK, f"{MASK}{number}")


# Shorter values would also occur in texts without the secret, by chance.
_MIN_SECRET_LENGTH = 6


class Recording(TransportSource):
    """A target that records its connections to a file, which a `Replay` can play.

    >>> from syncmcp.testing import Recording, Replay, demo_server
    >>> with syncmcp.connect(Recording(demo_server(), "add.jsonl")) as client:
    ...     result = client.call_tool("add", {"a": 1, "b": 2})
    >>> with syncmcp.connect(Replay("add.jsonl")) as client:  # without the server
    ...     print(client.call_tool("add", {"a": 1, "b": 2}).text)
    3

    Each message is written as a line of the file at once, so that the file of an interrupted
    program has the messages so far. The first connection replaces an existing file; later
    connections are appended. HTTP headers are not recorded.

    In messages, secrets are replaced by ``***1``, ``***2`` and so on. Each whole text has its own
    number, so one secret has another mask in another text. Masked wherever they occur, as parts of
    texts, too: `secrets`, and the values of the target's environment variables, headers and URL
    that have six characters or more. Masked only where they are recognized: texts that look like
    secrets, such as ``Bearer`` tokens, and the values of members whose names are those of secrets
    (``token``, ``password``, ``cursor``). The same value in another place, or in prose, stays
    readable: read a file before you share it. A `Replay` returns results with their masks.

    Args:
        target: The server, as for `syncmcp.connect`.
        path: The file, whose directory is created if necessary.
        secrets: Other values to mask wherever they occur. Each has at least six characters.
        mask: Called with each text; returns the text with ``***`` in place of other secrets. It
            runs on the threads that send and read, and must not block.

    Raises:
        UsageError: The target cannot be recorded (a `Recording` or `Replay`, or HTTP with a
            `session_id`), `secrets` is a `str`, or one of them is shorter than six characters.
    """

    def __init__(
        self,
        target: Target,
        path: str | os.PathLike[str],
        *,
        secrets: Iterable[str] = (),
        mask: Callable[[str], str] | None = None,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise UsageError(
                f"path must be a str or a path, not {kind_of(path)}: target, then path"
            )
        server, _, _ = resolve_target(target, None)
        if isinstance(server, TransportSource):
            raise UsageError("a target that records or replays cannot be recorded")
        if isinstance(server, Http) and server.session_id is not None:
            raise UsageError("cannot record a session that another client began")
        self._target = server
        if isinstance(secrets, str):
            raise UsageError("secrets must be a list of strings, not a str")
        self._secrets = tuple(secrets)
        if any(len(secret) < _MIN_SECRET_LENGTH for secret in self._secrets):
            raise UsageError(f"each secret must have at least {_MIN_SECRET_LENGTH} characters")
        self._mask = mask
        self._path = Path(path)
        # Guards `_masks`, which collects the secrets in the headers of requests.
        self._lock = threading.RLock()
        known = server.secrets if isinstance(server, (Stdio, Http)) else None
        self._masks = _SecretMasks(self._secrets, known, mask)
        self._file = RecordingFile(self._path, self._masks.mask_text(self.label))

    @property
    def path(self) -> Path:
        """The file of the recording."""
        return self._path

    @property
    def label(self) -> str:
        server = self._target
        return server.label if isinstance(server, (Stdio, Http)) else server.name

    @property
    def behind(self) -> Stdio | Http | InProcessServer:
        return self._target

    def transport(self, inner: Transport | None) -> Transport:
        assert inner is not None
        return _Recorder(inner, self._file, self._mask_secrets)

    def __repr__(self) -> str:
        return f"Recording({self._target!r}, {str(self._path)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(Recording, secrets=self._secrets, mask=self._mask)
        return make, (self._target, self._path)

    def _mask_secrets(self, value: Any, headers: Mapping[str, str]) -> Any:
        with self._lock:
            self._masks.add_headers(headers)
            return self._masks.mask_value(value)


class _Recorder(Transport):
    """Wraps a transport, and records what it sends and receives.

    The object is the transport of the connection, and the receiver of the wrapped transport.
    """

    def __init__(
        self, inner: Transport, file: RecordingFile, clean: Callable[[Any, Mapping[str, str]], Any]
    ) -> None:
        self._inner = inner
        self.label = inner.label
        self.max_values = inner.max_values
        self.blocking = inner.blocking
        self.ordered = inner.ordered
        self._file = file
        self._mask_secrets = clean
        self._receiver: Receiver
        self._connection = 0
        # Held while `_stop` resets `_recording`.
        self._lock = threading.RLock()
        self._recording = False

    # As a transport

    @property
    def session_id(self) -> str | None:
        return self._inner.session_id

    @property
    def last_event_id(self) -> str | None:
        return self._inner.last_event_id

    def stderr_tail(self) -> str:
        return self._inner.stderr_tail()

    def wait_listening(self, deadline: Deadline) -> None:
        self._inner.wait_listening(deadline)

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """See `Transport`.

        Raises `UsageError` if another client is recording to the file.
        """
        self._receiver = receiver
        self._inner.label = self.label  # The connection may have changed the label.
        try:
            self._connection = self._file.begin_connection()
        except OSError as error:
            text = f"the recording cannot be written: {self._file.path}: {reason(error)}"
            raise ConnectFailed(text) from error
        self._recording = True
        self._record("opened", {"blocking": self.blocking, "ordered": self.ordered})
        try:
            self._inner.open(self, deadline)
        except McpError as error:
            self._record("failed", error_to_json(error))
            raise

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        session = self.session_id
        sent = {} if session is None else {"Mcp-Session-Id": session}
        self._record("adopted", {"stateful": stateful}, headers=sent)
        self._inner.adopt(headers, stateful=stateful)

    def send(self, out: Outgoing) -> None:
        self._record_sent(out)
        self._inner.send(out)

    def post(self, out: Outgoing) -> None:
        self._record_sent(out)
        self._inner.post(out)

    def cancel(self, out: Outgoing) -> Delivery:
        delivery = self._inner.cancel(out)
        if out.id is not None:
            self._record("withdrawn", out.id)
        return delivery

    def describe(self) -> str:
        return self._inner.describe()

    def skipped(self, frame: bytes) -> None:
        self._inner.skipped(frame)

    def close(self, deadline: Deadline) -> None:
        try:
            self._inner.close(deadline)
        finally:
            self._record("closed", True)
            self._stop()

    # As a receiver

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        about = None if out is None else out.id
        status = 0 if out is None else out.status
        check_values(frame, self.max_values)  # masking very many values would be slow
        try:
            self._record("got", pydantic_core.from_json(frame, allow_inf_nan=False), about, status)
        except ValueError:
            self._record("got_text", frame.decode(errors="replace"), about, status)
        return self._receiver.receive(frame, out)

    def alive(self, out: Outgoing | None) -> None:
        self._receiver.alive(out)

    def settled(self, out: Outgoing) -> bool:
        return self._receiver.settled(out)

    def messages_missed(self) -> None:
        self._record("missed", True)
        self._receiver.messages_missed()

    def server_stream_ended(self, *, opened: bool) -> None:
        self._record("silent", opened)
        self._receiver.server_stream_ended(opened=opened)

    def failed(self, out: Outgoing, error: McpError) -> None:
        if out.id is not None:  # Failed notifications are not recorded.
            self._record("failed", error_to_json(error), out.id)
        self._receiver.failed(out, error)

    def lost(self, error: McpError) -> None:
        self._record("lost", error_to_json(error))
        self._receiver.lost(error)

    # Writing

    def _record_sent(self, out: Outgoing) -> None:
        self._record("sent", pydantic_core.from_json(out.body), headers=out.headers)

    def _record(
        self,
        kind: str,
        value: Any,
        about: int | None = None,
        status: int = 0,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if not self._recording:
            return
        try:
            cleaned = self._mask_secrets(value, headers)
            self._file.write(self._connection, Entry(kind, cleaned, about, status))
        except Exception as error:  # The file system, or the program's `mask`.
            # A recording with a gap is useless: end the connection.
            self._stop()
            lost = ConnectionLost(f"the recording cannot be written: {reason(error)}")
            lost.__cause__ = error
            self._receiver.lost(lost)

    def _stop(self) -> None:
        """End the connection in the file, once, whatever threads call the method."""
        with self._lock:
            was_recording, self._recording = self._recording, False
        if was_recording:
            self._file.end_connection()


def error_to_json(error: McpError) -> dict[str, Any]:
    """Return an error as JSON: its class, its message, and its plain attributes."""
    facts = {
        name: value
        for name, value in error.__dict__.items()
        if isinstance(value, (str, int, float)) and name not in ("server", "method", "attempts")
    }
    return {"class": type(error).__name__, "message": error.message, **facts}
