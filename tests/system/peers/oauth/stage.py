"""The participants of a sign-in: an MCP server, an authorization server, and a person."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import requests

import syncmcp
from syncmcp.auth import MemoryStore, OAuth
from syncmcp.testing import Server
from tests.system.peers.oauth.guarded import guarded
from tests.system.peers.oauth.person import Person, anywhere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from requests.auth import AuthBase

    from tests.system.peers.launch import HttpServer
    from tests.system.peers.oauth.guarded import Guard, Proofs

AN_HOUR = 3600.0
PATIENCE = 30.0


class Stage(NamedTuple):
    """An MCP server, its authorization server, and a person who signs in there."""

    guard: Guard
    issuer: HttpServer
    person: Person
    store: MemoryStore
    before: int

    def auth(self) -> OAuth:
        """Return the `OAuth` of the program."""
        return OAuth(allow=anywhere, receiver=self.person.receiver(), store=self.store)

    def connect(self, auth: AuthBase) -> syncmcp.Client:
        """Open a client of the MCP server."""
        return syncmcp.connect(syncmcp.Http(self.guard.url, auth=auth))

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of this name that the authorization server has logged."""
        return [event for event in notes(self.issuer)[self.before :] if event["event"] == name]

    def an_hour_passes(self) -> None:
        """Move the clocks of both servers, but not that of the client."""
        self.guard.ahead += AN_HOUR
        set_clock(self.issuer, self.guard.ahead)


def notes(issuer: HttpServer) -> list[dict[str, Any]]:
    """Return all events that the authorization server has logged."""
    lines = issuer.output().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"event"')]


def set_clock(issuer: HttpServer, ahead: float) -> None:
    """Set the authorization server's clock this many seconds ahead."""
    url = f"{issuer.url}/clock?ahead={ahead}"
    requests.get(url, timeout=PATIENCE).raise_for_status()


@contextmanager
def staged(issuer: HttpServer, proofs: Proofs | None = None) -> Iterator[Stage]:
    """Provide the participants of a sign-in; with `proofs`, tokens are bound to keys."""
    before = len(notes(issuer))
    with guarded(notebook(), issuer.url, proofs) as guard, closing(Person()) as person:
        yield Stage(guard, issuer, person, MemoryStore(), before)


def notebook() -> Server:
    """Return a server with the tools `read` and `write`."""
    server = Server("notebook")
    server.tool(name="read")(lambda: "a line")
    server.tool(name="write")(lambda: "written")
    return server
