"""The format of recordings: a file with one line of JSON for each event of a connection, in order.

The first line is the header: ``{"syncmcp-recording": 1, "server": ...}``. Every other line has the
number of a connection, ``connection``, and one of these members:

``opened``
    A connection was opened; ``blocking`` and ``ordered`` of its transport.
``sent``, ``got``
    A message or a batch of the client or of the server. ``for`` is the id of the request on whose
    own stream it was received, ``status`` the HTTP status of an error.
``got_text``
    A frame of the server that was no JSON, as text.
``withdrawn``
    The id of a request that the client stopped waiting for.
``failed``
    An error instead of an answer to the request ``for``; without ``for``, the error with which
    opening the connection failed.
``adopted``
    A revision was negotiated; whether it is ``stateful``.
``silent``
    There will be no more messages that belong to no request; whether there was a stream for them.
``lost``
    The error with which the connection was lost.
``closed``
    The client has closed the connection.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from syncmcp._concurrency.files import try_lock
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

# Without O_TRUNC: another client may be recording to this file.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Entry(NamedTuple):
    """One line: an event of a connection."""

    kind: str
    value: Any
    id: int | None = None
    """The id of the request on whose stream it was received, or that has failed."""
    status: int = 0


class RecordingFile:
    """A recording that is being written, from any thread.

    While there are connections the file is open, and locked against other writers.
    """

    def __init__(self, path: Path, server: str) -> None:
        self.path = path
        self._server = server
        # Guards all attributes below, and keeps the lines in order. It is held while the file is
        # written: other threads that record have to wait for that in any case.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file: int | None = None
        self._open_connections = 0
        self._connections = 0

    def begin_connection(self) -> int:
        """Begin a connection and return its number. Raises `OSError`; `UsageError` if locked."""
        with self._lock:
            if self._process != os.getpid():
                # After a fork: the file and its lock are the parent's.
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
        """End a connection; after the last one the file is closed."""
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
        raise UsageError(f"there is no recording to be read: {error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error
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
        raise UsageError(f"{path} is no recording: its first line does not say so") from error
    if version != VERSION:
        raise UsageError(f"{path} is a recording of version {version!r}; this can read {VERSION}")


def _entry(line: str) -> tuple[int, Entry]:
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
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
