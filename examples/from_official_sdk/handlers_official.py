"""Answer the questions of a server: sampling, a form, the roots, with the official SDK."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing"],
)


async def model(
    context: ClientRequestContext,
    params: CreateMessageRequestParams,
) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant",
        content=TextContent(text="A fish."),
        model="echo",
    )


async def form(
    context: ClientRequestContext,
    params: ElicitRequestParams,
) -> ElicitResult:
    return ElicitResult(
        action="accept",
        content={"outputFormat": "plain"},
    )


async def roots(
    context: ClientRequestContext,
) -> ListRootsResult:
    here = FileUrl(Path.cwd().as_uri())
    return ListRootsResult(roots=[Root(uri=here)])


async def main() -> None:
    async with Client(
        SERVER,
        sampling_callback=model,
        elicitation_callback=form,
        list_roots_callback=roots,
    ) as client:
        for name, arguments in (
            ("request_llm_help", {"question": "?"}),
            ("ask_user_preferences", {}),
            ("count_files", {"path": str(Path.cwd())}),
        ):
            result = await client.call_tool(
                name, arguments
            )
            block = result.content[0]
            assert isinstance(block, TextContent)
            print(block.text)


asyncio.run(main())
