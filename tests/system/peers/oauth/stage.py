"""What a login needs: a server, one that says who may use it, and a person."""

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
    """An MCP server, the authorization server that it trusts, and a person who signs in there."""

    guard: Guard
    issuer: HttpServer
    person: Person
    store: MemoryStore
    before: int

    def auth(self) -> OAuth:
        """What the program signs in with."""
        return OAuth(allow=anywhere, receiver=self.person.receiver(), store=self.store)

    def connect(self, auth: AuthBase) -> syncmcp.Client:
        """Opens a client."""
        return syncmcp.connect(syncmcp.Http(self.guard.url, auth=auth))

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the authorization server has noted under this name."""
        return [event for event in notes(self.issuer)[self.before :] if event["event"] == name]

    def an_hour_passes(self) -> None:
        """Moves the clocks of both servers; ours stands still."""
        self.guard.ahead += AN_HOUR
        set_clock(self.issuer, self.guard.ahead)


def notes(issuer: HttpServer) -> list[dict[str, Any]]:
    """All that the authorization server has noted."""
    lines = issuer.output().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"event"')]


def set_clock(issuer: HttpServer, ahead: float) -> None:
    """Lets the authorization server's clock be so many seconds ahead."""
    url = f"{issuer.url}/clock?ahead={ahead}"
    requests.get(url, timeout=PATIENCE).raise_for_status()


@contextmanager
def staged(issuer: HttpServer, proofs: Proofs | None = None) -> Iterator[Stage]:
    """Everything that a login needs; with `proofs`, one with a key."""
    before = len(notes(issuer))
    with guarded(notebook(), issuer.url, proofs) as guard, closing(Person()) as person:
        yield Stage(guard, issuer, person, MemoryStore(), before)


def notebook() -> Server:
    """A server with something to read and something to write."""
    server = Server("notebook")
    server.tool(name="read")(lambda: "a line")
    server.tool(name="write")(lambda: "written")
    return server
