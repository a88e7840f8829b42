"""Extensions: off until they are switched on, without effect until both sides have them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import syncmcp
from syncmcp import Mode, NotSupported
from syncmcp.testing import Server, ToolContext
from tests.support.scripts import REVISIONS
from tests.support.stage import Wire, rotated

MAPS: dict[str, Any] = {"com.example/maps": {"scale": 3}}
THEIRS: dict[str, Any] = {"com.example/maps": {"tiles": True}, "com.example/songs": {}}


def server() -> Server:
    made = Server("extended", capabilities={"extensions": THEIRS})

    @made.tool()
    def declared(context: ToolContext) -> dict[str, Any]:
        """What the client declares."""
        return {"extensions": context.client_capabilities.get("extensions", {})}

    return made


@rotated
@pytest.mark.requirement("VER-18", "VER-20")
def test_an_extension_counts_where_both_sides_have_it(wire: Wire) -> None:
    with wire.connect(server(), extensions={**MAPS, "com.example/films": {}}) as client:
        seen = client.call_tool("declared").data
        assert seen == {"extensions": {**MAPS, "com.example/films": {}}}
        assert client.server.extensions == {"com.example/maps": {"tiles": True}}
        assert client.server.extension("com.example/maps") == {"tiles": True}
        with pytest.raises(NotSupported, match="the server has no extension com"):
            client.server.extension("com.example/films")
        with pytest.raises(NotSupported, match="not enabled: see extensions="):
            client.server.extension("com.example/songs")


@pytest.mark.requirement("VER-20")
@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_is_declared_that_was_not_switched_on(revision: Mode) -> None:
    with syncmcp.connect(server(), mode=revision) as client:
        assert client.call_tool("declared").text == '{"extensions":{}}'
        assert client.server.extensions == {}
        assert client.server.capabilities.extensions == THEIRS


@pytest.mark.parametrize("stated", [None, [], "x", {"com.example/maps": None}])
def test_a_server_that_states_nonsense_has_no_extension(stated: Any) -> None:
    strange = Server("strange", capabilities={"extensions": stated})
    with syncmcp.connect(strange, extensions=MAPS) as client:
        assert client.server.extensions == {}


@pytest.mark.requirement("VER-17")
def test_extensions_are_checked_at_once_and_survive_a_pickle() -> None:
    with pytest.raises(syncmcp.UsageError, match="'maps'"):
        syncmcp.Client("http://127.0.0.1:9/", extensions={"maps": {}})
    client = syncmcp.Client("http://127.0.0.1:9/", extensions=MAPS)
    assert pickle.loads(pickle.dumps(client))._configuration()[1]["extensions"] == MAPS
