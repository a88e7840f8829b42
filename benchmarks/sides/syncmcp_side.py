"""syncmcp: the public interface with its default options."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import syncmcp
from benchmarks.sides.base import ROOT, FutureSide, Reply, Target
from syncmcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    TextContent,
)


class SyncmcpSide(FutureSide):
    """Blocking calls on the caller's thread; futures by `.future`."""

    _client: syncmcp.Client

    def open(self, target: Target) -> None:
        server = syncmcp.Stdio(*target.command, cwd=ROOT) if target.wire == "stdio" else target.url
        self._client = syncmcp.connect(server, sampling=_repeat)

    def close(self) -> None:
        self._client.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        return self.read(self._client.call_tool(tool, arguments))

    def notified(self, count: int) -> int:
        seen: list[float] = []

        def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        reply = self.read(
            self._client.call_tool("notify", {"count": count}, on_progress=progress),
        )
        assert reply.text == str(count)
        return len(seen)

    def stirred(self, count: int) -> int:
        heard: list[syncmcp.ChangeEvent] = []
        some = threading.Event()

        def hear(event: syncmcp.ChangeEvent) -> None:
            heard.append(event)
            some.set()

        listener = self._client.listen(tools=True).run_in_thread(hear)
        assert self.call("stir", {"count": count}).text == str(count)
        assert some.wait(10)
        assert listener.stop(10)
        return len(heard)

    def listed(self) -> int:
        return len(self._client.list_tools().tools)

    def start(self, tool: str, arguments: dict[str, Any]) -> Future[CallToolResult]:
        return self._client.call_tool.future(tool, arguments)

    def batch(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        """Make `count` calls as one batch."""
        with self._client.batch() as batch:
            futures = [batch.call_tool(tool, arguments) for _ in range(count)]
        return [self.read(future.result()) for future in futures]

    def read(self, result: CallToolResult) -> Reply:
        content = result.content[0]
        assert isinstance(content, TextContent)
        return Reply(content.text, result.is_error)

    def time_out(self, tool: str, arguments: dict[str, Any], timeout: float) -> None:
        try:
            self._client.call_tool(tool, arguments, timeout=timeout)
        except syncmcp.RequestTimeout:
            return
        raise AssertionError("the call did not time out")


class SinglesSide(SyncmcpSide):
    """syncmcp without batches: what a batch is compared with."""

    def batch(self, tool: str, arguments: dict[str, Any], count: int) -> list[Reply]:
        return [self.call(tool, arguments) for _ in range(count)]


def _repeat(
    request: CreateMessageRequestParams, context: syncmcp.HandlerContext
) -> CreateMessageResult:
    content = request.messages[0].content
    assert isinstance(content, TextContent)
    return CreateMessageResult(role="assistant", content=content, model="none")
