"""What a caller gets wrong is said at the door, by name, before anything is sent."""

from __future__ import annotations

import concurrent.futures
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import syncmcp
from syncmcp import Client
from syncmcp.testing import Server
from tests.support.scripts import OLD
from tests.support.stage import Stage


@pytest.fixture
def server() -> Server:
    server = Server("shop")

    @server.tool()
    def echo(text: str) -> str:
        return text

    return server


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with syncmcp.connect(server, mode=OLD) as client:
        yield client


def sent(server: Server) -> int:
    return sum(server.stats.requests.values())


TYPOS: list[Callable[[Any], object]] = [
    lambda client: client.call_tool("echo", {"text": "a"}, timout=3),
    lambda client: client.call_tool.future("echo", {"text": "a"}, timout=3),
    lambda client: client.request("tools/list", timout=3),
    lambda client: client.request.future("tools/list", timout=3),
    lambda client: client.notify("notifications/acme", timout=3),
    lambda client: client.iter_tools(timout=3),
]


@pytest.mark.parametrize("typo", TYPOS, ids=map(str, range(len(TYPOS))))
def test_an_unknown_option_is_a_type_error(
    typo: Callable[[Any], object], client: Any, server: Server
) -> None:
    before = sent(server)
    with pytest.raises(TypeError, match="timout"):
        typo(client)
    assert sent(server) == before


WRONG: dict[str, Callable[[Any], object]] = {
    "name": lambda client: client.call_tool(None),
    "arguments": lambda client: client.call_tool("echo", "a"),
    "uri": lambda client: client.read_resource(5),
    "method": lambda client: client.notify(None),
    "params": lambda client: client.request("acme/do", [1]),
    "result": lambda client: client.request("acme/do", result=str),
    "ref": lambda client: client.complete({"type": "ref/prompt", "name": "a"}, "b", "c"),
    "cancel": lambda client: client.ping(cancel=5),
    "meta": lambda client: client.ping(meta=5),
    "headers": lambda client: client.ping(headers="a: b"),
    "timeout": lambda client: client.ping(timeout=-1),
    "idle_timeout": lambda client: client.ping(idle_timeout=math.nan),
    "on_progress": lambda client: client.ping(on_progress=5),
    "max_pages": lambda client: client.list_tools(max_pages=0),
    "undeclared": lambda client: client.list_prompts(undeclared="maybe"),
    "undeclared is": lambda client: client.listen(uris=["a:1"], undeclared=True),
    "loud": lambda client: client.set_log_level("loud"),
    "INFO": lambda client: client.list_tools(log_level="INFO"),
    "idempotent": lambda client: client.call_tool("echo", idempotent="yes"),
    "JSON": lambda client: client.call_tool("echo", {"text": math.nan}),
    "sent as JSON": lambda client: client.call_tool("echo", {"text": object()}),
    "surrogate|UTF": lambda client: client.call_tool("echo", {"text": "\ud800"}),
}


@pytest.mark.parametrize("named", WRONG)
def test_a_wrong_value_is_named_by_the_error(named: str, client: Any, server: Server) -> None:
    before = sent(server)
    with pytest.raises(syncmcp.UsageError, match=named):
        WRONG[named](client)
    assert sent(server) == before


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_in_flight", 0),
        ("max_in_flight", "a"),
        ("max_pages", True),
        ("client_info", "me"),
        ("timeout", "soon"),
        ("on_log", 5),
        ("undeclared", "maybe"),
    ],
)
def test_a_client_refuses_settings_that_make_no_sense(option: str, value: object) -> None:
    settings: Any = {option: value}
    with pytest.raises(syncmcp.UsageError, match=option):
        Client("https://example.com/mcp", **settings)


def test_a_cancelled_future_raises_the_librarys_own_error_with_its_facts() -> None:
    with syncmcp.connect(Stage().server) as client:
        future = client.call_tool.future("hold")
        assert future.cancel()
        for ask in (future.result, future.exception):
            with pytest.raises(syncmcp.RequestCancelled) as caught:
                ask(0)
            assert isinstance(caught.value, concurrent.futures.CancelledError)
            assert (caught.value.server, caught.value.method) == ("stage", "tools/call")


def test_the_signature_of_connect_is_that_of_a_client() -> None:
    signature = inspect.signature(syncmcp.connect)
    assert signature.return_annotation == "Client"
    assert list(signature.parameters) == list(inspect.signature(Client).parameters)


def test_every_option_of_a_call_is_described_where_help_shows_it() -> None:
    described = inspect.getdoc(syncmcp.CallOptions) or ""
    for name in syncmcp.CallOptions.__annotations__:
        assert f"{name}: " in described
