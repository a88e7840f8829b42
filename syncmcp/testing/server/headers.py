"""The request headers of 2026-07-28: they must say what the body says (-32020 otherwise)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from syncmcp.testing.server import wire
from syncmcp.testing.server.tool import Tool
from syncmcp.testing.server.wire import HEADER_MISMATCH, Message, RpcError

VERSION = "mcp-protocol-version"

_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_START, _END = "=?base64?", "?="


def check(headers: Mapping[str, str], message: Message, tools: Mapping[str, Tool]) -> None:
    """Compare the headers (names in lower case) with a request or notification.

    Raises:
        RpcError: One is missing or says something else (code -32020).
    """
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    version = wire.meta_of(params).get(wire.PROTOCOL_VERSION)
    if isinstance(version, str):
        _compare("MCP-Protocol-Version", headers.get(VERSION), version)
    _compare("Mcp-Method", headers.get("mcp-method"), message.get("method"))
    member = _NAMED_BY.get(str(message.get("method")))
    if member is not None and isinstance(params.get(member), str):
        _compare("Mcp-Name", _decode("Mcp-Name", headers.get("mcp-name")), params[member])
    if message.get("method") == "tools/call":
        tool = tools.get(str(params.get("name")))
        if tool is not None:
            _check_parameters(headers, tool.input_schema, params.get("arguments"))


def _check_parameters(headers: Mapping[str, str], schema: Message, arguments: Any) -> None:
    for header, path in _annotated(schema, ()):
        value = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        name = f"Mcp-Param-{header}"
        given = _decode(name, headers.get(name.lower()))
        if value is None:
            expected = None
        elif isinstance(value, bool):
            expected = "true" if value else "false"
        elif isinstance(value, float) and value.is_integer():
            expected = str(int(value))
        else:
            expected = str(value)
        _compare(name, given, expected)


def _annotated(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(inner, dict) and isinstance(inner.get("x-mcp-header"), str):
            yield inner["x-mcp-header"], (*path, name)
        yield from _annotated(inner, (*path, name))


def _compare(name: str, given: str | None, expected: object) -> None:
    if given != expected:
        problem = "missing" if given is None else f"{given!r}, but the body says {expected!r}"
        raise RpcError(HEADER_MISMATCH, f"{name} is {problem}")


def _decode(name: str, value: str | None) -> str | None:
    """Undo the Base64 form of a value that is not plain visible ASCII."""
    if value is None or not (value.startswith(_START) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_START) : -len(_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise RpcError(HEADER_MISMATCH, f"{name} is not valid Base64") from error
