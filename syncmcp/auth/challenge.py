"""What a server that refuses a request says about it: ``WWW-Authenticate`` (RFC 9110 §11.6.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Challenge", "Demand", "demand", "parse"]

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
class Demand:
    """What the Bearer and DPoP challenges of a response want (RFC 6750 §3, RFC 9728 §5.1).

    Attributes:
        resource_metadata: Where the metadata of the resource are, if that is said.
        scope: The scope that the request needs, word for word, if that is said.
        error: What is wrong with the token, if that is said.
    """

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None


def parse(header: str) -> list[Challenge]:
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


def demand(header: str | None) -> Demand | None:
    """What a response demands, or `None` if it has no challenge that a token answers."""
    found = [one.parameters for one in parse(header or "") if one.scheme in _SCHEMES]
    if not found:
        return None

    def first(name: str) -> str | None:
        return next((one[name] for one in found if one.get(name)), None)

    return Demand(first("resource_metadata"), first("scope"), first("error"))
