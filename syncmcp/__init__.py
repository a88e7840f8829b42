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
from syncmcp.client import Client, ConnectedServer, Mode, Target, connect
from syncmcp.config import Headers, Http, Stderr, Stdio
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    ForkedError,
    HeaderMismatch,
    HttpError,
    InternalError,
    InvalidOutput,
    InvalidParams,
    InvalidRequest,
    LimitExceeded,
    McpError,
    MethodNotFound,
    MissingCapability,
    NotSupported,
    OutcomeUnknown,
    ParseError,
    ProtocolError,
    Refused,
    RequestCancelled,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    SessionLost,
    ToolError,
    TransportError,
    UnsupportedVersion,
    UrlElicitationRequired,
    UsageError,
)
from syncmcp.futures import Progress, RequestFuture
from syncmcp.handlers import (
    HandlerContext,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
)
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
    "HeaderMismatch",
    "Headers",
    "Http",
    "HttpError",
    "InternalError",
    "InvalidOutput",
    "InvalidParams",
    "InvalidRequest",
    "LimitExceeded",
    "LogHandler",
    "McpError",
    "MethodNotFound",
    "MissingCapability",
    "Mode",
    "NotSupported",
    "NotificationHandler",
    "OutcomeUnknown",
    "ParseError",
    "Progress",
    "ProgressHandler",
    "ProtocolError",
    "Refused",
    "RequestCancelled",
    "RequestFuture",
    "RequestHandler",
    "RequestTimeout",
    "ResourceNotFound",
    "ServerError",
    "SessionLost",
    "Stderr",
    "Stdio",
    "Target",
    "ToolError",
    "TransportError",
    "UnsupportedVersion",
    "UrlElicitationRequired",
    "UsageError",
    "connect",
    "errors",
]

logging.getLogger("syncmcp").addHandler(logging.NullHandler())
