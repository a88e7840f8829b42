"""Tools for tests of programs that use MCP: a server, scripted peers, faults, recordings.

`Server` is a threaded MCP server. It speaks every revision over stdio (`Server.run_stdio`,
`python -m syncmcp.testing`), in memory (`Server.connect`) and over HTTP (`HttpEndpoint`,
`SseEndpoint`, `wsgi_app`, `serve_http`). An `AuthorizationServer` issues the tokens that an HTTP
server may require.

`ScriptedPeer` plays a script, a list of steps made by the module `script`, and can violate the
protocol. `FaultProxy` is a proxy in front of any HTTP server that cuts, delays or slows down its
exchanges. These servers, peers and proxies share no protocol code with the client, so that each is
an independent check of the other.

`Recording` writes the messages of a connection to a file. `Replay` plays them without a server.

A submodule is imported when one of its names is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncmcp.testing import script
    from syncmcp.testing.demo import demo_server
    from syncmcp.testing.faults import Cut, Drip, Exchange, Fault, Hold, Planned
    from syncmcp.testing.faults.proxy import FaultProxy, UnusedFaults
    from syncmcp.testing.recording import Recording
    from syncmcp.testing.recording.replay import Replay
    from syncmcp.testing.recording.state import NotRecorded
    from syncmcp.testing.scripted import Received, ScriptError, Transcript
    from syncmcp.testing.scripted.peer import ScriptedConnection, ScriptedPeer
    from syncmcp.testing.server.authorization import AuthorizationServer
    from syncmcp.testing.server.context import ToolContext
    from syncmcp.testing.server.events import HttpReply
    from syncmcp.testing.server.http import HttpEndpoint, SseEndpoint
    from syncmcp.testing.server.questions import (
        MissingCapability,
        Question,
        UrlElicitationRequired,
        Withdrawn,
    )
    from syncmcp.testing.server.server import Server
    from syncmcp.testing.server.serving import HttpServer, serve_http, wsgi_app
    from syncmcp.testing.server.session import Session
    from syncmcp.testing.server.wire import Batches, RpcError, Stats

__all__ = [
    "AuthorizationServer",
    "Batches",
    "Cut",
    "Drip",
    "Exchange",
    "Fault",
    "FaultProxy",
    "Hold",
    "HttpEndpoint",
    "HttpReply",
    "HttpServer",
    "MissingCapability",
    "NotRecorded",
    "Planned",
    "Question",
    "Received",
    "Recording",
    "Replay",
    "RpcError",
    "ScriptError",
    "ScriptedConnection",
    "ScriptedPeer",
    "Server",
    "Session",
    "SseEndpoint",
    "Stats",
    "ToolContext",
    "Transcript",
    "UnusedFaults",
    "UrlElicitationRequired",
    "Withdrawn",
    "demo_server",
    "script",
    "serve_http",
    "wsgi_app",
]


# Imported at first use: few tests need all of them.
_LAZY = {
    name: f"syncmcp.testing.{module}"
    for module, names in {
        "demo": "demo_server",
        "faults": "Cut Drip Exchange Fault Hold Planned",
        "faults.proxy": "FaultProxy UnusedFaults",
        "recording": "Recording",
        "recording.replay": "Replay",
        "recording.state": "NotRecorded",
        "scripted": "Received ScriptError Transcript",
        "scripted.peer": "ScriptedConnection ScriptedPeer",
        "server.authorization": "AuthorizationServer",
        "server.context": "ToolContext",
        "server.events": "HttpReply",
        "server.http": "HttpEndpoint SseEndpoint",
        "server.questions": "MissingCapability Question UrlElicitationRequired Withdrawn",
        "server.server": "Server",
        "server.serving": "HttpServer serve_http wsgi_app",
        "server.session": "Session",
        "server.wire": "Batches RpcError Stats",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name == "script":
        return import_module(f"{__name__}.script")
    if name not in _LAZY:
        from syncmcp._base.similar import did_you_mean

        hint = did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint and ': '}{hint}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
