"""A Model Context Protocol client for programs that have no event loop.

::

    import syncmcp

    with syncmcp.connect("https://example.com/mcp") as client:
        print(client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text)
"""

from __future__ import annotations

import logging

from syncmcp import errors
from syncmcp._options import CallOptions
from syncmcp.cancellation import CancelToken
from syncmcp.client import Client, ConnectedServer, connect
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    ForkedError,
    HttpError,
    InvalidOutput,
    InvalidParams,
    LimitExceeded,
    McpError,
    MethodNotFound,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    Refused,
    RequestCancelled,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    SessionLost,
    ToolError,
    TransportError,
    UsageError,
)
from syncmcp.futures import Progress, RequestFuture
from syncmcp.handlers import HandlerContext
from syncmcp.operations import ALL_PAGES

__version__ = "0.1.0"

__all__ = [
    "ALL_PAGES",
    "AuthError",
    "CallOptions",
    "CancelToken",
    "Client",
    "ClosedError",
    "ConnectFailed",
    "ConnectedServer",
    "ConnectionLost",
    "ForkedError",
    "HandlerContext",
    "Http",
    "HttpError",
    "InvalidOutput",
    "InvalidParams",
    "LimitExceeded",
    "McpError",
    "MethodNotFound",
    "NotSupported",
    "OutcomeUnknown",
    "Progress",
    "ProtocolError",
    "Refused",
    "RequestCancelled",
    "RequestFuture",
    "RequestTimeout",
    "ResourceNotFound",
    "ServerError",
    "SessionLost",
    "Stdio",
    "ToolError",
    "TransportError",
    "UsageError",
    "connect",
    "errors",
]

logging.getLogger("syncmcp").addHandler(logging.NullHandler())
