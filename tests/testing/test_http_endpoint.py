"""The HTTP half behind `http.server` and behind WSGI, with a raw client."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
import requests

from syncmcp.testing import HttpEndpoint, Server, ToolContext, demo_server, serve_http, wsgi_app
from tests.testing.wires import (
    MODERN,
    PATIENCE,
    Http,
    decoded,
    events,
    initialize,
    modern,
    read_event,
    wsgi_served,
)

COUNT = {"name": "countdown", "arguments": {"steps": 1, "delay": 0}, "_meta": {"progressToken": 1}}

Served = Callable[..., Http]


@contextmanager
def _wsgi(server: Server, **options: Any) -> Iterator[str]:
    with wsgi_served(HttpEndpoint(server, **options)) as root:
        yield f"{root}/"


@contextmanager
def _http_server(server: Server, **options: Any) -> Iterator[str]:
    with serve_http(server, **options) as http:
        yield http.url


@pytest.fixture(params=[_http_server, _wsgi], ids=["http.server", "wsgiref"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """Serve a server in one of both ways and return a client of it."""
    with ExitStack() as stack:

        def serve(server: Server, **options: Any) -> Http:
            client = Http(stack.enter_context(request.param(server, **options)))
            stack.callback(client.close)
            return client

        yield serve


@pytest.fixture
def http() -> Iterator[Http]:
    with serve_http(demo_server()) as running:
        client = Http(running.url)
        yield client
        client.close()


@pytest.mark.requirement("M-10")
@pytest.mark.requirement("M-09", "M-10")
def test_a_session_from_initialize_to_delete(served: Served) -> None:
    server = demo_server()
    client = served(server)
    client.start()
    assert client.session is not None
    assert len(client.session) >= 32
    assert all("!" <= letter <= "~" for letter in client.session)
    status, headers, answer = client.post("ping")
    assert (status, headers["content-type"], answer["result"]) == (200, "application/json", {})
    assert client.request("DELETE").status == 204
    client.close()
    assert client.post("ping")[0] == 404
    assert server.stats.sessions == 0


@pytest.mark.requirement("M-09")
def test_what_precedes_the_answer_makes_it_a_stream(served: Served) -> None:
    client = served(demo_server())
    client.start("2025-06-18")
    status, headers, found = client.post("tools/call", COUNT)
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    methods = [json.loads(event["data"]).get("method") for event in found]
    assert methods == ["notifications/message", "notifications/progress", None]
    assert len({event["id"] for event in found}) == 3


def test_the_new_era_streams_without_ids(served: Served) -> None:
    client = served(demo_server())
    found = client.modern(
        "tools/call", {"name": "countdown", "arguments": COUNT["arguments"]}, progressToken="p"
    )[2]
    assert [set(event) for event in found] == [{"data"}, {"data"}]
    assert json.loads(found[1]["data"])["result"]["resultType"] == "complete"


@pytest.mark.parametrize("response", ["json", "sse"])
def test_the_form_of_answers_may_be_fixed(served: Served, response: str) -> None:
    client = served(demo_server(), response=response, retry_ms=50)
    client.start()
    found = client.post("tools/call", COUNT)[2]
    if response == "json":
        assert found["result"]["content"][0]["text"] == "lift-off"
    else:
        assert (found[0]["data"], found[0]["retry"]) == ("", "50")
        assert json.loads(found[-1]["data"])["result"]
        first = client.modern("ping")
        assert first[0] == 404


def test_a_stream_of_2025_11_25_begins_with_a_priming_event(http: Http) -> None:
    http.start("2025-11-25")
    found = http.post("tools/call", COUNT)[2]
    assert found[0]["data"] == ""
    assert found[0]["id"] != found[1]["id"]


@pytest.mark.requirement("M-10")
@pytest.mark.requirement("M-09")
def test_a_broken_stream_is_taken_up_again_and_only_it(served: Served) -> None:
    server = demo_server()
    client = served(server)
    client.start()
    found = client.post("tools/call", COUNT)[2]
    other = client.post("tools/call", COUNT)[2]
    for position, event in enumerate(found):
        response = client.request("GET", headers={"Last-Event-ID": event["id"]})
        replayed = decoded(response)
        assert [entry["data"] for entry in replayed[1:]] == [
            entry["data"] for entry in found[position + 1 :]
        ]
        assert not {entry["id"] for entry in replayed} & {entry["id"] for entry in other}


def test_an_unknown_event_id_is_refused(http: Http) -> None:
    http.start()
    for bad in ("nothing", "99-1", "1-x"):
        response = http.request("GET", headers={"Last-Event-ID": bad})
        assert (response.status, decoded(response)["error"]["code"]) == (400, -32600)


def test_events_are_kept_within_a_bound() -> None:
    with serve_http(demo_server(), event_limit=2) as running:
        client = Http(running.url)
        client.start()
        found = client.post("tools/call", COUNT)[2]
        replayed = decoded(client.request("GET", headers={"Last-Event-ID": found[0]["id"]}))
        assert [entry["data"] for entry in replayed[1:]] == [event["data"] for event in found[2:]]
        client.close()


def test_a_tool_may_close_its_stream_and_go_on() -> None:
    server, go = Server(), threading.Event()

    @server.tool()
    def poll(context: ToolContext) -> str:
        context.log("info", "before")
        context.close_stream(retry_ms=30)
        assert go.wait(PATIENCE)
        context.log("info", "after")
        return "done"

    with serve_http(server) as running:
        client = Http(running.url)
        client.start()
        found = client.post("tools/call", {"name": "poll"})[2]
        assert found[0]["data"] == ""
        assert json.loads(found[1]["data"])["params"]["data"] == "before"
        assert found[2] == {"retry": "30"}
        response = client.request("GET", headers={"Last-Event-ID": found[1]["id"]})
        go.set()
        replayed = decoded(response)
        assert json.loads(replayed[1]["data"])["params"]["data"] == "after"
        assert json.loads(replayed[2]["data"])["result"]["content"][0]["text"] == "done"
        client.close()


@pytest.mark.requirement("M-09")
def test_the_get_stream_carries_what_belongs_to_no_request(served: Served) -> None:
    server = demo_server()
    client = served(server)
    client.start()
    server.broadcast("x/early")
    with requests.Session() as listening:
        assert client.session is not None
        response = listening.get(
            client.connection.host and f"http://{client.parts.netloc}{client.parts.path}",
            headers={"Accept": "text/event-stream", "Mcp-Session-Id": client.session},
            stream=True,
            timeout=PATIENCE,
        )
        stream: Any = response.raw
        stream.readline = stream._fp.readline
        assert read_event(stream)["data"] == ""
        assert "x/early" in read_event(stream)["data"]
        server.broadcast("x/late")
        assert "x/late" in read_event(stream)["data"]
        ended = client.request("DELETE")
        assert (ended.status, ended.read()) == (204, b"")
        assert server.stats.wait_for(lambda stats: stats.streams == 0)
        response.close()


def test_get_and_delete_need_a_session(http: Http) -> None:
    assert decoded(http.request("GET"))["error"]["code"] == -32600
    response = http.request("DELETE", headers={"Mcp-Session-Id": "unknown"})
    assert (response.status, response.read() != b"") == (404, True)
    http.start()
    response = http.request("GET", headers={"Accept": "application/json"})
    assert (response.status, response.read() != b"") == (406, True)


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_the_new_era_knows_post_only(http: Http, verb: str) -> None:
    response = http.request(verb, headers={"MCP-Protocol-Version": MODERN})
    assert (response.status, response.headers["allow"], response.read()) == (405, "POST", b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Accept": "application/json"}, 406),
        ({"Accept": "*/*"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:1"}, 200),
        ({"MCP-Protocol-Version": "1999-01-01"}, 400),
        ({"MCP-Protocol-Version": None}, 200),
        ({"Mcp-Session-Id": None}, 400),
        ({"Mcp-Session-Id": "unknown"}, 404),
    ],
)
def test_requests_are_refused_by_their_headers(
    http: Http, headers: dict[str, str | None], status: int
) -> None:
    http.start()
    response = http.request("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers)
    response.read()
    assert response.status == status


@pytest.mark.parametrize(
    ("body", "code"), [(b"{", -32700), (b"7", -32600), (b'{"id":1}', -32600), (b"{}", -32600)]
)
def test_a_body_that_is_no_message_is_a_400(http: Http, body: bytes, code: int) -> None:
    response = http.request("POST", body)
    assert response.status == 400
    assert decoded(response)["error"]["code"] == code


def test_a_refused_initialize_opens_no_session(http: Http) -> None:
    status, headers, answer = http.post("initialize", {})
    assert (status, answer["error"]["code"]) == (400, -32602)
    assert "mcp-session-id" not in headers


def test_batches_over_http(http: Http) -> None:
    http.start("2025-03-26")
    ping = {"jsonrpc": "2.0", "method": "ping"}
    response = http.request("POST", [{**ping, "id": 1}, {**ping, "id": 2}])
    assert [answer["id"] for answer in decoded(response)] == [1, 2]
    response = http.request("POST", [{"jsonrpc": "2.0", "method": "notifications/x"}])
    assert (response.status, response.read()) == (202, b"")
    response = http.request("POST", [])
    assert (response.status, decoded(response)["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"MCP_Protocol_Version": None}, -32020),
        ({"MCP_Protocol_Version": "2025-11-25"}, -32020),
        ({"Mcp_Method": None}, -32020),
        ({"Mcp_Method": "TOOLS/CALL"}, -32020),
        ({"Mcp_Name": None}, -32020),
        ({"Mcp_Name": "other"}, -32020),
        ({"Mcp_Name": "=?base64?!?="}, -32020),
        ({"Mcp_Name": "=?base64?ZWNobw==?="}, None),
        ({}, None),
    ],
)
def test_headers_of_the_new_era_must_say_what_the_body_says(
    http: Http, changed: dict[str, str | None], code: int | None
) -> None:
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "echo"}
    params = modern({"name": "echo", "arguments": {"text": "x"}})
    status, _, answer = http.post("tools/call", params, **{**headers, **changed})
    assert answer.get("error", {}).get("code") == code
    assert status == (200 if code is None else 400)


@pytest.mark.parametrize(
    ("value", "header", "status"),
    [
        (True, "true", 200),
        (None, None, 200),
        ("e\u0301", "=?base64?ZcyB?=", 200),
        (42.0, "42", 200),
        (7, None, 400),
        (7, "8", 400),
    ],
)
def test_annotated_arguments_must_be_mirrored(value: Any, header: str | None, status: int) -> None:
    server = Server()

    @server.tool(
        input_schema={
            "type": "object",
            "properties": {
                "deep": {"type": "object", "properties": {"it": {"x-mcp-header": "It"}}}
            },
        }
    )
    def tool(**arguments: Any) -> str:
        return "ok"

    with serve_http(server) as running:
        client = Http(running.url)
        params = modern({"name": "tool", "arguments": {"deep": {"it": value}}})
        found = client.post(
            "tools/call",
            params,
            MCP_Protocol_Version=MODERN,
            Mcp_Method="tools/call",
            Mcp_Name="tool",
            Mcp_Param_It=header,
        )
        assert found[0] == status
        client.close()


def test_errors_of_the_new_era_have_their_status(http: Http) -> None:
    status, _, answer = http.modern("no/such")
    assert (status, answer["error"]["code"]) == (404, -32601)
    meta = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    params = modern(None, **meta)
    status, _, answer = http.post(
        "tools/list", params, MCP_Protocol_Version="2099-01-01", Mcp_Method="tools/list"
    )
    assert (status, answer["error"]["code"]) == (400, -32022)
    status, _, answer = http.post(
        "tools/list", {}, MCP_Protocol_Version=MODERN, Mcp_Method="tools/list"
    )
    assert (status, answer["error"]["code"]) == (400, -32602)
    status, _, answer = http.modern("tools/call", {"name": "none"})
    assert (status, answer["error"]["code"]) == (200, -32602)


@pytest.mark.parametrize("progress", [{}, {"progressToken": 1}], ids=["silent", "streaming"])
def test_hanging_up_cancels_in_the_new_era(progress: dict[str, Any]) -> None:
    server, entered = Server(), threading.Event()

    @server.tool()
    def hang(context: ToolContext) -> str:
        context.report_progress(1)
        entered.set()
        assert context.cancelled.wait(PATIENCE)
        return "gone"

    with serve_http(server) as running:
        client = Http(running.url)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        client.connection.connect()
        client.connection.request(
            "POST",
            "/mcp",
            json.dumps({**body, "params": modern({"name": "hang"}, **progress)}),
            {
                "Accept": "application/json, text/event-stream",
                "Content-Type": "application/json",
                "MCP-Protocol-Version": MODERN,
                "Mcp-Method": "tools/call",
                "Mcp-Name": "hang",
            },
        )
        assert entered.wait(PATIENCE)
        client.close()
        assert server.stats.wait_for(lambda stats: stats.disconnects == 1)
        assert server.stats.wait_for(lambda stats: stats.running == 0 and stats.cancelled == 1)


def test_hanging_up_is_no_cancel_in_the_old_era() -> None:
    server, entered, go = Server(), threading.Event(), threading.Event()
    seen: list[bool] = []

    @server.tool()
    def work(context: ToolContext) -> str:
        context.log("info", "working")
        entered.set()
        assert go.wait(PATIENCE)
        seen.append(context.cancelled.is_set())
        return "done"

    with serve_http(server) as running:
        client = Http(running.url)
        client.start()
        response = client.request(
            "POST", {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "work"}}
        )
        primed = read_event(response)
        response.close()
        client.close()
        assert server.stats.wait_for(lambda stats: stats.streams == 0)
        go.set()
        replay = client.request("GET", headers={"Last-Event-ID": primed["id"]})
        assert "done" in decoded(replay)[-1]["data"]
        assert seen == [False]
        client.close()


def test_a_cancelled_call_ends_its_post_without_an_answer() -> None:
    server, entered = Server(), threading.Event()

    @server.tool()
    def hang(context: ToolContext) -> None:
        entered.set()
        assert context.cancelled.wait(PATIENCE)

    with serve_http(server) as running:
        calling, other = Http(running.url), Http(running.url)
        calling.start()
        other.session = calling.session
        answers: list[Any] = []
        thread = threading.Thread(
            target=lambda: answers.append(calling.post("tools/call", {"name": "hang"}))
        )
        thread.start()
        assert entered.wait(PATIENCE)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
        assert other.request("POST", {"jsonrpc": "2.0", **cancel}).status == 202
        thread.join(PATIENCE)
        assert answers[0][0] == 200
        assert answers[0][2] == []
        calling.close()
        other.close()


def test_a_call_whose_cancel_overtook_it_is_never_begun() -> None:
    server, entered = Server(), threading.Event()

    @server.tool()
    def hang() -> None:
        entered.set()

    with serve_http(server) as running:
        client = Http(running.url)
        client.start()
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 2}}
        response = client.request("POST", {"jsonrpc": "2.0", **cancel})
        assert (response.status, response.read()) == (202, b"")
        status, _, messages = client.post("tools/call", {"name": "hang"})
        assert (status, messages) == (200, [])
        assert client.post("tools/list", {})[0] == 200
        client.close()
    assert not entered.is_set()


@pytest.mark.requirement("M-10")
def test_ending_a_session_ends_all_that_belongs_to_it() -> None:
    server, entered, cancelled = Server(), threading.Event(), threading.Event()

    @server.tool()
    def hang(context: ToolContext) -> None:
        context.log("info", "hanging")
        entered.set()
        assert context.cancelled.wait(PATIENCE)
        cancelled.set()

    with serve_http(server) as running:
        calling, other = Http(running.url), Http(running.url)
        calling.start()
        other.session = calling.session
        body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "hang"}}
        response = calling.request("POST", body)
        primed = read_event(response)
        assert entered.wait(PATIENCE)
        ended = other.request("DELETE")
        assert (ended.status, ended.read()) == (204, b"")
        assert cancelled.wait(PATIENCE)
        assert len(events(response.read())) == 1
        again = other.request("GET", headers={"Last-Event-ID": primed["id"]})
        assert (again.status, decoded(again)["error"]["code"]) == (404, -32600)
        assert server.stats.wait_for(lambda stats: (stats.sessions, stats.streams) == (0, 0))
        calling.close()
        other.close()


def test_a_listener_over_http_is_tagged_and_ends_with_its_connection() -> None:
    server = demo_server()
    with serve_http(server) as running:
        client = Http(running.url)
        body = {
            "jsonrpc": "2.0",
            "id": 5,
            "method": "subscriptions/listen",
            "params": modern({"notifications": {"toolsListChanged": True}}),
        }
        headers: dict[str, str | None] = {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "subscriptions/listen",
        }
        response = client.request("POST", body, headers)
        assert "acknowledged" in read_event(response)["data"]
        server.remove_tool("add")
        changed = json.loads(read_event(response)["data"])
        assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 5}
        response.close()
        client.close()
        assert server.stats.wait_for(lambda stats: stats.listeners == 0)


def test_silence_is_broken_by_comments() -> None:
    with serve_http(demo_server(), keep_alive=0.01) as running:
        client = Http(running.url)
        client.start()
        response = client.request("GET")
        assert read_event(response)["data"] == ""
        assert response.readline().startswith(b": ")
        response.close()
        client.close()


def test_one_connection_serves_many_calls_and_their_streams() -> None:
    with serve_http(demo_server()) as running:
        client = Http(running.url)
        client.start()
        for _ in range(20):
            assert client.post("tools/call", COUNT)[0] == 200
            assert client.post("ping")[0] == 200
        assert running.connections == 1
        assert running.open_connections == 1
        running.drop_connections()
        client.close()
        assert client.post("ping")[0] == 200
        assert running.connections == 2
        running.endpoint.forget_sessions()
        assert client.post("ping")[0] == 404
        client.close()


def test_other_paths_and_bad_lengths_are_refused(http: Http) -> None:
    assert http.start()
    http.connection.request("GET", "/elsewhere")
    response = http.connection.getresponse()
    assert (response.status, response.read()) == (404, b"Not found")
    for head, status in ((b"", b"411"), (b"Content-Length: 99999999999\r\n", b"413")):
        with socket.create_connection(http.address, PATIENCE) as bare:
            bare.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
            assert bare.makefile("rb").readline().split()[1] == status


def test_a_client_of_http_1_0_gets_its_stream_unchunked(http: Http) -> None:
    http.start()
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": COUNT}).encode()
    with socket.create_connection(http.address, PATIENCE) as bare:
        bare.sendall(
            b"POST /mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Accept: */*\r\nMcp-Session-Id: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (str(http.session).encode(), len(body), body)
        )
        with bare.makefile("rb") as answer:
            head, _, rest = answer.read().partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert "lift-off" in events(rest)[-1]["data"]


@pytest.mark.requirement("M-10")
def test_the_endpoint_needs_no_server_at_all() -> None:
    endpoint = HttpEndpoint(demo_server())
    headers = {"Content-Type": "application/json", "Accept": "*/*"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize()})
    reply = endpoint.handle_post(headers, body.encode())
    assert reply.status == 200
    assert isinstance(reply.body, bytes)
    assert reply.headers["mcp-session-id"]
    endpoint.close()


@pytest.mark.parametrize("params", [[], None, "2025-11-25"])
def test_initialize_with_params_that_are_no_object_is_refused_by_a_stateless_server(
    params: object,
) -> None:
    endpoint = HttpEndpoint(Server(revisions=("2026-07-28",)))
    headers = {"Content-Type": "application/json", "Accept": "*/*"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    reply = endpoint.handle_post(headers, body.encode())
    assert isinstance(reply.body, bytes)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32602)
    endpoint.close()


@pytest.mark.requirement("M-10")
@pytest.mark.parametrize(
    ("method", "status"), [("POST", "202 Accepted"), ("PUT", "405 Method Not Allowed")]
)
def test_a_strict_wsgi_server_accepts_an_answer_without_a_body(method: str, status: str) -> None:
    endpoint = HttpEndpoint(demo_server())
    message = json.dumps({"jsonrpc": "2.0", "method": "notifications/x"}).encode()
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(message)),
        "HTTP_ACCEPT": "application/json, text/event-stream",
        "HTTP_MCP_PROTOCOL_VERSION": MODERN,
        "QUERY_STRING": "",
        "wsgi.input": io.BytesIO(message),
    }
    setup_testing_defaults(environ)
    seen: list[str] = []

    def start_response(status: str, headers: Any, error: Any = None) -> Any:
        seen.append(status)

    answer: Any = validator(wsgi_app(endpoint))(environ, start_response)
    assert b"".join(answer) == b""
    answer.close()
    assert seen == [status]
    endpoint.close()


def test_a_connection_that_gets_no_thread_is_closed_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve_http(demo_server()) as http:
        start = threading.Thread.start

        def refuse(self: threading.Thread) -> None:
            if self.name == "syncmcp-testing-connection":
                raise RuntimeError("can't create new thread at interpreter shutdown")
            start(self)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(requests.ConnectionError):
            requests.get(http.url, timeout=PATIENCE)
        assert http.open_connections == 0
    assert capfd.readouterr().err == ""
