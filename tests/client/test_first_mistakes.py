"""What a program gets wrong at first: each error says what it is and what to write instead."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

import syncmcp
from syncmcp import (
    ClosedError,
    ConnectFailed,
    InvalidAnswer,
    InvalidOutput,
    InvalidParams,
    InvalidRequest,
    Refused,
    RequestTimeout,
    UsageError,
    executors,
    llm,
    servers_file,
)
from syncmcp.approval import AllowAll, Approval, Decision, DenyAll, Rule, Verdict
from syncmcp.auth import (
    Bearer,
    ClientCredentials,
    Deadline,
    FileStore,
    LoopbackReceiver,
    OAuth,
    PasteReceiver,
    Redirect,
    SignInRequest,
    Waiting,
)
from syncmcp.auth.receiver import login_timed_out
from syncmcp.errors import AuthError, DiscoveryFailed, LoginRequired, MissingCapability
from syncmcp.handlers import Handlers
from syncmcp.handlers.roots import Roots
from syncmcp.observe.metrics import Measured
from syncmcp.saving import save
from syncmcp.testing import (
    AuthorizationServer,
    FaultProxy,
    Hold,
    Recording,
    Replay,
    ScriptedPeer,
    Server,
    demo_server,
    serve_http,
    wsgi_app,
)
from syncmcp.types import (
    CallToolResult,
    CreateMessageResult,
    ElicitResult,
    ListTasksResult,
    TextResourceContents,
)
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


def fail(client: syncmcp.Client) -> CallToolResult:
    return client.call_tool("broken")


URL = "https://example.com/mcp"
connect: Any = syncmcp.connect
client_class: Any = syncmcp.Client
Http: Any = syncmcp.Http
Stdio: Any = syncmcp.Stdio
token: Any = syncmcp.CancelToken
group: Any = syncmcp.ClientGroup
rate_limit: Any = syncmcp.RateLimit
rules: Any = syncmcp.Rules
oauth: Any = OAuth
rule: Any = Rule
form_answer: Any = ElicitResult
machine: Any = ClientCredentials
serve: Any = serve_http
servers_of: Any = servers_file.read


def ask_in_2024() -> None:
    answer = ElicitResult.decline()
    with connect(demo_server(), mode="2024-11-05", elicitation=lambda *_: answer) as client:
        client.call_tool("ask_user_preferences")


def read_a_template() -> None:
    with connect(demo_server()) as client:
        client.read_resource("demo://notes/{name}")


def add_a_fraction() -> None:
    with connect(SHOP, validate_input=True) as client:
        client.call_tool("add", {"a": 1.5, "b": 2})


def connect_to_the_listener() -> None:
    with serve_http(SHOP) as listener:
        connect(listener)


def queue_a_word() -> None:
    with FaultProxy("http://127.0.0.1:9/mcp") as proxy:
        proxy.queue(cast("Any", "cut"))


def tool_of_a_group(key: str) -> object:
    with syncmcp.ClientGroup({"shop": SHOP}) as several:
        return several.tools[key]


def judged(decide: Callable[[Any], Any]) -> None:
    sampled(sampling=lambda *_: pytest.fail("asked"), approval=SimpleNamespace(decide=decide))


def sign_in(more: str | None, option: str = "allow") -> None:
    """Connect with this text at the end of the issuer that is allowed; without a login if None."""
    with (
        AuthorizationServer() as authorization,
        serve_http(SHOP, authorization_server=authorization) as http,
    ):
        login = None if more is None else oauth(**{option: authorization.issuer + more})
        connect(Http(http.url, auth=login))


def sampled(**options: Any) -> None:
    with connect(demo_server(), **options) as client:
        client.call_tool("request_llm_help", {"question": "why?"})


def filled_in(answer: Any, tool: str = "ask_user_preferences") -> None:
    with connect(demo_server(), elicitation=lambda *_: answer) as client:
        client.call_tool(tool)


def accept_late() -> None:
    with connect(SHOP, mode="2025-11-25") as client:
        client.call_tool("add", handlers=Handlers(elicitation=lambda *_: ElicitResult.decline()))


def listen_to_a_group(resources: Any) -> None:
    with syncmcp.ClientGroup({"shop": SHOP}) as several:
        several.listen(resources=resources)


def completed(start: Any) -> None:
    with syncmcp.ClientGroup({"shop": SHOP}) as several:
        list(several.as_completed(start))


def answer_of(given: Any) -> None:
    AnthropicFormat().parse_calls(given)


UNFIT = ElicitResult.accept({"outputFormat": "pdf"})
TEXT = TextResourceContents(uri="a:b", text="x")
ToolLoop: Any = syncmcp.ToolLoop
AnthropicFormat: Any = llm.AnthropicFormat
server: Any = Server("x")

# What is done with an open client of the shop, the error, and what it says.
MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (
        lambda _: connect(URL, headers={"X-Key": "1"}),
        UsageError,
        "write connect(Http(URL, headers=...))",
    ),
    (
        lambda _: syncmcp.Client(SHOP, lazy=cast("Any", "yes")),
        UsageError,
        "lazy must be True or False, not 'yes'",
    ),
    (
        lambda client: client.batch(parallel="no"),
        UsageError,
        "parallel must be True or False, not 'no'",
    ),
    (
        lambda client: client.on_tools_changed(lambda: 1),
        UsageError,
        "handler must accept the arguments (tools)",
    ),
    (
        lambda client: client.on_resource_updated("a:b", lambda: 1),
        UsageError,
        "handler must accept the arguments (result)",
    ),
    (lambda client: client.on_notification("", print), UsageError, "method must be a non-empty"),
    (lambda _: add_a_fraction(), syncmcp.InvalidArguments, "argument 'a' is not of type integer"),
    (
        lambda _: group({"a": SHOP}, per_server={"a": {"timeot": 3}}),
        TypeError,
        "per_server['a'] has the unknown option 'timeot': did you mean 'timeout' or",
    ),
    (
        lambda _: group({"a": SHOP}, per_server={"a": {"token": "t"}}),
        TypeError,
        "option 'token': write Http(URL, ...) as the server",
    ),
    (
        lambda _: group({"a": SHOP}, trust=True),
        TypeError,
        "write servers_file.read(FILE, trust=...)",
    ),
    (lambda _: connect(SHOP, approve=print), TypeError, "write servers_file.read(FILE, approve="),
    (lambda _: connect(SHOP, lazy=True), TypeError, "write Client(TARGET, lazy=True)"),
    (lambda _: group({"a": SHOP}, lazy=True), UsageError, "pass no lazy="),
    (
        lambda _: group({"a": SHOP}, on_progress=lambda progress, total, message: None),
        UsageError,
        "on_progress must accept the arguments (server, progress, total, message)",
    ),
    (lambda _: group({"a": SHOP}, nme="x"), TypeError, "unexpected keyword argument 'nme'"),
    (lambda _: oauth("shop.example"), UsageError, "pass the URL of the MCP server"),
    (
        lambda _: machine("me", client_secret="s", issuer="nope"),
        UsageError,
        "issuer must be the URL of an authorization server, not 'nope'",
    ),
    (lambda _: Server(cast("Any", 5)), TypeError, "name must be a str, not int"),
    (
        lambda _: server.resource_template("note://{name}")(add),
        TypeError,
        "add: note://{name} has no variable for the parameter 'a'",
    ),
    (lambda _: server.resource(add), TypeError, "write @server.resource(URI), not function"),
    (lambda _: server.resource_template(add), TypeError, "write @server.resource_template(URI)"),
    (lambda _: group({"a": SHOP}).tools, ClosedError, "the group is not open: use it in a with"),
    (lambda _: group({"a": SHOP}).ping(), ClosedError, "the group is not open: use it in a with "),
    (
        lambda _: connect(Stdio("http://localhost/mcp")).open(),
        ConnectFailed,
        "a URL needs no Stdio: connect(URL)",
    ),
    (
        lambda _: connect(Stdio("s.py")).open(),
        ConnectFailed,
        "command not found: 's.py'; is it a script? Stdio('python', 's.py')",
    ),
    (lambda _: server.add_tool("price"), TypeError, "tools are functions, not str"),
    (lambda _: serve(SHOP, port="x"), TypeError, "port must be a number, not str"),
    (lambda _: queue_a_word(), TypeError, "fault must be a Cut, Hold or Drip, not str"),
    (lambda _: connect("localhost:8000"), UsageError, "write http:// before it"),
    (lambda _: connect("example.com/mcp"), UsageError, "write https:// before it"),
    (lambda _: connect("ws://example.com/mcp"), UsageError, "URL; write http:// or https://"),
    (lambda _: connect_to_the_listener(), UsageError, "not HttpServer; write its url"),
    (lambda _: connect(Stdio("~/bin/server")).open(), ConnectFailed, "~ is not expanded"),
    (
        lambda _: Server(revisions="2025-11-25"),
        TypeError,
        "revisions must be a list, ['2025-11-25']",
    ),
    (
        lambda _: rule(decision="allow"),
        UsageError,
        "must be one of Decision.ALLOW, Decision.DENY, Decision.ASK, not 'allow'",
    ),
    (
        lambda _: rule(decision=Decision.DENY, kind="smpling"),
        UsageError,
        "kind must be one of sampling,",
    ),
    (lambda _: connect("python", "server.py"), TypeError, "write Stdio(COMMAND, ...)"),
    (lambda _: group({"a": SHOP}, requires="all"), TypeError, "did you mean 'require'?"),
    (lambda _: group({"a": SHOP}, token="t"), TypeError, "write Http(URL, ...) as the server"),
    (lambda client: client.get_prompt("p", text="x"), TypeError, "arguments as one dict"),
    (lambda _: form_answer(contents={}), TypeError, "'contents': did you mean 'content'?"),
    (lambda _: form_answer("accept"), TypeError, "keyword arguments: ElicitResult(action=...)"),
    (
        lambda _: CreateMessageResult(role="assistant", content=cast("Any", "hi"), model="m"),
        ValueError,
        "a text is written TextContent(text=...)",
    ),
    (lambda _: serve(SHOP, authorization_server="x"), TypeError, "must be an AuthorizationServer"),
    (lambda _: ScriptedPeer(cast("Any", [5])), TypeError, "made by syncmcp.testing.script"),
    (
        lambda _: Http(URL, token=cast("Any", Path("a"))),
        UsageError,
        "Path: write auth=Bearer(...)",
    ),
    (lambda _: ScriptedPeer(cast("Any", [[{}]])), TypeError, "put * before what makes several"),
    (
        lambda _: Recording(SHOP, cast("str", Stdio("a"))),
        UsageError,
        "not Stdio: target, then path",
    ),
    (
        lambda _: connect(Http(URL, auth=Bearer(Path("/no/such/token")))).open(),
        AuthError,
        "cannot read the token in '/no/such/token': No such file or directory",
    ),
    (lambda _: connect(demo_server), UsageError, "call it: demo_server()"),
    (lambda _: connect(SHOP, revision="2025-11-25"), TypeError, "write mode="),
    (lambda _: Http(URL, bearer="t"), TypeError, "write token="),
    (lambda _: connect(Stdio(str(Path.cwd()))).open(), ConnectFailed, "is a folder"),
    (lambda _: LoopbackReceiver(cast("Any", "x")), UsageError, "port must be between 0 and 65535"),
    (
        lambda client: client.tool("add").map([], ordered="no"),
        UsageError,
        "ordered must be True or False",
    ),
    (
        lambda client: client.tool("add").map([], return_errors="no"),
        UsageError,
        "return_errors must be True or False",
    ),
    (lambda _: OAuth(URL, login_timeout=-1), UsageError, "must be a positive number of seconds"),
    (lambda _: FaultProxy(cast("Any", SHOP)), TypeError, "must be the URL of a server, not Server"),
    (
        lambda client: client.call_tool("add", {"a": 1, "b": 2}).parse("Sum"),
        UsageError,
        "not the string 'Sum'",
    ),
    (
        lambda client: ToolLoop(print, client).run("hi", tools=[5]),
        UsageError,
        "no tool named 5",
    ),
    (
        lambda _: connect(URL, token="t", verify=False),
        UsageError,
        "write connect(Http(URL, token=..., verify=...))",
    ),
    (
        lambda _: connect(URL, args=["server.py"], env={}),
        UsageError,
        "write connect(Stdio(COMMAND, *ARGUMENTS, env=...))",
    ),
    (lambda _: connect(["python", "a.py"]), UsageError, "for a command, write Stdio(*words)"),
    (connect, UsageError, "a client already: call open(), or use it in a w"),
    (lambda _: connect({"command": "python"}), UsageError, "servers_file.read"),
    (lambda _: connect("mcp.json"), UsageError, "for a file of servers use"),
    (lambda _: connect(Server), UsageError, "the class Server; create an instance, Server(...)"),
    (lambda _: connect(syncmcp), UsageError, "or server, not module"),
    (lambda _: read_a_template(), syncmcp.ServerError, "syncmcp.templates.UriTemplate"),
    (lambda _: Stdio(["python", "a.py"]), UsageError, "Stdio(*words)"),
    (lambda _: Stdio("python", args=["a.py"]), TypeError, "Stdio(command, *args)"),
    (lambda _: Stdio("python", shell=True), TypeError, "Stdio() has no shell=: "),
    (lambda _: Stdio("python", timeout=3), TypeError, "Stdio() has no timeout=: "),
    (lambda _: Http(URL, auth=OAuth), UsageError, "auth is the class OAuth: write OAuth("),
    (
        lambda _: connect(SHOP, elicitation=syncmcp.Elicitation),
        UsageError,
        "elicitation is the class Elicitation: write Elicitation(...)",
    ),
    (
        lambda _: connect(SHOP, sampling=syncmcp.Sampling),
        UsageError,
        "sampling is the class Sampling: write Sampling(...)",
    ),
    (lambda _: oauth(store=FileStore), UsageError, "store is the class FileStore: write FileS"),
    (lambda _: oauth(receiver=PasteReceiver), UsageError, "receiver is the class PasteReceiver"),
    (
        lambda _: Http(URL, auth=cast("Any", ("a", "b", "c"))),
        UsageError,
        "two strings (user name, ",
    ),
    (lambda _: Http(" https://x"), UsageError, "remove the white space around it"),
    (lambda _: connect("tape.jsonl"), UsageError, "use syncmcp.testing.Replay(...)"),
    (lambda _: Http(cast("Any", SimpleNamespace(url="x"))), UsageError, "Namespace; write its url"),
    (
        lambda _: rules(otherwise="deny"),
        UsageError,
        "a Decision, such as Decision.DENY, or a policy",
    ),
    (lambda _: rules(otherwise=DenyAll), UsageError, "otherwise is the class DenyAll: write DenyA"),
    (
        lambda _: Approval(limit=cast("Any", 5)),
        UsageError,
        "a RateLimit(calls=..., per=...), not 5",
    ),
    (
        lambda client: client.call_tool("add", cancel=asyncio.Event()),
        UsageError,
        "cancel must be a CancelToken or threading.Event, not Event",
    ),
    (
        lambda client: client.call_tool("add", {"a": 1, "b": 2}).parse(dict[str, str]),
        InvalidOutput,
        "tools/call [shop]: the tool result has no structured content",
    ),
    (lambda _: Http(URL, cert=["a", "b"]), UsageError, "a tuple of two: (certificate, key)"),
    (lambda _: Stdio("a", cwd=["a"]), UsageError, "cwd must be a str or a path, not list"),
    (lambda _: Http(URL, params={}), TypeError, "Http() has no params=: "),
    (lambda _: Http(URL, proxy="x"), TypeError, "proxies="),
    (lambda _: Http(URL, timeout=3), TypeError, "timeout="),
    (lambda client: client.tool("ad"), UsageError, "no tool named 'ad': did you mean 'add'?"),
    (
        lambda client: client.tool("add", timout=1),
        TypeError,
        "option 'timout': did you mean 'timeout'",
    ),
    (lambda client: client.notify("notifications/x", "a"), UsageError, "params must be a mapp"),
    (lambda _: serve(Server), TypeError, "must be a Server, not the class Server"),
    (lambda client: fail(client).json(), InvalidOutput, "says why: tool 'broken' [shop]: out of o"),
    (lambda client: fail(client).parse(int), InvalidOutput, "the tool failed, and returned no"),
    (lambda _: server.tool(add), TypeError, "write @server.tool() with parentheses"),
    (lambda _: server.list_changed("tool"), ValueError, "tools, resources, prompts, not 't"),
    (lambda _: server.add_tool(add, task_support="yes"), ValueError, "required, not 'yes'"),
    (lambda client: client.start_task("add", a=1), TypeError, "arguments of a tool are a dict"),
    (lambda _: oauth(receiver=5), UsageError, "'browser', a receiver or None, not 5"),
    (lambda _: Http(URL, headers=lambda x: {}), UsageError, "must be callable without arguments"),
    (lambda _: server.prompt(add), TypeError, "write @server.prompt() with parentheses"),
    (lambda client: client.call_tool("add", a=1, b=2), TypeError, "as keywords of tool(name)(...)"),
    (lambda client: [*client.call_tool("add", {"a": 1, "b": 2})], TypeError, "write .stream(...)"),
    (
        lambda client: setattr(client, "timeout", 3),
        AttributeError,
        "when a client is made: Client(TARGET, timeout=...)",
    ),
    (
        lambda client: setattr(Http("http://127.0.0.1:1"), "token", "secret"),
        AttributeError,
        "when a target is made: Http(URL, token=...)",
    ),
    (
        lambda _: setattr(group({}), "timeout", 3),
        AttributeError,
        "when a group is made: ClientGroup(SERVERS, timeout=...)",
    ),
    (lambda client: client.call_tool("add", {}, timeut=3), TypeError, "did you mean 'timeout'"),
    (lambda client: client.call_tool("a", roots=print), TypeError, "handlers=Handlers(roots=...)"),
    (lambda client: client.call_tool("a", sampling_callback=1), TypeError, "Handlers(sampling=..."),
    (lambda client: client.call_tool("a", args={"a": 1}), TypeError, "did you mean 'arguments'?"),
    (lambda client: client.call_tool("a", progress_callback=1), TypeError, "write on_progress="),
    (
        lambda client: client.call_tool("a", {}, approval=AllowAll()),
        TypeError,
        "an option of the client, connect(..., approval=...)",
    ),
    (
        lambda client: client.list_tools(open_timeout=1),
        TypeError,
        "an option of the client, connect(..., open_timeout=...)",
    ),
    (
        lambda client: client.call_tool("a", {}, token="t"),
        TypeError,
        "an option of the target, Http(..., token=...)",
    ),
    (lambda client: client.call_tool("a", read_timeout_seconds=1), TypeError, "write timeout="),
    (
        lambda client: client.call_tool("add", on_progress=lambda done: None),
        UsageError,
        "must accept the arguments (progress, total, message)",
    ),
    (lambda client: list(client.tool("add").map([(1, 2)])), UsageError, "{'name': value}, not tup"),
    (lambda _: completed(lambda: 1), UsageError, "start must accept the arguments (client)"),
    (lambda _: completed(lambda client: client.list_tools()), UsageError, "list_tools.future() d"),
    (
        lambda _: answer_of({"choices": []}),
        UsageError,
        "format AnthropicFormat: 'content' is missing",
    ),
    (lambda _: answer_of([]), UsageError, "the answer is not in the format AnthropicFormat"),
    (lambda _: AnthropicFormat(["add"]), UsageError, "tools must be Tool objects, not str"),
    (lambda _: AnthropicFormat().render_messages([{"role": "user"}]), UsageError, "not dict"),
    (
        lambda client: ToolLoop(print, client).run([{"role": "user", "content": "x"}]),
        UsageError,
        "parse_messages of its format in syncmcp.llm",
    ),
    (
        lambda client: save(client.call_tool("add", {"a": 1, "b": 2}), "a"),
        UsageError,
        "'3'>; name one block of its content",
    ),
    (lambda _: save(TEXT, "."), UsageError, "path names a folder, not a file: '.'"),
    (lambda _: save(TEXT, "nowhere/a.txt"), FileNotFoundError, "directory: 'nowhere/a.txt'"),
    (lambda _: connect(SHOP, samplin=1), TypeError, "did you mean 'sampling'?"),
    (lambda _: connect(SHOP, zzz=1), TypeError, "unexpected keyword argument 'zzz'"),
    (lambda _: group({"a": SHOP}, timeut=1), TypeError, "did you mean 'timeout' or 'open_t"),
    (
        lambda _: group({"a": SHOP}).clients["b"],
        KeyError,
        "no server 'b' is open; open servers: none",
    ),
    (lambda _: tool_of_a_group("ad"), KeyError, "no server of the group has a tool 'ad'; did you"),
    (lambda _: judged(lambda _: True), syncmcp.Denied, "a policy returned bool, not a Decision"),
    (lambda _: judged(lambda _: 1 / 0), syncmcp.Denied, "see the log: ZeroDivisionError"),
    (lambda _: judged(DenyAll().decide), syncmcp.Denied, "the sampling request was denied"),
    (
        lambda _: filled_in({"outputFormat": "json"}),
        Refused,
        "not dict: write ElicitResult.accept(",
    ),
    (lambda _: filled_in(UNFIT), InvalidAnswer, "Choose one of 'json', 'markdown', 'plain'."),
    (
        lambda _: filled_in(UNFIT, "connect_account"),
        MissingCapability,
        "Elicitation(form=..., url=",
    ),
    (
        lambda _: ElicitResult.accept(cast("Any", "Ada")),
        TypeError,
        "map fields to values, not be a",
    ),
    (lambda _: oauth(store="tokens.json"), UsageError, "store such as FileStore(path), not str"),
    (lambda _: sign_in("/"), LoginRequired, "allow= (which differs by the / at the end) does not"),
    (
        lambda _: sign_in("/", option="issuer"),
        DiscoveryFailed,
        "(the / at the end differs)",
    ),
    (lambda _: sign_in(None), AuthError, "requires credentials, and no Authorization header was"),
    (lambda _: rate_limit(calls="x", per=1), UsageError, "number of at least 1, not 'x'"),
    (
        lambda _: rate_limit(calls=1, per="x"),
        UsageError,
        "per must be a positive number of seconds",
    ),
    (lambda _: rules("x"), UsageError, "rules must be a list of Rule objects"),
    (lambda _: servers_of("a.json", variables=["x"]), UsageError, "variables must be a mapping"),
    (lambda _: servers_of({}), UsageError, "path must be the path of a file, not dict"),
    (lambda _: ask_in_2024(), syncmcp.ServerError, "elicitation: revision 2024-11-05 does not"),
    (lambda _: token(0.5), UsageError, "not float; a time limit is CancelToken.after(seconds)"),
    (lambda _: token("x"), UsageError, "not str; a time limit is CancelToken.after(seconds)"),
    (lambda _: token.after("5"), UsageError, "after(seconds) takes a number of seconds, not '5'"),
    (lambda _: token.after(None), UsageError, "a number of seconds, not None"),
    (lambda _: token.after(float("nan")), UsageError, "a number of seconds, not nan"),
    (lambda _: token.after(True), UsageError, "a number of seconds, not True"),
    (lambda _: group({"a": SHOP, "b": 5}).open(), UsageError, "[b]: the target must be a URL"),
    (lambda _: group({"a": SHOP, "b": "nope"}).open(), UsageError, "[b]: 'nope' is not an http"),
    (lambda _: group(URL), UsageError, "write a mapping {NAME: URL}, or the path of a file"),
    (lambda _: connect(), TypeError, "connect() needs a target: a URL, Stdio, Http or server"),
    (lambda _: connect(SHOP, handlers=1), TypeError, "write elicitation=, roots=, sampling="),
    (
        lambda _: connect(SHOP, cancel=None),
        TypeError,
        "it is an option of a call, client.call_tool(..., cancel=...)",
    ),
    (lambda _: connect(SHOP, idempotent=True), TypeError, "client.call_tool(..., idempotent=...)"),
    (lambda _: connect(SHOP, log_level="info"), TypeError, "client.call_tool(..., log_level="),
    (lambda _: group({"a": SHOP}, meta={}), TypeError, "it is an option of a call"),
    (lambda _: connect(url=URL), TypeError, "write target="),
    (lambda _: group(url=URL), TypeError, "pass servers as a mapping: ClientGroup({'url': ...})"),
    (
        lambda _: connect(command="python"),
        UsageError,
        "write connect(Stdio(COMMAND, *ARGUMENTS))",
    ),
    (
        lambda _: connect(URL, transport="sse"),
        UsageError,
        "write connect(Http(URL, transport=...))",
    ),
    (lambda _: Stdio("python", name="a"), TypeError, "connect(Stdio(...), name=...)"),
    (lambda _: Stdio("python", headers={}), TypeError, "only HTTP has headers"),
    (lambda _: Http(URL, name="a"), TypeError, "connect(Http(URL), name=...)"),
    (lambda _: Http(URL, cookies={}), TypeError, "write session=, a requests.Session that has"),
    (lambda _: Http(URL, follow_redirects=True), TypeError, "those within the origin are followed"),
    (
        lambda client: client.call_tool("add", "a=1"),
        UsageError,
        "arguments must be a mapping or None, not str: write {'name': value}",
    ),
    (
        lambda client: client.call_tool("add", headers="a: b"),
        UsageError,
        "headers must be a mapping or None, not str: write {'name': value}",
    ),
    (
        lambda _: sampled(sampling=lambda *_: "hi"),
        Refused,
        "not str: write CreateMessageResult(role='assistant', content=TextContent(text=...), model",
    ),
    (
        lambda _: accept_late(),
        UsageError,
        "did not declare 'form' when it connected to the server: set the handler before",
    ),
    (
        lambda _: CallToolResult(content=[]).parse(list[int]),
        InvalidOutput,
        "no structured content; json() decodes its text as JSON",
    ),
    (lambda _: connect(SHOP, roots=5), UsageError, "roots must be a list, not int"),
    (
        lambda _: client_class.call_tool("add", {"a": 1}),
        TypeError,
        "call_tool needs a client: write client.call_tool(...)",
    ),
    (lambda client: client.listen(tools="yes"), UsageError, "tools must be True or False"),
    (lambda _: listen_to_a_group("yes"), UsageError, "resources must be True or False"),
    (lambda _: wsgi_app(cast("Any", SHOP)), TypeError, "write wsgi_app(HttpEndpoint(server))"),
    (
        lambda _: Hold("head", seconds=cast("Any", "x")),
        UsageError,
        "seconds must be a number of seconds or None, not 'x'",
    ),
    (
        lambda _: Replay("a.jsonl", normalize=cast("Any", 5)),
        UsageError,
        "normalize must be callable, not int",
    ),
    (
        lambda _: Replay("a.jsonl", normalize=cast("Any", lambda params: params)),
        UsageError,
        "normalize must accept the arguments (method, params)",
    ),
    (lambda _: oauth(client_name=5), UsageError, "client_name must be a non-empty string, not int"),
    (lambda _: Verdict(cast("Any", 5)), UsageError, "allowed must be True or False, not 5"),
    (lambda _: server.resource("a://{b}"), ValueError, "write @server.resource_template("),
]


@pytest.mark.parametrize(("mistake", "error", "advice"), MISTAKES, ids=[row[2] for row in MISTAKES])
def test_a_mistake_is_told_what_to_write(
    mistake: Callable[[Any], object], error: type[Exception], advice: str
) -> None:
    with syncmcp.connect(SHOP) as client, pytest.raises(error) as raised:
        mistake(client)
    assert advice in str(raised.value)


SWITCHES: dict[str, Callable[[Any], object]] = {
    "allow_private": lambda no: OAuth(URL, allow_private=no),
    "dpop": lambda no: OAuth(URL, dpop=no),
    "open_browser": lambda no: LoopbackReceiver(open_browser=no),
    "keep_session": lambda no: Http(URL, keep_session=no),
    "asks_person": lambda no: syncmcp.Elicitation(cast("Any", print), asks_person=no),
    "tools": lambda no: syncmcp.Sampling(cast("Any", print), tools=no),
    "context": lambda no: syncmcp.Sampling(cast("Any", print), context=no),
    "remember": lambda no: Verdict(allowed=True, remember=no),
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


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("sampling_callback", "sampling"),
        ("elicitation_callback", "elicitation"),
        ("list_roots_callback", "roots"),
        ("logging_callback", "on_log"),
        ("message_handler", "on_notification"),
        ("read_timeout_seconds", "timeout"),
    ],
)
def test_a_keyword_of_the_official_sdk_names_the_one_of_a_client(word: str, option: str) -> None:
    with pytest.raises(TypeError) as raised:
        connect(SHOP, **{word: None})
    assert str(raised.value).endswith(f"write {option}=")
    assert option in inspect.signature(syncmcp.Client).parameters


def test_a_question_without_a_handler_names_the_option() -> None:
    with (
        syncmcp.connect(demo_server()) as client,
        pytest.raises(MissingCapability, match=r"give the client a handler: elicitation="),
    ):
        client.call_tool("ask_user_preferences")
    with (
        syncmcp.connect(demo_server(), mode="2025-11-25") as client,
        pytest.raises(
            InvalidRequest, match=r"declare elicitation: it needs a handler, elicitation="
        ),
    ):
        client.call_tool("ask_user_preferences")
    assert MissingCapability("no", data={"requiredCapabilities": {"other": {}}}).hint is None
    assert MissingCapability("no", data="nothing").hint is None


def test_results_print_as_one_line() -> None:
    with syncmcp.connect(demo_server()) as client:
        read = client.read_resource("demo://readme")
        assert str(read) == "<ReadResourceResult 'This is the demo server.'>"
        assert repr(client.read_resource("demo://pixel.png")) == "<ReadResourceResult image/png>"
        assert str(client.get_prompt("hello")) == "<GetPromptResult of 1 message: 'Say hello.'>"


def test_an_unknown_tool_is_likened_to_those_that_are_listed() -> None:
    with syncmcp.connect(SHOP) as client:
        client.list_tools()
        with pytest.raises(InvalidParams, match=r"did you mean 'add'\?") as raised:
            client.call_tool("ad", {"a": 1, "b": 2})
        assert raised.value.hint == "did you mean 'add'?"
        with pytest.raises(InvalidParams) as raised:
            client.call_tool("nothing of the kind")
        assert raised.value.hint is None


def test_an_unknown_prompt_is_likened_to_those_that_are_listed() -> None:
    with syncmcp.connect(demo_server()) as client:
        with pytest.raises(InvalidParams) as raised:
            client.get_prompt("helo")
        assert raised.value.hint is None
        client.list_prompts()
        with pytest.raises(InvalidParams, match=r"did you mean 'hello'\?") as raised:
            client.get_prompt("helo")
        assert raised.value.hint == "did you mean 'hello'?"


def test_of_many_or_long_names_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    class Matcher(difflib.SequenceMatcher[str]):
        def set_seq1(self, a: Any) -> None:
            compared.append(a)
            super().set_seq1(a)

    server = Server("much")
    for number in range(600):
        server.add_tool(lambda: None, name=f"tool{number:04}" + "x" * (60 * (number % 2)))
    monkeypatch.setattr(difflib, "SequenceMatcher", Matcher)
    with syncmcp.connect(server) as client:
        client.list_tools()
        with pytest.raises(InvalidParams, match="did you mean 'tool0"):
            client.call_tool("tool000")
    assert 0 < len([name for name in compared if name]) <= 300
    assert max(map(len, compared)) < 64
    compared.clear()
    monkeypatch.setattr("syncmcp._base.similar.MOST_NAMES", 50)
    with syncmcp.ClientGroup({"much": server}) as group:
        with pytest.raises(UsageError, match="did you mean 'tool0"):
            group.call_tool("tool000")
        assert 0 < len([name for name in compared if name]) <= 50
        compared.clear()
        with pytest.raises(UsageError) as raised:
            group.call_tool("tool000" + "x" * 100)
    assert "did you mean" not in str(raised.value)
    assert compared == []


def test_a_call_on_a_client_that_is_not_open_says_why() -> None:
    client = syncmcp.Client(SHOP)
    client.close()
    for attempt in (client.ping, client.list_tools.future, lambda: client.server):
        with pytest.raises(
            ClosedError, match=r"never opened: use it in a with block, or call open"
        ):
            attempt()
    client.open()
    closing = threading.Thread(target=client.close, name="janitor")
    closing.start()
    closing.join()
    client.close()  # which ends nothing
    with pytest.raises(ClosedError, match=r"closed by the thread 'janitor': open\(\) opens it"):
        client.ping()


def test_a_call_that_the_end_of_the_block_ends_says_what_waits_for_it() -> None:
    with syncmcp.connect(demo_server()) as client:
        call = client.call_tool.future("sleep", {"seconds": 60})
    with pytest.raises(ClosedError, match=r"; close\(drain=True\) first waits for calls in fl"):
        call.result()


DIES = "import sys; sys.exit('there is no ' + 'SHOP' + '_API_KEY')"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {},
            (
                "its stderr names SHOP_API_KEY, which it did not get"
                " (exit code 1; stderr ended with: there is no SHOP_API_KEY;"
                " use env= to pass the variables that it may have"
            ),
        ),
        (
            {"env": {"SHOP_API_KEY": "x"}, "inherit_env": "none"},
            (
                "(exit code 1; stderr ended with: there is no SHOP_API_KEY;"
                " it was given the variables SHOP_API_KEY; pass others"
            ),
        ),
        ({"inherit_env": "all"}, None),
    ],
)
def test_a_server_that_dies_at_its_start_is_told_which_variables_it_lacked_or_had(
    options: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "secret")
    with pytest.raises(ConnectFailed) as raised:
        syncmcp.connect(syncmcp.Stdio(sys.executable, "-c", DIES, **options))
    if said is None:
        assert "variables" not in str(raised.value)
    else:
        assert said in str(raised.value)
    assert "secret" not in str(raised.value)


def test_errors_of_opening_speak_of_no_request() -> None:
    with pytest.raises(ConnectFailed) as raised:
        syncmcp.connect("http://127.0.0.1:1/mcp", retry=None)
    assert str(raised.value).startswith("[http://127.0.0.1:1/mcp]: the connection was refused")
    assert "(is the server running on this port?)" in str(raised.value)
    assert "request" not in str(raised.value)
    assert raised.value.delivery == "not_sent"


@pytest.mark.parametrize("source", ["http_proxy", "option proxies"])
def test_a_proxy_that_fails_is_named_with_source(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = "http://me:word@127.0.0.1:1"
    if source == "http_proxy":
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        target = syncmcp.Http("http://example.invalid/mcp")
    else:
        target = syncmcp.Http("http://example.invalid/mcp", proxies={"http": proxy})
    with pytest.raises(ConnectFailed) as raised:
        syncmcp.connect(target, retry=None)
    assert f"cannot use the proxy http://***@127.0.0.1:1 ({source}): " in str(raised.value)
    assert "word" not in str(raised.value)


def having(**methods: Any) -> Any:
    return SimpleNamespace(**methods)


GIVERS: dict[str, Callable[[Any], object]] = {
    "on_log": lambda function: syncmcp.Client(SHOP, on_log=function),
    "on_progress": lambda function: syncmcp.Client(SHOP, on_progress=function),
    "on_notification": lambda function: syncmcp.Client(SHOP, on_notification=function),
    "on_handler_error": lambda function: syncmcp.Client(SHOP, on_handler_error=function),
    "sampling": lambda function: syncmcp.Client(SHOP, sampling=function),
    "elicitation": lambda function: syncmcp.Client(SHOP, elicitation=function),
    "the source of roots": lambda function: Roots(source=function),
    "allow": lambda function: OAuth(allow=function),
    "show": lambda function: LoopbackReceiver(show=function),
    "ask": lambda function: PasteReceiver(ask=function),
    "decide of a policy": lambda function: Approval(having(decide=function)),
    "review of a reviewer": lambda function: Approval(reviewer=having(review=function)),
    "SimpleNamespace.ended": lambda function: syncmcp.Client(
        SHOP, interceptors=[having(outgoing=id, incoming=id, ended=function)]
    ),
    "name_hook": lambda function: group({}, name_hook=function),
    "on_step": lambda function: ToolLoop(lambda *_: None, group({}), on_step=function),
    "on_text": lambda function: ToolLoop(lambda *_: None, group({}), on_text=function),
    "headers": lambda function: Http(URL, headers=function),
    "stderr": lambda function: Stdio("python", stderr=function),
    "the token": Bearer,
    "on_done": lambda function: executors.fan_out(URL, [], ThreadPoolExecutor(1), on_done=function),
    "SimpleNamespace.repetition": lambda function: Measured(
        having(request=print, frame=print, repetition=function)
    ),
    "open_url": lambda function: Terminal(open_url=function),
    "beside": lambda function: Terminal(beside=function),
    "open_page": lambda function: Browser(open_page=function),
    "the callback of on_cancel": lambda function: syncmcp.CancelToken().on_cancel(function),
}


@pytest.mark.parametrize("name", GIVERS)
def test_a_callback_that_does_not_take_its_arguments_is_refused_when_it_is_given(name: str) -> None:
    def wrong(one: Any, two: Any, three: Any, four: Any) -> None: ...

    class Wrong:
        def method(self, one: Any, two: Any, three: Any) -> None: ...

    def right(*arguments: Any) -> None: ...

    without = name in ("headers", "the token", "beside", "the callback of on_cancel")
    said = "be callable without arguments$" if without else r"accept the arguments \(\w"
    for function in (
        wrong,
        *[Wrong().method] * (name not in ("on_progress", "on_done")),
        lambda *, key: None,
    ):
        with pytest.raises(UsageError, match=f"^{name} must {said}"):
            GIVERS[name](function)
    GIVERS[name](right)


def signed_in_session() -> requests.Session:
    """It would replace the header of each request."""
    session = requests.Session()
    session.auth = ("me", "word")
    return session


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
        {"token": ""},
        {"token": "t", "auth": ("me", "word")},
        {"token": "t", "headers": {"authorization": "Bearer another"}},
        {"token": "t", "headers": [("X-Team", "7")]},
        {"token": "t", "session": signed_in_session()},
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
        with pytest.raises(UsageError, match="timeout must be 0 or more seconds"):
            call("add", {}, timeout=-1)


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


def test_a_script_that_is_no_program_names_the_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.touch()
    with pytest.raises(ConnectFailed, match=r"not executable; is it a script\? Stdio\('python', "):
        syncmcp.connect(syncmcp.Stdio(script))
    target: Any = script
    with pytest.raises(UsageError, match=r"for a script, write Stdio\('python', path\)"):
        syncmcp.connect(target)


def test_a_file_of_servers_is_not_a_server(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"shop": {"command": "python"}}}')
    with pytest.raises(UsageError, match=r"^approve must accept the arguments \(review\)"):
        servers_of(file, approve=lambda: True)
    servers: Any = servers_file.read(file, approve=lambda review: True)
    with pytest.raises(KeyError, match=r"no server named 'b' in .*mcp\.json.*: shop"):
        servers["b"]
    with pytest.raises(UsageError, match=r"servers\[NAME\], or give all to a ClientGroup"):
        syncmcp.connect(servers)


loop: Any = syncmcp.ToolLoop


def fan_out(client: Any, call: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        list(executors.fan_out(client, [call], pool))


class Adder:
    """An interceptor, and a description of a server, whose text has its secret."""

    def __repr__(self) -> str:
        return "Adder(env={'API_KEY': 'k3y-4711'})"


KEY = "k3y-4711"
ENTRY: Any = {"command": "npx", "env": {"API_KEY": KEY}}

# What takes a value that may hold secrets, and what the error says instead of the value.
VALUES: dict[str, tuple[Callable[[Any], object], str]] = {
    "target": (lambda _: connect(ENTRY), "not dict; for a command, write Stdio"),
    "words": (lambda _: connect(["npx", KEY]), "not list; for a command, write Stdio"),
    "object": (lambda _: connect(Adder()), "not Adder"),
    "group": (
        lambda _: syncmcp.ClientGroup({"a": ENTRY}).open(),
        "not dict; for a command, write Stdio",
    ),
    "name": (lambda _: connect(SHOP, name=ENTRY), "not dict"),
    "sampling": (lambda _: connect(SHOP, sampling=KEY), "not str"),
    "approval": (lambda _: connect(SHOP, approval=Adder()), "decide(question), not Adder"),
    "class": (lambda _: connect(SHOP, approval=Adder), "is the class Adder: write Adder(...)"),
    "class of handlers": (
        lambda _: Handlers(approval=cast("Any", AllowAll)),
        "approval is the class AllowAll: write AllowAll(...)",
    ),
    "interceptors": (lambda _: connect(SHOP, interceptors=Adder()), "not Adder"),
    "cache": (lambda _: connect(SHOP, cache=f"redis://:{KEY}@host"), "not str"),
    "tool": (lambda client: client.call_tool(ENTRY), "not dict"),
    "headers": (lambda client: client.call_tool("add", headers=[("X-Key", KEY)]), "not list"),
    "meta": (lambda client: client.call_tool("add", meta=KEY), "a mapping or None, not str"),
    "params": (lambda client: client.request("x", {"_meta": KEY}), "mapping, not str"),
    "arguments": (lambda client: client.get_prompt("x", KEY), "not str"),
    "argument": (lambda client: client.get_prompt("x", {"a": KEY.encode()}), "not 'a' to bytes"),
    "pending": (lambda client: client.resume(ENTRY), "not dict"),
    "tools": (lambda _: loop(lambda request, context: None, ENTRY), "not dict"),
    "calls": (lambda client: fan_out(client, ["add", ENTRY]), "not list"),
}


@pytest.mark.parametrize(("mistake", "says"), VALUES.values(), ids=VALUES)
def test_an_error_about_a_value_that_may_be_secret_names_its_type(
    mistake: Callable[[Any], object], says: str
) -> None:
    with syncmcp.connect(SHOP) as client, pytest.raises(UsageError) as caught:
        mistake(client)
    assert KEY not in str(caught.value)
    assert says in caught.value.message


def test_a_tool_loop_refuses_what_it_cannot_use_at_once() -> None:
    loop: Any = syncmcp.ToolLoop
    with syncmcp.connect(SHOP) as client:
        with pytest.raises(UsageError, match=r"llm must be callable, not str"):
            loop("gpt", client)
        with pytest.raises(UsageError, match=r"llm must accept the arguments \(request, context\)"):
            loop(lambda request: None, client)
        with pytest.raises(UsageError, match="tools_of must be a client or a group, not"):
            loop(lambda request, context: None, [client])
        right = loop(lambda request, context: None, client)
        with pytest.raises(
            UsageError, match="request must be a string or a conversation, not None"
        ):
            right.run(None)
        with pytest.raises(UsageError, match=r"no tool named 'ad': did you mean 'add'\?"):
            right.run("go", tools="ad")
        with pytest.raises(UsageError, match=r"no tool named 'zzz'$"):
            right.run("go", tools=["zzz"])


def test_a_ping_that_the_revision_lacks_says_what_to_do_instead() -> None:
    with (
        syncmcp.connect(SHOP, mode="2026-07-28") as client,
        pytest.raises(syncmcp.NotSupported, match="any other request shows whether the server"),
    ):
        client.ping()


@pytest.mark.parametrize("over_http", [False, True], ids=["in memory", "http"])
def test_a_revision_that_the_server_does_not_speak_is_named_with_the_mode_to_write(
    over_http: bool,
) -> None:
    older = Server("older", revisions=["2025-06-18"])
    with (
        serve_http(older) as http,
        pytest.raises(syncmcp.ServerError, match=r"not speak 2026-07-28: mode='auto' tries"),
    ):
        syncmcp.connect(http.url if over_http else older, mode="2026-07-28")


def test_streams_and_roots_print_as_what_they_are(tmp_path: Path) -> None:
    with syncmcp.connect(SHOP, name="shop", roots=[tmp_path]) as client:
        with client.call_tool.stream("add", {"a": 1, "b": 2}) as stream:
            assert repr(stream).startswith("<ResultStream of <RequestFuture tools/call [shop] ")
        assert repr(client.roots) == f"<Roots {tmp_path.as_uri()!r}>"
        assert repr(client.list_tools()) == "<ListToolsResult of 2 tools: 'add', 'broken'>"
    now = "2026-11-29T22:35:00Z"
    task = {"taskId": "t-1", "status": "working", "createdAt": now, "lastUpdatedAt": now}
    tasks = ListTasksResult.from_wire({"tasks": [{**task, "ttl": None}]})
    assert repr(tasks) == "<ListTasksResult of 1 task: 't-1'>"
    assert repr(Roots()) == "<Roots>"


def test_the_address_of_an_event_stream_that_is_none_is_questioned() -> None:
    with (
        serving(lambda request: request.connection.respond(404)) as server,
        pytest.raises(syncmcp.HttpError, match=r"; is this the URL of its event stream\?"),
    ):
        syncmcp.connect(syncmcp.Http(server.url, transport="sse"), retry=None)


class Nobody:
    """A receiver at which nobody signs in."""

    redirect_uri = "http://127.0.0.1:1/callback"
    asked = 0

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        return True

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        return self

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        self.asked += 1
        raise login_timed_out(deadline)

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""


@pytest.mark.skipif(shutil.which("cat") is None, reason="a program of POSIX")
def test_a_program_that_sends_back_what_it_receives_is_not_a_server() -> None:
    with pytest.raises(syncmcp.McpError, match="does it echo its input, like cat"):
        connect(Stdio("cat"))


def test_plain_http_to_a_port_of_tls_asks_whether_it_is_https(tmp_path: Path) -> None:
    with (
        serving(lambda _: None, make(tmp_path).server_context()) as server,
        pytest.raises(ConnectFailed, match=r" \(is it https://\?\)$"),
    ):
        connect(server.url.replace("https://", "http://"), retry=None)


def test_a_person_who_does_not_sign_in_is_asked_once_and_the_error_says_so() -> None:
    nobody = Nobody()
    with (
        AuthorizationServer() as authorization,
        serve_http(SHOP, authorization_server=authorization) as http,
    ):
        login = OAuth(allow=authorization.issuer, receiver=nobody, login_timeout=7.0)
        with pytest.raises(RequestTimeout, match=r"within 7 s \(option login_timeout\)") as late:
            syncmcp.connect(syncmcp.Http(http.url, auth=login))
    assert (late.value.kind, late.value.seconds) == ("login", 7.0)
    assert nobody.asked == 1
