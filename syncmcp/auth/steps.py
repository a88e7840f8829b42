"""The steps of signing in: their requests and responses, and how to read both; no I/O.

Steps are generators: they yield `HttpRequest`, receive `HttpResponse`, and return a result. The
module also parses ``WWW-Authenticate`` challenges (RFC 9110 §11.6.1), JSON bodies, and error texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from syncmcp._base.text import redact

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class HttpRequest:
    """An HTTP request of a step.

    Attributes:
        headers: The headers, without those for framing.
        token: Whether this is a request to a token endpoint. If tokens are bound to a key, such a
            request gets a DPoP proof, and is repeated once if the server demands a nonce.
        algorithms: The algorithms that the server accepts for the proof; `None` if they are
            unknown.
        renew: Makes an equal request, if this one contains something that can be used only once.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    token: bool = False
    algorithms: tuple[str, ...] | None = None
    renew: Callable[[], HttpRequest] | None = None

    def __repr__(self) -> str:
        return f"<HttpRequest {self.method}>"  # the rest may hold secrets


@dataclass(frozen=True, repr=False)
class HttpResponse:
    """The response to an `HttpRequest`, with names of headers in lower case, and the whole body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<HttpResponse {self.status}>"  # the rest may hold secrets


@dataclass(frozen=True, repr=False)
class Redirect:
    """An authorization request: a browser opens `url`, and is redirected to `redirect_uri`.

    Attributes:
        url: The URL of the authorization request (RFC 6749 §4.1.1), already checked.
        redirect_uri: The URI to which the callback goes.
        state: The `state` that the callback must contain, which distinguishes it from other
            requests.
    """

    url: str
    redirect_uri: str
    state: str

    def __repr__(self) -> str:
        return "<Redirect>"  # all of it is secret while the login is in progress


FetchSteps: TypeAlias = Generator[HttpRequest, HttpResponse, T]
"""Steps that return a `T`."""


_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SKIPPED = re.compile(r"[\s,]*")
# Some servers omit quotes around URLs and commas between parameters.
_PARAMETER = re.compile(
    rf"({_WORD})[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"=][^\s,\"]*))(?=[\s,]|$)"
)
_SCHEME = re.compile(rf"({_WORD})(?=[\s,]|$)")
_TOKEN68 = re.compile(r"[ \t]+[0-9A-Za-z\-._~+/]+=*[ \t]*(?=,|$)")
_ESCAPED = re.compile(r"\\(.)")
_GARBAGE = re.compile(r"[^,]*")

_SCHEMES = ("bearer", "dpop")

MAX_CHALLENGE = 16 * 1024
"""The most characters that are read of the ``WWW-Authenticate`` headers of a response."""


@dataclass(frozen=True)
class Challenge:
    """One challenge of a ``WWW-Authenticate`` header, with scheme and names in lower case."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class AuthChallenge:
    """The Bearer and DPoP challenges of a response, combined (RFC 6750 §3, RFC 9728 §5.1).

    `resource_metadata` is the URL of the resource's metadata, `scope` the scope that the request
    needs, and `error` the error code for the token. Each is `None` if the response has none.
    """

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def parse_challenges(header: str) -> list[Challenge]:
    """Parse the values of all ``WWW-Authenticate`` headers, joined by commas.

    Text that is not a challenge is skipped. If a parameter is repeated, its first value is used.
    Nothing beyond `MAX_CHALLENGE` characters is read.
    """
    header = header[:MAX_CHALLENGE]
    challenges: list[Challenge] = []
    position = 0
    while (position := _after(_SKIPPED, header, position)) < len(header):
        if (parameter := _PARAMETER.match(header, position)) is not None:
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
            if challenges:
                challenges[-1].parameters.setdefault(name.lower(), value)
            position = parameter.end()
        elif (scheme := _SCHEME.match(header, position)) is not None:
            challenges.append(Challenge(scheme[1].lower()))
            position = scheme.end()
            # The credentials of a scheme without parameters, not another scheme.
            token68 = _TOKEN68.match(header, position)
            position = position if token68 is None else token68.end()
        else:
            position = _after(_GARBAGE, header, position)
    return challenges


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


def auth_challenge(header: str | None) -> AuthChallenge | None:
    """Combine the Bearer and DPoP challenges of a header; return `None` if there are none."""
    found = [one.parameters for one in parse_challenges(header or "") if one.scheme in _SCHEMES]
    if not found:
        return None

    def first(name: str) -> str | None:
        return next((one[name] for one in found if one.get(name)), None)

    return AuthChallenge(first("resource_metadata"), first("scope"), first("error"))


_MAX_SHOWN = 300


def json_members(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object in a response's body; an empty one if the body is anything else."""
    value = json_body(response)
    return value if isinstance(value, dict) else {}


def json_body(response: HttpResponse) -> Any:
    """Return the JSON value in a response's body; `None` if the body is not valid JSON."""
    try:
        value: Any = json.loads(response.body)
        # A lone surrogate cannot be encoded into a request.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


_MAX_CODE = 80


def error_code(code: object) -> str | None:
    """Return the error code of a response; `None` if the code is missing or too long."""
    return (
        (printable(code, "") or None) if isinstance(code, str) and len(code) <= _MAX_CODE else None
    )


def printable(words: object, otherwise: str) -> str:
    """Return a server's text for an error message: one line, printable, shortened, secrets removed.

    The result is `otherwise` if `words` is not a text, or is empty.
    """
    text = words if isinstance(words, str) else ""
    shown = "".join(one if one.isprintable() else " " for one in text[:_MAX_SHOWN])
    if len(text) > _MAX_SHOWN:  # the last word may be the beginning of a secret
        shown = shown.rpartition(" ")[0]
    return redact(shown).strip() or otherwise
