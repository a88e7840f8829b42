"""A Model Context Protocol client for programs that have no event loop.

Begin with `connect`, which takes a URL or a command. Calls block, and any thread may make them::

    import syncmcp

    with syncmcp.connect("https://example.com/mcp") as client:
        print(client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text)

    with syncmcp.connect(syncmcp.Stdio("python", "server.py")) as client:
        print([tool.name for tool in client.list_tools().tools])

Then read, each with `help(...)`:

- `syncmcp.connect` and `syncmcp.Client`: the options, and every call; `syncmcp.CallOptions`: the
  options of each call, such as `timeout` and `cancel`
- `syncmcp.Client.call_tool.future` and `.stream`: calls that do not block
- `syncmcp.Stdio` and `syncmcp.Http`: how a server is reached; `syncmcp.ClientGroup`: many servers
- `syncmcp.errors`: the tree of errors; `syncmcp.McpError` is the base of all
- `syncmcp.Handlers`: functions that answer a server's questions; `syncmcp.approval`: policies and
  persons that decide about questions and tool calls
- `syncmcp.auth`: signing in to a server
- `syncmcp.testing`: servers for tests
- `syncmcp.types`: the models of results
"""

from __future__ import annotations

# First: this module decides from which directories Python imports the other modules.
from syncmcp._base import launch as _launch  # noqa: F401  # pyright: ignore[reportUnusedImport]

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING

from syncmcp import errors, handlers
from syncmcp._base import __version__ as __version__
from syncmcp._client.arguments import Completable
from syncmcp._client.client import Client, Mode, Target
from syncmcp._client.connecting import connect
from syncmcp._client.operation import ResultStream
from syncmcp._client.pages import ALL_PAGES
from syncmcp._client.retrying import Retry
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.forks import delaying_forks as _delaying_forks
from syncmcp._concurrency.futures import Progress, RequestFuture
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.config import Headers, Http, Stderr, Stdio
from syncmcp.errors import *  # noqa: F403
from syncmcp.handlers import *  # noqa: F403
from syncmcp.handlers.context import ConnectedServer
from syncmcp.handlers.pending import InputRequired
from syncmcp.interceptors import Interceptor, Message
from syncmcp.tasks import ToolTask

if TYPE_CHECKING:
    from syncmcp import approval as approval
    from syncmcp import auth as auth
    from syncmcp import completion as completion
    from syncmcp import executors as executors
    from syncmcp import group as group
    from syncmcp import llm as llm
    from syncmcp import saving as saving
    from syncmcp import servers_file as servers_file
    from syncmcp import skills as skills
    from syncmcp import templates as templates
    from syncmcp import testing as testing
    from syncmcp import tools as tools
    from syncmcp import ui as ui
    from syncmcp._client.batch import Batch
    from syncmcp._client.functions import ToolFunction
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
    "Approval",
    "AutoApprove",
    "Batch",
    "Call",
    "CallOptions",
    "CancelToken",
    "ChangeEvent",
    "Client",
    "ClientGroup",
    "Completable",
    "ConnectedServer",
    "DenyAll",
    "Headers",
    "Http",
    "InputRequired",
    "Interceptor",
    "InvalidAnswer",
    "Listener",
    "Message",
    "Mode",
    "NotApproved",
    "Outcome",
    "Progress",
    "RateLimit",
    "RequestFuture",
    "RequiredServersFailed",
    "ResultStream",
    "Retry",
    "Roots",
    "Rule",
    "Rules",
    "ServerEntry",
    "ServerStatus",
    "ServersFile",
    "ServersFileError",
    "Stderr",
    "Stdio",
    "Subscription",
    "Target",
    "ToolFunction",
    "ToolLoop",
    "ToolTask",
    "connect",
    "errors",
    "fan_out",
]
__all__ += errors.__all__
__all__ += handlers.__all__
__all__.remove("Delivery")  # for annotations only

# Imported at the first use of the name: most programs need none of these modules.
_LAZY = {
    name: module
    for module, names in {
        "syncmcp._client.batch": ("Batch",),
        "syncmcp._client.functions": ("ToolFunction",),
        "syncmcp._client.subscriptions": ("Listener", "Subscription"),
        "syncmcp.approval": (
            "AllowAll",
            "Approval",
            "AutoApprove",
            "DenyAll",
            "RateLimit",
            "Rule",
            "Rules",
        ),
        "syncmcp.executors": ("Call", "Outcome", "fan_out"),
        "syncmcp.group": ("ClientGroup", "RequiredServersFailed", "ServerStatus"),
        "syncmcp.handlers.forms": ("InvalidAnswer",),
        "syncmcp.handlers.roots": ("Roots",),
        "syncmcp.servers_file": ("NotApproved", "ServerEntry", "ServersFile", "ServersFileError"),
        "syncmcp.tools": ("ToolLoop",),
    }.items()
    for name in names
}

# Imported at the first use as an attribute.
_SUBMODULES = {
    *("approval", "auth", "completion", "executors", "group", "llm", "saving", "servers_file"),
    *("skills", "templates", "testing", "tools", "ui"),
}

# Names that programs look for in this module, by the module that defines them.
_ELSEWHERE = {
    "auth": "Bearer ClientCredentials FileStore KeyringStore OAuth PasteReceiver",
    "testing": "FaultProxy RpcError ScriptedPeer Server demo_server serve_http wsgi_app",
    "types": "CallToolResult CreateMessageResult ElicitResult ImageContent TextContent Tool",
}

# Names of the official SDK, and what to write instead.
_OFFICIAL = {
    "ClientSession": "syncmcp.connect(...)",
    "ClientSessionGroup": "syncmcp.ClientGroup(...)",
    "MCPError": "syncmcp.McpError",
    "StdioServerParameters": "syncmcp.Stdio(...)",
    "sse_client": "syncmcp.Http(...)",
    "stdio_client": "syncmcp.Stdio(...)",
    "streamable_http_client": "syncmcp.Http(...)",
    "streamablehttp_client": "syncmcp.Http(...)",
}


if not TYPE_CHECKING:  # with `__getattr__`, type checkers would accept every name

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            with _delaying_forks():
                return import_module(f"syncmcp.{name}")
        if name not in _LAZY:
            homes = [home for home, names in _ELSEWHERE.items() if name in names.split()]
            instead = f"from syncmcp.{homes[0]} import {name}" if homes else _OFFICIAL.get(name)
            hint = f": write {instead}" if instead else ""
            raise AttributeError(f"module 'syncmcp' has no attribute {name!r}{hint}")
        with _delaying_forks():
            value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY, *_SUBMODULES})
