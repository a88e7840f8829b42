"""A server with a list of several pages, with cursors for one session; and ways to read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncmcp import Client
from syncmcp.testing import RpcError, Server, ToolContext
from tests.support.stage import PATIENCE

SIZE = 2
# What is on a list, and what is there later.
OLD, NEW = list("abcdef"), list("xbydzfg")


class Library:
    """A list with cursors that are good in one session, and sessions that end.

    Attributes:
        server: The server.
        keys: What is on the list.
        then: What is there once a session has ended.
        asked: Where the pages were that were asked for, in order.
        lifetimes: How long a page is kept, in milliseconds, by where it begins, if not a minute.
        broken: Whether later pages fail.
        foreign: How many of them came with a cursor of another session.
        lenient: Whether such a page is given all the same.
        losses: How often a session still ends when the page at `SIZE * 2` is asked for.
        end_sessions: Ends them; `None` where there are none.
    """

    def __init__(self, scope: str = "private") -> None:
        self.server = Server("library", capabilities={"tools": {}})
        self.server.on_request("tools/list", self.page)
        self.keys, self.then = OLD, NEW
        self.asked: list[int] = []
        self.lifetimes: dict[int, int] = {}
        self.broken = self.lenient = False
        self.foreign = self.losses = self._volume = 0
        self.end_sessions: Callable[[], object] | None = None
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

    def page(self, params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Answer one request, on a worker thread."""
        volume, _, start = params.get("cursor", f"{self._volume}:0").partition(":")
        begin, end = int(start), int(start) + SIZE
        self.asked.append(begin)
        if begin and self.broken:
            raise RpcError(-32603, "broken")
        if volume != str(self._volume):
            self.foreign += 1
            if not self.lenient:
                raise RpcError(-32602, "Invalid cursor")
        result: dict[str, Any] = {
            "tools": [{"name": key, "inputSchema": {}} for key in self.keys[begin:end]],
            "ttlMs": self.lifetimes.get(begin, 60_000),
            "cacheScope": self._scope,
        }
        if end < len(self.keys):
            result["nextCursor"] = f"{self._volume}:{end}"
        return result


def blocking(client: Client, **options: Any) -> list[str]:
    """The names of a whole list."""
    result = client.list_tools(**options)
    assert result.next_cursor is None
    return [tool.name for tool in result.tools]


def future(client: Client, **options: Any) -> list[str]:
    """The same, by a future."""
    return [tool.name for tool in client.list_tools.future(**options).result(PATIENCE).tools]


def iterated(client: Client, **options: Any) -> list[str]:
    """The same, by an iterator."""
    return [tool.name for tool in client.iter_tools(**options)]


Way = Callable[..., "list[str]"]
every_way = pytest.mark.parametrize("way", [blocking, future, iterated])
