"""What the steps of signing in ask for, and how they read challenges and answers; no I/O.

Steps are generators. They yield `HttpRequest`, are sent `HttpResponse`, and return the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from syncmcp._base.text import redact

__all__ = [
    "AuthChallenge",
    "Challenge",
    "auth_challenge",
    "json_body",
    "json_members",
    "parse_challenges",
    "printable",
]


T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class HttpRequest:
    """An HTTP request to make.

    Attributes:
        method: ``GET`` or ``POST``.
        url: Where to.
        headers: What goes with it beside the framing.
        body: The body, if there is one.
        token: Whether it is a request to a token endpoint: bound by a `Binder`, where there is
            one, and never sent twice.
        algorithms: What a proof that goes with it may be signed with; `None`: nobody says.
        renew: Makes it anew, if something in it is good for one use only.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    token: bool = False
    algorithms: tuple[str, ...] | None = None
    renew: Callable[[], HttpRequest] | None = None

    def __repr__(self) -> str:
        return f"<Fetch {self.method}>"  # the rest may hold secrets


@dataclass(frozen=True, repr=False)
class HttpResponse:
    """The answer to a `HttpRequest`.

    Attributes:
        status: The HTTP status.
        headers: Its headers; names in lower case.
        body: The whole body.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Fetched {self.status}>"  # the rest may hold secrets


@dataclass(frozen=True, repr=False)
class Redirect:
    """A person is to be sent to `url`, and comes back to `redirect_uri`.

    Attributes:
        url: The authorization request (RFC 6749 §4.1.1), already checked.
        redirect_uri: Where the answer goes.
        state: What the answer has to carry, so that a receiver can tell it from a stray request.
    """

    url: str
    redirect_uri: str
    state: str

    def __repr__(self) -> str:
        return "<Redirect>"  # all of it is secret for as long as the login lasts


FetchSteps: TypeAlias = Generator[HttpRequest, HttpResponse, T]
"""Steps that return a `T`."""


# What a server that refuses a request says about it: ``WWW-Authenticate`` (RFC 9110 §11.6.1).


_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SKIPPED = re.compile(r"[\s,]*")
# Servers leave out quotes around URLs and commas between parameters.
_PARAMETER = re.compile(
    rf"({_WORD})[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"=][^\s,\"]*))(?=[\s,]|$)"
)
_SCHEME = re.compile(rf"({_WORD})(?=[\s,]|$)")
_TOKEN68 = re.compile(r"[ \t]+[0-9A-Za-z\-._~+/]+=*[ \t]*(?=,|$)")
_ESCAPED = re.compile(r"\\(.)")
_GARBAGE = re.compile(r"[^,]*")

_SCHEMES = ("bearer", "dpop")


@dataclass(frozen=True)
class Challenge:
    """One challenge.

    Attributes:
        scheme: Its scheme in lower case.
        parameters: Its parameters; names in lower case, quotes taken off.
    """

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class AuthChallenge:
    """What the Bearer and DPoP challenges of a response want (RFC 6750 §3, RFC 9728 §5.1).

    Attributes:
        resource_metadata: Where the metadata of the resource are, if that is said.
        scope: The scope that the request needs, word for word, if that is said.
        error: What is wrong with the token, if that is said.
    """

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def parse_challenges(header: str) -> list[Challenge]:
    """The challenges in the values of all ``WWW-Authenticate`` headers, joined by commas.

    What cannot be understood is left out. Of a parameter given twice the first counts.
    """
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
            # The one credential of schemes that have no parameters, not a scheme of its own.
            token68 = _TOKEN68.match(header, position)
            position = position if token68 is None else token68.end()
        else:
            position = _after(_GARBAGE, header, position)
    return challenges


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


def auth_challenge(header: str | None) -> AuthChallenge | None:
    """What a response demands, or `None` if it has no challenge that a token answers."""
    found = [one.parameters for one in parse_challenges(header or "") if one.scheme in _SCHEMES]
    if not found:
        return None

    def first(name: str) -> str | None:
        return next((one[name] for one in found if one.get(name)), None)

    return AuthChallenge(first("resource_metadata"), first("scope"), first("error"))


# What an authorization server answers: JSON objects, and words that people may read.


_LONGEST = 300


def json_members(response: HttpResponse) -> dict[str, Any]:
    """The members of the JSON object in an answer; none if it holds something else."""
    value = json_body(response)
    return value if isinstance(value, dict) else {}


def json_body(response: HttpResponse) -> Any:
    """The JSON in an answer; `None` if it holds none that is of use."""
    try:
        value: Any = json.loads(response.body)
        # Half of a pair of surrogates fits into no request.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def printable(words: object, otherwise: str) -> str:
    """Foreign text for a message: of one line, on any terminal, and without secrets.

    Args:
        words: What the server said, if it did.
        otherwise: What to say if it said nothing.
    """
    text = words if isinstance(words, str) else ""
    shown = "".join(one if one.isprintable() else " " for one in text[:_LONGEST])
    return redact(shown).strip() or otherwise
