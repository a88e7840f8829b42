"""The client of the official SDK against the test server, with and without sessions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)

from syncmcp.testing import demo_server, serve_http

FORM: Any = {"name": "Ada", "email": "ada@example.com"}
MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}


async def _judge(target: Any, mode: str, root: Path) -> None:
    asked: list[str] = []
    reports: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async def sample(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append("sampling")
        content = TextContent(text=f"at most {params.max_tokens}")
        return CreateMessageResult(role="assistant", content=content, model="double")

    async def elicit(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.mode or "form")
        return ElicitResult(action="accept", content=None if params.mode == "url" else FORM)

    async def roots(context: Any) -> ListRootsResult:
        asked.append("roots")
        return ListRootsResult(roots=[Root.model_validate({"uri": root.as_uri()})])

    async with Client(
        target,
        mode=mode,
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=roots,
    ) as client:

        async def call(name: str, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments, progress_callback=on_progress)

        async def text(name: str, **arguments: Any) -> Any:
            return (await call(name, **arguments)).content[0].text

        assert client.protocol_version == MODES[mode]
        tools = (await client.list_tools()).tools
        assert {"add", "countdown", "weather"} <= {tool.name for tool in tools}
        assert await text("add", a=1, b=2) == "3"
        assert not reports
        await call("countdown", steps=2, delay=0)
        assert reports == [(1, 2, "1 left"), (2, 2, "0 left")]
        weather = await call("weather", city="Cairo")
        assert weather.structured_content == {"city": "Cairo", "celsius": 31.0, "sky": "sun"}
        failed = await call("fail", message="no")
        assert (failed.is_error, failed.content[0].text) == (True, "no")
        assert len((await client.list_resources()).resources) == 3
        assert len((await client.list_resource_templates()).resource_templates) == 1
        read: Any = (await client.read_resource("demo://readme")).contents[0]
        assert read.text == "This is the demo server."
        assert len((await client.read_resource("demo://cities")).contents) == 3
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["hello", "translate"]
        got: Any = await client.get_prompt("translate", {"text": "hei"})
        assert got.messages[1].content.text == "hei"
        with pytest.raises(Exception, match="Unknown tool"):
            await call("none")
        calls = [call("sleep", seconds=0.01) for _ in range(20)]
        assert len(await asyncio.gather(*calls)) == 20
        assert await text("request_llm_help", question="?") == "at most 500"
        signed = await call("signup_math_facts")
        assert signed.structured_content == {"action": "accept", "content": FORM}
        assert await text("connect_account") == "connected to example"
        counted = await call("count_files", path=str(root))
        assert counted.structured_content == {"path": str(root), "inside": True, "files": 1}
        maths = [call("explain_math", problem="?") for _ in range(5)]
        assert len(await asyncio.gather(*maths)) == 5
    assert asked == ["sampling", "form", "url", "roots", *["sampling"] * 5]


def test_the_official_client_is_content_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = StdioServerParameters(command=sys.executable, args=["-m", "syncmcp.testing"])
    asyncio.run(_judge(stdio_client(server), "legacy", tmp_path))


@pytest.mark.requirement("M-21", "M-26", "M-28")
@pytest.mark.parametrize(("mode", "response"), [("auto", "auto"), ("legacy", "sse")])
def test_the_official_client_is_content_over_http(mode: str, response: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with serve_http(demo_server(), response=response) as http:
        asyncio.run(_judge(http.url, mode, tmp_path))
        stats = http.endpoint.server.stats
        assert stats.wait_for(lambda seen: (seen.running, seen.streams, seen.paused) == (0, 0, 0))
        assert stats.violations == []


@pytest.mark.parametrize("mode", MODES)
def test_a_call_the_official_client_gives_up_is_cancelled(mode: str) -> None:
    server = demo_server()
    wait = server.stats.wait_for

    async def give_up(url: str) -> None:
        async with Client(url, mode=mode) as client:
            call = asyncio.ensure_future(client.call_tool("sleep", {"seconds": 60}))
            await asyncio.to_thread(wait, lambda seen: seen.running == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(wait, lambda seen: seen.cancelled == 1)
            hung_up = 1 if mode == "auto" else 0
            assert await asyncio.to_thread(wait, lambda seen: seen.disconnects == hung_up)

    with serve_http(server) as http:
        asyncio.run(give_up(http.url))
