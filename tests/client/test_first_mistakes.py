"""Common first mistakes: each error names the mistake and what to write instead."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import pickle
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

import syncmcp.approval
import syncmcp.auth
import syncmcp.llm
import syncmcp.testing
from syncmcp import UsageError, errors, executors, servers_file, types
from syncmcp._base.similar import LONGEST_NAME, MOST_NAMES, similar
from syncmcp.auth import Deadline
from syncmcp.auth.receiver import login_timed_out
from syncmcp.errors import ClosedError, ConnectFailed, InvalidParams, MissingCapability
from syncmcp.handlers.roots import Roots
from syncmcp.observe.metrics import Measured
from syncmcp.saving import save
from syncmcp.testing import AuthorizationServer, Server, demo_server, serve_http
from syncmcp.ui.browser import Browser
from syncmcp.ui.terminal import Terminal
from tests.transports.certificates import make
from tests.transports.http_peer import serving

SHOP = Server("shop")


@SHOP.tool()
def add(a: int, b: int) -> int:
    return a + b


@SHOP.tool()
def broken() -> str:
    raise ValueError("out of order")


URL = "https://example.com/mcp"
SUM = {"a": 1, "b": 2}
TEXT = types.TextResourceContents(uri="a:b", text="x")
OLD: syncmcp.Mode = "2025-11-25"
Mistake = Callable[[Any], object]

# `Any`, because type checkers reject most of these mistakes.
approval: Any = syncmcp.approval
auth: Any = syncmcp.auth
testing: Any = syncmcp.testing
sdk: Any = syncmcp
connect: Any = syncmcp.connect
Client: Any = syncmcp.Client
group: Any = syncmcp.ClientGroup
servers_of: Any = servers_file.read
token: Any = syncmcp.CancelToken
AnthropicFormat: Any = syncmcp.llm.AnthropicFormat
CallToolResult: Any = types.CallToolResult
message_class: Any = types.CreateMessageResult
ElicitResult: Any = types.ElicitResult
Handlers: Any = syncmcp.Handlers
Http: Any = syncmcp.Http
OAuth: Any = syncmcp.auth.OAuth
Stdio: Any = syncmcp.Stdio
ToolLoop: Any = syncmcp.ToolLoop
server: Any = Server("x")
WRITE_A_MESSAGE = (
    "not str: write CreateMessageResult(role='assistant', content=TextContent(text=...), model"
)
UNFIT = ElicitResult.accept({"outputFormat": "pdf"})


async def coroutine(*given: object) -> None: ...


def within(context: Any, action: Mistake) -> None:
    """Call `action` with the object that a context manager returns."""
    with context as opened:
        action(opened)


def annotated(function: Any, **hints: object) -> Any:
    function.__annotations__ = hints
    return function


def grouped(action: Mistake) -> None:
    within(group({"shop": SHOP}), action)


def judged(decide: Callable[[Any], Any]) -> None:
    sampled(sampling=lambda *_: pytest.fail("asked"), approval=SimpleNamespace(decide=decide))


def sign_in(more: str | None, option: str = "allow") -> None:
    """Connect with an issuer that ends with `more`; without authentication if it is `None`."""
    with (
        AuthorizationServer() as authorization,
        serve_http(SHOP, authorization_server=authorization) as http,
    ):
        login = None if more is None else OAuth(**{option: authorization.issuer + more})
        connect(Http(http.url, auth=login))


def sampled(**options: Any) -> None:
    client = connect(demo_server(), **options)
    within(client, lambda client: client.call_tool("request_llm_help", {"question": "why?"}))


def filled_in(answer: Any, tool: str = "ask_user_preferences", **options: Any) -> None:
    client = connect(demo_server(), elicitation=lambda *_: answer, **options)
    within(client, lambda client: client.call_tool(tool))


# A part of the error's text, and the mistake, which gets an open client of the shop.
USAGE_ERRORS: dict[str, Mistake] = {
    "write connect(Http(URL, headers=...))": lambda _: connect(URL, headers={"X-Key": "1"}),
    # The client checks the mode before the objects that may ask a person.
    "mode must be one of": lambda _: Client(object(), mode="yesterday"),
    "handler must accept the arguments (tools)": lambda client: client.on_tools_changed(lambda: 1),
    "method must be a non-empty": lambda client: client.on_notification("", print),
    "pass no lazy=": lambda _: group({"a": SHOP}, lazy=True),
    "on_progress must accept the arguments (server, progress, total, message)": lambda _: group(
        {"a": SHOP}, on_progress=lambda progress, total, message: None
    ),
    "pass the URL of the MCP server": lambda _: OAuth("shop.example"),
    "issuer must be the URL of an authorization server, not 'nope'": lambda _: (
        auth.ClientCredentials("me", client_secret="s", issuer="nope")
    ),
    "'http://login.example' cannot be used, because it is not encrypted": lambda _: (
        auth.ClientCredentials("me", client_secret="s", issuer="http://login.example")
    ),
    "URL; write http:// or https://": lambda _: connect("ws://example.com/mcp"),
    "write http:// before it": lambda _: connect("localhost:8000"),
    "write https:// before it": lambda _: connect("example.com/mcp"),
    "not HttpServer; write its url": lambda _: within(serve_http(SHOP), connect),
    "Path: write auth=Bearer(...)": lambda _: Http(URL, token=Path("a")),
    "not Stdio: target, then path": lambda _: testing.Recording(SHOP, Stdio("a")),
    "A server in this process cannot be sent to another process: use threads": lambda _: (
        pickle.dumps(Client(Server("x")))
    ),
    "fn must be a plain function, not a coroutine function": lambda client: client.call_tool.future(
        "add", SUM
    ).add_done_callback(coroutine),
    "call it: demo_server()": lambda _: connect(demo_server),
    "port must be between 0 and 65535": lambda _: auth.LoopbackReceiver("x"),
    "overrides no hook: the hooks are outgoing, incoming, ended": lambda _: connect(
        SHOP, interceptors=[type("Guard", (syncmcp.Interceptor,), {"outgoin": print})()]
    ),
    "must be a positive number of seconds": lambda _: OAuth(URL, login_timeout=-1),
    "not the string 'Sum'": lambda client: client.call_tool("add", SUM).parse("Sum"),
    "write connect(Http(URL, auth=OAuth(login_timeout=...)))": lambda _: connect(
        URL, login_timeout=9
    ),
    "write connect(Stdio(COMMAND, *ARGUMENTS, env=...))": lambda _: connect(
        URL, args=["server.py"], env={}
    ),
    "a client already: call open(), or use it in a w": connect,
    "for a servers file use": lambda _: connect("mcp.json"),
    "the class Server; create an instance, Server(...)": lambda _: connect(testing.Server),
    "or server, not SimpleNamespace": lambda _: connect(SimpleNamespace(connect=print)),
    "run it as a program": lambda _: connect(SimpleNamespace(run=print, tool=print, name="x")),
    "Stdio(*words)": lambda _: Stdio(["python", "a.py"]),
    "auth is the class OAuth: write OAuth(": lambda _: Http(URL, auth=OAuth),
    "elicitation is the class Elicitation: write Elicitation(...)": lambda _: connect(
        SHOP, elicitation=syncmcp.Elicitation
    ),
    "store is the class FileStore: write FileS": lambda _: OAuth(store=auth.FileStore),
    "'browser', a receiver or None, not 5": lambda _: OAuth(receiver=5),
    "headers must be callable without arguments": lambda _: Http(URL, headers=lambda x: {}),
    "receiver is the class PasteReceiver": lambda _: OAuth(receiver=auth.PasteReceiver),
    "remove the white space around it": lambda _: Http(" https://x"),
    "use syncmcp.testing.Replay(...)": lambda _: connect("tape.jsonl"),
    "Namespace; write its url": lambda _: Http(SimpleNamespace(url="x")),
    "a RateLimit(calls=..., per=...), not 5": lambda _: approval.Approval(limit=5),
    "cancel must be a CancelToken or threading.Event, not Event": lambda client: client.call_tool(
        "add", cancel=asyncio.Event()
    ),
    "a tuple of two: (certificate, key)": lambda _: Http(URL, cert=["a", "b"]),
    "no tool named 'ad': did you mean 'add'?": lambda client: client.tool("ad"),
    "params must be a mapp": lambda client: client.notify("notifications/x", "a"),
    "must accept the arguments (progress, total, message)": lambda client: client.call_tool(
        "add", on_progress=lambda done: None
    ),
    "{'name': value}, not tup": lambda client: list(client.tool("add").map([(1, 2)])),
    "start must accept the arguments (client)": lambda _: grouped(
        lambda several: [*several.as_completed(lambda: 1)]
    ),
    "list_tools.future() d": lambda _: grouped(
        lambda several: [*several.as_completed(lambda client: client.list_tools())]
    ),
    "format AnthropicFormat: 'content' is missing": lambda _: AnthropicFormat().parse_calls(
        {"choices": []}
    ),
    "tools must be Tool objects, not str": lambda _: AnthropicFormat(["add"]),
    "not dict": lambda _: AnthropicFormat().render_messages([{"role": "user"}]),
    "make SamplingMessage(role=m.role, content": lambda client: ToolLoop(print, client).run(
        [types.PromptMessage(role="user", content=types.TextContent(text="x"))]
    ),
    "a session (session_id=) is not possible with revision 2026-07-28": lambda _: Client(
        Http("http://localhost", session_id="x"), mode="2026-07-28"
    ),
    "parse_messages of its format in syncmcp.llm": lambda client: ToolLoop(print, client).run(
        [{"role": "user", "content": "x"}]
    ),
    "'3'>; pass one resource, image or audio of its content, or write its": lambda client: save(
        client.call_tool("add", SUM), "a"
    ),
    "path names a directory, not a file: '.'": lambda _: save(TEXT, "."),
    f"path names a directory, not a file: {gettempdir()!r}": lambda _: save(TEXT, gettempdir()),
    "store such as FileStore(path), not str": lambda _: OAuth(store="tokens.json"),
    "tools must be names of tools, not Tool": lambda client: ToolLoop(print, client).run(
        "Hi", tools=client.list_tools().tools
    ),
    "path must be a str or a path, not int": lambda _: auth.FileStore(3),
    "variables must be a mapping": lambda _: servers_of("a.json", variables=["x"]),
    "path must be the path of a file, not dict": lambda _: servers_of({}),
    "not float; for a timeout, write CancelToken.after(seconds)": lambda _: token(0.5),
    "after(seconds) takes a number of seconds, not '5'": lambda _: token.after("5"),
    "a number of seconds, not True": lambda _: token.after(True),
    "[b]: the target must be a URL": lambda _: group({"a": SHOP, "b": 5}).open(),
    "write a mapping {NAME: URL}, or the path of a file": lambda _: group(URL),
    "did not declare 'form' when it connected to the server: set the handler before": lambda _: (
        within(
            connect(SHOP, mode=OLD),
            lambda client: client.call_tool("add", handlers=Handlers(elicitation=lambda *_: None)),
        )
    ),
    "roots must be a list, not int: write [...]": lambda _: connect(SHOP, roots=5),
    "must be a string or a conversation": lambda client: ToolLoop(print, client).run(None),
    "seconds must be a number of seconds or None, not 'x'": lambda _: testing.Hold(
        "head", seconds="x"
    ),
    "normalize must be callable, not int": lambda _: testing.Replay("a.jsonl", normalize=5),
    "normalize must accept the arguments (method, params)": lambda _: testing.Replay(
        "a.jsonl", normalize=lambda params: params
    ),
    "client_name must be a non-empty string, not int": lambda _: OAuth(client_name=5),
}
TYPE_ERRORS: dict[str, Mistake] = {
    "needs a CallToolResult; a tool may raise": lambda _: errors.ToolError(cast("Any", "no")),
    "must be an int: RpcError(code, message)": lambda _: testing.RpcError("sold out", -32050),
    "per_server['a'] has the unknown option 'timeot': did you mean 'timeout' or": lambda _: group(
        {"a": SHOP}, per_server={"a": {"timeot": 3}}
    ),
    "write servers_file.read(FILE, trust=...)": lambda _: group({"a": SHOP}, trust=True),
    "write servers_file.read(FILE, approve=": lambda _: connect(SHOP, approve=print),
    "write Client(TARGET, lazy=True)": lambda _: connect(SHOP, lazy=True),
    "unexpected keyword argument 'nme'": lambda _: group({"a": SHOP}, nme="x"),
    "name must be a str, not int": lambda _: testing.Server(5),
    "add: note://{name} has no variable for the parameter 'a'": lambda _: server.resource_template(
        "note://{name}"
    )(add),
    "write @server.resource(URI), not function": lambda _: server.resource(add),
    "tools are functions, not str": lambda _: server.add_tool("price"),
    "port must be a number, not str": lambda _: testing.serve_http(SHOP, port="x"),
    "fault must be a Cut, Hold or Drip, not str": lambda _: within(
        testing.FaultProxy("http://127.0.0.1:9/mcp"), lambda proxy: proxy.queue("cut")
    ),
    "scopes must be a list: write ['read']": lambda _: AuthorizationServer(scopes="read"),
    "allowed_hosts must be a list: write ['a']": lambda _: serve_http(SHOP, allowed_hosts="a"),
    "revisions must be a list: write ['2025-11-25']": lambda _: testing.Server(
        revisions="2025-11-25"
    ),
    "write Stdio(COMMAND, ...)": lambda _: connect("python", "server.py"),
    "did you mean 'require'?": lambda _: group({"a": SHOP}, requires="all"),
    "write Http(URL, ...) as the server": lambda _: group({"a": SHOP}, token="t"),
    "arguments as one dict": lambda client: client.get_prompt("p", text="x"),
    "'contents': did you mean 'content'?": lambda _: ElicitResult(contents={}),
    "keyword arguments: ElicitResult(action=...)": lambda _: ElicitResult("accept"),
    "must be an AuthorizationServer": lambda _: testing.serve_http(SHOP, authorization_server="x"),
    "made by syncmcp.testing.script": lambda _: testing.ScriptedPeer([5]),
    "write token=": lambda _: Http(URL, bearer="t"),
    "must be the URL of a server, not Server": lambda _: testing.FaultProxy(SHOP),
    "Stdio(command, *args)": lambda _: Stdio("python", args=["a.py"]),
    "Http() has no heders=: did you mean 'headers'": lambda _: Http(URL, heders={}),
    "ToolLoop() has no max_turns=: write max_iterations=": lambda client: ToolLoop(
        print, client, max_turns=3
    ),
    "ToolLoop() has no max_iteration=: did you mean 'max_iterations'": lambda client: ToolLoop(
        print, client, max_iteration=3
    ),
    "ToolLoop.run() has no timeout=: pass it to ToolLoop()": lambda client: ToolLoop(
        print, client
    ).run("Hi", timeout=3),
    "ToolLoop.run() has no system_promt=: did you mean 'system_prompt'": lambda client: ToolLoop(
        print, client
    ).run("Hi", system_promt="x"),
    "context: ToolContext (from syncmcp.testing)": lambda _: server.add_tool(lambda context: 1),
    "so write input_schema=: Cannot generate": lambda _: server.add_tool(
        annotated(lambda worker: 1, worker=threading.Thread)
    ),
    "maybe: ToolContext (from syncmcp.testing)": lambda _: server.add_tool(
        annotated(lambda maybe=None: 1, maybe=testing.ToolContext | None)
    ),
    "ctx: ToolContext (from syncmcp.testing)": lambda _: server.add_tool(
        annotated(lambda ctx: 1, ctx=syncmcp.HandlerContext)
    ),
    "Stdio() has no timeout=: ": lambda _: Stdio("python", timeout=3),
    "option 'timout': did you mean 'timeout'": lambda client: client.tool("add", timout=1),
    "must be a Server, not the class Server": lambda _: testing.serve_http(testing.Server),
    "pass the arguments of a tool as a dict": lambda client: client.start_task("add", a=1),
    "write @server.tool() with parentheses": lambda _: server.tool(add),
    "as keywords of tool(name)(...)": lambda client: client.call_tool("add", a=1, b=2),
    "write .stream(...)": lambda client: [*client.call_tool("add", SUM)],
    "handlers=Handlers(roots=...)": lambda client: client.call_tool("a", roots=print),
    "did you mean 'arguments'?": lambda client: client.call_tool("a", args={"a": 1}),
    "an option of the client, connect(..., approval=...)": lambda client: client.call_tool(
        "a", {}, approval=approval.AllowAll()
    ),
    "an option of the target, Http(URL, token=...)": lambda client: client.call_tool(
        "a", {}, token="t"
    ),
    "write elicitation=, roots=, sampling=": lambda _: connect(SHOP, handlers=1),
    "did you mean 'sampling'?": lambda _: connect(SHOP, samplin=1),
    "unexpected keyword argument 'zzz'": lambda _: connect(SHOP, zzz=1),
    "map fields to values, not be a": lambda _: ElicitResult.accept("Ada"),
    "connect() needs a target: a URL, Stdio, Http or server": lambda _: connect(),
    "it is an option of a call, client.call_tool(..., cancel=...)": lambda _: connect(
        SHOP, cancel=None
    ),
    "it is an option of a call": lambda _: group({"a": SHOP}, meta={}),
    "pass servers as a mapping: ClientGroup({'url': ...})": lambda _: group(url=URL),
    "call_tool needs a client: write client.call_tool(...)": lambda _: Client.call_tool(
        "add", {"a": 1}
    ),
    "write wsgi_app(HttpEndpoint(server))": lambda _: testing.wsgi_app(SHOP),
}
OTHER_ERRORS: dict[type[Exception], dict[str, Mistake]] = {
    errors.InvalidArguments: {
        "argument 'a' is not of type integer": lambda client: client.call_tool(
            "add", {"a": 1.5, "b": 2}, validate_input=True
        )
    },
    ClosedError: {
        "the group is not open: use it in a with": lambda _: group({"a": SHOP}).tools,
    },
    ConnectFailed: {
        "a URL needs no Stdio: connect(URL)": lambda _: connect(
            Stdio("http://localhost/mcp")
        ).open(),
        "there is no file 's.py'": lambda _: connect(Stdio("s.py")).open(),
        "(exit code 0; the program ended without an error: does the command": lambda _: connect(
            Stdio(sys.executable, "-c", "pass")
        ).open(),
        "~ is not expanded": lambda _: connect(Stdio("~/bin/server")).open(),
        "is a directory": lambda _: connect(Stdio(str(Path.cwd()))).open(),
    },
    ValueError: {
        "a text is written TextContent(text=...)": lambda _: message_class(
            role="assistant", content="hi", model="m"
        ),
        "one of tools, resources, prompts, not 'tool'": lambda _: server.list_changed("tool"),
        "optional, required, not 'yes'": lambda _: server.add_tool(add, task_support="yes"),
        "write @server.resource_template(": lambda _: server.resource("a://{b}"),
    },
    errors.AuthError: {
        "cannot read the token in '/no/such/token': No such file or directory": lambda _: connect(
            Http(URL, auth=auth.Bearer(Path("/no/such/token")))
        ).open(),
        "requires credentials, and the client sent no Authorization header": lambda _: sign_in(
            None
        ),
    },
    errors.ServerError: {
        "syncmcp.templates.UriTemplate": lambda _: within(
            connect(demo_server()), lambda client: client.read_resource("demo://notes/{name}")
        ),
        "elicitation: revision 2024-11-05 does not": lambda _: filled_in(None, mode="2024-11-05"),
    },
    errors.InvalidOutput: {
        "tools/call [shop]: the tool result has no structured content": lambda client: (
            client.call_tool("add", SUM).parse(dict[str, str])
        ),
        "says why: tool 'broken' [shop]: out of o": lambda client: client.call_tool(
            "broken"
        ).json(),
        "the tool failed, and returned no": lambda client: client.call_tool("broken").parse(int),
    },
    AttributeError: {
        "when you create a client: Client(TARGET, timeout=...)": lambda client: setattr(
            client, "timeout", 3
        ),
        "when you create a target: Http(URL, token=...)": lambda client: setattr(
            Http("http://127.0.0.1:1"), "token", "secret"
        ),
        "'ClientGroup' object has no attribute 'list_tools': write group.tools": lambda _: (
            group({}).list_tools
        ),
        "no attribute 'MockServer': did you mean 'Server'": lambda _: testing.MockServer,
        "'ping_server'": lambda _: group({}).ping_server,
        "'set_log_level': write group.clients[NAME].set_log_level": lambda _: (
            group({}).set_log_level
        ),
        "has no attribute 'ClientSession': write syncmcp.connect(...)": lambda _: sdk.ClientSession,
        "'StdioServerParameters': write syncmcp.Stdio(": lambda _: sdk.StdioServerParameters,
        "when you create a group: ClientGroup(SERVERS, timeout=...)": lambda _: setattr(
            group({}), "timeout", 3
        ),
    },
    FileNotFoundError: {"directory: 'nowhere/a.txt'": lambda _: save(TEXT, "nowhere/a.txt")},
    KeyError: {
        "no server 'b' is open; open servers: none": lambda _: group({"a": SHOP}).clients["b"],
        "no server 'b' is open ([b]: command not found: 'no-such-program'": lambda _: within(
            group({"a": SHOP, "b": Stdio("no-such-program")}), lambda several: several.clients["b"]
        ),
        "no server of the group has a tool 'ad'; did you": lambda _: grouped(
            lambda several: several.tools["ad"]
        ),
    },
    errors.Denied: {
        "a policy returned bool, not a Decision: return Decision.ALLOW, DENY or ASK": lambda _: (
            judged(lambda _: True)
        ),
        "a reviewer returned bool, not a Verdict: return Verdict.allow() or .deny()": lambda _: (
            sampled(
                sampling=lambda *_: pytest.fail("asked"),
                approval=approval.Approval(reviewer=SimpleNamespace(review=lambda question: True)),
            )
        ),
        "see the log: ZeroDivisionError": lambda _: judged(lambda _: 1 / 0),
        "the sampling request was denied": lambda _: judged(approval.DenyAll().decide),
    },
    syncmcp.Refused: {
        "not dict: write ElicitResult.accept(": lambda _: filled_in({"outputFormat": "json"}),
        WRITE_A_MESSAGE: lambda _: sampled(sampling=lambda *_: "hi"),
    },
    syncmcp.InvalidAnswer: {
        "Choose one of 'json', 'markdown', 'plain'.": lambda _: filled_in(UNFIT)
    },
    MissingCapability: {
        "Elicitation(form=..., url=": lambda _: filled_in(UNFIT, "connect_account")
    },
    errors.LoginRequired: {
        "allow= (which differs by the / at the end) does not": lambda _: sign_in("/")
    },
    errors.DiscoveryFailed: {"(the / at the end differs)": lambda _: sign_in("/", option="issuer")},
}


MISTAKES = {UsageError: USAGE_ERRORS, TypeError: TYPE_ERRORS, **OTHER_ERRORS}


@pytest.mark.parametrize(
    ("error", "advice"), [(kind, advice) for kind, rows in MISTAKES.items() for advice in rows]
)
def test_a_mistake_is_told_what_to_write(error: type[Exception], advice: str) -> None:
    with syncmcp.connect(SHOP) as client, pytest.raises(error) as raised:
        MISTAKES[error][advice](client)
    assert advice in str(raised.value)


SWITCHES: dict[str, Mistake] = {
    "allow_private": lambda no: OAuth(URL, allow_private=no),
    "dpop": lambda no: OAuth(URL, dpop=no),
    "open_browser": lambda no: auth.LoopbackReceiver(open_browser=no),
    "keep_session": lambda no: Http(URL, keep_session=no),
    "lazy": lambda no: Client(SHOP, lazy=no),
    "parallel": lambda no: Client(SHOP).batch(parallel=no),
    "ordered": lambda no: within(connect(SHOP), lambda one: one.tool("add").map([], ordered=no)),
    "return_errors": lambda no: within(
        connect(SHOP), lambda one: one.tool("add").map([], return_errors=no)
    ),
    "prompts": lambda no: within(connect(SHOP), lambda client: client.listen(prompts=no)),
    "resources": lambda no: grouped(lambda several: several.listen(resources=no)),
    "asks_person": lambda no: sdk.Elicitation(print, asks_person=no),
    "tools": lambda no: sdk.Sampling(print, tools=no),
    "context": lambda no: sdk.Sampling(print, context=no),
    "trust": lambda no: servers_file.read("mcp.json", trust=no),
    "overwrite": lambda no: save(TEXT, "a.txt", overwrite=no),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_text_is_not_taken_for_a_switch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mcp.json").write_text('{"mcpServers": {}}', encoding="utf-8")
    with pytest.raises(UsageError, match=f"^{name} must be True or False, not 'no'$"):
        SWITCHES[name]("no")


@pytest.mark.parametrize("line", ["syncmcp.auth import OAuth", "syncmcp.testing import serve_http"])
def test_a_name_of_a_subpackage_is_told_where_it_is(line: str) -> None:
    with pytest.raises(AttributeError, match=f"write from {line}$"):
        getattr(syncmcp, line.rpartition(" ")[2])
    for home, names in syncmcp._ELSEWHERE.items():
        assert set(names.split()) <= set(importlib.import_module(f"syncmcp.{home}").__all__)


OFFICIAL = {
    "sampling_callback": "sampling",
    "elicitation_callback": "elicitation",
    "list_roots_callback": "roots",
    "logging_callback": "on_log",
    "message_handler": "on_notification",
    "read_timeout_seconds": "timeout",
}


@pytest.mark.parametrize(("word", "option"), OFFICIAL.items())
def test_a_keyword_of_the_official_sdk_names_the_one_of_a_client(word: str, option: str) -> None:
    with pytest.raises(TypeError) as raised:
        connect(SHOP, **{word: None})
    assert str(raised.value).endswith(f"write {option}=")
    assert option in inspect.signature(syncmcp.Client).parameters


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("auto", MissingCapability, "pass the client a handler: elicitation="),
        (OLD, errors.InvalidRequest, "declare elicitation: it needs a handler, elicitation="),
    ],
)
def test_a_question_without_a_handler_names_the_option(
    mode: syncmcp.Mode, error: type[Exception], words: str
) -> None:
    with syncmcp.connect(demo_server(), mode=mode) as client, pytest.raises(error, match=words):
        client.call_tool("ask_user_preferences")


def test_results_streams_and_roots_print_as_what_they_are_on_one_line(tmp_path: Path) -> None:
    with syncmcp.connect(demo_server()) as client:
        read = client.read_resource("demo://readme")
        assert str(read) == "<ReadResourceResult 'This is the demo server.'>"
        assert repr(client.read_resource("demo://pixel.png")) == "<ReadResourceResult image/png>"
        assert str(client.get_prompt("hello")) == "<GetPromptResult of 1 message: 'Say hello.'>"
    with syncmcp.connect(SHOP, name="shop", roots=[tmp_path]) as client:
        with client.call_tool.stream("add", SUM) as stream:
            assert repr(stream).startswith("<ResultStream of <RequestFuture tools/call [shop] ")
        assert repr(client.roots) == f"<Roots {tmp_path.as_uri()!r}>"
        assert repr(client.list_tools()) == "<ListToolsResult of 2 tools: 'add', 'broken'>"
    now = "2026-11-29T22:35:00Z"
    task = {"taskId": "t-1", "status": "working", "createdAt": now, "lastUpdatedAt": now}
    tasks = types.ListTasksResult.from_wire({"tasks": [{**task, "ttl": None}]})
    assert repr(tasks) == "<ListTasksResult of 1 task: 't-1'>"
    assert repr(Roots()) == "<Roots>"


@pytest.mark.parametrize(
    ("listed", "used", "wrong", "right"),
    [
        ("list_tools", "call_tool", "ad", "add"),
        ("list_tools", "begin_tool", "ad", "add"),
        ("list_prompts", "get_prompt", "helo", "hello"),
    ],
)
def test_an_unknown_name_is_likened_to_those_that_are_listed(
    listed: str, used: str, wrong: str, right: str
) -> None:
    server = demo_server()
    server.add_tool(add, name="add")
    with syncmcp.connect(server) as client:
        use = getattr(client, used)
        likened = f"did you mean {right!r}?"
        for name, hint in ((wrong, None), (wrong, likened), ("nothing of the kind", None)):
            with pytest.raises(InvalidParams) as raised:
                use(name)
            assert raised.value.hint == hint
            assert (hint or "") in str(raised.value)
            getattr(client, listed)()


def test_each_option_of_a_target_is_recognized() -> None:
    for target, others in ((Http, {"url"}), (Stdio, set()), (OAuth, {"url", "session"})):
        options = sorted(inspect.signature(target).parameters.keys() - others)
        assert len(options) > 8
        for option in options:
            words = rf"^{option}= is an option of the target: write connect\(.*{target.__name__}\("
            with pytest.raises(UsageError, match=words):
                connect(URL, **{option: None})


def test_of_many_or_long_names_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    class Matcher(difflib.SequenceMatcher[str]):
        def set_seq1(self, a: Any) -> None:
            compared.append(a)
            super().set_seq1(a)

    monkeypatch.setattr(difflib, "SequenceMatcher", Matcher)
    names = [f"tool{number:04}" + "x" * (60 * (number % 2)) for number in range(1200)]
    assert all(close.startswith("tool0") for close in similar("tool000", names, 3))
    assert 0 < len([name for name in compared if name]) <= MOST_NAMES
    assert max(map(len, compared)) <= LONGEST_NAME
    compared.clear()
    assert similar("tool000" + "x" * 100, ["tool000"], 1) == []
    assert compared == []


def test_a_call_on_a_client_that_is_not_open_says_why() -> None:
    client = syncmcp.Client(SHOP)
    client.close()
    for attempt in (client.ping, client.list_tools.future, lambda: client.server):
        with pytest.raises(ClosedError, match="never opened: use it in a with block, or call open"):
            attempt()
    client.open()
    closing = threading.Thread(target=client.close, name="janitor")
    closing.start()
    closing.join()
    client.close()  # the client is already closed
    with pytest.raises(ClosedError, match=r"closed by the thread 'janitor': open\(\) opens it"):
        client.ping()


def test_a_call_that_the_end_of_the_block_ends_says_what_waits_for_it() -> None:
    with syncmcp.connect(demo_server()) as client:
        call = client.call_tool.future("sleep", {"seconds": 60})
    with pytest.raises(ClosedError, match=r"; close\(drain=True\) first waits for calls in fl"):
        call.result()


DIES = "import sys; sys.exit('there is no ' + 'SHOP' + '_API_KEY')"


NO_KEY = "(exit code 1; stderr ended with: there is no SHOP_API_KEY; "
NOT_GIVEN = "its stderr names SHOP_API_KEY, which the server did not get "


@pytest.mark.requirement("VER-07")
@pytest.mark.pitfall("7", "8")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, f"{NOT_GIVEN}{NO_KEY}pass with env= the variables that the server may have"),
        (
            {"env": {"SHOP_API_KEY": "x"}, "inherit_env": "none"},
            f"{NO_KEY}the server got the variables SHOP_API_KEY; pass others",
        ),
        ({"inherit_env": "all"}, None),
    ],
)
def test_a_server_that_dies_at_its_start_is_told_which_variables_it_lacked_or_had(
    options: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "secret")
    with pytest.raises(ConnectFailed) as raised:
        connect(Stdio(sys.executable, "-c", DIES, **options))
    error = raised.value
    if said is None:
        assert "variables" not in str(error)
    else:
        assert said in str(error)
    assert "secret" not in str(error)
    assert error.exit_code == 1
    assert "there is no SHOP_API_KEY" in error.stderr_tail
    assert isinstance(error.__cause__, errors.ConnectionLost)


@pytest.mark.parametrize("words", [["no_such.py"], ["-c", "import no_such_module"]], ids=str)
def test_who_dies_of_its_own_code_is_told_nothing_of_variables(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(ConnectFailed) as raised:
        connect(Stdio(sys.executable, *words))
    assert "no_such" in str(raised.value)
    assert "variables" not in str(raised.value)
    monkeypatch.setenv("PYTHONPATH", "modules")  # the module may be in this folder
    with pytest.raises(ConnectFailed, match="the server got the variables "):
        connect(Stdio(sys.executable, *words))


def test_errors_of_opening_speak_of_no_request() -> None:
    with pytest.raises(ConnectFailed) as raised:
        syncmcp.connect("http://127.0.0.1:1/mcp", retry=None)
    assert str(raised.value).startswith("[http://127.0.0.1:1/mcp]: the connection was refused")
    assert "refused: is the server running on this port?" in str(raised.value)
    assert "request" not in str(raised.value)
    assert raised.value.delivery == "not_sent"


def test_a_proxy_that_fails_is_named_with_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:word@127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ConnectFailed) as raised:
        connect(Http("http://example.invalid/mcp"), retry=None)
    assert "cannot use the proxy http://***@127.0.0.1:1 (http_proxy): " in str(raised.value)
    assert "word" not in str(raised.value)


having: Any = SimpleNamespace
pool: Any = ThreadPoolExecutor(1)

GIVERS: dict[str, Mistake] = {
    "on_log": lambda given: Client(SHOP, on_log=given),
    "on_progress": lambda given: Client(SHOP, on_progress=given),
    "on_notification": lambda given: Client(SHOP, on_notification=given),
    "on_handler_error": lambda given: Client(SHOP, on_handler_error=given),
    "sampling": lambda given: Client(SHOP, sampling=given),
    "elicitation": lambda given: Client(SHOP, elicitation=given),
    "the source of roots": lambda given: Roots(source=given),
    "allow": lambda given: OAuth(allow=given),
    "show": lambda given: auth.LoopbackReceiver(show=given),
    "ask": lambda given: auth.PasteReceiver(ask=given),
    "decide of a policy": lambda given: approval.Approval(having(decide=given)),
    "review of a reviewer": lambda given: approval.Approval(reviewer=having(review=given)),
    "SimpleNamespace.ended": lambda given: Client(
        SHOP, interceptors=[having(outgoing=id, incoming=id, ended=given)]
    ),
    "name_hook": lambda given: group({}, name_hook=given),
    "on_step": lambda given: ToolLoop(lambda *_: None, group({}), on_step=given),
    "on_text": lambda given: ToolLoop(lambda *_: None, group({}), on_text=given),
    "headers": lambda given: Http(URL, headers=given),
    "stderr": lambda given: Stdio("python", stderr=given),
    "the token": auth.Bearer,
    "on_done": lambda given: executors.fan_out(URL, [], pool, on_done=given),
    "SimpleNamespace.repetition": lambda given: Measured(
        having(request=print, frame=print, repetition=given)
    ),
    "open_url": lambda given: Terminal(open_url=given),
    "beside": lambda given: Terminal(beside=given),
    "llm": lambda given: ToolLoop(given, group({})),
    "open_page": lambda given: Browser(open_page=given),
    "the callback of on_cancel": lambda given: token().on_cancel(given),
}


@pytest.mark.parametrize("name", GIVERS)
def test_a_callback_that_does_not_take_its_arguments_is_refused_when_it_is_given(name: str) -> None:
    class Wrong:
        def method(self, one: Any, two: Any, three: Any) -> None: ...

    wrong: list[Any] = [lambda one, two, three, four: None, lambda *, key: None]
    if name not in ("on_progress", "on_done"):
        wrong.append(Wrong().method)
    without = name in ("headers", "the token", "beside", "the callback of on_cancel")
    said = "be callable without arguments$" if without else r"accept the arguments \(\w"
    for function in wrong:
        with pytest.raises(UsageError, match=f"^{name} must {said}"):
            GIVERS[name](function)
    GIVERS[name](lambda *arguments: None)


signed_in = requests.Session()  # its `auth` would replace the header of each request
signed_in.auth = ("me", "word")


def test_a_bearer_token_is_one_word() -> None:
    target = syncmcp.Http("https://example.com/mcp", token="abc123")
    assert target.headers == {"Authorization": "Bearer abc123"}
    assert "abc123" not in repr(target)
    assert target.secrets.redact("it is abc123") == "it is ***"
    beside = syncmcp.Http("https://example.com/mcp", token="abc", headers={"X-Team": "7"})
    assert beside.headers == {"X-Team": "7", "Authorization": "Bearer abc"}


@pytest.mark.parametrize(
    "options",
    [
        {"token": "two words"},
        {"token": 7},
        {"token": "t", "auth": ("me", "word")},
        {"token": "t", "headers": {"authorization": "Bearer another"}},
        {"token": "t", "session": signed_in},
    ],
)
def test_a_token_that_cannot_be_one_is_refused_without_being_quoted(options: Any) -> None:
    with pytest.raises(UsageError) as raised:
        syncmcp.Http("https://example.com/mcp", **options)
    assert "two words" not in str(raised.value)


def test_arguments_as_a_text_of_json_are_told_how_to_become_a_mapping() -> None:
    with syncmcp.connect(SHOP) as client:
        call: Any = client.call_tool
        with pytest.raises(
            UsageError, match=r"mapping or None, not str: parse it with json\.loads"
        ):
            call("add", '{"a": 1}')
        with pytest.raises(UsageError, match=r": pass its name$"):
            call(client.list_tools()[0])


def test_a_tool_as_a_function_says_which_names_its_arguments_have() -> None:
    with syncmcp.connect(SHOP) as client:
        plus: Any = client.tool("add")
        for call in (plus, plus.future, plus.stream):
            with pytest.raises(TypeError, match=r"by name: <tool add\(\*, a: int, b: int\)"):
                call(1, 2)
        with pytest.raises(TypeError, match=r"argument 'bb': did you mean 'b'\?"):
            plus(a=1, bb=2)
        with pytest.raises(TypeError, match=r"argument 'zzz'$"):
            plus(a=1, zzz=2)


def test_a_script_that_is_no_program_names_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "server.py"
    script.touch()
    monkeypatch.chdir(tmp_path)
    said = r"not found: 'server.py'; is it a script\? Stdio\('python', 'server.py'\)"
    with pytest.raises(ConnectFailed, match=said):
        syncmcp.connect(syncmcp.Stdio("server.py"))
    with pytest.raises(ConnectFailed, match=r"not executable; is it a script\? Stdio\('python', "):
        syncmcp.connect(syncmcp.Stdio(script))
    with pytest.raises(UsageError, match=r"for a script, write Stdio\('python', path\)"):
        connect(script)


def test_a_file_of_servers_is_not_a_server(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"shop": {"command": "python"}}}')
    with pytest.raises(UsageError, match=r"^approve must accept the arguments \(review\)"):
        servers_of(file, approve=lambda: True)
    servers: Any = servers_file.read(file, approve=lambda review: True)
    with pytest.raises(KeyError, match=r"no server named 'b' in .*mcp\.json.*: shop"):
        servers["b"]
    with pytest.raises(UsageError, match=r"servers\[NAME\], or pass all to a ClientGroup"):
        syncmcp.connect(servers)


def fan_out(client: Any, call: Any) -> None:
    with ThreadPoolExecutor(1) as threads:
        list(executors.fan_out(client, [call], threads))


class Adder:
    """An object of a wrong type whose `repr` contains a secret."""

    def __repr__(self) -> str:
        return "Adder(env={'API_KEY': 'k3y-4711'})"


KEY = "k3y-4711"
ENTRY: Any = {"command": "npx", "env": {"API_KEY": KEY}}

# Calls with a value that may contain secrets, and the error's text, which leaves out the value.
VALUES: dict[str, tuple[Mistake, str]] = {
    "target": (lambda _: connect(ENTRY), "not dict; for a command, write Stdio"),
    "words": (lambda _: connect(["npx", KEY]), "not list; for a command, write Stdio"),
    "object": (lambda _: connect(Adder()), "not Adder"),
    "name": (lambda _: connect(SHOP, name=ENTRY), "not dict"),
    "sampling": (lambda _: connect(SHOP, sampling=KEY), "not str"),
    "class": (lambda _: connect(SHOP, approval=Adder), "is the class Adder: write Adder(...)"),
    "cache": (lambda _: connect(SHOP, cache=f"redis://:{KEY}@host"), "not str"),
    "tool": (lambda client: client.call_tool(ENTRY), "not dict"),
    "headers": (lambda client: client.call_tool("add", headers=[("X-Key", KEY)]), "not list"),
    "params": (lambda client: client.request("x", {"_meta": KEY}), "mapping, not str"),
    "argument": (lambda client: client.get_prompt("x", {"a": KEY.encode()}), "not 'a' to bytes"),
    "pending": (lambda client: client.resume(ENTRY), "not dict"),
    "tools": (lambda _: ToolLoop(lambda request, context: None, ENTRY), "not dict"),
    "calls": (lambda client: fan_out(client, ["add", ENTRY]), "not list"),
}


@pytest.mark.parametrize(("mistake", "says"), VALUES.values(), ids=VALUES)
def test_an_error_about_a_value_that_may_be_secret_names_its_type(
    mistake: Mistake, says: str
) -> None:
    with syncmcp.connect(SHOP) as client, pytest.raises(UsageError) as caught:
        mistake(client)
    assert KEY not in str(caught.value)
    assert says in caught.value.message


def test_the_address_of_an_event_stream_that_is_none_is_questioned() -> None:
    with (
        serving(lambda request: request.connection.respond(404)) as peer,
        pytest.raises(errors.HttpError, match=r"; is this the URL of its event stream\?"),
    ):
        connect(Http(peer.url, transport="sse"), retry=None)


@pytest.mark.skipif(shutil.which("cat") is None, reason="a program of POSIX")
def test_a_program_that_sends_back_what_it_receives_is_not_a_server() -> None:
    with pytest.raises(errors.McpError, match="does it echo its input, like cat"):
        connect(Stdio("cat"), probe_timeout=0.2)


def test_plain_http_to_a_port_of_tls_asks_whether_it_is_https(tmp_path: Path) -> None:
    with (
        serving(lambda _: None, make(tmp_path).server_context()) as peer,
        pytest.raises(ConnectFailed, match=r" \(should the URL begin with https://\?\)$"),
    ):
        connect(peer.url.replace("https://", "http://"), retry=None)


def test_a_person_who_does_not_sign_in_in_time_is_told_the_option() -> None:
    late = login_timed_out(Deadline(7.0))
    assert "within 7 s (option login_timeout)" in str(late)
    assert (late.kind, late.seconds) == ("login", 7.0)
