"""A server with lists of several pages, with cursors for one session; and ways to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import pytest

from syncmcp import Client
from syncmcp.testing import RpcError, Server, ToolContext
from tests.support.stage import PATIENCE

SIZE = 2
# What is on a list, and what is there later.
OLD, NEW = list("abcdef"), list("xbydzfg")


class Listing(NamedTuple):
    """One list of a server: the name of its items, one of them by its key, and what names it."""

    items: str
    describe: Callable[[str], dict[str, Any]]
    name: str
    key: str


DAY = "2026-01-01T00:00:00Z"
TASK = {"status": "working", "createdAt": DAY, "lastUpdatedAt": DAY, "ttl": None}
LISTINGS: Mapping[str, Listing] = {
    "tools/list": Listing("tools", lambda key: {"name": key, "inputSchema": {}}, "tools", "name"),
    "resources/list": Listing(
        "resources", lambda key: {"name": "same", "uri": key}, "resources", "uri"
    ),
    "resources/templates/list": Listing(
        "resourceTemplates",
        lambda key: {"name": "same", "uriTemplate": key},
        "resource_templates",
        "uri_template",
    ),
    "prompts/list": Listing("prompts", lambda key: {"name": key}, "prompts", "name"),
    "tasks/list": Listing("tasks", lambda key: {**TASK, "taskId": key}, "tasks", "task_id"),
}


class Library:
    """Lists with cursors that are good in one session, and sessions that end.

    Attributes:
        server: The server.
        keys: What is on each list.
        then: What is there once a session has ended.
        asked: Where the pages were that were asked for, in order.
        lifetimes: How long a page is kept, in milliseconds, by where it begins, if not a minute.
        broken: Whether later pages fail.
        foreign: How many of them came with a cursor of another session.
        lenient: Whether such a page is given all the same.
        losses: How often a session still ends when the page at `SIZE * 2` is asked for.
        end_sessions: Ends them; `None` where there are none.
        held: Waited for, if there is one, before the first page is given again.
    """

    def __init__(self, scope: str = "private") -> None:
        offered: dict[str, Any] = {
            "tools": {},
            "resources": {},
            "prompts": {},
            "tasks": {"list": {}, "requests": {"tools": {"call": {}}}},
        }
        self.server = Server("library", capabilities=offered)
        for method in LISTINGS:
            self.server.on_request(method, partial(self.page, LISTINGS[method]))
        self.keys, self.then = OLD, NEW
        self.asked: list[int] = []
        self.lifetimes: dict[int, int] = {}
        self.broken = self.lenient = False
        self.foreign = self.losses = self._volume = 0
        self.end_sessions: Callable[[], object] | None = None
        self.held: Event | None = None
        self._scope = scope

    def lose(self) -> None:
        """End the session, and with it, or without one, what its cursors are good for."""
        self.keys = self.then
        self._volume += 1
        if self.end_sessions is not None:
            self.end_sessions()

    def comes(self, cursor: object) -> bool:
        """A page is asked for; return whether that ends the session."""
        if not self.losses or not isinstance(cursor, str) or not cursor.endswith(f":{SIZE * 2}"):
            return False
        self.losses -= 1
        self.lose()
        return self.end_sessions is not None

    def page(
        self, listing: Listing, params: dict[str, Any], context: ToolContext
    ) -> dict[str, Any]:
        """Answer one request, on a worker thread."""
        volume, _, start = params.get("cursor", f"{self._volume}:0").partition(":")
        begin, end = int(start), int(start) + SIZE
        self.asked.append(begin)
        if begin == 0 and self.asked.count(0) > 1 and self.held is not None:
            self.held.wait(PATIENCE)
        if begin and self.broken:
            raise RpcError(-32603, "broken")
        if volume != str(self._volume):
            self.foreign += 1
            if not self.lenient:
                raise RpcError(-32602, "Invalid cursor")
        result: dict[str, Any] = {
            listing.items: [listing.describe(key) for key in self.keys[begin:end]],
            "ttlMs": self.lifetimes.get(begin, 60_000),
            "cacheScope": self._scope,
        }
        if end < len(self.keys):
            result["nextCursor"] = f"{self._volume}:{end}"
        return result


def blocking(client: Client, method: str = "tools/list", **options: Any) -> list[str]:
    """The keys of a whole list."""
    listing = LISTINGS[method]
    result: Any = getattr(client, f"list_{listing.name}")(**options)
    assert result.next_cursor is None
    return [getattr(item, listing.key) for item in getattr(result, listing.name)]


def future(client: Client, method: str = "tools/list", **options: Any) -> list[str]:
    """The same, by a future."""
    listing = LISTINGS[method]
    pending: Any = getattr(client, f"list_{listing.name}").future(**options)
    return [getattr(item, listing.key) for item in getattr(pending.result(PATIENCE), listing.name)]


def iterated(client: Client, method: str = "tools/list", **options: Any) -> list[str]:
    """The same, by an iterator."""
    listing = LISTINGS[method]
    items: Iterator[Any] = getattr(client, f"iter_{listing.name}")(**options)
    return [getattr(item, listing.key) for item in items]


Way = Callable[..., "list[str]"]
every_way = pytest.mark.parametrize("way", [blocking, future, iterated])
