"""Code that is never run: `make types` checks which calls the type checkers accept.

A line with `type: ignore` must be an error: the type checkers report unused ignores.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typing_extensions import assert_type

import syncmcp
from syncmcp import Client, HandlerContext, RequestFuture, auth, types
from syncmcp.cache import CacheStore, MemoryCache


class Stock(BaseModel):
    """A result model of the program."""

    pieces: int


def results(client: Client) -> None:
    """The types of the results of calls."""
    assert_type(client.call_tool("add", {"a": 1}), types.CallToolResult)
    assert_type(client.list_tools(), types.ListToolsResult)
    assert_type(client.list_tools(cursor=None, max_pages=3, timeout=1.5), types.ListToolsResult)
    (prompt,) = client.list_prompts().prompts
    assert_type(client.get_prompt(prompt, {"a": "b"}), types.GetPromptResult)
    assert_type(client.complete(prompt, "a", "b", {"c": "d"}), types.CompleteResult)
    (template,) = client.list_resource_templates().resource_templates
    uri = template.expand({"a": 1, "b": ["c", 2], "d": {"e": "f"}, "g": None})
    assert_type(template.match(uri), dict[str, str] | None)
    (link,) = client.call_tool("t").links
    assert_type(client.read_resource(link), types.ReadResourceResult)
    assert_type(client.read_resource.future(link), RequestFuture[types.ReadResourceResult])
    assert_type(client.iter_tools(), Iterator[types.Tool])
    assert_type(client.request("x/y"), dict[str, Any])
    assert_type(client.request("x/y", {"a": 1}, result=Stock), Stock)
    assert_type(client.call_tool("add").raise_for_error(), types.CallToolResult)
    assert_type(client.call_tool("add").parse(Stock), Stock)
    client.ping(timeout=None, idle_timeout=3, cancel=threading.Event())
    assert_type(client.list_tools(cache="refresh"), types.ListToolsResult)
    client.list_tools(cache=None)  # type: ignore[arg-type]


def futures(client: Client) -> None:
    """The types of futures and their results."""
    assert_type(client.call_tool.future("add", {"a": 1}), RequestFuture[types.CallToolResult])
    assert_type(client.list_tools.future(cursor="x").result(3), types.ListToolsResult)
    assert_type(client.request.future("x/y", result=Stock).result(), Stock)
    future: concurrent.futures.Future[types.CallToolResult] = client.call_tool.future("add")
    asyncio.wrap_future(future)


def opening() -> None:
    """`connect` has the arguments of `Client`, and returns a client."""
    assert_type(syncmcp.connect("https://example.com/mcp", mode="legacy", timeout=3), Client)
    with syncmcp.connect("https://example.com/mcp") as client:
        assert_type(client, Client)
    syncmcp.connect()  # type: ignore[call-arg]
    syncmcp.connect(7)  # type: ignore[arg-type]
    syncmcp.connect("https://example.com/mcp", retries=3)  # type: ignore[call-arg]
    syncmcp.connect("https://example.com/mcp", "legacy")  # type: ignore[call-arg]
    store: CacheStore = MemoryCache()
    syncmcp.connect("https://example.com/mcp", cache=store)
    syncmcp.connect("https://example.com/mcp", cache={})  # type: ignore[arg-type]


def handler(params: dict[str, Any], context: HandlerContext) -> dict[str, Any]:
    """A correct handler of an own method."""
    assert_type(context.client, Client)
    return params


def handlers(client: Client) -> None:
    """Handlers and callbacks: correct ones and wrong ones."""
    client.on_request("x/y", handler)
    client.on_notification("x/y", lambda params: print(params["a"]))
    client.on_notification("x/y", handler)  # type: ignore[arg-type]
    client.call_tool("add", on_progress=lambda progress, total, message: None)
    client.call_tool("add", on_progress=lambda progress: None)  # type: ignore[arg-type]


def mistakes(client: Client) -> None:
    """Wrong calls, which type checkers report."""
    client.call_tool()  # type: ignore[call-arg]
    client.call_tool("add", [1])  # type: ignore[arg-type]
    client.call_tool("add", retries=3)  # type: ignore[call-arg]
    client.call_tool("add", log_level=7)  # type: ignore[arg-type]
    client.call_tool.future()  # type: ignore[call-arg]
    client.call_tool.future("add", {"a": 1}, 5)  # type: ignore[arg-type, call-arg]
    client.read_resource(uri=b"acme://a")  # type: ignore[arg-type]
    client.get_prompt("p", {"a": 1})  # type: ignore[dict-item]
    client.request("x/y", result=int)  # type: ignore[type-var]
    client.tools()  # type: ignore[attr-defined]


def answer_form(
    request: types.ElicitRequestFormParams, context: HandlerContext
) -> types.ElicitResult:
    """A form handler."""
    assert_type(context.server, syncmcp.ConnectedServer)
    assert_type(context.time_left(), float | None)
    return types.ElicitResult.accept({"name": request.message, "age": 3, "tags": ["a"]})


def go_to(request: types.ElicitRequestURLParams, context: HandlerContext) -> types.ElicitResult:
    """A URL handler."""
    return types.ElicitResult.cancel() if request.url else types.ElicitResult.decline()


def complete(
    request: types.CreateMessageRequestParams, context: HandlerContext
) -> types.CreateMessageResult:
    """A sampling handler."""
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(text="x"), model="m"
    )


def where(context: HandlerContext) -> list[str]:
    """A roots handler."""
    return ["/tmp"]


class Model:
    """A sampling handler that is an object, and supports tools."""

    tools = True

    def __call__(
        self, request: types.CreateMessageRequestParams, context: HandlerContext
    ) -> types.CreateMessageResult:
        return complete(request, context)


async def complete_later(
    request: types.CreateMessageRequestParams, context: HandlerContext
) -> types.CreateMessageResult:
    """A coroutine function, which is no valid handler."""
    return complete(request, context)


def answering() -> None:
    """Handlers for each kind of question: correct ones and wrong ones."""
    Client("https://example.com/mcp", sampling=complete, elicitation=answer_form, roots=where)
    Client("https://example.com/mcp", sampling=Model(), roots=["/tmp", Path("/tmp")])
    Client("https://example.com/mcp", elicitation=syncmcp.Elicitation(answer_form, go_to))
    Client("https://example.com/mcp", approval=syncmcp.AllowAll(), trusted=True)
    Client("https://example.com/mcp", sampling=answer_form)  # type: ignore[arg-type]
    Client("https://example.com/mcp", sampling=complete_later)  # type: ignore[arg-type]
    Client("https://example.com/mcp", elicitation=complete)  # type: ignore[arg-type]
    Client("https://example.com/mcp", approval=syncmcp.AllowAll)  # type: ignore[arg-type]
    syncmcp.Elicitation(url=answer_form)  # type: ignore[arg-type]
    types.ElicitResult.accept({"name": None})  # type: ignore[dict-item]


def by_hand(client: Client) -> None:
    """The result of `begin_tool` is a result or questions, and `resume` continues the call."""
    started = client.begin_tool("book", can=("form",))
    assert_type(started, types.CallToolResult | syncmcp.InputRequired[types.CallToolResult])
    if isinstance(started, syncmcp.InputRequired):
        going_on = client.resume(started, {"k": types.ElicitResult.decline()})
        assert_type(going_on, types.CallToolResult | syncmcp.InputRequired[types.CallToolResult])
    client.begin_tool("book", can=("telepathy",))  # type: ignore[arg-type]
    client.call_tool("book", handlers=syncmcp.Handlers(sampling=complete))
    client.call_tool("book", handlers=complete)  # type: ignore[arg-type]


def batches(client: Client) -> None:
    """The methods of a batch have the arguments of those of a client, and return futures."""
    with client.batch(parallel=False, timeout=5, max_size=10, oversize="refuse") as batch:
        assert_type(batch.call_tool("a", {"b": 1}, timeout=3), RequestFuture[types.CallToolResult])
        assert_type(batch.list_tools(max_pages=2), RequestFuture[types.ListToolsResult])
        assert_type(batch.ping(), RequestFuture[None])
        assert_type(batch.request("a"), RequestFuture[dict[str, Any]])
        assert_type(batch.request("a", result=types.Tool), RequestFuture[types.Tool])
        batch.call_tool(7)  # type: ignore[arg-type]
        batch.call_tool("a", colour="red")  # type: ignore[call-arg]
        batch.request("a", result=7)  # type: ignore[call-overload]
    assert_type(batch.futures, tuple[RequestFuture[Any], ...])
    client.batch(oversize="drop")  # type: ignore[arg-type]


class OwnReceiver:
    """A receiver of the program, which uses only public names."""

    redirect_uri = "http://127.0.0.1:1/callback"

    def agree(self, request: auth.SignInRequest, deadline: auth.Deadline) -> bool:
        assert_type(request.page, str | None)
        assert_type(request.resource, str | None)
        return request.issuer in request.text

    def start(self, registered: Sequence[str] = ()) -> auth.Waiting:
        return self

    def receive(self, redirect: auth.Redirect, deadline: auth.Deadline) -> Mapping[str, str]:
        assert_type(deadline.remaining(), float | None)
        return {"state": redirect.state, "code": redirect.url}

    def __enter__(self) -> auth.Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there are no resources."""


def long_running(client: Client) -> None:
    """`start_task` and `task` return a `ToolTask`."""
    task = client.start_task("render", {"size": 1}, ttl=60, timeout=3)
    assert_type(task, syncmcp.ToolTask)
    assert_type(client.start_task.future("render"), RequestFuture[syncmcp.ToolTask])
    assert_type(client.task("id", "render"), syncmcp.ToolTask)
    client.start_task("render", wait=True)  # type: ignore[call-arg]


class OwnStore:
    """A token store of the program."""

    def load(self, key: str) -> dict[str, Any] | None:
        return None

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Do not store the value."""

    def lock(self, key: str, deadline: auth.Deadline) -> AbstractContextManager[None]:
        raise NotImplementedError


def own_statement(server: types.AuthorizationServerMetadata) -> str:
    """A function of the program that returns a client assertion."""
    return server.issuer


def signing_in(keyring: auth.Keyring) -> None:
    """Sign-in with a receiver, a store and an assertion of the program."""
    store: auth.TokenStore = OwnStore()
    statement: auth.ClientAssertion = own_statement
    auth.OAuth(receiver=OwnReceiver(), store=store)
    auth.OAuth(receiver=None, store=auth.KeyringStore(backend=keyring))
    auth.OAuth(allow="https://login.example")
    auth.OAuth(allow=lambda server, issuer: server in issuer)
    auth.OAuth(allow=True)  # type: ignore[arg-type]
    auth.ClientCredentials("a", assertion=statement, issuer="https://login.example")
    auth.OAuth(receiver=OwnReceiver)  # type: ignore[arg-type]
    auth.OAuth(store=OwnReceiver())  # type: ignore[arg-type]
    auth.ClientCredentials("a", assertion=own_statement)  # type: ignore[call-arg]
