"""What the steps of signing in ask their driver for, and what they get; no I/O.

Steps are generators. They yield a `Fetch`, are sent a `Fetched`, and return what came of it all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Fetch:
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
    renew: Callable[[], Fetch] | None = None

    def __repr__(self) -> str:
        return f"<Fetch {self.method}>"  # the rest may hold secrets


@dataclass(frozen=True, repr=False)
class Fetched:
    """The answer to a `Fetch`.

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


FetchSteps: TypeAlias = Generator[Fetch, Fetched, T]
"""Steps that return a `T`."""
