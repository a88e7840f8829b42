"""What an HTTP response means, apart from its body: pure functions."""

from __future__ import annotations

import random
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from pydantic_core import from_json
from sseclient import SSEClient

from syncmcp._base.text import redact
from syncmcp.errors import AuthError, HttpError, LimitExceeded, ProtocolError, SessionLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import requests

__all__ = [
    "EventStream",
    "ReconnectPolicy",
    "content_type",
    "is_message",
    "posting_address",
    "redirect",
    "refusal",
    "retry_after",
    "session_id",
    "wrong_type",
]


_EXCERPT = 200

# So much of a body, in bytes, is looked at for something worth showing.
_SEARCHED = 4096

_TITLE = re.compile(r"<title[^>]*>([^<]+)", re.IGNORECASE)

_SESSION = re.compile(r"\bsession\b", re.IGNORECASE)

_PATH_HINT = "; is the path right? (often it is /mcp)"

# Request headers whose values are no secrets.
_PUBLIC = frozenset(("accept", "accept-encoding", "content-length", "content-type", "user-agent"))

# Ten digits of seconds are 300 years: beyond any deadline, and cheap to convert.
_RETRY_DIGITS = 10

_DEFAULT_PORTS = {"http": 80, "https": 443}


def content_type(response: requests.Response) -> str:
    """The media type, without parameters, in lower case; empty when there is none."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower()


def session_id(response: requests.Response) -> str | None:
    """The session id that came with the response, if any.

    Raises:
        ProtocolError: It holds more than visible ASCII (basic/transports, "Session Management").
    """
    value: str | None = response.headers.get("Mcp-Session-Id")
    if value is not None and not re.fullmatch(r"[\x21-\x7e]+", value):
        raise ProtocolError("the server's session id contains characters it must not contain")
    return value


def is_message(body: bytes) -> bool:
    """Whether the body of an error response is a JSON-RPC answer, or several."""
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


def refusal(
    response: requests.Response, sent: Mapping[str, Any], body: bytes
) -> HttpError | SessionLost:
    """The error for a status that is no success.

    Args:
        response: The response.
        sent: The headers of the request.
        body: The response's body, or its beginning.
    """
    status = response.status_code
    if "Mcp-Session-Id" in sent and (status == 404 or (status == 400 and _no_session(body))):
        return SessionLost("the server no longer knows this session")
    excerpt = _excerpt(body, sent)
    if status == 401:
        return AuthError(
            "the server wants credentials, or others than these: see auth= and headers=",
            status=status,
            body=excerpt,
        )
    if status == 403:
        return AuthError(
            "the server forbids this with these credentials: see auth= and headers=",
            status=status,
            body=excerpt,
        )
    text = f"the server answered {(response.reason or 'with an error status')[:80]}"
    if status in (404, 405):
        text += _PATH_HINT
    if status == 413:
        text += ": the request is too large for it"
    elif status == 431:
        text += ": the headers are too large for it"
        if any(name.lower().startswith("mcp-param-") for name in sent):
            text += ", among them arguments that the tool wants repeated there"
    wait = response.headers.get("Retry-After")
    if wait is not None:
        text += f"; it wants no other try for now (Retry-After: {wait[:40]})"
    return HttpError(
        text,
        status=status,
        body=excerpt,
        retry_after=retry_after(response),
        delivery="unknown" if status >= 500 else "refused",
    )


def _no_session(body: bytes) -> bool:
    """Whether a 400 that answers no request means what 404 should: servers in use say it so."""
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
    """How long to wait before another attempt, in seconds, if the server says (RFC 9110 10.2.3)."""
    value: str = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:_RETRY_DIGITS])
    when = _date(value)
    if when is None:
        return None
    # By the server's own clock where it tells it: ours may be minutes off.
    now = _date(response.headers.get("Date", ""))
    return max(0.0, when - (time.time() if now is None else now))


def _date(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def wrong_type(response: requests.Response, sent: Mapping[str, Any], body: bytes) -> HttpError:
    """The error for a success whose body is neither JSON nor an event stream."""
    kind = content_type(response)
    hint = _PATH_HINT if kind == "text/html" else ""
    return HttpError(
        f"the server answered with the content type {kind[:80]!r} instead of JSON or events{hint}",
        status=response.status_code,
        body=_excerpt(body, sent),
        delivery="unknown",
    )


def redirect(response: requests.Response, method: str, url: str) -> str | None:
    """Where a redirect leads, or `None` if the response is none.

    Followed are redirects that stay at the origin, to which our secrets belong, and keep the
    method and with it the body.

    Raises:
        HttpError: It is a redirect that is not followed. Names the target without its secrets.
    """
    status = response.status_code
    location: str | None = response.headers.get("Location")
    if status not in (301, 302, 303, 307, 308) or location is None:
        return None
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
        shown += parts.path
        allowed = (
            (status in (307, 308) or method == "GET")
            and _origin(target) == _origin(url)
            and "@" not in urlsplit(location).netloc
        )
    except ValueError:
        shown, target, allowed = "an address that cannot be read", "", False
    if allowed:
        return target.partition("#")[0]
    raise HttpError(
        f"the server redirects to {shown}, which is not followed"
        " (only the same origin and only with 307 or 308)",
        status=status,
    )


def posting_address(url: str, named: bytes) -> str:
    """Where messages are posted, as the server's event `endpoint` names it (2024-11-05).

    The specification leaves the origin open. Only the stream's own is accepted: any other would
    get our secrets.

    Args:
        url: The address of the stream.
        named: The event's data: an address, mostly relative.

    Raises:
        ProtocolError: It is no address, has a user in it, or leads to another origin.
    """
    if not re.fullmatch(rb"[\x21-\x7e]+", named):
        raise ProtocolError("the server's event `endpoint` holds no address")
    text = named.decode("ascii")
    try:
        target = urljoin(url, text)
        if "@" in urlsplit(text).netloc:
            raise ProtocolError("the server wants messages posted to an address with a user in it")
        here, there = _origin(url), _origin(target)
    except ValueError:
        raise ProtocolError("the server's event `endpoint` holds no address") from None
    if here != there:
        raise ProtocolError(
            f"the server at {_shown(here)} wants messages posted to {_shown(there)},"
            " which is another origin"
        )
    return target.partition("#")[0]


def _shown(origin: tuple[str, str | None, int | None]) -> str:
    scheme, host, port = origin
    where = f"[{host}]" if host and ":" in host else host or ""
    return f"{scheme}://{where}{f':{port}' if port else ''}"


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _excerpt(body: bytes, sent: Mapping[str, Any]) -> str:
    text = redact(body[:_SEARCHED].decode("utf-8", "replace"), _secrets(sent))
    title = _TITLE.search(text)
    return " ".join((title[1] if title else text).split())[:_EXCERPT]


def _secrets(sent: Mapping[str, Any]) -> Iterable[str]:
    """A server may echo what we sent: all header values but the well-known harmless ones."""
    for name, value in sent.items():
        if name.lower() not in _PUBLIC:
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            yield text
            yield text.rpartition(" ")[2]  # the token without its scheme


# Event streams (`text/event-stream`): bytes in, the data of `message` events out.
#
# sseclient-py reads the events. Lines, limits and the stream's cursor are kept here, because it
# loses events that carry only an `id` or `retry`, emits an event that the end of the stream cut
# off, trips over a byte order mark, knows no limit, copies data about ten times, and needs
# quadratic time for many chunks or many `data` lines. So it is given whole events, of one `data`
# line of common length; what is longer is joined here.
#
# Spec: basic/transports, "Streamable HTTP"; WHATWG HTML, "Server-sent events".


_BOM = b"\xef\xbb\xbf"

# Data longer than this, in bytes, is not copied through sseclient.
_LONG = 64 * 1024

# Ten digits of milliseconds are 115 days: beyond any deadline, and cheap to convert.


class EventStream:
    """The parser of one stream.

    Attributes:
        last_id: The id to resume from: that of the last complete event that had one, which an
            empty `id` takes back; `None` when there is none.
        endpoint: The data of the first event `endpoint`, with which the stream of a server of
            2024-11-05 begins; `None` before it.
        empty: Whether not a single byte has come, on any of the connections.
        retry: The seconds that the server wants a client to wait before it reconnects, or `None`.
    """

    def __init__(self, limit: int, option: str = "max_body") -> None:
        """Make a parser for a new stream.

        Args:
            limit: The longest event accepted, in bytes.
            option: What that limit is called where the user sets it.
        """
        self.last_id: str | None = None
        self.endpoint: bytes | None = None
        self.retry: float | None = None
        self.empty = True
        self._limit = limit
        self._option = option
        self._first_line = True
        self._after_cr = False
        self._partial: list[bytes] = []  # the pieces of a line that has no end yet
        self._partial_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = b""
        self._id = b""
        self._one_event = _OneEvent()
        # latin-1 maps bytes to characters one to one: what goes in comes out, valid UTF-8 or not.
        self._events: Iterator[Any] = SSEClient(self._one_event, char_enc="latin-1").events()

    def restart(self) -> None:
        """Forget the incomplete event of a broken stream; `last_id` and `retry` stay."""
        self._first_line = True
        self._after_cr = False
        self._partial.clear()
        self._partial_size = 0
        self._data, self._data_size, self._event = [], 0, b""
        self._id = b"" if self.last_id is None else self.last_id.encode()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes of the stream, yield the data of each `message` event they complete.

        Events without data, or of another type, yield nothing, but their `id` and `retry` count.

        Raises:
            LimitExceeded: An event is longer than the limit.
        """
        self.empty = self.empty and not chunk
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            # A CR ends a line at once: the LF that may follow might not come for hours.
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial.clear()
            self._partial_size = 0
        for line in lines:
            if not line:
                data = self._end_event()
                if data:
                    yield data
            else:
                self._take(line)
        if rest:
            self._partial.append(rest)
            self._partial_size += len(rest)
            self._check(self._partial_size)

    def _take(self, line: bytes) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._add_data(line[6:] if line.startswith(b" ", 5) else line[5:])
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._add_data(b"")
        elif field == b"event":
            self._event = value
        elif field == b"id":
            if b"\0" not in value:
                self._id = value
        elif field == b"retry" and value.isdigit():
            self.retry = int(value.lstrip(b"0")[:_RETRY_DIGITS] or b"0") / 1000

    def _add_data(self, value: bytes) -> None:
        self._check(len(value))
        self._data.append(value)
        self._data_size += len(value) + 1

    def _end_event(self) -> bytes:
        self._first_line = False
        self.last_id = self._id.decode("utf-8", "replace") or None
        lines, event = self._data, self._event
        self._data, self._data_size, self._event = [], 0, b""
        if event == b"endpoint" and self.endpoint is None:
            self.endpoint = b"\n".join(lines)
        # Data that is all line ends is no JSON: an event whose only use is its id.
        if not any(lines):
            return b""
        if len(lines) > 1 or len(lines[0]) > _LONG:
            return b"\n".join(lines) if event in (b"", b"message") else b""
        self._one_event.put(b"event: %b\ndata: %b\n\n" % (event, lines[0]))
        parsed = next(self._events)
        return parsed.data.encode("latin-1") if parsed.event == "message" else b""

    def _check(self, more: int) -> None:
        if self._data_size + more > self._limit:
            raise LimitExceeded(
                f"an event of the server is longer than {self._option}={self._limit} bytes"
            )


class _OneEvent:
    """The source sseclient reads from: exactly the event that was put there."""

    def __init__(self) -> None:
        self._event = b""

    def put(self, event: bytes) -> None:
        self._event = event

    def __iter__(self) -> _OneEvent:
        return self

    def __next__(self) -> bytes:
        event, self._event = self._event, b""
        return event


# When to try a broken event stream again, and when to give up.


# Attempts in a row that bring nothing new.
_FRUITLESS = 3

# Seconds: without a word from the server; at least, whatever it says; at most, unless it says so.
_DEFAULT = 1.0
_SHORTEST = 0.05
_LONGEST = 30.0


class ReconnectPolicy:
    """Counts fruitless attempts and says how long to wait before the next one."""

    def __init__(self) -> None:
        self._fruitless = 0

    def progress(self) -> None:
        """Something new came: start counting anew."""
        self._fruitless = 0

    def stop(self) -> None:
        """Do not try again."""
        self._fruitless = _FRUITLESS

    def next_pause(self, retry: float | None) -> float | None:
        """Seconds to wait before the next attempt, `None` to give up.

        Never less than `retry`, the server's own wish (basic/transports, 2025-11-25: MUST).
        """
        if self._fruitless >= _FRUITLESS:
            return None
        base = max(_SHORTEST, _DEFAULT if retry is None else retry)
        pause = base
        if self._fruitless or retry is None:
            pause = max(base, min(_LONGEST, base * 2**self._fruitless))
            # Many clients that lost the same server should not all come back at once.
            pause *= 1 + random.random() / 4  # noqa: S311 - no secret depends on it
        self._fruitless += 1
        return pause
