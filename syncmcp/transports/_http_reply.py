"""What an HTTP response means, apart from its body: pure functions."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from pydantic_core import from_json

from syncmcp._base.text import redact
from syncmcp.errors import AuthError, HttpError, ProtocolError, SessionLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import requests

__all__ = [
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
