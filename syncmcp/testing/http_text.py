"""Heads of HTTP messages and server-sent events, as bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import BinaryIO, NamedTuple

_PHRASES = {entry.value: entry.phrase for entry in HTTPStatus}

_MAX_LINE_SIZE = 65536
_MAX_HEADERS = 100


class RequestHead(NamedTuple):
    """The head of a request, with the names of its headers in lower case."""

    verb: str
    target: str
    version: str
    headers: dict[str, str]


class HeadTooLong(ValueError):
    """A request has more than 100 headers."""


def read_request_head(stream: BinaryIO) -> RequestHead | None:
    """Read the head of the next request; `None` at the end of the stream. Raises `ValueError`."""
    start = stream.readline(_MAX_LINE_SIZE)
    if not start:
        return None
    verb, target, version = start.decode("latin-1").split()
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{version} is no version of HTTP/1")
    headers: dict[str, str] = {}
    while line := stream.readline(_MAX_LINE_SIZE).strip():
        if len(headers) == _MAX_HEADERS:
            raise HeadTooLong
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return RequestHead(verb, target, version, headers)


def format_head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the head of a response with its blank line."""
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def format_event(
    data: bytes | None,
    event_id: str | None = None,
    retry: int | None = None,
    event: str | None = None,
) -> bytes:
    """Return an event; what is `None` is left out."""
    fields = {"event": event, "id": event_id, "retry": retry}
    lines = [f"{name}: {value}".encode() for name, value in fields.items() if value is not None]
    if data is not None:
        # JSON has no raw line ends; other data needs a `data:` line for each of its lines.
        lines += [b"data: " + line for line in re.split(rb"\r\n|\r|\n", data)]
    return b"\n".join(lines) + b"\n\n"
