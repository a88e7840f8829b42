"""Arguments that a tool wants repeated in HTTP headers (2026-07-28), from the list to the call."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    CancelToken,
    HeaderMismatch,
    HttpError,
    RequestCancelled,
    RequestTimeout,
    UsageError,
)
from syncmcp.testing import Server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, in_threads
from tests.transports.http_peer import Request, serving

NEW = Wire("http", STATELESS)
ELSEWHERE = pytest.mark.parametrize(
    "wire", [Wire("http", STATEFUL), Wire("memory", STATELESS), Wire("stdio", STATELESS)], ids=str
)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(header: str, type: str = "string") -> dict[str, Any]:
    return {"type": type, "x-mcp-header": header}


def cloud() -> Server:
    """A server whose tools want their region in a header, one of them wrongly."""
    server = Server("cloud")

    @server.tool(input_schema=schema(region=marked("Region"), count=marked("Count", "integer")))
    def start(region: str = "", count: int = 0) -> str:
        return f"{count} in {region!r}"

    @server.tool(input_schema=schema(price=marked("Price", "number")))
    def buy(price: float = 0.0) -> str:
        return f"for {price}"

    return server


@pytest.mark.requirement("XHD-01", "XHD-09", "XHD-10", "XHD-11", "XHD-12")
@pytest.mark.parametrize("region", ["eu", "", "two words", " x\r\n", "Zürich", "=?base64?eA==?="])
def test_a_listed_tool_gets_its_arguments_in_headers_too(region: str) -> None:
    server = cloud()
    with NEW.connect(server) as client:
        client.list_tools()
        # The server compares the headers with the body, and refuses what does not agree.
        assert client.call_tool("start", {"region": region}).text == f"0 in {region!r}"
        future = client.call_tool.future("start", {"region": region, "count": 3})
        assert future.result().text == f"3 in {region!r}"
        assert client.call_tool("start", {"region": None}).is_error
        raw = client.request("tools/call", {"name": "start", "arguments": {"count": 1}})
        assert raw["content"][0]["text"] == "1 in ''"
    assert server.stats.requests["tools/list"] == 1
    assert server.stats.errors == 0


@pytest.mark.requirement("XHD-14")
@pytest.mark.parametrize("way", ["blocking", "future", "by hand"])
def test_a_tool_that_was_never_listed_is_listed_once_it_is_refused(way: str) -> None:
    server = cloud()
    with NEW.connect(server) as client:
        for _ in range(2):
            result: Any
            if way == "blocking":
                result = client.call_tool("start", {"region": "eu"})
            elif way == "future":
                result = client.call_tool.future("start", {"region": "eu"}).result()
            else:
                result = client.begin_tool("start", {"region": "eu"})
            assert result.text == "0 in 'eu'"
    requests = server.stats.requests
    assert (requests["tools/list"], requests["tools/call"]) == (1, 3)


@pytest.mark.requirement("XHD-02", "XHD-08")
def test_a_tool_with_a_bad_mark_is_left_out_of_every_kind_of_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with NEW.connect(cloud()) as client, caplog.at_level(logging.WARNING, "syncmcp.tools"):
        assert [tool.name for tool in client.list_tools().tools] == ["start"]
        assert [tool.name for tool in client.list_tools(cursor=None).tools] == ["start"]
        assert [tool.name for tool in client.iter_tools()] == ["start"]
    records = [record for record in caplog.records if record.name == "syncmcp.tools"]
    assert len(records) == 3
    assert all("'buy'" in each.getMessage() for each in records)
    assert all("'price'" in each.getMessage() for each in records)


@ELSEWHERE
def test_where_there_are_no_such_headers_marks_mean_nothing(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    with wire.connect(cloud()) as client, caplog.at_level(logging.WARNING, "syncmcp.tools"):
        assert [tool.name for tool in client.list_tools().tools] == ["start", "buy"]
        assert client.call_tool("buy", {"price": 1.5}).text == "for 1.5"
        assert client.call_tool("start", {"count": 2**60}).text == f"{2**60} in ''"
    assert not [record for record in caplog.records if record.name == "syncmcp.tools"]


@pytest.mark.requirement("XHD-07")
def test_an_argument_that_no_header_can_repeat_is_refused_before_anything_is_sent() -> None:
    server = cloud()
    with NEW.connect(server) as client:
        client.list_tools()
        for way in (client.call_tool, lambda *given: client.call_tool.future(*given).result()):
            with pytest.raises(UsageError, match="'count'"):
                way("start", {"count": 2**53})
            with pytest.raises(UsageError, match="'region'"):
                way("start", {"region": ["eu"]})
        assert server.stats.requests["tools/call"] == 0
        assert client.call_tool("start", {"count": 2**53 - 1}).text == f"{2**53 - 1} in ''"


@pytest.mark.requirement("XHD-13")
def test_threads_that_list_and_call_at_once_use_one_whole_schema_or_the_other() -> None:
    first, second = schema(a=marked("A")), schema(a=marked("B"))
    turn = threading.Event()
    seen: list[dict[str, str]] = []

    def script(one: Request) -> None:
        if one.message["method"] == "tools/list":
            tool = {"name": "t", "inputSchema": second if turn.is_set() else first}
            one.connection.json(result(one, {"tools": [tool]}))
        elif one.message["method"] == "tools/call":
            seen.append(one.headers)
            one.connection.json(result(one, {"content": []}))
        else:
            one.connection.json(result(one, DISCOVERED))

    with serving(script) as raw, syncmcp.connect(raw.url, mode=STATELESS) as client:
        client.list_tools()

        def call() -> None:
            for _ in range(20):
                client.call_tool("t", {"a": "x"})

        def list_again() -> None:
            turn.set()
            client.list_tools()

        in_threads(call, call, list_again)
        client.call_tool("t", {"a": "x"})
    for headers in seen:
        assert sorted(name for name in headers if "param" in name) in (
            ["mcp-param-a"],
            ["mcp-param-b"],
        )
    assert "mcp-param-b" in seen[-1]


DISCOVERED = {
    "supportedVersions": [STATELESS],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}


OFFERED: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}


def result(one: Request, body: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": one.id, "result": {"resultType": "complete", **body}}


def error(one: Request, code: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": one.id, "error": {"code": code, "message": "no"}}


@pytest.mark.requirement("HTM-05", "HTM-06")
@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("plain", "plain"),
        (" a\r\nCookie: b\x00", "=?base64?IGENCkNvb2tpZTogYgA=?="),
        ("a ", "=?base64?YSA=?="),
        ("=?base64?aGk=?=", "=?base64?PT9iYXNlNjQ/YUdrPT89?="),
        ("file:///é?a=%20#b", "=?base64?ZmlsZTovLy/DqT9hPSUyMCNi?="),
    ],
)
def test_any_name_and_any_uri_travels_in_a_header(name: str, header: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "tools/call": {"content": []},
        "prompts/get": {"messages": []},
        "resources/read": {"contents": []},
        "server/discover": {**DISCOVERED, "capabilities": OFFERED},
    }

    def script(one: Request) -> None:
        one.connection.json(result(one, bodies[one.message["method"]]))

    with serving(script) as raw, syncmcp.connect(raw.url, mode=STATELESS) as client:
        client.call_tool(name)
        client.get_prompt(name)
        client.read_resource(name)
    named = {one.message["method"]: one for one in raw.requests if "mcp-name" in one.headers}
    assert named.keys() == bodies.keys() - {"server/discover"}
    for one in named.values():
        assert one.headers["mcp-name"] == header
        assert name in one.message["params"].values()
        assert "cookie" not in one.headers


@pytest.mark.requirement("XHD-14")
@pytest.mark.parametrize("listing", ["works", "fails"])
def test_a_call_that_stays_refused_is_tried_twice_and_no_more(listing: str) -> None:
    methods: list[str] = []

    def script(one: Request) -> None:
        methods.append(one.message["method"])
        if one.message["method"] == "tools/call":
            one.connection.json(error(one, -32020), status=400)
        elif one.message["method"] == "tools/list" and listing == "fails":
            one.connection.json(error(one, -32603))
        else:
            one.connection.json(result(one, {**DISCOVERED, "tools": []}))

    with (
        serving(script) as raw,
        syncmcp.connect(raw.url, mode=STATELESS) as client,
        pytest.raises(HeaderMismatch) as caught,
    ):
        client.call_tool("t", {"a": "x"})
    calls = ["tools/call", "tools/list", "tools/call"]
    assert [one for one in methods if one != "server/discover"] == calls[
        : 3 if listing == "works" else 2
    ]
    cause = caught.value.__cause__
    assert isinstance(cause, syncmcp.InternalError) if listing == "fails" else cause is None


@pytest.mark.parametrize("way", ["token", "future", "timeout"])
def test_a_call_that_is_given_up_while_its_tool_is_listed_says_so(way: str) -> None:
    listing, over, token = threading.Event(), threading.Event(), CancelToken()

    def script(one: Request) -> None:
        if one.message["method"] == "tools/call":
            one.connection.json(error(one, -32020), status=400)
        elif one.message["method"] == "tools/list":
            listing.set()
            if way == "token":
                token.cancel("enough")
            assert over.wait(PATIENCE)
        else:
            one.connection.json(result(one, {**DISCOVERED, "tools": []}))

    with serving(script) as raw, syncmcp.connect(raw.url, mode=STATELESS) as client:
        try:
            if way == "timeout":
                with pytest.raises(RequestTimeout):
                    client.call_tool("t", {"a": "x"}, timeout=0.5)
            elif way == "token":
                with pytest.raises(RequestCancelled):
                    client.call_tool("t", {"a": "x"}, cancel=token)
            else:
                future = client.call_tool.future("t", {"a": "x"}, cancel=token)
                assert listing.wait(PATIENCE)
                token.cancel()
                assert isinstance(future.exception(PATIENCE), RequestCancelled)
        finally:
            over.set()


@pytest.mark.requirement("XHD-15")
@pytest.mark.parametrize(
    ("status", "hint"), [(413, "request is too large"), (431, "the tool schema mirrors")]
)
def test_headers_too_large_for_the_server_end_in_an_error_that_says_so(
    status: int, hint: str
) -> None:
    def script(one: Request) -> None:
        method = json.loads(one.body)["method"]
        if method == "tools/call":
            one.connection.respond(status, b"too much")
            return
        tool = {"name": "t", "inputSchema": schema(a=marked("A"))}
        one.connection.json(result(one, {**DISCOVERED, "tools": [tool]}))

    with serving(script) as raw, syncmcp.connect(raw.url, mode=STATELESS) as client:
        client.list_tools()
        with pytest.raises(HttpError, match=hint) as caught:
            client.call_tool("t", {"a": "x" * 10_000})
        assert caught.value.status == status
        assert caught.value.delivery == "refused"
