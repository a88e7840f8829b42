"""The official SDK as a threaded program must use it: its event loop in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.session import MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    TextContent,
    ToolListChangedNotification,
)

from benchmarks.sides.base import ROOT, FutureSide, Reply, Target


class OfficialSide(FutureSide):
    """One portal for the life of the process and one client in it; calls go through the portal."""

    _client: Client
    _heard = 0

    def __init__(self) -> None:
        self._life = ExitStack()
        self._portal: BlockingPortal = self._life.enter_context(start_blocking_portal())
        self._opened = ExitStack()

    def open(self, target: Target) -> None:
        self._client = self._portal.call(partial(_client, target, self._hear))
        self._opened.enter_context(self._portal.wrap_async_context_manager(self._client))

    def close(self) -> None:
        self._opened.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        return self.read(self._portal.call(self._client.call_tool, tool, arguments))

    def notified(self, count: int) -> int:
        seen: list[float] = []

        async def seen_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        call = partial(
            self._client.call_tool, "notify", {"count": count}, progress_callback=seen_progress
        )
        assert self.read(self._portal.call(call)).text == str(count)
        return len(seen)

    def stirred(self, count: int) -> int:
        self._heard = 0
        assert self.call("stir", {"count": count}).text == str(count)
        return self._heard

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._heard += 1

    def listed(self) -> int:
        return self._portal.call(self._list)

    async def _list(self) -> int:
        page = await self._client.list_tools()
        tools = page.tools
        while page.next_cursor is not None:
            page = await self._client.list_tools(cursor=page.next_cursor)
            tools.extend(page.tools)
        return len(tools)

    def start(self, tool: str, arguments: dict[str, Any]) -> Future[CallToolResult]:
        call: Callable[..., Any] = self._client.call_tool
        return self._portal.start_task_soon(call, tool, arguments)

    def read(self, result: CallToolResult) -> Reply:
        content = result.content[0]
        assert isinstance(content, TextContent)
        return Reply(content.text, bool(result.is_error))

    def time_out(self, tool: str, arguments: dict[str, Any], timeout: float) -> None:
        call = partial(self._client.call_tool, tool, arguments, read_timeout_seconds=timeout)
        try:
            self._portal.call(call)
        except MCPError:
            return
        raise AssertionError("the call did not time out")


async def _client(target: Target, hear: MessageHandlerFnT) -> Client:
    if target.wire == "stdio":
        command, *args = target.command
        server = StdioServerParameters(command=command, args=args, cwd=ROOT)
        return Client(server, sampling_callback=_repeat, message_handler=hear)
    if target.wire == "json":
        return Client(target.url, sampling_callback=_repeat, message_handler=hear)
    # By default the SDK limits an event to 1 MiB; one row sends more.
    stream = streamable_http_client(target.url, max_sse_event_size=None)
    return Client(stream, sampling_callback=_repeat, message_handler=hear)


async def _repeat(
    context: ClientRequestContext, params: CreateMessageRequestParams
) -> CreateMessageResult:
    content = params.messages[0].content
    assert isinstance(content, TextContent)
    return CreateMessageResult(role="assistant", content=content, model="none")
