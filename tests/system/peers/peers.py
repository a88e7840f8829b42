"""The real servers as data: their programs, revisions, and the calls of the tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import syncmcp
from syncmcp import Mode
from tests.system.peers.answers import AGREEABLE, PLACES
from tests.system.peers.setup_peers import (
    COMMIT,
    HERE,
    NODE_MODULES,
    REPOSITORY,
    node,
    venv_python,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROOT = HERE.parents[2]
FILES = HERE / "files"
SERVERS = HERE / "servers"

REVISIONS: tuple[Mode, ...] = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
STDIO = "stdio"
HTTP = "HTTP"
HTTP_JSON = "HTTP, JSON"
HTTP_SSE = "HTTP, SSE"
OLD_HTTP = "HTTP+SSE"


@dataclass(frozen=True)
class Program:
    """A command line; `ready` replaces ``{port}`` and ``{node}`` in it, and in its variables.

    Attributes:
        path: The path of its URL.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    path: str = "/mcp"

    def ready(self, port: int = 0) -> Program:
        """Return the program without placeholders; if it listens, then on this port."""
        # Only here, because Node need not be installed for a run without peers.
        facts = {"port": port, "node": node() if "{node}" in self.command else ""}
        return replace(
            self,
            command=tuple(part.format(**facts) for part in self.command),
            env={name: value.format(**facts) for name, value in self.env.items()},
        )


@dataclass(frozen=True)
class Call:
    """A tool call, and a text that its answer, or its error, contains."""

    tool: str
    arguments: Mapping[str, Any]
    text: str


@dataclass(frozen=True)
class Limit:
    """A feature that a server does not support, with the reason.

    Attributes:
        cell: The column of the table.
        reason: The reason, for readers of the page.
        transports: The transports to which the limit applies; all, if empty.
        revisions: The revisions to which it applies; all, if empty.
        half: True if the test can check what the client does, but no effect on the server.
    """

    cell: str
    reason: str
    transports: tuple[str, ...] = ()
    revisions: tuple[Mode, ...] = ()
    half: bool = False


@dataclass(frozen=True)
class Peer:
    """A server program.

    Attributes:
        name: The name in the table.
        programs: Its programs by transport.
        revisions: The tested revisions, oldest first; ``mode="auto"`` must detect the last.
        call: A call that succeeds.
        error: A call that fails.
        error_type: The error of this call, which `raise_for_error` or the call itself raises.
        progress: A call that reports three steps, if the server has one.
        wait: A call that runs until it is cancelled, if the server has one.
        questions: By column, a call that asks the client, and returns the answer.
        roots_unasked: True if the server requests roots outside calls, so its answers lag behind.
        has_gates: True if it has the tools ``started`` and ``cancelled``, which wait for ``wait``.
        progress_apart: True if, over HTTP, progress arrives on the listening stream, so the last
            report may come after the result.
        one_session: True if, over HTTP, the server fails to serve a second session.
        limits: The features that it does not support.
    """

    name: str
    programs: Mapping[str, Program]
    revisions: tuple[Mode, ...]
    call: Call
    error: Call
    error_type: type[syncmcp.McpError] = syncmcp.ToolError
    progress: Call | None = None
    wait: Call | None = None
    questions: Mapping[str, Call] = field(default_factory=dict)
    roots_unasked: bool = False
    has_gates: bool = False
    progress_apart: bool = False
    one_session: bool = False
    limits: tuple[Limit, ...] = ()


def _own(python: str | Path, module: str, *words: str, path: str = "/mcp") -> Program:
    """Return the program of a module in ``servers/``."""
    command = (str(python), "-m", f"tests.system.peers.servers.{module}", *words)
    return Program(command, path=path)


def _own_peer(
    name: str, programs: Mapping[str, Program], revisions: tuple[Mode, ...], **rest: Any
) -> Peer:
    """Return a server of this folder; all of them have the same tools."""
    return Peer(
        name,
        programs,
        revisions,
        call=Call("add", {"a": 2, "b": 3}, "5"),
        error=Call("fail", {"reason": "out of paper"}, "out of paper"),
        progress=Call("count", {"steps": 3}, "counted to 3"),
        wait=Call("wait", {"nonce": ""}, ""),
        has_gates=True,
        **rest,
    )


def _python_peer(name: str, python: str | Path, module: str, *args: Any, **rest: Any) -> Peer:
    programs = {
        STDIO: _own(python, module, "stdio"),
        HTTP_JSON: _own(python, module, "json", "{port}"),
        HTTP_SSE: _own(python, module, "sse", "{port}"),
    }
    return _own_peer(name, programs, *args, **rest)


def _over_old_http(peer: Peer, program: Program, **changes: Any) -> Peer:
    """Return the same server over HTTP+SSE: stateful revisions, and one stream for everything."""
    changes = {"progress_apart": False, **changes}
    revisions = tuple(one for one in peer.revisions if one != REVISIONS[-1])
    program = replace(program, path="/sse")
    return replace(peer, programs={OLD_HTTP: program}, revisions=revisions, **changes)


def _npm_program(package: str, script: str, *arguments: str, **env: str) -> Program:
    return Program(("{node}", str(NODE_MODULES / package / "dist" / script), *arguments), env)


_JSON_LIMITS = (
    Limit("progress", "a JSON response contains only the result", transports=(HTTP_JSON,)),
    Limit(
        "cancel",
        "while it prepares a JSON response, the server does not see a closed connection",
        transports=(HTTP_JSON,),
        revisions=("2026-07-28",),
        half=True,
    ),
)
# The texts contain the answers of the handlers in `answers`.
_QUESTIONS = {
    "sampling": Call("ask_model", {"question": "What is up?"}, "parrot: heard: What is up?"),
    "form": Call("ask_form", {}, 'accept: name="Ann" polite=true'),
    "url": Call("ask_url", {"url": AGREEABLE}, "accept"),
    "roots": Call("ask_roots", {}, " ".join(place.as_uri() for place in PLACES)),
}
_QUESTIONS_1 = {cell: call for cell, call in _QUESTIONS.items() if cell != "url"}
LIMITS_OF_REVISIONS = (
    Limit("form", "forms are new in 2025-06-18", revisions=REVISIONS[:2]),
    Limit("url", "URLs are new in 2025-11-25", revisions=REVISIONS[:3]),
)

OFFICIAL = _python_peer(
    "mcp 2.3.0",
    sys.executable,
    "official",
    REVISIONS,
    questions=_QUESTIONS,
    limits=_JSON_LIMITS,
)
FASTMCP = _python_peer(
    "fastmcp 4.1.2",
    venv_python("fastmcp-4"),
    "fastmcp_4",
    REVISIONS,
    questions=_QUESTIONS,
    limits=_JSON_LIMITS,
)
TYPESCRIPT = _own_peer(
    "TypeScript SDK 2.4.0",
    {
        STDIO: Program(("{node}", str(SERVERS / "typescript_2.mjs"), "stdio")),
        HTTP: Program(("{node}", str(SERVERS / "typescript_2.mjs"), "http", "{port}")),
    },
    REVISIONS,
    questions=_QUESTIONS,
)
_VERSION_1: dict[str, Any] = {"questions": _QUESTIONS_1, "progress_apart": True}
MCP_1_12 = _python_peer(
    "mcp 1.12.4",
    venv_python("mcp-1.12"),
    "official_1",
    ("2025-03-26", "2025-06-18"),
    **_VERSION_1,
)
_FALLS_OVER = Limit("cancel", "cancelling a request ends its session and, over stdio, the server")
_OLDER: dict[str, Any] = {**_VERSION_1, "one_session": True, "limits": (_FALLS_OVER,)}
MCP_1_9 = _python_peer(
    "mcp 1.9.4",
    venv_python("mcp-1.9"),
    "official_1",
    ("2024-11-05", "2025-03-26"),
    **_OLDER,
)
MCP_1_8 = _python_peer("mcp 1.8.1", venv_python("mcp-1.8"), "official_1", ("2024-11-05",), **_OLDER)

_PYTHON_OLD_HTTP = tuple(
    _over_old_http(peer, _own(python, module, "old", "{port}"), one_session=False, limits=limits)
    for peer, python, module, limits in (
        (OFFICIAL, sys.executable, "official", ()),
        (MCP_1_12, venv_python("mcp-1.12"), "official_1", ()),
        (MCP_1_8, venv_python("mcp-1.8"), "official_1", MCP_1_8.limits),
    )
)

_CANCELS_UNSEEN = Limit("cancel", "the server cannot report that it stopped working", half=True)
_WANTS_NO_ROOTS = Limit("roots", "the server never asks for roots")
_EVERYTHING_NOW = "@modelcontextprotocol/server-everything"
EVERYTHING = Peer(
    "server-everything 2026.8.31",
    {
        STDIO: _npm_program(_EVERYTHING_NOW, "index.js", "stdio"),
        HTTP: _npm_program(_EVERYTHING_NOW, "index.js", "streamableHttp", PORT="{port}"),
    },
    REVISIONS[:-1],
    call=Call("get-sum", {"a": 2, "b": 3}, "The sum of 2 and 3 is 5"),
    error=Call("get-sum", {"a": "two", "b": 3}, "Invalid arguments"),
    progress=Call("trigger-long-running-operation", {"duration": 0.3, "steps": 3}, "completed"),
    wait=Call("trigger-long-running-operation", {"duration": 60, "steps": 600}, ""),
    questions={
        "sampling": Call(
            "trigger-sampling-request",
            {"prompt": "What is up?"},
            "heard: Resource trigger-sampling-request context: What is up?",
        ),
        "form": Call("trigger-elicitation-request", {}, '"firstLine": "It was a dark and stormy'),
        "url": Call("trigger-url-elicitation", {"url": AGREEABLE}, '"action": "accept"'),
        "roots": Call("get-roots-list", {}, PLACES[-1].as_uri()),
    },
    limits=(_CANCELS_UNSEEN,),
)
EVERYTHING_2025_06 = replace(
    EVERYTHING,
    name="server-everything 2025.8.18",
    programs={
        STDIO: _npm_program("everything-2025-06-18", "index.js", "stdio"),
        HTTP: _npm_program("everything-2025-06-18", "index.js", "streamableHttp", PORT="{port}"),
    },
    revisions=("2025-06-18",),
    call=Call("add", {"a": 2, "b": 3}, "The sum of 2 and 3 is 5"),
    error=Call("add", {"a": "two", "b": 3}, "Expected number"),
    error_type=syncmcp.ServerError,
    progress=Call("longRunningOperation", {"duration": 0.3, "steps": 3}, "completed"),
    wait=Call("longRunningOperation", {"duration": 60, "steps": 600}, ""),
    progress_apart=True,
    questions={
        "sampling": Call(
            "sampleLLM",
            {"prompt": "What is up?"},
            "heard: Resource sampleLLM context: What is up?",
        ),
        "form": Call("startElicitation", {}, "Color: green"),
    },
    limits=(_CANCELS_UNSEEN, _WANTS_NO_ROOTS),
)
EVERYTHING_2025_03 = replace(
    EVERYTHING_2025_06,
    name="server-everything 2025.4.28",
    programs={
        STDIO: _npm_program("everything-2025-03-26", "index.js"),
        HTTP: _npm_program("everything-2025-03-26", "streamableHttp.js", PORT="{port}"),
    },
    revisions=("2025-03-26",),
    # Its sessions share one server object, so each gets notifications of the others.
    one_session=True,
)
EVERYTHING_2024 = replace(
    EVERYTHING_2025_06,
    name="server-everything 0.6.2",
    programs={STDIO: _npm_program("everything-2024-11-05", "index.js")},
    revisions=("2024-11-05",),
    questions={"sampling": Call("sampleLLM", {"prompt": "What is up?"}, "[object Object]")},
    limits=(
        _CANCELS_UNSEEN,
        _WANTS_NO_ROOTS,
        Limit("sampling", "the server confirms an answer, but does not show it", half=True),
    ),
)
FILESYSTEM = Peer(
    "server-filesystem 2026.8.31",
    {STDIO: _npm_program("@modelcontextprotocol/server-filesystem", "index.js", str(FILES))},
    ("2025-11-25",),
    call=Call("read_text_file", {"path": str(FILES / "hello.txt")}, "hello from a file"),
    error=Call("read_text_file", {"path": str(ROOT / "setup.cfg")}, "Access denied"),
    questions={"roots": Call("list_allowed_directories", {}, str(PLACES[-1]))},
    roots_unasked=True,
    limits=(
        Limit("progress", "no tool reports progress"),
        Limit("cancel", "no tool runs long enough to be cancelled"),
        *(Limit(cell, "the server asks only for roots") for cell in ("sampling", "form", "url")),
    ),
)

_ASKS_NOTHING = tuple(
    Limit(cell, "the server asks for nothing") for cell in ("sampling", "form", "url", "roots")
)
_SIMPLE = (
    Limit("progress", "no tool reports progress"),
    Limit("cancel", "no tool runs long enough to be cancelled"),
    *_ASKS_NOTHING,
)


def _ordinary_peer(name: str, module: str, call: Call, error: Call) -> Peer:
    """Return an unchanged server from PyPI."""
    command = (str(venv_python("mcp-servers")), "-m", module)
    return Peer(name, {STDIO: Program(command)}, REVISIONS[-2:], call, error, limits=_SIMPLE)


GIT = _ordinary_peer(
    "mcp-server-git 2026.10.19",
    "mcp_server_git",
    Call("git_log", {"repo_path": str(REPOSITORY), "max_count": 1}, COMMIT),
    Call("git_log", {"repo_path": str(FILES)}, str(FILES)),
)
TIME = _ordinary_peer(
    "mcp-server-time 2026.10.19",
    "mcp_server_time",
    Call("get_current_time", {"timezone": "UTC"}, '"is_dst": false'),
    Call("get_current_time", {"timezone": "Nowhere"}, "No time zone found with key Nowhere"),
)

# The old versions (2024-11-05 and 2025-03-26) exit with their first session.
_NPM_OLD_HTTP = tuple(
    _over_old_http(peer, _npm_program(package, *script, PORT="{port}"), one_session=one)
    for peer, package, script, one in (
        (EVERYTHING, _EVERYTHING_NOW, ("index.js", "sse"), False),
        (EVERYTHING_2025_03, "everything-2025-03-26", ("sse.js",), True),
        (EVERYTHING_2024, "everything-2024-11-05", ("sse.js",), True),
    )
)

PEERS = (
    OFFICIAL,
    FASTMCP,
    TYPESCRIPT,
    MCP_1_12,
    MCP_1_9,
    MCP_1_8,
    EVERYTHING,
    EVERYTHING_2025_06,
    EVERYTHING_2025_03,
    EVERYTHING_2024,
    FILESYSTEM,
    GIT,
    TIME,
    *_PYTHON_OLD_HTTP,
    *_NPM_OLD_HTTP,
)


@dataclass(frozen=True)
class Row:
    """A row of the table: one server over one transport, opened in one mode."""

    peer: Peer
    transport: str
    mode: Mode

    @property
    def revision(self) -> str:
        """The revision that the client must negotiate."""
        return self.peer.revisions[-1] if self.mode == "auto" else self.mode

    @property
    def title(self) -> tuple[str, str, str]:
        """The first cells of the row."""
        revision = f"{self.revision} (auto)" if self.mode == "auto" else self.revision
        return self.peer.name, self.transport, revision

    def limit(self, cell: str) -> Limit | None:
        """Return the limit that applies to this cell, if there is one."""
        for limit in (*LIMITS_OF_REVISIONS, *self.peer.limits):
            here = not limit.transports or self.transport in limit.transports
            if limit.cell == cell and here and self.revision in (limit.revisions or REVISIONS):
                return limit
        return None

    def __str__(self) -> str:
        words = f"{self.peer.name} {self.transport} {self.mode}"
        return words.replace(",", "").replace(" ", "-")


ROWS = tuple(
    Row(peer, transport, mode)
    for peer in PEERS
    for transport in peer.programs
    for mode in (*peer.revisions, "auto")
)
