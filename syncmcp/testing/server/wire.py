"""JSON-RPC 2.0 as this server reads and writes it.

Written without a look at the client's half, so that the two check each other.
"""

from __future__ import annotations

from typing import Any

import pydantic_core

Message = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Stateful revisions only; 2026-07-28 uses `INVALID_PARAMS`."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
"""2025-11-25 only."""

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class RpcError(Exception):
    """Raised by a handler to answer with a JSON-RPC error instead of a result.

    Attributes:
        code: The JSON-RPC error code.
        message: One sentence for people.
        data: Any JSON value, or `None` to leave it out.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


def encode(message: Any) -> bytes:
    """Return `message` as compact JSON on one line; NaN and infinities become null."""
    return pydantic_core.to_json(message, inf_nan_mode="null")


def decode(frame: bytes) -> Any:
    """Return the JSON value in `frame`.

    Raises:
        RpcError: It is not UTF-8 JSON, or holds NaN or an infinity (code -32700).
    """
    try:
        return pydantic_core.from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"Not valid JSON: {error}") from error


def notification(method: str, params: Message | None = None) -> Message:
    """Return a notification; `params` is left out when there are none."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def request(identifier: str | int, method: str, params: Message | None = None) -> Message:
    """Return a request; `params` is left out when there are none."""
    return {"id": identifier, **notification(method, params)}


def reply(identifier: str | int, result: Message) -> Message:
    """Return the answer to a request that went well."""
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def failure(identifier: str | int | None, error: RpcError) -> Message:
    """Return the answer to a request that failed; the id is null when it could not be read."""
    body: Message = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": identifier, "error": body}


def is_identifier(value: object) -> bool:
    """Return whether `value` may be a request id: a string or an integer, never null or bool."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def identity(identifier: str | int) -> tuple[type, str | int]:
    """Return a table key that keeps `1` and `"1"` apart."""
    return type(identifier), identifier


def params_of(message: Message) -> Message:
    """Return the message's params, `{}` when it has none.

    Raises:
        RpcError: They are not an object (code -32602).
    """
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object")
    return params


def meta_of(params: Message) -> Message:
    """Return the params' `_meta`, `{}` when it has none or it is not an object."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def text_of(params: Message, name: str) -> str:
    """Return the string member `name` of `params`.

    Raises:
        RpcError: It is absent or not a string (code -32602).
    """
    value = params.get(name)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be a string")
    return value
