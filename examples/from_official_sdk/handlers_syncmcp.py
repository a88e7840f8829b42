"""Answer the questions of a server: sampling, a form, the roots, with syncmcp."""

from __future__ import annotations

import sys
from pathlib import Path

import syncmcp
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
)

SERVER = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
)


def model(
    request: CreateMessageRequestParams,
    context: syncmcp.HandlerContext,
) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant",
        content=TextContent(text="A fish."),
        model="echo",
    )


def form(
    request: ElicitRequestFormParams,
    context: syncmcp.HandlerContext,
) -> ElicitResult:
    return ElicitResult.accept(
        {"outputFormat": "plain"}
    )


with syncmcp.connect(
    SERVER,
    sampling=model,
    elicitation=form,
    roots=[Path.cwd()],
) as client:
    for name, arguments in (
        ("request_llm_help", {"question": "?"}),
        ("ask_user_preferences", {}),
        ("count_files", {"path": str(Path.cwd())}),
    ):
        result = client.call_tool(name, arguments)
        print(result.text)
