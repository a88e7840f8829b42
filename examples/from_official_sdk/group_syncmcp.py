"""Use a group of servers as one client, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp


def demo(name: str) -> syncmcp.Stdio:
    return syncmcp.Stdio(
        sys.executable,
        *("-m", "syncmcp.testing", "--name", name),
    )


def named(
    name: str, server: syncmcp.ConnectedServer
) -> str:
    return f"{server.name}.{name}"


with syncmcp.ClientGroup(
    {"fish": demo("fish"), "books": demo("books")},
    name_hook=named,
) as group:
    print("fish.add" in group.tools)
    result = group.call_tool(
        "books.weather", {"city": "Kyoto"}
    )
    print(result.structured_content)
