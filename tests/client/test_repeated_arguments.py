"""Tool arguments that are repeated in HTTP headers (2026-07-28), from the list to the call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, HeaderMismatch, HttpError, RequestCancelled
from syncmcp.testing import Server
from tests.support.stage import PATIENCE, STATELESS, Clock, Wire, in_threads
from tests.transports.http_peer import Request, serving

NEW = Wire("http", STATELESS)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(header: str, type: str = "string") -> dict[str, Any]:
    return {"type": type, "x-mcp-header": header}


def cloud() -> Server:
    """Return a server with two tools that repeat arguments in headers, one of them invalid."""
    server = Server("cloud")

    @server.tool(input_schema=schema(region=marked("Region"), count=marked("Count", "integer")))
    def start(region: str = "", count: int = 0) -> str:
        return f"{count} in {region!r}"

    bad = schema(price=marked("Price", "number"))
    server.add_tool(lambda price=0.0: f"for {price}", name="buy", input_schema=bad)
    return server


@pytest.mark.requirement("XHD-01", "XHD-09", "XHD-10", "XHD-11", "XHD-12")
@pytest.mark.parametrize("region", ["eu", " x\r\nZürich"])  # other values are in test_mirroring.py
def test_a_listed_tool_gets_its_arguments_in_headers_too(region: str) -> None:
    server = cloud()
    with NEW.connect(server) as client:
        client.list_tools()
        # The server rejects a request whose headers and body differ.
        assert client.call_tool("start", {"region": region}).text == f"0 in {region!r}"
        future = client.call_tool.future("start", {"region": region, "count": 3})
        assert future.result().text == f"3 in {region!r}"
        assert client.call_tool("start", {"region": None}).is_error
        raw = client.request("tools/call", {"name": "start", "arguments": {"count": 1}})
        assert raw["content"][0]["text"] == "1 in ''"
    assert server.stats.requests["tools/list"] == 1
    assert server.stats.errors == 0


@pytest.mark.requirement("XHD-14")
@pytest.mark.parametrize(
    "call",
    [
        lambda client, *given: client.call_tool(*given),
        lambda client, *given: client.call_tool.future(*given).result(),
        lambda client, *given: client.begin_tool(*given),
    ],
    ids=["blocking", "future", "by hand"],
)
def test_a_tool_that_was_never_listed_is_listed_once_it_is_refused(call: Any) -> None:
    server = cloud()
    with NEW.connect(server) as client:
        for _ in range(2):
            assert call(client, "start", {"region": "eu"}).text == "0 in 'eu'"
    requests = server.stats.requests
    assert (requests["tools/list"], requests["tools/call"]) == (1, 3)


@pytest.mark.requirement("XHD-02", "XHD-08")
def test_a_tool_with_a_bad_mark_is_left_out_of_every_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    with caplog.at_level(logging.WARNING, "syncmcp.tools"), NEW.connect(cloud()) as client:
        tools = [client.list_tools().tools, client.list_tools(cursor=None).tools]
        for listed in (*tools, client.iter_tools()):
            assert [tool.name for tool in listed] == ["start"]
        records = [record for record in caplog.records if record.name == "syncmcp.tools"]
        (first,) = (record.getMessage() for record in records)
        assert "'buy'" in first
        assert "'price'" in first
    assert caplog.messages[-1] == f"{first} (and 1 more like it since the last record)"


def test_thousands_of_tools_with_bad_marks_are_one_record_of_bounded_length(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    server = Server("cloud")
    for number in range(1000):
        name = f"{number}{'x' * 2000}"
        server.add_tool(lambda: "", name=name, input_schema=schema(a=marked("A", "number")))
    with caplog.at_level(logging.WARNING, "syncmcp"), NEW.connect(server) as client:
        assert client.list_tools().tools == []
        (record,) = caplog.messages
        assert len(record) < 1500
    assert caplog.messages[1].endswith("(and 998 more like it since the last record)")


@contextmanager
def scripted(answers: dict[str, Any]) -> Iterator[tuple[syncmcp.Client, list[Request]]]:
    """Connect to a server that answers each method with a result, or with its function."""

    def script(one: Request) -> None:
        answer: Any = answers.get(one.message["method"], DISCOVERED)
        if callable(answer):
            answer = answer(one)
        if answer is not None:
            body = {"resultType": "complete", **answer}
            one.connection.json({"jsonrpc": "2.0", "id": one.id, "result": body})

    with serving(script) as raw, syncmcp.connect(raw.url, mode=STATELESS) as client:
        yield client, raw.requests


@pytest.mark.requirement("XHD-13")
def test_threads_that_list_and_call_at_once_use_one_whole_schema_or_the_other() -> None:
    turn = threading.Event()

    def listed(one: Request) -> dict[str, Any]:
        header = "B" if turn.is_set() else "A"
        return {"tools": [{"name": "t", "inputSchema": schema(a=marked(header))}]}

    with scripted({"tools/list": listed, "tools/call": {"content": []}}) as (client, requests):
        client.list_tools()

        def call() -> None:
            for _ in range(20):
                client.call_tool("t", {"a": "x"})

        def list_again() -> None:
            turn.set()
            client.list_tools()

        assert in_threads(call, call, list_again) == [None] * 3
        client.call_tool("t", {"a": "x"})
    mirrored = [
        [name for name in one.headers if "param" in name]
        for one in requests
        if one.message["method"] == "tools/call"
    ]
    assert len(mirrored) == 41
    assert all(names in (["mcp-param-a"], ["mcp-param-b"]) for names in mirrored)
    assert mirrored[-1] == ["mcp-param-b"]


DISCOVERED = {
    "supportedVersions": [STATELESS],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
    "tools": [],
}


def refuse(one: Request, code: int, status: int = 200) -> None:
    error = {"jsonrpc": "2.0", "id": one.id, "error": {"code": code, "message": "no"}}
    one.connection.json(error, status=status)


def mismatch(one: Request) -> None:
    refuse(one, -32020, 400)


@pytest.mark.requirement("XHD-14")
@pytest.mark.parametrize("listing", ["works", "fails"])
def test_a_call_that_stays_refused_is_tried_twice_and_no_more(listing: str) -> None:
    answers: dict[str, Any] = {"tools/call": mismatch}
    if listing == "fails":
        answers["tools/list"] = lambda one: refuse(one, -32603)
    with scripted(answers) as (client, requests), pytest.raises(HeaderMismatch) as caught:
        client.call_tool("t", {"a": "x"})
    calls = ["tools/call", "tools/list", "tools/call"][: 3 if listing == "works" else 2]
    assert [one.message["method"] for one in requests] == ["server/discover", *calls]
    cause = caught.value.__cause__
    assert isinstance(cause, syncmcp.InternalError if listing == "fails" else type(None))


@pytest.mark.parametrize("way", ["token", "future", "timeout"])
def test_a_call_that_is_given_up_while_its_tool_is_listed_says_so(way: str) -> None:
    over, token = threading.Event(), CancelToken()

    def hold(one: Request) -> dict[str, Any]:
        if way != "timeout":
            token.cancel("enough")
        assert over.wait(PATIENCE)
        return {"tools": []}

    options: dict[str, Any] = {"cancel": token, "timeout": 0.5 if way == "timeout" else None}
    with scripted({"tools/call": mismatch, "tools/list": hold}) as (client, _):

        def call() -> object:
            if way == "future":
                return client.call_tool.future("t", {"a": "x"}, **options).result(PATIENCE)
            return client.call_tool("t", {"a": "x"}, **options)

        with pytest.raises(syncmcp.RequestTimeout if way == "timeout" else RequestCancelled):
            call()
        over.set()


@pytest.mark.requirement("XHD-15")
@pytest.mark.parametrize(
    ("status", "hint"), [(413, "request is too large"), (431, "the tool schema mirrors")]
)
def test_headers_too_large_for_the_server_are_an_error_that_says_so(status: int, hint: str) -> None:
    answers = {
        "tools/list": {"tools": [{"name": "t", "inputSchema": schema(a=marked("A"))}]},
        "tools/call": lambda one: one.connection.respond(status, b"too much"),
    }
    with scripted(answers) as (client, _):
        client.list_tools()
        with pytest.raises(HttpError, match=hint) as caught:
            client.call_tool("t", {"a": "x" * 10_000})
        assert (caught.value.status, caught.value.delivery) == (status, "refused")
