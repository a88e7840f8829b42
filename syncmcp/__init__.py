"""A Model Context Protocol client for programs that have no event loop.

::

    import syncmcp

    with syncmcp.connect("https://example.com/mcp") as client:
        print(client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text)
"""

from __future__ import annotations

# First: this decides from which folders the others come.
from syncmcp._base import launch as _launch  # noqa: F401  # pyright: ignore[reportUnusedImport]

# isort: split
import logging
from importlib import import_module
from typing import TYPE_CHECKING

from syncmcp import errors
from syncmcp._base import __version__ as __version__
from syncmcp._base.log import guard_loggers
from syncmcp._client.arguments import Completable
from syncmcp._client.client import Client, Mode, Target, connect
from syncmcp._client.operation import ResultStream
from syncmcp._client.pages import ALL_PAGES
from syncmcp._client.retrying import Retry
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.forks import delaying_forks as _delaying_forks
from syncmcp._concurrency.futures import Progress, RequestFuture
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.config import Headers, Http, Stderr, Stdio
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    Denied,
    DiscoveryFailed,
    ForkedError,
    HeaderMismatch,
    HttpError,
    InterceptorFailed,
    InternalError,
    InvalidArguments,
    InvalidOutput,
    InvalidParams,
    InvalidQuestion,
    InvalidRequest,
    LimitExceeded,
    LoginRequired,
    McpError,
    MethodNotFound,
    MissingCapability,
    NotSupported,
    OutcomeUnknown,
    ParseError,
    ProtocolError,
    Refused,
    RegistrationFailed,
    RequestCancelled,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    SessionLost,
    SubscriptionLost,
    TokenRefused,
    ToolError,
    TooManyRounds,
    TransportError,
    UnsupportedSchema,
    UnsupportedVersion,
    UrlElicitationRequired,
    UsageError,
)
from syncmcp.handlers import (
    AnyElicitation,
    CausingCall,
    Elicitation,
    ElicitationUI,
    FormHandler,
    HandlerContext,
    Handlers,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
    RootsHandler,
    Sampling,
    SamplingHandler,
    UrlHandler,
)
from syncmcp.handlers.context import ConnectedServer
from syncmcp.handlers.pending import InputRequired
from syncmcp.interceptors import Interceptor, Message
from syncmcp.tasks import ToolTask

if TYPE_CHECKING:
    from syncmcp._client.batch import Batch
    from syncmcp._client.subscriptions import Listener, Subscription
    from syncmcp.approval import AllowAll, Approval, AutoApprove, DenyAll, RateLimit, Rule, Rules
    from syncmcp.executors import Call, Outcome, fan_out
    from syncmcp.group import ClientGroup, RequiredServersFailed, ServerStatus
    from syncmcp.handlers.forms import InvalidAnswer
    from syncmcp.handlers.roots import Roots
    from syncmcp.servers_file import NotApproved, ServerEntry, ServersFile, ServersFileError
    from syncmcp.tools import ToolLoop


__all__ = [
    "ALL_PAGES",
    "AllowAll",
    "AnyElicitation",
    "Approval",
    "AuthError",
    "AutoApprove",
    "Batch",
    "Call",
    "CallOptions",
    "CancelToken",
    "CausingCall",
    "ChangeEvent",
    "Client",
    "ClientGroup",
    "ClosedError",
    "Completable",
    "ConnectFailed",
    "ConnectedServer",
    "ConnectionLost",
    "Denied",
    "DenyAll",
    "DiscoveryFailed",
    "Elicitation",
    "ElicitationUI",
    "ForkedError",
    "FormHandler",
    "HandlerContext",
    "Handlers",
    "HeaderMismatch",
    "Headers",
    "Http",
    "HttpError",
    "InputRequired",
    "Interceptor",
    "InterceptorFailed",
    "InternalError",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidOutput",
    "InvalidParams",
    "InvalidQuestion",
    "InvalidRequest",
    "LimitExceeded",
    "Listener",
    "LogHandler",
    "LoginRequired",
    "McpError",
    "Message",
    "MethodNotFound",
    "MissingCapability",
    "Mode",
    "NotApproved",
    "NotSupported",
    "NotificationHandler",
    "Outcome",
    "OutcomeUnknown",
    "ParseError",
    "Progress",
    "ProgressHandler",
    "ProtocolError",
    "RateLimit",
    "Refused",
    "RegistrationFailed",
    "RequestCancelled",
    "RequestFuture",
    "RequestHandler",
    "RequestTimeout",
    "RequiredServersFailed",
    "ResourceNotFound",
    "ResultStream",
    "Retry",
    "Roots",
    "RootsHandler",
    "Rule",
    "Rules",
    "Sampling",
    "SamplingHandler",
    "ServerEntry",
    "ServerError",
    "ServerStatus",
    "ServersFile",
    "ServersFileError",
    "SessionLost",
    "Stderr",
    "Stdio",
    "Subscription",
    "SubscriptionLost",
    "Target",
    "TokenRefused",
    "TooManyRounds",
    "ToolError",
    "ToolLoop",
    "ToolTask",
    "TransportError",
    "UnsupportedSchema",
    "UnsupportedVersion",
    "UrlElicitationRequired",
    "UrlHandler",
    "UsageError",
    "connect",
    "errors",
    "fan_out",
]

# Imported at the first use of the name: most programs need none of these modules.
_LAZY = {
    "AllowAll": "syncmcp.approval",
    "Approval": "syncmcp.approval",
    "AutoApprove": "syncmcp.approval",
    "Batch": "syncmcp._client.batch",
    "Call": "syncmcp.executors",
    "ClientGroup": "syncmcp.group",
    "DenyAll": "syncmcp.approval",
    "InvalidAnswer": "syncmcp.handlers.forms",
    "Listener": "syncmcp._client.subscriptions",
    "NotApproved": "syncmcp.servers_file",
    "RateLimit": "syncmcp.approval",
    "RequiredServersFailed": "syncmcp.group",
    "Roots": "syncmcp.handlers.roots",
    "Rule": "syncmcp.approval",
    "Rules": "syncmcp.approval",
    "ServerEntry": "syncmcp.servers_file",
    "ServerStatus": "syncmcp.group",
    "ServersFile": "syncmcp.servers_file",
    "ServersFileError": "syncmcp.servers_file",
    "Outcome": "syncmcp.executors",
    "Subscription": "syncmcp._client.subscriptions",
    "ToolLoop": "syncmcp.tools",
    "fan_out": "syncmcp.executors",
}


if not TYPE_CHECKING:  # with `__getattr__`, type checkers would accept every name

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module 'syncmcp' has no attribute {name!r}")
        with _delaying_forks():
            value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY})


logging.getLogger("syncmcp").addHandler(logging.NullHandler())
guard_loggers()
