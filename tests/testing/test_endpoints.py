"""The server over HTTP and HTTP+SSE (with `http.server` and with WSGI), and over stdio."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urljoin
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest
import requests

import syncmcp
from syncmcp.testing import (
    HttpEndpoint,
    Server,
    SseEndpoint,
    demo_server,
    serve_http,
    wsgi_app,
)
from syncmcp.testing.__main__ import main as demo_program
from tests.support.stage import Stage
from tests.testing.wires import (
    MODERN,
    PATIENCE,
    Child,
    Http,
    decoded,
    initialize,
    modern,
    read_event,
    wsgi_served,
)

STEP = {"name": "countdown", "arguments": {"steps": 1, "delay": 0}}
COUNT = {**STEP, "_meta": {"progressToken": 1}}

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
    """Return a function that serves a server in one of two ways, and returns a client."""
    with ExitStack() as stack:

        def serve(server: Server, **options: Any) -> Http:
            url = stack.enter_context(request.param(server, **options))
            return stack.enter_context(Http(url))

        yield serve


@pytest.fixture
def http() -> Iterator[Http]:
    with serve_http(demo_server()) as running, Http(running.url) as client:
        yield client


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.gate.set()
    stage.server.close()


# Sessions and streams


@pytest.mark.requirement("M-09")
def test_what_precedes_the_answer_makes_it_a_stream(served: Served) -> None:
    client = served(demo_server())
    client.start("2025-06-18")
    status, headers, found = client.post("tools/call", COUNT)
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    methods = [json.loads(event["data"]).get("method") for event in found]
    assert methods == ["notifications/message", "notifications/progress", None]
    assert len({event["id"] for event in found}) == 3

    client.session = client.version = None
    client.start("2025-11-25")
    priming, *found = client.post("tools/call", COUNT)[2]
    assert priming["data"] == ""
    assert len({event["id"] for event in [priming, *found]}) == 4

    found = client.modern("tools/call", STEP, progressToken="p")[2]
    assert [set(event) for event in found] == [{"data"}, {"data"}]
    assert json.loads(found[1]["data"])["result"]["resultType"] == "complete"


@pytest.mark.parametrize("response", ["json", "sse"])
def test_the_form_of_answers_may_be_fixed(served: Served, response: str) -> None:
    client = served(demo_server(), response=response, retry_ms=50, event_limit=2, keep_alive=0.01)
    client.start()
    found = client.post("tools/call", COUNT)[2]
    if response == "json":
        assert found["result"]["content"][0]["text"] == "lift-off"
        return
    assert (found[0]["data"], found[0]["retry"]) == ("", "50")
    assert json.loads(found[-1]["data"])["result"]
    # The server stores events up to the limit, and sends comments during silence.
    with client.beside() as other:
        replayed = decoded(other.request("GET", headers={"Last-Event-ID": found[0]["id"]}))
        assert [entry["data"] for entry in replayed[1:]] == [event["data"] for event in found[-2:]]
        assert client.modern("ping")[0] == 404
        stream = other.request("GET")
        assert read_event(stream)["data"] == ""
        assert stream.readline().startswith(b": ")
        stream.close()


@pytest.mark.requirement("M-09", "M-10")
def test_a_broken_stream_is_taken_up_again_and_only_it(served: Served) -> None:
    client = served(demo_server())
    client.start()
    found = client.post("tools/call", COUNT)[2]
    other = client.post("tools/call", COUNT)[2]
    assert len(found) == 4
    for position, event in enumerate(found):
        replayed = decoded(client.request("GET", headers={"Last-Event-ID": event["id"]}))
        rest = [entry["data"] for entry in found[position + 1 :]]
        assert [entry["data"] for entry in replayed[1:]] == rest
        assert not {entry["id"] for entry in replayed} & {entry["id"] for entry in other}
    for bad in ("nothing", "99-1", "1-x"):
        response = client.request("GET", headers={"Last-Event-ID": bad})
        assert (response.status, decoded(response)["error"]["code"]) == (400, -32600)


@pytest.mark.requirement("M-09", "M-10")
def test_a_session_has_a_stream_for_what_belongs_to_no_request_until_delete(served: Served) -> None:
    server = demo_server()
    client = served(server)
    client.start()
    assert client.session is not None
    assert len(client.session) >= 32
    assert all("!" <= letter <= "~" for letter in client.session)
    status, headers, answer = client.post("ping")
    assert (status, headers["content-type"], answer["result"]) == (200, "application/json", {})
    server.broadcast("x/early")
    with client.beside() as listening:
        stream = listening.request("GET")
        assert read_event(stream)["data"] == ""
        assert "x/early" in read_event(stream)["data"]
        server.broadcast("x/late")
        assert "x/late" in read_event(stream)["data"]
        ended = client.request("DELETE")
        assert (ended.status, ended.read()) == (204, b"")
        assert server.stats.wait_for(lambda stats: stats.streams == 0)
        stream.close()
    assert client.post("ping")[0] == 404
    assert server.stats.sessions == 0


# Refused requests


def test_what_cannot_be_served_is_refused_with_its_status(http: Http) -> None:
    def refused(verb: str, body: Any = None, headers: Any = None) -> tuple[int, int]:
        response = http.request(verb, body, headers)
        return response.status, decoded(response)["error"]["code"]

    assert refused("GET") == (400, -32600)
    assert refused("DELETE", headers={"Mcp-Session-Id": "unknown"}) == (404, -32600)
    for body, code in ((b"{", -32700), (b"7", -32600), (b'{"id":1}', -32600), (b"{}", -32600)):
        assert refused("POST", body) == (400, code)
    status, headers, answer = http.post("initialize", {})
    assert (status, answer["error"]["code"]) == (400, -32602)
    assert "mcp-session-id" not in headers

    http.start("2025-03-26")
    assert refused("GET", headers={"Accept": "application/json"}) == (406, -32600)
    for verb in ("GET", "DELETE"):
        response = http.request(verb, headers={"MCP-Protocol-Version": MODERN})
        assert (response.status, response.headers["allow"], response.read()) == (405, "POST", b"")
    ping = {"jsonrpc": "2.0", "method": "ping"}
    batch = decoded(http.request("POST", [{**ping, "id": 1}, {**ping, "id": 2}]))
    assert [answer["id"] for answer in batch] == [1, 2]
    response = http.request("POST", [{"jsonrpc": "2.0", "method": "notifications/x"}])
    assert (response.status, response.read()) == (202, b"")
    assert refused("POST", []) == (400, -32600)

    later, version = "2099-01-01", "io.modelcontextprotocol/protocolVersion"
    listing = {"Mcp_Method": "tools/list", "MCP_Protocol_Version": MODERN}
    newer = {**listing, "MCP_Protocol_Version": later}
    for (status, _, answer), expected in (
        (http.modern("no/such"), (404, -32601)),
        (http.modern("tools/call", {"name": "none"}), (200, -32602)),
        (http.post("tools/list", {}, **listing), (400, -32602)),
        (http.post("tools/list", modern(None, **{version: later}), **newer), (400, -32022)),
    ):
        assert (status, answer["error"]["code"]) == expected


def test_one_connection_serves_many_calls_and_their_streams() -> None:
    with serve_http(demo_server()) as running, Http(running.url) as client:
        client.start()
        for _ in range(2):
            assert client.post("tools/call", COUNT)[0] == 200
            assert client.post("ping")[0] == 200
        assert (running.connections, running.open_connections) == (1, 1)
        running.drop_connections()
        client.close()
        assert client.post("ping")[0] == 200
        assert running.connections == 2
        running.endpoint.forget_sessions()
        assert client.post("ping")[0] == 404


def test_requests_are_refused_by_their_headers(http: Http) -> None:
    rows: list[tuple[dict[str, str | None], int]] = [
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
    ]
    http.start()
    for headers, status in rows:
        response = http.request("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers)
        response.read()
        assert response.status == status, headers


def test_headers_of_the_new_era_must_say_what_the_body_says(http: Http) -> None:
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "echo"}
    params = modern({"name": "echo", "arguments": {"text": "x"}})
    rows: list[tuple[str, str | None, int]] = [
        ("MCP_Protocol_Version", None, 400),
        ("MCP_Protocol_Version", "2025-11-25", 400),
        ("Mcp_Method", None, 400),
        ("Mcp_Method", "TOOLS/CALL", 400),
        ("Mcp_Name", None, 400),
        ("Mcp_Name", "other", 400),
        ("Mcp_Name", "=?base64?!?=", 400),
        ("Mcp_Name", "=?base64?ZWNobw==?=", 200),
        ("Mcp_Name", "echo", 200),
    ]
    for name, value, expected in rows:
        status, _, answer = http.post("tools/call", params, **{**headers, name: value})
        assert status == expected, (name, value)
        assert answer.get("error", {}).get("code") == (None if status == 200 else -32020)


def test_annotated_arguments_must_be_mirrored() -> None:
    server = Server()
    marked = {"type": "object", "properties": {"it": {"x-mcp-header": "It"}}}

    @server.tool(input_schema={"type": "object", "properties": {"deep": marked}})
    def tool(**arguments: Any) -> str:
        return "ok"

    rows: list[tuple[Any, str | None, int]] = [
        (True, "true", 200),
        (None, None, 200),
        ("e\u0301", "=?base64?ZcyB?=", 200),
        (42.0, "42", 200),
        (7, None, 400),
        (7, "8", 400),
    ]
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "tool"}
    with serve_http(server) as running, Http(running.url) as client:
        for value, header, status in rows:
            params = modern({"name": "tool", "arguments": {"deep": {"it": value}}})
            found = client.post("tools/call", params, **headers, Mcp_Param_It=header)
            assert found[0] == status, (value, header)


def test_other_paths_and_bad_lengths_are_refused(http: Http) -> None:
    assert http.start()
    http.connection.request("GET", "/elsewhere")
    response = http.connection.getresponse()
    assert (response.status, response.read()) == (404, b"Not found")
    for head, status in ((b"", b"411"), (b"Content-Length: 99999999999\r\n", b"413")):
        with socket.create_connection(http.address, PATIENCE) as bare:
            bare.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
            assert bare.makefile("rb").readline().split()[1] == status


# Cancels, and the end of sessions


@pytest.mark.requirement("M-10")
def test_ending_a_session_ends_all_that_belongs_to_it(stage: Stage) -> None:
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "hold"}}
    with serve_http(stage.server, response="sse") as running, Http(running.url) as calling:
        calling.start()
        response = calling.request("POST", call)
        primed = read_event(response)
        [held] = stage.inside("")
        with calling.beside() as other:
            ended = other.request("DELETE")
            assert (ended.status, ended.read()) == (204, b"")
            assert held.cancelled.wait(PATIENCE)
            assert response.read() == b""
            again = other.request("GET", headers={"Last-Event-ID": primed["id"]})
            assert (again.status, decoded(again)["error"]["code"]) == (404, -32600)
        assert stage.stats.wait_for(lambda stats: (stats.sessions, stats.streams) == (0, 0))


# Endpoints in other servers, or without one


@pytest.mark.requirement("M-10")
def test_the_endpoint_needs_no_server_at_all() -> None:
    def reply(server: Server, params: Any) -> Any:
        endpoint = HttpEndpoint(server)
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        made = endpoint.handle_post(headers, json.dumps(body).encode())
        assert isinstance(made.body, bytes)
        endpoint.close()
        return made

    accepted = reply(demo_server(), initialize())
    assert accepted.status == 200
    assert accepted.headers["mcp-session-id"]
    no_objects: list[Any] = [[], None, "2025-11-25"]
    for params in no_objects:
        refused = reply(Server(revisions=("2026-07-28",)), params)
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (400, -32602)


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


# HTTP+SSE


@contextmanager
def talking(url: str) -> Iterator[tuple[HTTPResponse, str]]:
    """Open a session; yield its stream, and the address that the stream names."""
    with Http(url) as client:
        stream = client.request("GET")
        first = read_event(stream)
        assert first["event"] == "endpoint"
        yield stream, urljoin(url, first["data"])
        stream.close()


def told(stream: HTTPResponse) -> Any:
    """Return the next message of a stream; skip comments."""
    while "data" not in (event := read_event(stream)):
        pass
    return json.loads(event["data"])


def post(
    address: str, method: str = "ping", params: Any = None, id: int = 1, **options: Any
) -> int:
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    return requests.post(address, json=body, timeout=PATIENCE, **options).status_code


@pytest.mark.parametrize("wsgi", [False, True], ids=["http.server", "wsgiref"])
def test_a_stream_names_the_address_and_brings_the_answers_until_it_ends(wsgi: bool) -> None:
    server = Server("old")
    server.add_tool(lambda: "5", name="five")
    with ExitStack() as stack:
        if wsgi:  # a client has gone when the next comment cannot be written
            endpoint = SseEndpoint(server, messages="messages", keep_alive=0.05)
            url = f"{stack.enter_context(wsgi_served(endpoint))}/sse"
        else:
            url = stack.enter_context(serve_http(server, keep_alive=0.05)).sse_url
        with talking(url) as (other, there):
            with talking(url) as (stream, address):
                assert stream.headers.get_content_type() == "text/event-stream"
                assert address.startswith(urljoin(url, "/messages?session="))
                assert address != there
                assert post(address, "initialize", initialize("2024-11-05")) == 202
                assert told(stream)["result"]["protocolVersion"] == "2024-11-05"
                for number, one in enumerate((there, address)):
                    assert post(one, id=number) == 202
                assert [told(one)["id"] for one in (stream, other)] == [1, 0]
                assert server.stats.streams == server.stats.sessions == 2
                assert post(urljoin(url, "/messages")) == 404
                assert post(urljoin(url, "/messages?session=unknown")) == 404
                assert post(address, headers={"Content-Type": "text/plain"}) == 415
            assert server.stats.wait_for(lambda stats: stats.streams == stats.sessions == 1)
            assert post(address) == 404
        with syncmcp.connect(syncmcp.Http(url, transport="sse")) as client:
            assert client.call_tool("five").text == "5"
            assert client.server.revision == "2025-11-25"
            assert server.stats.requests["server/discover"] == 0
        assert server.stats.wait_for(lambda stats: stats.streams == stats.sessions == 0)


def test_what_is_not_for_a_stream_is_refused() -> None:
    with serve_http(Server("old")) as http:  # this status makes clients fall back
        assert post(http.sse_url, "initialize") == 405
    # A server without sessions has no such stream.
    with serve_http(Server("new", revisions=["2026-07-28"])) as http:
        assert requests.get(http.sse_url, timeout=PATIENCE).status_code == 405
    endpoint = SseEndpoint(Server("old"), allowed_hosts=["127.0.0.1"])
    foreign = {"Host": "127.0.0.1", "Origin": "http://elsewhere.invalid"}
    assert endpoint.handle_get(foreign).status == 403
    assert endpoint.handle_post(foreign, b"{}", "session=1").status == 403
    assert endpoint.handle_get({"Host": "elsewhere.invalid"}).status == 403


# The demo server as a child process


def demo(*arguments: str) -> Child:
    return Child(sys.executable, "-m", "syncmcp.testing", *arguments)


def test_it_speaks_both_eras_hears_its_options_and_ends_with_stdin() -> None:
    with demo("--name", "other", "--page-size", "2") as client:
        client.stdin.write(b"\n{\r\n  \n")  # noise and empty lines
        client.ask("ping")
        assert client.next()["error"]["code"] == -32700
        assert client.next()["result"] == {}
        result = client.call("tools/list", modern())["result"]
        assert len(result["tools"]) == 2
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "other"
        assert client.start("2024-11-05")["protocolVersion"] == "2024-11-05"
        assert client.tool("add", {"a": 1, "b": 2})["result"]["content"][0]["text"] == "3"
        client.ask("tools/call", {"name": "sleep", "arguments": {"seconds": 60}})
        client.stdin.close()
        assert client.process.wait(PATIENCE) == 0


def test_it_serves_http_until_sigterm() -> None:
    with demo("--http", "0", "--revisions", "2026-07-28") as server:
        with Http(server.line().decode()) as client:
            assert client.modern("tools/list")[0] == 200
            assert client.post("initialize", initialize())[2]["error"]["code"] == -32022
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


def test_importing_the_package_loads_no_server() -> None:
    program = "import sys, syncmcp.testing as t; before = set(sys.modules); t.Server; "
    program += "print('syncmcp.testing.server.server' in before, 'asyncio' in sys.modules)"
    done = subprocess.check_output([sys.executable, "-c", program], timeout=PATIENCE * 3)
    assert done.split() == [b"False", b"False"]


def test_a_port_that_cannot_be_had_is_a_mistake_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (99_999, taken.getsockname()[1]):
            monkeypatch.setattr(sys, "argv", ["demo", "--http", str(port)])
            with pytest.raises(SystemExit) as ended:
                demo_program()
            assert ended.value.code == 2
            assert f"error: cannot listen on port {port}: " in capsys.readouterr().err
