"""Real servers that do not declare what they handle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from syncmcp import ChangeEvent, MethodNotFound, NotSupported
from syncmcp.types import PromptReference
from tests.system.peers.launch import client_of
from tests.system.peers.peers import HTTP, STDIO, own_server
from tests.system.peers.setup_peers import venv_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.system.peers.peers import Program

pytestmark = pytest.mark.peer

PATIENCE = 30.0
FRUIT = "stock://fruit"


def server(venv: str = "mcp-1.30") -> Mapping[str, Program]:
    """The server on one version of the official SDK."""
    return own_server("undeclaring_1", venv_python(venv), "/mcp/")


@pytest.mark.parametrize("transport", [STDIO, HTTP])
@pytest.mark.requirement("M-12")
def test_the_official_sdk_1_30_tells_of_a_resource_though_it_declares_that_it_does_not(
    transport: str,
) -> None:
    with client_of(server()[transport]) as client:
        resources = client.server.capabilities.resources
        assert resources is not None
        assert resources.subscribe is False
        with pytest.raises(NotSupported, match=r"resources\.subscribe \(undeclared="):
            client.listen(uris=[FRUIT])
        with client.listen(uris=[FRUIT], undeclared="try", timeout=PATIENCE) as events:
            assert client.call_tool("stir").text == "1 subscribed"
            assert next(events) == ChangeEvent("resource", FRUIT)
        assert client.call_tool("stir").text == "0 subscribed"
        client.subscribe_resource(FRUIT, undeclared="try")
        assert client.call_tool("stir").text == "1 subscribed"
        client.request("resources/unsubscribe", {"uri": FRUIT})
        assert client.call_tool("stir").text == "0 subscribed"


@pytest.mark.parametrize("transport", [STDIO, HTTP])
def test_a_client_can_be_told_to_try_whatever_the_official_sdk_does_not_declare(
    transport: str,
) -> None:
    with client_of(server()[transport], undeclared="try") as client:
        with client.listen(tools=True, uris=[FRUIT], timeout=PATIENCE, stop_after=2) as events:
            client.call_tool("stir")
            assert list(events) == [ChangeEvent("tools"), ChangeEvent("resource", FRUIT)]
        with pytest.raises(MethodNotFound):
            client.list_prompts()
        assert client.list_tools().tools[0].name == "stir"


def test_the_official_sdk_1_9_completes_though_it_does_not_declare_that() -> None:
    fruit = PromptReference(name="fruit")
    with client_of(server("mcp-1.9")[STDIO]) as client:
        with pytest.raises(NotSupported, match="the capability completions"):
            client.complete(fruit, "name", "p")
        found = client.complete(fruit, "name", "p", undeclared="try")
        assert found.completion.values == ["pear"]
