"""Reads HTTP responses, without I/O: status, headers, error bodies, and the events of streams."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any

import requests
from pydantic_core import from_json
from sseclient import SSEClient

from syncmcp._base.origin import join_url, origin_of, split_url
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import WORD
from syncmcp._http.exchange import check
from syncmcp._http.session import content_type, content_type_as_sent
from syncmcp.errors import AuthError, HttpError, LimitExceeded, ProtocolError, SessionLost

__all__ = [
    "EventStream",
    "error_for",
    "is_rpc_response",
    "post_url",
    "redirect_target",
    "retry_after",
    "session_id",
]


_EXCERPT = 200

# How much of an error body, in bytes, is searched for an excerpt to show.
_SEARCHED = 4096

_TITLE = re.compile(r"<title[^>]*>([^<]+)", re.IGNORECASE)

_SESSION = re.compile(r"\bsession\b", re.IGNORECASE)

_PATH_HINT = "; is it an MCP server, and is the path right? (often it is /mcp)"

# How many digits of a delay are read. Ten are 300 years in seconds, or 115 days in milliseconds:
# longer than any deadline, and quick to convert.
_RETRY_DIGITS = 10


def session_id(response: requests.Response) -> str | None:
    """The session id in the response's headers, if any.

    Raises:
        ProtocolError: The id contains other characters than visible ASCII (basic/transports,
            "Session Management").
    """
    value: str | None = response.headers.get("Mcp-Session-Id")
    if value is not None and not WORD.fullmatch(value):
        raise ProtocolError("the server's session id contains invalid characters")
    return value


def is_rpc_response(body: bytes) -> bool:
    """Return whether the body of an error response is one or several JSON-RPC responses."""
    try:
        found = from_json(body)
    except ValueError:
        return False
    messages = found if isinstance(found, list) else [found]
    return bool(messages) and all(
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and ("error" in message or "result" in message)
        for message in messages
    )


def error_for(
    response: requests.Response,
    sent: Mapping[str, Any],
    body: bytes,
    secrets: Secrets,
    path_hint: str = "",
) -> HttpError | SessionLost:
    """Return the error for an error status, or for a 200 whose body is neither JSON nor events.

    Args:
        response: The response.
        sent: The headers of the request.
        body: The part of the response body that was read.
        secrets: The secrets to mask, because the server may repeat them.
        path_hint: A hint about the URL's path; by default a general hint, if the path may be wrong.
    """
    status = response.status_code
    excerpt = _excerpt(body, secrets)
    if status == 200:
        shown = secrets.shorten(content_type_as_sent(response), 80)
        hint = path_hint or (_PATH_HINT if content_type(response) == "text/html" else "")
        return HttpError(
            f"the server answered with the content type {shown!r} instead of JSON or events{hint}",
            status=status,
            body=excerpt,
            delivery="unknown",
        )
    if "Mcp-Session-Id" in sent and (status == 404 or (status == 400 and _says_no_session(body))):
        return SessionLost("the server no longer knows this session")
    if status in (401, 403):
        demand = "requires credentials" if status == 401 else "forbids this"
        text = f"the server {demand}, and the client sent no Authorization header"
        if "Authorization" in response.request.headers:
            refusal = "rejects" if status == 401 else "forbids this with"
            text = f"the server {refusal} the credentials that the client sent"
        return AuthError(text, status=status, body=excerpt, hint="see token=, auth= and headers=")
    reason = secrets.shorten(response.reason or "", 80) or "with an error status"
    text = f"the server answered {reason}"
    if status < 500 or status == 501:
        text += path_hint or (_PATH_HINT if status in (404, 405, 501) else "")
    if status == 413:
        text += ": the request is too large for it"
    elif status == 431:
        text += ": the headers are too large for it"
        if any(name.lower().startswith("mcp-param-") for name in sent):
            text += ", among them arguments that the tool schema mirrors there"
    wait = response.headers.get("Retry-After")
    if wait is not None:
        text += f"; a retry has to wait (Retry-After: {secrets.shorten(wait, 40)})"
    return HttpError(
        text,
        status=status,
        body=excerpt,
        retry_after=retry_after(response),
        delivery="unknown" if status >= 500 else "refused",
    )


def _says_no_session(body: bytes) -> bool:
    """Return whether a 400 without a request id means "unknown session".

    Some servers do not use 404 for this.
    """
    try:
        message = from_json(body)
    except ValueError:
        message = body[:_SEARCHED].decode("utf-8", "replace")
    if isinstance(message, dict):
        error = message.get("error")
        if message.get("id") is not None or not isinstance(error, dict):
            return False
        message = error.get("message")
    return isinstance(message, str) and _SESSION.search(message) is not None


def retry_after(response: requests.Response) -> float | None:
    """Return the seconds to wait before another attempt (RFC 9110 10.2.3), or `None`.

    It is `None` if the server names no time.
    """
    value: str = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:_RETRY_DIGITS])
    when = _date(value)
    if when is None:
        return None
    # Relative to the server's clock, if it sends a date: ours may differ by minutes.
    now = _date(response.headers.get("Date", ""))
    return max(0.0, when - (time.time() if now is None else now))


def _date(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def redirect_target(response: requests.Response, method: str, url: str) -> str | None:
    """Return the URL to follow a redirect to; `None` if the response is not a redirect.

    A redirect is followed only to the same origin, because the request contains secrets, and only
    if the redirect keeps the method and the body.

    Raises:
        HttpError: The redirect must not be followed. The error names the target of the redirect
            without its secrets.
    """
    status = response.status_code
    location: str | None = response.headers.get("Location")
    if status not in (301, 302, 303, 307, 308) or location is None:
        return None
    try:
        target = join_url(url, location)
        parts = split_url(target)
        shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        shown += parts.path
        allowed = (
            (status in (307, 308) or method == "GET")
            and origin_of(target) == origin_of(url)
            and "@" not in split_url(location).netloc
        )
    except ValueError:
        shown, target, allowed = "an invalid URL", "", False
    if allowed:
        return target.partition("#")[0]
    raise HttpError(
        f"the server redirects to {shown}, which the client does not follow"
        " (only the same origin and only with 307 or 308); if you trust that address, connect"
        " to it",
        status=status,
    )


MAX_ADDRESS = 16_384
"""The longest URL for messages that a server may name (2024-11-05), in characters.

To remove the secrets from its query takes thirty times the size of the URL in memory.
"""


def post_url(url: str, named: bytes) -> str:
    """Return the URL to which messages are posted, from the event `endpoint` (2024-11-05).

    The specification allows any origin. The client accepts only the origin of the stream, at `url`:
    another one would receive the client's secrets.

    Raises:
        ProtocolError: `named` is not a URL, is too long, contains a user, or leads to another
            origin.
    """
    if len(named) > MAX_ADDRESS:
        raise ProtocolError(f"the server's event `endpoint` has more than {MAX_ADDRESS:,} bytes")
    if not re.fullmatch(rb"[\x21-\x7e]+", named):
        raise ProtocolError("the server's event `endpoint` contains no valid URL")
    text = named.decode("ascii")
    try:
        target = join_url(url, text)
        if "@" in split_url(text).netloc:
            raise ProtocolError("the server wants messages posted to a URL with a user name")
        here, there = origin_of(url), origin_of(target)
    except ValueError:
        raise ProtocolError("the server's event `endpoint` contains no valid URL") from None
    if here != there:
        raise ProtocolError(
            f"the server at {here} wants messages posted to {there}, which is another origin"
        )
    return target.partition("#")[0]


def _excerpt(body: bytes, secrets: Secrets) -> str:
    text = body[:_SEARCHED].decode("utf-8", "replace")
    text = secrets.redact(text, ends_cut=len(body) > _SEARCHED)
    title = _TITLE.search(text)
    return " ".join((title[1] if title else text).split())[:_EXCERPT]


_FIELD = re.compile(rb"^(data|event|id|retry)(?:: ?(.*))?$", re.MULTILINE)
_RETRY = re.compile(rb"retry: ?0*([0-9]+)")
_BOM = b"\xef\xbb\xbf"

# sseclient copies data seven times, and needs quadratic time for many lines of data. The data of
# events longer than this, in bytes, do not pass through it.
_LONG = 16 * 1024

# After this many lines, the parser checks whether the exchange was aborted. An event of 64 MiB may
# have 13 million lines, which take more than ten seconds.
_CHECKED_LINES = 256


class EventStream:
    """Parses one event stream (`text/event-stream`) from bytes to the data of `message` events.

    This class splits the stream into events, and sseclient-py parses the fields of each. Alone,
    sseclient-py has no limit, yields an incomplete last event, fails on a byte order mark, and
    needs quadratic time for many chunks. It skips events without data, so this class adds an empty
    line of data to each event.

    Spec: basic/transports, "Streamable HTTP"; WHATWG HTML, "Server-sent events".

    Attributes:
        last_id: The `Last-Event-ID` to resume from: the id of the last complete event with an id.
            `None` before such an event, and after an event with an empty `id`.
        endpoint: The data of the first event `endpoint`, with which the stream of a server of
            2024-11-05 begins; `None` before that event.
        empty: Whether no byte has been received, on any connection.
    """

    def __init__(self, limit: int, option: str = "max_body") -> None:
        """Prepare to parse events of at most `limit` bytes, which is the user's `option`."""
        self.last_id: str | None = None
        self.endpoint: bytes | None = None
        self.empty = True
        self._retry: float | None = None
        # An incomplete event; and an LF after it, which may begin an empty line. One buffer: a list
        # of small pieces would take many times their size in memory.
        self._event = bytearray()
        self._line_end = b""
        self._limit = limit
        self._option = option
        self._cut: deque[bytes] = deque()
        # latin-1 maps bytes to characters one to one, so all bytes survive, valid UTF-8 or not.
        source = SSEClient(iter(self._cut.popleft, None), char_enc="latin-1")
        self._events: Iterator[Any] = source.events()
        self.reset()

    def reset(self) -> None:
        """Discard the incomplete event of a broken stream; keep `last_id` and `retry`."""
        if self._event:
            self._retry = self.retry
        self._first = True
        self._after_cr = False
        self._event.clear()
        self._line_end = b""

    @property
    def retry(self) -> float | None:
        """The seconds to wait before reconnecting, if the server named them; else `None`."""
        # An incomplete event counts, too: a server may send `retry` and end the connection.
        lines = (bytes(self._event) + self._line_end).rpartition(b"\n")[0]
        return _retry(lines.removeprefix(_BOM) if self._first else lines, self._retry)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Parse the next bytes, and yield the data of each `message` event that they complete.

        Events without data, or of another type, yield nothing, but their `id` and `retry` are used.

        Raises:
            LimitExceeded: An event is longer than the limit.
        """
        self.empty = self.empty and not chunk
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            # A CR ends a line at once: an LF after it may arrive hours later.
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._line_end:
            chunk, self._line_end = self._line_end + chunk, b""
        if b"\n" not in chunk:  # a search for one byte is a hundred times faster than for two
            self._add(chunk)
            return
        *events, rest = chunk.split(b"\n\n")
        for event in events:
            self._add(event)
            data = self._end_event()
            if data:
                yield data
        if rest.endswith(b"\n"):
            rest, self._line_end = rest[:-1], b"\n"
            if not self._event and _is_comment(rest):
                # The comment is discarded, so that it does not count towards the limit of an event.
                rest, self._line_end, self._first = b"", b"", False
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._event += piece
        if len(self._event) > self._limit:
            raise LimitExceeded(
                f"an event of the server is longer than {self._option}={self._limit} bytes"
            )

    def _end_event(self) -> bytes:
        event = bytes(self._event)
        self._event.clear()
        if self._first:
            self._first = False
            event = event.removeprefix(_BOM)
        if not event or _is_comment(event):
            return b""
        data: bytes | None = None
        if len(event) > _LONG or b"\0" in event:
            fields, data = _without_data(event)
            event = b"\n".join(fields.values())
        self._cut.append(event + b"\ndata:\n\n")
        parsed = next(self._events)
        if parsed.id is not None:
            self.last_id = parsed.id.encode("latin-1").decode("utf-8", "replace") or None
        if parsed.retry is not None:  # it may not be a number
            self._retry = _retry(event, self._retry)
        if data is None:
            text: str = parsed.data
            data = text[:-1].encode("latin-1")
        if parsed.event == "endpoint" and self.endpoint is None:
            self.endpoint = data
        # Data of only line ends is not a message: servers send such events for their id.
        return data if parsed.event == "message" and data.strip(b"\n") else b""


def _is_comment(text: bytes) -> bool:
    return text.startswith(b":") and b"\n" not in text


def _retry(event: bytes, default: float | None) -> float | None:
    """The seconds of the last valid `retry` in an event; `default` if there is none."""
    found = _RETRY.fullmatch(_without_data(event)[0].get(b"retry", b""))
    return default if found is None else int(found[1][:_RETRY_DIGITS]) / 1000


def _without_data(event: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Split an event into the last valid line of each other field, and its data.

    An id with NUL and a `retry` that is not a number are invalid, but sseclient accepts them.
    """
    data = bytearray()  # one buffer, as for an incomplete event
    fields: dict[bytes, bytes] = {}
    found = _FIELD.finditer(event)  # `re` skips other lines in C
    while some := list(islice(found, _CHECKED_LINES)):
        check()
        for field in some:
            line, name = field[0], field[1]
            if name == b"data":
                data += field[2] or b""
                data += b"\n"
            elif name == b"event" or (
                b"\0" not in line if name == b"id" else _RETRY.fullmatch(line)
            ):
                fields[name] = line
    del data[-1:]
    return fields, bytes(data)
