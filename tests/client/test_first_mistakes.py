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
from tests.transports.http_peer import Request, serving

SHOP = Server("shop")


@SHOP.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"headers": {"X-Key": "1"}}, "connect(Http(URL, headers=...))"),
        ({"token": "t", "verify": False}, "connect(Http(URL, token=..., verify=...))"),
        ({"args": ["server.py"], "env": {}}, "connect(Stdio(COMMAND, *ARGUMENTS, env=...))"),
    ],
)
def test_an_option_of_the_target_names_the_target(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(UsageError) as raised:
        syncmcp.connect("https://example.com/mcp", **options)
    assert str(raised.value).endswith(f"write {advice}")


def test_a_command_as_a_list_is_told_how_to_become_one() -> None:
    words: Any = ["python", "server.py"]
    with pytest.raises(UsageError, match=r"a command is Stdio\(\*words\)"):
        syncmcp.connect(words)
    with pytest.raises(UsageError, match=r"Stdio\(\*words\)"):
        syncmcp.Stdio(words)


def test_arguments_of_a_tool_as_keywords_are_told_where_they_belong() -> None:
    with syncmcp.connect(SHOP) as client:
        call: Any = client.call_tool
        with pytest.raises(TypeError, match=r"'a': .* client\.tool\(name\)"):
            call("add", a=1, b=2)
        with pytest.raises(TypeError, match="did you mean 'timeout'"):
            call("add", {}, timeut=3)


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("progress_callback", "write on_progress="),
        ("read_timeout_seconds", "write timeout="),
    ],
)
def test_a_keyword_of_the_official_sdk_names_the_option_of_a_call(word: str, advice: str) -> None:
    with syncmcp.connect(SHOP) as client:
        call: Any = client.call_tool
        with pytest.raises(TypeError) as raised:
            call("add", {"a": 1, "b": 2}, **{word: None})
    assert str(raised.value).endswith(advice)


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("sampling_callback", "write sampling="),
        ("elicitation_callback", "write elicitation="),
        ("list_roots_callback", "write roots="),
        ("logging_callback", "write on_log="),
        ("message_handler", "write on_notification="),
        ("read_timeout_seconds", "write timeout="),
        ("samplin", "did you mean 'sampling'?"),
        ("zzz", "unexpected keyword argument 'zzz'"),
    ],
)
def test_a_keyword_that_a_client_lacks_names_the_one_it_has(word: str, advice: str) -> None:
    connect: Any = syncmcp.connect
    with pytest.raises(TypeError) as raised:
        connect(SHOP, **{word: None})
    assert str(raised.value).endswith(advice)
    if advice.startswith("write"):
        assert advice[6:-1] in inspect.signature(syncmcp.Client).parameters


def test_a_keyword_that_a_target_lacks_says_what_to_write() -> None:
    targets: Any = syncmcp
    with pytest.raises(TypeError, match=r"Stdio\(\) has no args=: .* Stdio\(command, \*args\)"):
        targets.Stdio("python", args=["server.py"])
    for word, advice in {"params": "URL", "proxy": "proxies=", "timeout": "timeout="}.items():
        with pytest.raises(TypeError, match=rf"Http\(\) has no {word}=: .*{advice}"):
            targets.Http("https://example.com/mcp", **{word: 3})


def test_a_class_instead_of_its_object_is_refused_at_once() -> None:
    auth: Any = OAuth
    with pytest.raises(UsageError, match=r"auth is the class OAuth: write OAuth\("):
        syncmcp.Http("https://example.com/mcp", auth=auth)


def test_an_entry_of_a_file_is_told_how_files_are_read() -> None:
    entry: Any = {"command": "python", "args": ["server.py"]}
    with pytest.raises(UsageError, match=r"servers_file\.read"):
        syncmcp.connect(entry)


def test_a_tool_that_is_not_there_is_likened_to_those_that_are() -> None:
    with syncmcp.connect(SHOP) as client:
        with pytest.raises(UsageError, match=r"no tool 'ad': did you mean 'add'\?"):
            client.tool("ad")
        with pytest.raises(UsageError, match=r"no tool 'zzz'$"):
            client.tool("zzz")


def test_a_question_without_a_handler_names_the_option() -> None:
    with (
        syncmcp.connect(demo_server()) as client,
        pytest.raises(MissingCapability, match=r"give the client a handler: elicitation="),
    ):
        client.call_tool("ask_user_preferences")
    assert MissingCapability("no", data={"requiredCapabilities": {"other": {}}}).hint is None
    assert MissingCapability("no", data="nothing").hint is None


def test_a_decorator_of_the_test_server_needs_parentheses() -> None:
    server: Any = Server("x")
    for name in ("tool", "prompt"):
        with pytest.raises(TypeError, match=rf"write @server\.{name}\(\) with parentheses"):
            getattr(server, name)(add)


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


def test_a_server_that_lacks_a_variable_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = syncmcp.Stdio(sys.executable, "-c", DIES)
    monkeypatch.setenv("SHOP_API_KEY", "secret")
    with pytest.raises(ConnectFailed) as raised:
        syncmcp.connect(server)
    assert "it names SHOP_API_KEY, which it was not given: env= passes on what it may" in str(
        raised.value
    )
    assert "secret" not in str(raised.value)


def test_a_server_that_dies_at_its_start_is_told_which_variables_it_had() -> None:
    server = syncmcp.Stdio(
        sys.executable, "-c", DIES, env={"SHOP_API_KEY": "x"}, inherit_env="none"
    )
    with pytest.raises(ConnectFailed, match="given the variables SHOP_API_KEY: pass others"):
        syncmcp.connect(server)
    with pytest.raises(ConnectFailed) as raised:
        syncmcp.connect(syncmcp.Stdio(sys.executable, "-c", DIES, inherit_env="all"))
    assert "variables" not in str(raised.value)


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


def test_a_callback_of_one_call_is_refused_when_it_is_given() -> None:
    with syncmcp.connect(SHOP) as client:
        with pytest.raises(UsageError, match=r"called with \(progress, total, message\)"):
            client.call_tool("add", {"a": 1, "b": 2}, on_progress=lambda done: None)  # type: ignore[arg-type]
        assert client.call_tool("add", {"a": 1, "b": 2}, on_progress=lambda *all: None).ok


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


def test_a_token_is_sent_with_each_request() -> None:
    seen: list[str | None] = []

    def answer(request: Request) -> None:
        seen.append(request.headers.get("authorization"))
        request.connection.respond(404)

    with serving(answer) as server, pytest.raises(syncmcp.McpError):
        syncmcp.connect(syncmcp.Http(server.url, token="abc123"), retry=None)
    assert set(seen) == {"Bearer abc123"}
