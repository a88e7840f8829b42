"""Invalid arguments of calls and options: errors name them before anything is sent."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp import Client
from syncmcp.testing import Server
from tests.support.scripts import OLD


@pytest.fixture
def server() -> Server:
    server = Server("shop")
    server.add_tool(lambda text: text, name="echo")
    return server


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with syncmcp.connect(server, mode=OLD) as client:
        yield client


def sent(server: Server) -> int:
    return sum(server.stats.requests.values())


def in_a_batch(call: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a function that makes the call in a batch, which must raise the same error."""

    def collect(client: Any) -> None:
        with client.batch() as batch:
            call(batch)

    return collect


TYPOS: list[Callable[[Any], object]] = [
    lambda client: client.call_tool("echo", {"text": "a"}, timout=3),
    lambda client: client.call_tool.future("echo", {"text": "a"}, timout=3),
    lambda client: client.call_tool.stream("echo", {"text": "a"}, timout=3),
    lambda client: client.request("tools/list", timout=3),
    lambda client: client.request.future("tools/list", timout=3),
    lambda client: client.task("some id", timout=3),
    lambda client: client.notify("notifications/acme", timout=3),
    lambda client: client.iter_tools(timout=3),
    in_a_batch(lambda batch: batch.call_tool("echo", timout=3)),
]


def test_an_unknown_option_is_a_type_error(client: Any, server: Server) -> None:
    before = sent(server)
    for typo in TYPOS:
        with pytest.raises(TypeError, match="timout"):
            typo(client)
        assert sent(server) == before


PLAIN = "must be a plain function, not a coroutine"


async def coroutine(*_: Any) -> None: ...


# A part of the error's text, and the call.
WRONG: list[tuple[str, Callable[[Any], object]]] = [
    ("name", lambda client: client.call_tool(None)),
    ("name", lambda client: client.call_tool.stream("", {})),
    ("arguments", lambda client: client.call_tool("echo", "a")),
    ("uri must be a", lambda client: client.read_resource("")),
    ("uri must be a", lambda client: client.read_resource(5)),
    ("uri must be a", lambda client: client.begin_read(b"acme:a")),
    ("name", lambda client: client.get_prompt("")),
    ("arguments", lambda client: client.get_prompt("greet", {"to": 1})),
    ("arguments", lambda client: client.get_prompt("greet", {1: "Ann"})),
    ("arguments", lambda client: client.get_prompt("greet", {"to": None})),
    ("arguments", lambda client: client.begin_prompt("greet", "to")),
    ("method", lambda client: client.notify(None)),
    ("method", lambda client: client.request("")),
    ("params", lambda client: client.request("acme/do", [1])),
    ("result", lambda client: client.request("acme/do", result=str)),
    ("ref", lambda client: client.complete({"type": "ref/prompt", "name": "a"}, "b", "c")),
    ("cancel", lambda client: client.ping(cancel=5)),
    ("meta", lambda client: client.ping(meta=5)),
    ("headers", lambda client: client.ping(headers="a: b")),
    ("timeout", lambda client: client.ping(timeout=-1)),
    ("idle_timeout", lambda client: client.ping(idle_timeout=math.nan)),
    ("on_progress", lambda client: client.ping(on_progress=5)),
    ("max_pages", lambda client: client.list_tools(max_pages=0)),
    ("undeclared", lambda client: client.list_prompts(undeclared="maybe")),
    ("undeclared must be", lambda client: client.listen(uris=["a:1"], undeclared=True)),
    ("loud", lambda client: client.set_log_level("loud")),
    ("INFO", lambda client: client.list_tools(log_level="INFO")),
    ("idempotent", lambda client: client.call_tool("echo", idempotent="yes")),
    ("JSON", lambda client: client.call_tool("echo", {"text": math.nan})),
    ("sent as JSON", lambda client: client.call_tool("echo", {"text": object()})),
    ("surrogate|UTF", lambda client: client.call_tool("echo", {"text": "\ud800"})),
    ("pass what to listen to", lambda client: client.listen()),
    ("pass what to listen to", lambda client: client.listen(uris=[])),
    ("uris must be a list of URIs", lambda client: client.listen(uris="a:1")),
    ("uri must be a non-empty string", lambda client: client.listen(uris=[5])),
    ("timeout must be 0 or more", lambda client: client.listen(tools=True, timeout=-1)),
    ("stop_after must be a whole number", lambda client: client.listen(tools=True, stop_after=0)),
    (f"handler {PLAIN}", lambda client: client.on_tools_changed(coroutine)),
    (f"on_error {PLAIN}", lambda client: client.on_tools_changed(print, on_error=coroutine)),
    ("debounce must be a number", lambda client: client.on_tools_changed(print, debounce=None)),
    (
        "debounce must be a number of seconds, 0 or more, not -1",
        lambda client: client.on_tools_changed(print, debounce=-1),
    ),
    ("uri must be a non-empty string", lambda client: client.on_resource_updated("", print)),
    ("handler must be callable", lambda client: client.on_prompts_changed(5)),
    ("name", lambda client: client.start_task("")),
    ("ttl", lambda client: client.start_task("echo", ttl=-1)),
    ("arguments", lambda client: client.start_task("echo", 5)),
    ("id", lambda client: client.task("")),
    ("tool", lambda client: client.task("x", "")),
    ("timeout is an option of the calls of", lambda client: client.task("x", timeout=3)),
    ("timeout", lambda client: client.task("x").wait(-1)),
    ("max_size", lambda client: client.batch(max_size=0)),
    ("timeout", lambda client: client.batch(timeout=-1)),
    ("oversize", lambda client: client.batch(oversize="what")),
    ("name", in_a_batch(lambda batch: batch.call_tool(""))),
    ("timeout", in_a_batch(lambda batch: batch.call_tool("echo", timeout=-1))),
    ("result", in_a_batch(lambda batch: batch.request("a", result=7))),
]


@pytest.mark.requirement("PMT-01")
def test_a_wrong_value_is_named_by_the_error(client: Any, server: Server) -> None:
    before = sent(server)
    for named, call in WRONG:
        with pytest.raises(syncmcp.UsageError, match=named):
            call(client)
        assert sent(server) == before, named
    with client.listen(tools=True) as events:
        with pytest.raises(syncmcp.UsageError, match=f"{PLAIN} function"):
            events.run_in_thread(coroutine)
        with pytest.raises(syncmcp.UsageError, match=f"on_error {PLAIN}"):
            events.run_in_thread(print, on_error=coroutine)


# Invalid values of options of a client and of `Retry`.
SENSELESS: dict[str, tuple[Any, ...]] = {
    "max_in_flight": (0, "a"),
    "max_pages": (True,),
    "client_info": ("me",),
    "timeout": ("soon",),
    "on_log": (5,),
    "undeclared": ("maybe",),
    "validate_output": ("yes", None),
    "validate_input": (1,),
    "retry": (3,),
    "ping_interval": (0, -1),
    "human_timeout": (-1, math.nan, "x", True),
    **dict.fromkeys(("max_handlers", "max_questions", "max_rounds"), (0, -1, 1.5, "x", True, None)),
}
OF_RETRIES = {"attempts": (0, 2.5), "budget": (-1,), "pause": (None,), "longest_pause": ("1",)}


def test_settings_that_make_no_sense_are_refused() -> None:
    makes: list[tuple[Any, dict[str, Any]]] = [
        (partial(Client, "https://example.com/mcp"), SENSELESS),
        (syncmcp.Retry, OF_RETRIES),
    ]
    for make, table in makes:
        for option, values in table.items():
            for value in values:
                with pytest.raises(syncmcp.UsageError, match=option):
                    make(**{option: value})


def test_every_option_of_a_call_is_described_where_help_shows_it() -> None:
    described = inspect.getdoc(syncmcp.CallOptions) or ""
    for name in syncmcp.CallOptions.__annotations__:
        assert f"{name}: " in described
