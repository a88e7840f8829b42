"""A threaded MCP server for tests and demos, and a scripted peer.

`Server` speaks every revision over stdio (`Server.run_stdio`, `python -m syncmcp.testing`), in
memory (`Server.connect`) and over HTTP (`HttpEndpoint`, `wsgi_app`, `serve_http`).
`ScriptedPeer` and its relatives play a part written with the steps of the module `script`, faults
included. `FaultProxy` stands before any HTTP server and breaks its exchanges, and an
`AuthorizationServer` issues the tokens that such a server may want. None shares code with the
client, so that each is a second opinion on the other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncmcp.testing import script
    from syncmcp.testing.demo import demo_server
    from syncmcp.testing.faults import Cut, Drip, Exchange, Fault, Hold, Planned
    from syncmcp.testing.faults.proxy import FaultProxy, UnusedFaults
    from syncmcp.testing.recording.record import Recording
    from syncmcp.testing.recording.replay import Replay
    from syncmcp.testing.recording.state import NotRecorded
    from syncmcp.testing.scripted import Received, Transcript
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

_HOMES = {
    "AuthorizationServer": "server.authorization",
    "Batches": "server.wire",
    "Cut": "faults",
    "Drip": "faults",
    "Exchange": "faults",
    "Fault": "faults",
    "FaultProxy": "faults.proxy",
    "Hold": "faults",
    "HttpEndpoint": "server.http",
    "HttpReply": "server.events",
    "HttpServer": "server.serving",
    "MissingCapability": "server.questions",
    "NotRecorded": "recording.state",
    "Planned": "faults",
    "Question": "server.questions",
    "Received": "scripted",
    "Recording": "recording.record",
    "Replay": "recording.replay",
    "RpcError": "server.wire",
    "ScriptedConnection": "scripted.peer",
    "ScriptedPeer": "scripted.peer",
    "Server": "server.server",
    "Session": "server.session",
    "SseEndpoint": "server.http",
    "Stats": "server.wire",
    "ToolContext": "server.context",
    "Transcript": "scripted",
    "UnusedFaults": "faults.proxy",
    "UrlElicitationRequired": "server.questions",
    "Withdrawn": "server.questions",
    "demo_server": "demo",
    "serve_http": "server.serving",
    "wsgi_app": "server.serving",
}

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


def __getattr__(name: str) -> Any:
    if name == "script":
        return import_module(f"{__name__}.script")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
