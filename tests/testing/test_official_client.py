"""The official SDK's client as the judge of the test server, in both eras."""

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
        if params.mode == "url":
            return ElicitResult(action="accept")
        return ElicitResult(action="accept", content={"name": "Ada", "email": "ada@example.com"})

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
        assert client.protocol_version == MODES[mode]
        tools = (await client.list_tools()).tools
        assert {"add", "countdown", "weather"} <= {tool.name for tool in tools}
        added: Any = await client.call_tool("add", {"a": 1, "b": 2})
        assert added.content[0].text == "3"
        await client.call_tool("countdown", {"steps": 2, "delay": 0}, progress_callback=on_progress)
        assert reports == [(1, 2, "1 left"), (2, 2, "0 left")]
        weather = await client.call_tool("weather", {"city": "Cairo"})
        assert weather.structured_content == {"city": "Cairo", "celsius": 31.0, "sky": "sun"}
        failed: Any = await client.call_tool("fail", {"message": "no"})
        assert (failed.is_error, failed.content[0].text) == (True, "no")
        assert len((await client.list_resources()).resources) == 3
        assert len((await client.list_resource_templates()).resource_templates) == 1
        read: Any = (await client.read_resource("demo://readme")).contents[0]
        assert read.text == "This is the demo server."
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == [
            "hello",
            "translate",
        ]
        got: Any = await client.get_prompt("translate", {"text": "hei"})
        assert got.messages[1].content.text == "hei"
        with pytest.raises(Exception, match="Unknown tool"):
            await client.call_tool("none", {})
        calls = [client.call_tool("sleep", {"seconds": 0.01}) for _ in range(20)]
        assert len(await asyncio.gather(*calls)) == 20
        helped: Any = await client.call_tool("request_llm_help", {"question": "?"})
        assert helped.content[0].text == "at most 500"
        signed: Any = await client.call_tool("signup_math_facts", {})
        assert signed.structured_content["content"]["name"] == "Ada"
        connected: Any = await client.call_tool("connect_account", {})
        assert connected.content[0].text == "connected to example"
        counted: Any = await client.call_tool("count_files", {"path": str(root)})
        assert counted.structured_content == {"path": str(root), "inside": True, "files": 1}
        maths = [client.call_tool("explain_math", {"problem": "?"}) for _ in range(5)]
        assert len(await asyncio.gather(*maths)) == 5
    assert asked == ["sampling", "form", "url", "roots", *["sampling"] * 5]


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_is_content_over_stdio(mode: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = StdioServerParameters(command=sys.executable, args=["-m", "syncmcp.testing"])
    asyncio.run(_judge(stdio_client(server), mode, tmp_path))


@pytest.mark.parametrize("response", ["auto", "sse"])
@pytest.mark.parametrize("mode", MODES)
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

    async def give_up(url: str) -> None:
        async with Client(url, mode=mode) as client:
            call = asyncio.ensure_future(client.call_tool("sleep", {"seconds": 60}))
            await asyncio.to_thread(server.stats.wait_for, lambda seen: seen.running == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            cancelled = await asyncio.to_thread(
                server.stats.wait_for, lambda seen: seen.cancelled == 1
            )
            assert cancelled

    with serve_http(server) as http:
        asyncio.run(give_up(http.url))
