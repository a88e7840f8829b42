"""Open a server at a URL, call a tool and list all pages, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

url = sys.argv[1]

with syncmcp.connect(url, timeout=30) as client:
    result = client.call_tool(
        "weather", {"city": "Cairo"}
    )
    print(result.is_error, result.structured_content)

    tools = client.list_tools().tools
    print(len(tools), tools[0].input_schema["type"])

    try:
        client.read_resource("demo://none")
    except syncmcp.ServerError as error:
        print(type(error.code).__name__)
