"""The client that the official conformance suite drives: ``client.py URL``.

The suite names a scenario in ``MCP_CONFORMANCE_SCENARIO``, starts a server for it and passes its
URL. Each function below does what one scenario asks for, as any program would do it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import syncmcp
from syncmcp import Handlers, InputRequired
from syncmcp.types import CreateMessageResult, ElicitResult, TextContent

if TYPE_CHECKING:
    from syncmcp import HandlerContext
    from syncmcp.types import CreateMessageRequestParams, ElicitRequestFormParams


def say_hello(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
    """A model with one answer."""
    return CreateMessageResult(
        role="assistant", content=TextContent(text="hello"), model="conformance"
    )


def confirm(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """Accepts a form and fills in what it must; the library adds what has a default."""
    asked = request.requested_schema["properties"]
    return ElicitResult.accept({"confirmed": True} if "confirmed" in asked else {})


ANSWERS: dict[str, Any] = {
    "sampling": say_hello,
    "elicitation": confirm,
    "roots": [tempfile.gettempdir()],
}


def connect_only(client: syncmcp.Client) -> None:
    """Opening the client is all there is to see."""


def list_tools(client: syncmcp.Client) -> None:
    """Fetches the tools."""
    client.list_tools()


def add_numbers(client: syncmcp.Client) -> None:
    """Calls the one tool there is."""
    client.list_tools()
    client.call_tool("add_numbers", {"a": 5, "b": 3}).raise_for_error()


def reconnect(client: syncmcp.Client) -> None:
    """Calls a tool whose answer comes on another stream than it began on."""
    client.list_tools()
    client.call_tool("test_reconnection").raise_for_error()


def use_everything(client: syncmcp.Client) -> None:
    """Calls each tool, reads each resource, gets each prompt."""
    for tool in client.list_tools().tools:
        client.call_tool(tool.name).raise_for_error()
    for resource in client.list_resources().resources:
        client.read_resource(resource.uri)
    for prompt in client.list_prompts().prompts:
        client.get_prompt(prompt.name)


def echo_schema(client: syncmcp.Client) -> None:
    """Sends a tool's input schema back as it came."""
    tools = {tool.name: tool for tool in client.list_tools().tools}
    schema = tools["json_schema_2020_12_tool"].input_schema
    client.call_tool("json_schema_echo", {"schema": schema}).raise_for_error()


def accept_defaults(client: syncmcp.Client) -> None:
    """Calls a tool that shows a form in which every field has a default."""
    client.call_tool("test_client_elicitation_defaults").raise_for_error()


def answer_in_rounds(client: syncmcp.Client) -> None:
    """Calls tools that ask in `input_required` results, with another call between the rounds."""

    def confirm_later(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
        context.client.call_tool("test_mrtr_unrelated").raise_for_error()
        return confirm(request, context)

    asking_back = Handlers(elicitation=confirm_later)
    client.call_tool("test_mrtr_echo_state", handlers=asking_back).raise_for_error()
    by_hand = client.begin_tool("test_mrtr_no_state")
    if not isinstance(by_hand, InputRequired):
        raise SystemExit(f"nothing was asked: {by_hand!r}")
    client.resume(by_hand, {"confirm": ElicitResult.accept({"confirmed": True})})
    client.call_tool("test_mrtr_no_result_type").raise_for_error()


SCENARIOS = {
    "initialize": connect_only,
    "tools_call": add_numbers,
    "sse-retry": reconnect,
    "request-metadata": connect_only,
    "http-standard-headers": use_everything,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "elicitation-sep1034-client-defaults": accept_defaults,
    "sep-2322-client-request-state": answer_in_rounds,
}


if __name__ == "__main__":
    with syncmcp.connect(sys.argv[1], **ANSWERS) as opened:
        SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]](opened)
