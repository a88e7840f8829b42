"""The client that the official conformance suite drives: ``client.py URL``.

The suite names a scenario in ``MCP_CONFORMANCE_SCENARIO``, starts a server for it and passes its
URL. Each function below does what one scenario asks for, as any program would do it.
"""

from __future__ import annotations

import os
import sys

import syncmcp


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


SCENARIOS = {
    "initialize": connect_only,
    "tools_call": add_numbers,
    "sse-retry": reconnect,
    "request-metadata": connect_only,
    "http-standard-headers": use_everything,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
}


if __name__ == "__main__":
    with syncmcp.connect(sys.argv[1]) as opened:
        SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]](opened)
