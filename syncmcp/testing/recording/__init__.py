"""Recordings as files: one line of JSON for each thing that happened, in order.

The first line says what it is: ``{"syncmcp-recording": 1, "server": ...}``. Every other line has
the number of a connection and one of these:

``opened``
    A connection began; whether its requests have exchanges of their own (HTTP).
``sent``, ``got``
    A message, or a batch. ``for`` names the request on whose own stream it came, ``status`` the
    HTTP status of a refusal.
``got_text``
    What was no JSON, as text.
``withdrawn``
    The id of a request that the client stopped waiting for.
``failed``
    An error instead of an answer: to the request ``for``, or, without one, to the connection.
``adopted``
    A revision was agreed on.
``silent``
    Nothing more would come that belongs to no request; whether the server had a stream for that.
``lost``, ``closed``
    The end of a connection.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from syncmcp._base import files
from syncmcp.errors import UsageError

_log = logging.getLogger("syncmcp.testing")

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
        "opened",
        "sent",
        "silent",
        "withdrawn",
    )
)

# O_TRUNC is not among them: what is there may be a recording that somebody is making.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Entry(NamedTuple):
    """One line: something that happened on a connection."""

    kind: str
    value: Any
    id: int | None = None
    """The request on whose stream it came, or that it is about."""
    status: int = 0


class Session(NamedTuple):
    """One connection, from its beginning to its end or to the end of the file."""

    entries: list[Entry]

    def has(self, *kinds: str) -> bool:
        """Whether something of these kinds happened."""
        return any(entry.kind in kinds for entry in self.entries)


class RecordingFile:
    """A file that is written. Any thread may use it.

    The file is open, and locked against others who would write it, while there are connections.

    Args:
        path: Where it is; its directory is made if need be. What is there is replaced.
        server: What was recorded, without secrets.
    """

    def __init__(self, path: Path, server: str) -> None:
        self.path = path
        self._server = server
        # Guards everything below, and keeps the lines in order. Writing to a file is the one thing
        # that is done under it: whoever waits here could not go on before that anyhow.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file: int | None = None
        self._open = 0
        self._connections = 0

    def begin(self) -> int:
        """Note that there is one more connection; return its number.

        Raises:
            UsageError: The file is being recorded already.
            OSError: It cannot be written.
        """
        with self._lock:
            if self._process != os.getpid():  # the file is the parent's, whose lock is in the way
                self._process = os.getpid()
                self._file, self._open, self._connections = None, 0, 0
            if self._file is None:
                self._file = self._start()
            self._open += 1
            self._connections += 1
            if self._connections == 1:
                try:
                    self._write({_HEADER: VERSION, "server": self._server})
                except BaseException:
                    self._connections = 0
                    self.end()
                    raise
            return self._connections

    def write(self, connection: int, entry: Entry) -> None:
        """Add a line; it is in the file when this returns.

        Raises:
            OSError: It cannot be written.
        """
        line: dict[str, Any] = {"connection": connection, entry.kind: entry.value}
        if entry.id is not None:
            line["for"] = entry.id
        if entry.status:
            line["status"] = entry.status
        with self._lock:
            self._write(line)

    def end(self) -> None:
        """Note that a connection is over; with the last one the file is closed."""
        with self._lock:
            self._open -= 1
            if self._open == 0 and self._file is not None:
                file, self._file = self._file, None
                os.close(file)

    def _start(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, _FLAGS, 0o600)
        try:
            if not files.take(file):
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
            return  # what happens after the end of the last connection is no part of it
        # Half of a surrogate pair has no UTF-8, but what replaces it is what JSON would write.
        text = json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace")
        left = memoryview(text + b"\n")
        while left:
            left = left[os.write(self._file, left) :]


def read(path: Path) -> list[Session]:
    """Read a recording.

    A last line that was cut off in the middle is left out, with a warning in the log.

    Raises:
        UsageError: It is not there, or is no recording; says which line.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"there is no recording to be read: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error
    # Not `splitlines`: JSON may hold characters that end a line elsewhere.
    lines = text.split("\n")
    ended = lines.pop() == "" if text.endswith("\n") else False
    _check_header(path, lines[0] if lines else "")
    sessions: dict[int, Session] = {}
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
        sessions.setdefault(connection, Session([])).entries.append(entry)
    return [session for _, session in sorted(sessions.items())]


def _check_header(path: Path, line: str) -> None:
    try:
        header = json.loads(line)
        version = header[_HEADER]
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is no recording: its first line does not say so") from error
    if version != VERSION:
        raise UsageError(f"{path} is a recording of version {version!r}; this can read {VERSION}")


def _entry(line: str) -> tuple[int, Entry]:
    value = json.loads(line)
    if not isinstance(value, dict) or type(value.get("connection")) is not int:
        raise ValueError("it is no object with the number of a connection")
    kinds = _KINDS & value.keys()
    if len(kinds) != 1:
        raise ValueError(f"it must have one of {', '.join(sorted(_KINDS))}")
    (kind,) = kinds
    about, status = value.get("for"), value.get("status", 0)
    if (about is not None and type(about) is not int) or type(status) is not int:
        raise ValueError("for and status are whole numbers")
    return value["connection"], Entry(kind, value[kind], about, status)
