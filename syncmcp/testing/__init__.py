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
    from syncmcp.testing.authorization import AuthorizationServer
    from syncmcp.testing.batch import Batches
    from syncmcp.testing.capabilities import MissingCapability, UrlElicitationRequired
    from syncmcp.testing.context import ToolContext
    from syncmcp.testing.demo import demo_server
    from syncmcp.testing.exchanges import Exchange
    from syncmcp.testing.faults import Cut, Drip, Fault, Hold, Planned
    from syncmcp.testing.http import HttpEndpoint, HttpReply
    from syncmcp.testing.play import NotRecorded
    from syncmcp.testing.proxy import FaultProxy, UnusedFaults
    from syncmcp.testing.question import Question, Withdrawn
    from syncmcp.testing.recording import Recording
    from syncmcp.testing.replay import Replay
    from syncmcp.testing.scripted import ScriptedConnection, ScriptedPeer
    from syncmcp.testing.server import Server
    from syncmcp.testing.serving import HttpServer, serve_http
    from syncmcp.testing.session import Session
    from syncmcp.testing.sse import SseEndpoint
    from syncmcp.testing.stats import Stats
    from syncmcp.testing.transcript import Received, Transcript
    from syncmcp.testing.wire import RpcError
    from syncmcp.testing.wsgi import wsgi_app

_HOMES = {
    "AuthorizationServer": "authorization",
    "Batches": "batch",
    "Cut": "faults",
    "Drip": "faults",
    "Exchange": "exchanges",
    "Fault": "faults",
    "FaultProxy": "proxy",
    "Hold": "faults",
    "HttpEndpoint": "http",
    "HttpReply": "http",
    "HttpServer": "serving",
    "MissingCapability": "capabilities",
    "NotRecorded": "play",
    "Planned": "faults",
    "Question": "question",
    "Received": "transcript",
    "Recording": "recording",
    "Replay": "replay",
    "RpcError": "wire",
    "ScriptedConnection": "scripted",
    "ScriptedPeer": "scripted",
    "Server": "server",
    "Session": "session",
    "SseEndpoint": "sse",
    "Stats": "stats",
    "ToolContext": "context",
    "Transcript": "transcript",
    "UnusedFaults": "proxy",
    "UrlElicitationRequired": "capabilities",
    "Withdrawn": "question",
    "demo_server": "demo",
    "serve_http": "serving",
    "wsgi_app": "wsgi",
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
