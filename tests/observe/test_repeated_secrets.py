"""Secrets are masked, too, if a server repeats them in unusual places."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from requests import PreparedRequest, Response
from requests.auth import AuthBase

import syncmcp
from syncmcp import Client, ClientGroup, Http, McpError, servers_file
from syncmcp.errors import ConnectFailed
from syncmcp.testing import Recording, ScriptedPeer, Server, serve_http
from syncmcp.testing import script as s
from tests.auth.authorization_server import call, signed_in
from tests.support.scripts import EVERYTHING, NEW, OLD
from tests.support.stage import Clock
from tests.transports.http_peer import Request, serving

TOKEN = "t0ken-aaaa-bbbb-cccc"
SESSION = "session-0123456789"


def target(url: str) -> Http:
    return Http(url, headers={"Authorization": f"Bearer {TOKEN}"})


def shown_by(function: Callable[[], object], caplog: pytest.LogCaptureFixture) -> str:
    """Call `function`; return the traceback of its error, and the log."""
    caplog.set_level(logging.DEBUG)
    text = ""
    try:
        function()
    except McpError as error:
        text = "".join(traceback.format_exception(error))
    return text + "".join(map(logging.Formatter().format, caplog.records))


def with_header(name: str) -> dict[str, Any]:
    """Return a schema with an invalid header: its argument is an object."""
    return {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": name}}}


@pytest.mark.parametrize(("mode", "method"), [("legacy", "initialize"), (NEW, "server/discover")])
def test_the_handshake(mode: Any, method: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = {
        "protocolVersion": TOKEN,
        "supportedVersions": [TOKEN],
        "capabilities": {},
        "serverInfo": {"name": TOKEN, "version": TOKEN},
    }
    with ScriptedPeer([s.expect(method), s.reply(answer)]) as peer:
        client = Client(target(peer.url), mode=mode, retry=None, open_timeout=5)
        shown = shown_by(client.open, caplog)
    assert "revision" in shown
    assert TOKEN not in shown


def test_a_tool_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    server = Server("one")
    for number in range(3):
        server.add_tool(lambda a: 1, name=f"{TOKEN}-{number}", input_schema=with_header(TOKEN))

    def use() -> None:
        with syncmcp.connect(target(http.url), mode=NEW) as client:
            client.list_tools()

    with serve_http(server) as http:
        shown = shown_by(use, caplog)
    assert TOKEN not in shown
    assert shown.count("is left out") == 2  # the first, and the last with the number of the others


@pytest.mark.parametrize("width", [60, 80])
def test_no_name_is_cut_within_a_secret(width: int, caplog: pytest.LogCaptureFixture) -> None:
    """Masking would find the whole secret, but not a part of it."""
    name = "x" * (width - 10) + TOKEN
    server = Server("one")
    server.add_tool(lambda a: 1, name="tool", input_schema=with_header(f"{name}("))
    for number in range(2):
        server.add_tool(lambda: 1, name=f"{name}{number}")
    output = {"type": "object", "required": [name]}
    result: dict[str, Any] = {"content": [], "structuredContent": {}}
    server.add_tool(lambda: result, name="wrong", output_schema=output)
    with serve_http(server) as http:
        with syncmcp.connect(target(http.url), mode=NEW) as client:
            shown = shown_by(client.list_tools, caplog)
            shown += shown_by(partial(client.call_tool, "wrong"), caplog)
        with ClientGroup({"a": target(http.url)}, name_hook=lambda name, server: "same"):
            shown += caplog.text
    assert "is not an HTTP token" in shown
    assert "its key" in shown
    assert "lacks" in shown
    assert TOKEN[:5] not in shown


@pytest.mark.parametrize("place", ["input", "output", "log"])
def test_a_schema(place: str, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "required": [TOKEN], "properties": {TOKEN: {"const": TOKEN}}}
    tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}
    if place == "input":
        tool = {"name": "t", "inputSchema": schema}
    result = {"content": [{"type": "text", "text": "x"}], "structuredContent": {TOKEN: 1}}
    lists = [s.expect("tools/list"), s.reply({"tools": [tool]})]
    calls = [s.expect("tools/call"), s.reply(result)]
    steps = [*lists, *(lists if place == "input" else [*calls, *lists])]
    with ScriptedPeer([*s.handshake(OLD, capabilities=EVERYTHING), *steps]) as peer:
        options: Any = {"validate_output": "warn" if place == "log" else "raise", "retry": None}
        with Client(target(peer.url), mode=OLD, validate_input=True, **options) as client:
            client.list_tools()
            shown = shown_by(partial(client.call_tool, "t", {TOKEN: 2}), caplog)
    words = "the result of the tool 't'" if place == "log" else "\nsyncmcp.errors.Invalid"
    assert words in shown
    assert TOKEN not in shown.replace(f'"{TOKEN}":2', "")


def test_a_session_and_cookies_that_were_just_received(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    def serve(request: Request) -> None:
        connection = request.connection
        if request.method != "POST":
            connection.respond(405)
        elif request.message["method"] == "initialize":
            names = {"name": SESSION, "version": "cookie-value-1"}
            opened = {"protocolVersion": OLD, "capabilities": {}, "serverInfo": names}
            headers = {"Mcp-Session-Id": SESSION, "Set-Cookie": "a=cookie-value-1"}
            connection.json({"jsonrpc": "2.0", "id": request.id, "result": opened}, headers=headers)
        elif request.id is None:
            connection.respond(202)
        else:
            connection.result(request)

    with serving(serve) as peer:
        client = Client(Recording(Http(peer.url), tmp_path / "r"), mode="legacy", retry=None)
        with client:
            shown = shown_by(client.ping, caplog)
    shown += (tmp_path / "r").read_text()
    assert SESSION not in shown
    assert "cookie-value-1" not in shown


def test_the_session_of_an_older_server(caplog: pytest.LogCaptureFixture) -> None:
    def serve(request: Request) -> None:
        connection = request.connection
        if request.method == "GET":
            connection.start_events()
            connection.chunk(f"event: endpoint\ndata: /post?s={SESSION}\n\n".encode())
            assert connection.wait_for_end()
        else:
            connection.respond(400, f"bad {SESSION}".encode())

    with serving(serve) as peer:
        client = Client(Http(peer.url, transport="sse"), mode="legacy", retry=None)
        shown = shown_by(client.open, caplog)
        client.close()
    assert "body began with: bad ***" in shown
    assert SESSION not in shown


class Renewing(AuthBase):
    """Sends a refused request again, with another token."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = "Bearer an-older-one"
        request.register_hook("response", self.renew)  # type: ignore[no-untyped-call]
        return request

    def renew(self, response: Response, **options: Any) -> Response:
        if response.status_code != 401:
            return response
        response.close()
        request = response.request.copy()
        request.headers["Authorization"] = f"Bearer {TOKEN}"
        again: Response = response.connection.send(request, **options)
        return again


def test_credentials_that_a_hook_sends(caplog: pytest.LogCaptureFixture) -> None:
    def serve(request: Request) -> None:
        renewed = TOKEN in request.headers["authorization"]
        request.connection.respond(500 if renewed else 401, f"bad {TOKEN}".encode())

    with serving(serve) as peer:
        client = Client(Http(peer.url, auth=Renewing()), mode="legacy", retry=None)
        shown = shown_by(client.open, caplog)
    assert "HTTP 500; body began with: bad ***" in shown
    assert TOKEN not in shown


@pytest.mark.parametrize("way", ["request", "login"])
def test_the_address_of_a_request_of_signing_in(way: str) -> None:
    with signed_in(refresh=False) as (resource, auth, _):
        assert auth.token is not None
        token = auth.token.access_token
        resource.authorization_server.expire()
        resource.challenge = f'Bearer resource_metadata="http://127.0.0.1:1/{token}"'
        with pytest.raises(ConnectFailed) as caught:
            auth.login() if way == "login" else call(resource, auth)
    assert "signing in: http://127.0.0.1:1/***: " in str(caught.value)
    assert token not in "".join(traceback.format_exception(caught.value))


def test_a_placeholder_in_the_path_of_a_url(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    file = tmp_path / "mcp.json"

    def refuse(request: Request) -> None:
        request.connection.respond(307, b"", {"Location": request.path.replace("mcp", "new")})

    with serving(refuse) as peer:
        entry = {"url": f"http://127.0.0.1:{peer.port}/s/${{KEY}}/mcp"}
        file.write_text(json.dumps({"mcpServers": {"it": entry}}))
        http = servers_file.read(file, trust=True, variables={"KEY": TOKEN})["it"].target()
        client = Client(http, mode="legacy", retry=None)
        shown = shown_by(client.open, caplog) + str(client.dump()) + repr(client) + repr(http)
    assert f"127.0.0.1:{peer.port}/s/***/mcp" in shown
    assert '"POST /s/***/new HTTP' in shown
    assert TOKEN not in shown


def test_the_name_of_a_server_does_not_depend_on_what_it_sets() -> None:
    http = Http("https://host-name.example/path-name/x", headers={"X-Tenant": "host-name"})
    before = http.label
    http.secrets.add("path-name")
    assert http.label == before == "https://host-name.example/path-name/x"
