"""Real servers that do not declare what they handle."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import syncmcp
from syncmcp import ChangeEvent, MethodNotFound, NotSupported
from syncmcp.types import PromptReference
from tests.system.peers.launch import http_server
from tests.system.peers.peers import ROOT, Program
from tests.system.peers.setup_peers import venv_python

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

PATIENCE = 30.0
FRUIT = "stock://fruit"


def command(venv: str) -> tuple[str, ...]:
    return (str(venv_python(venv)), "-m", "tests.system.peers.servers.undeclaring_1")


@contextmanager
def connected(transport: str, venv: str = "mcp-1.30", **options: Any) -> Iterator[syncmcp.Client]:
    """A client of the server on one version of the official SDK."""
    if transport == "stdio":
        target = syncmcp.Stdio(*command(venv), "stdio", cwd=ROOT)
        with syncmcp.connect(target, **options) as client:
            yield client
        return
    program = Program((*command(venv), "{port}"), path="/mcp/")
    with http_server(program) as http, syncmcp.connect(http.url, **options) as client:
        yield client


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.requirement("M-12")
def test_the_official_sdk_1_30_tells_of_a_resource_though_it_declares_that_it_does_not(
    transport: str,
) -> None:
    with connected(transport) as client:
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


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_client_can_be_told_to_try_whatever_the_official_sdk_does_not_declare(
    transport: str,
) -> None:
    with connected(transport, undeclared="try") as client:
        with client.listen(tools=True, uris=[FRUIT], timeout=PATIENCE, stop_after=2) as events:
            client.call_tool("stir")
            assert list(events) == [ChangeEvent("tools"), ChangeEvent("resource", FRUIT)]
        with pytest.raises(MethodNotFound):
            client.list_prompts()
        assert client.list_tools().tools[0].name == "stir"


def test_the_official_sdk_1_9_completes_though_it_does_not_declare_that() -> None:
    fruit = PromptReference(name="fruit")
    with connected("stdio", "mcp-1.9") as client:
        with pytest.raises(NotSupported, match="the capability completions"):
            client.complete(fruit, "name", "p")
        found = client.complete(fruit, "name", "p", undeclared="try")
        assert found.completion.values == ["pear"]
