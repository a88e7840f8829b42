"""What a program gets wrong at first: each error says what it is and what to write instead."""

from __future__ import annotations

import difflib
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp import ClosedError, ConnectFailed, InvalidParams, UsageError
from syncmcp.auth import OAuth
from syncmcp.errors import MissingCapability
from syncmcp.handlers.roots import Roots
from syncmcp.testing import Server, demo_server

SHOP = Server("shop")


@SHOP.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


URL = "https://example.com/mcp"
connect: Any = syncmcp.connect
Http: Any = syncmcp.Http
Stdio: Any = syncmcp.Stdio
server: Any = Server("x")

# What is done with an open client of the shop, the error, and what it says.
MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (
        lambda _: connect(URL, headers={"X-Key": "1"}),
        UsageError,
        "write connect(Http(URL, headers=...))",
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
    (lambda _: connect(["python", "a.py"]), UsageError, "a command is Stdio(*words)"),
    (lambda _: connect({"command": "python"}), UsageError, "servers_file.read"),
    (lambda _: Stdio(["python", "a.py"]), UsageError, "Stdio(*words)"),
    (lambda _: Stdio("python", args=["a.py"]), TypeError, "Stdio(command, *args)"),
    (lambda _: Http(URL, auth=OAuth), UsageError, "auth is the class OAuth: write OAuth("),
    (lambda _: Http(URL, params={}), TypeError, "Http() has no params=: "),
    (lambda _: Http(URL, proxy="x"), TypeError, "proxies="),
    (lambda _: Http(URL, timeout=3), TypeError, "timeout="),
    (lambda client: client.tool("ad"), UsageError, "no tool 'ad': did you mean 'add'?"),
    (lambda client: client.tool("zzz"), UsageError, "no tool 'zzz'"),
    (lambda _: server.tool(add), TypeError, "write @server.tool() with parentheses"),
    (lambda _: server.prompt(add), TypeError, "write @server.prompt() with parentheses"),
    (lambda client: client.call_tool("add", a=1, b=2), TypeError, "client.tool(name)"),
    (lambda client: client.call_tool("add", {}, timeut=3), TypeError, "did you mean 'timeout'"),
    (lambda client: client.call_tool("a", progress_callback=1), TypeError, "write on_progress="),
    (lambda client: client.call_tool("a", read_timeout_seconds=1), TypeError, "write timeout="),
    (
        lambda client: client.call_tool("add", on_progress=lambda done: None),
        UsageError,
        "called with (progress, total, message)",
    ),
    (lambda _: connect(SHOP, samplin=1), TypeError, "did you mean 'sampling'?"),
    (lambda _: connect(SHOP, zzz=1), TypeError, "unexpected keyword argument 'zzz'"),
]


@pytest.mark.parametrize(("mistake", "error", "advice"), MISTAKES, ids=[row[2] for row in MISTAKES])
def test_a_mistake_is_told_what_to_write(
    mistake: Callable[[Any], object], error: type[Exception], advice: str
) -> None:
    with syncmcp.connect(SHOP) as client, pytest.raises(error) as raised:
        mistake(client)
    assert advice in str(raised.value)


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
    assert MissingCapability("no", data={"requiredCapabilities": {"other": {}}}).hint is None
    assert MissingCapability("no", data="nothing").hint is None


def test_results_print_as_one_line() -> None:
    with syncmcp.connect(demo_server()) as client:
        read = client.read_resource("demo://readme")
        assert str(read) == "<ReadResourceResult 'This is the demo server.'>"
        assert repr(client.read_resource("demo://pixel.png")) == "<ReadResourceResult image/png>"
        assert str(client.get_prompt("hello")) == "<GetPromptResult of 1 messages: 'Say hello.'>"


def test_an_unknown_tool_is_likened_to_those_that_are_listed() -> None:
    with syncmcp.connect(SHOP) as client:
        client.list_tools()
        with pytest.raises(InvalidParams, match=r"did you mean 'add'\?") as raised:
            client.call_tool("ad", {"a": 1, "b": 2})
        assert raised.value.hint == "did you mean 'add'?"
        with pytest.raises(InvalidParams) as raised:
            client.call_tool("nothing of the kind")
        assert raised.value.hint is None


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
    for attempt in (client.ping, client.list_tools.future, lambda: client.server):
        with pytest.raises(
            ClosedError, match=r"never opened: use it in a with block, or call open"
        ):
            attempt()
    client.open()
    closing = threading.Thread(target=client.close, name="janitor")
    closing.start()
    closing.join()
    with pytest.raises(ClosedError, match=r"closed by the thread 'janitor': open\(\) opens it"):
        client.ping()


DIES = "import sys; sys.exit('there is no ' + 'SHOP' + '_API_KEY')"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it names SHOP_API_KEY, which it was not given: env= passes on what it may"),
        (
            {"env": {"SHOP_API_KEY": "x"}, "inherit_env": "none"},
            "given the variables SHOP_API_KEY: pass others",
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
    assert f"127.0.0.1:1 ({source}) cannot be used" in str(raised.value)
    assert "word" not in str(raised.value)


GIVERS: dict[str, Callable[[Any], object]] = {
    "on_log": lambda function: syncmcp.Client(SHOP, on_log=function),
    "on_progress": lambda function: syncmcp.Client(SHOP, on_progress=function),
    "on_notification": lambda function: syncmcp.Client(SHOP, on_notification=function),
    "on_handler_error": lambda function: syncmcp.Client(SHOP, on_handler_error=function),
    "sampling": lambda function: syncmcp.Client(SHOP, sampling=function),
    "elicitation": lambda function: syncmcp.Client(SHOP, elicitation=function),
    "the source of roots": lambda function: Roots(source=function),
    "the callback of on_cancel": lambda function: syncmcp.CancelToken().on_cancel(function),
}


@pytest.mark.parametrize("name", GIVERS)
def test_a_callback_that_does_not_take_its_arguments_is_refused_when_it_is_given(name: str) -> None:
    def wrong(one: Any, two: Any, three: Any, four: Any) -> None: ...

    class Wrong:
        def method(self, one: Any, two: Any, three: Any) -> None: ...

    def right(*arguments: Any) -> None: ...

    for function in (wrong, *[Wrong().method] * (name != "on_progress"), lambda *, key: None):
        with pytest.raises(UsageError, match=rf"^{name} is called with \(.*\), which it does not"):
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
