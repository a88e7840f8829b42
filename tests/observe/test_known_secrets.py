"""Values that were given or sent as secrets are masked wherever a server repeats them."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import pickle
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from requests.adapters import HTTPAdapter

import syncmcp
from syncmcp import Http, McpError, Stdio
from syncmcp.auth import ClientCredentials, MemoryStore, OAuth
from syncmcp.errors import AuthError
from syncmcp.testing import Recording, RpcError, ScriptedPeer, Server, serve_http
from syncmcp.testing import script as s
from tests.auth.authorization_server import Answer, Person, call, signed_in, world
from tests.auth.token_desk import TokenDesk
from tests.observe.test_repeated_secrets import TOKEN, shown_by
from tests.support.scripts import EVERYTHING, OLD
from tests.transports.http_peer import Request, serving


def test_lines_of_secrets_of_a_recording_are_masked_unless_they_are_short(tmp_path: Path) -> None:
    recording = Recording(Stdio("a", "first-line"), tmp_path / "a", secrets=["first-line\na\n\nb"])
    assert recording._masks.mask_text("a first-line b") == "a ***2 b"


# A server that prints its secrets on stderr and stdout, and exits.
TALKATIVE = """
import os, sys
token = os.environ["API_TOKEN"]
print("starting with", token, file=sys.stderr)
print(f"Authorization: Bearer {token}", file=sys.stderr)
print("GET https://user:%s@example.com/x?token=%s" % (token, token), file=sys.stderr)
sys.stderr.flush()
print("noise with", token, flush=True)
sys.stdin.readline()
sys.exit(4)
"""


def all_of(error: McpError) -> str:
    """Return the forms of an error in logs and other processes, except its traceback."""
    copy = pickle.loads(pickle.dumps(error))
    return f"{error!r} {vars(error)} {pickle.dumps(error)!r} {copy} {copy!r}"


def test_a_server_that_prints_its_environment_betrays_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Stdio(sys.executable, "-c", TALKATIVE, env={"API_TOKEN": TOKEN})
    client = syncmcp.Client(server)
    shown = shown_by(client.open, caplog)
    with pytest.raises(McpError) as caught:
        client.open()
    assert TOKEN not in f"{shown} {all_of(caught.value)} {server!r} {client!r}"
    assert "starting with ***" in shown
    assert "noise with ***" in shown


def test_cursors_arguments_and_results_stay_out_of_logs_and_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = [
        *s.handshake(OLD, capabilities=EVERYTHING),
        *(s.expect("tools/list"), s.reply({"nextCursor": TOKEN})),
        *[s.expect("tools/list"), s.reply({"tools": [], "nextCursor": TOKEN})] * 2,
        *(s.expect("tools/call"), s.reply({"content": TOKEN})),
    ]
    caplog.set_level(logging.DEBUG)
    shown = ""
    with ScriptedPeer(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        uses: list[Callable[[], object]] = [
            client.list_tools,  # a result that does not match its model
            client.list_tools,  # a repeated cursor
            partial(client.call_tool, "x", {"secret": TOKEN}),
        ]
        for use in uses:
            with pytest.raises(McpError) as caught:
                use()
            shown += all_of(caught.value)
            shown += "".join(traceback.format_exception_only(caught.value))
    logged = [one.getMessage() for one in caplog.records if one.name != "syncmcp.wire"]
    assert TOKEN not in f"{shown} {client!r} {logged}"


def rpc(id: int, members: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, **members}).encode()


@pytest.mark.parametrize("way", ["error", "type", "encoding", "page"])
def test_a_server_that_repeats_what_was_sent_shows_nothing(
    way: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The server repeats every value of the request, without the name of the value."""
    caplog.set_level(logging.DEBUG)
    tokens = iter([f"rotating-{number}-token" for number in range(9)])
    sent = [
        "rotating-0-token", "alice-liddell", "Wonder-Land", "session-0123456789", "query-value-1",
        "cookie-value-9", "per-call-value-7",
    ]  # fmt: skip
    words = " and ".join([*sent, quote(sent[2]), base64.b64encode(sent[3].encode()).decode()])
    failure = {"error": {"code": 1, "message": words}}
    json_type = {"Content-Type": "application/json"}
    status, head, body = {
        "error": (200, json_type, rpc(2, failure)),
        "type": (200, {"Content-Type": words.replace(" ", "-")}, b"x"),
        "encoding": (200, {**json_type, "Content-Encoding": sent[2]}, b"x"),
        "page": (500, {"Content-Type": "text/plain"}, words.encode()),
    }[way]
    opened = {"protocolVersion": OLD, "capabilities": EVERYTHING, "serverInfo": {}}
    script = [
        s.expect("initialize"),
        s.head(200, {**json_type, "Mcp-Session-Id": sent[3], "Set-Cookie": f"sid={sent[5]}"}),
        *(s.chunk(rpc(1, {"result": opened})), s.end()),
        *(s.expect("notifications/initialized"), s.accept()),
        *(s.expect("tools/call"), s.head(status, head), s.chunk(body), s.end()),
    ]
    basic = base64.b64encode(f"{sent[1]}:{sent[2]}".encode()).decode()
    with ScriptedPeer(script) as peer:
        target = Http(
            f"{peer.url}?tenant={sent[4]}",
            headers=lambda: {"X-Custom": f"Own {next(tokens)}", "Authorization": f"Basic {basic}"},
        )
        recording = Recording(target, tmp_path / "talk.jsonl")
        with syncmcp.Client(recording, mode="legacy") as client:
            with pytest.raises(McpError) as caught:
                client.call_tool("x", {"again": sent[2]}, headers={"X-Tenant": sent[6]})
            dump = client.dump()
    error = caught.value
    shown = [
        str(error), repr(error), repr(getattr(error, "body", "")), str(dump), str(dump.facts),
        "".join(traceback.format_exception_only(type(error), error)), caplog.text,
        repr(recording), recording.path.read_text("utf-8"),
    ]  # fmt: skip
    for text in shown:
        for secret in (*sent, quote(sent[2]), base64.b64encode(sent[3].encode()).decode()[:12]):
            assert secret.lower() not in text.lower()


def repeat_in_a_chunk_size(request: Request) -> None:
    request.connection.start_events()
    request.connection.write(f"{TOKEN}\r\n".encode())
    request.connection.shut_down()


def repeat_in_a_redirect(request: Request) -> None:
    session = request.headers.get("mcp-session-id")
    request.connection.respond(302, b"", {"Location": f"https://other.example/{TOKEN}/{session}"})


@pytest.mark.requirement("HTL-13")
@pytest.mark.parametrize("repeat", [repeat_in_a_chunk_size, repeat_in_a_redirect])
@pytest.mark.parametrize("place", ["call", "listening", "sse", "sse-stream"])
def test_no_exchange_shows_what_was_sent_in_its_error_its_traceback_or_the_log(
    place: str, repeat: Callable[[Request], None], caplog: pytest.LogCaptureFixture
) -> None:
    session = "session-0123456789"

    def serve(request: Request) -> None:
        connection = request.connection
        if request.method != "POST":
            if place == "sse-stream" and repeat is repeat_in_a_chunk_size:
                connection.start_events()
                connection.chunk(b"event: endpoint\ndata: /post\n\n")
                connection.write(f"{TOKEN}\r\n".encode())
                connection.shut_down()
            else:
                repeat(request)
        elif request.id is None:
            connection.respond(202)
        elif request.message["method"] == "initialize":
            opened = {"protocolVersion": OLD, "capabilities": EVERYTHING, "serverInfo": {}}
            answer = {"jsonrpc": "2.0", "id": request.id, "result": opened}
            connection.json(answer, headers={"Mcp-Session-Id": session})
        elif place == "call":
            repeat(request)
        else:
            connection.result(request)

    def use() -> None:
        options: Any = {"transport": "sse" if place.startswith("sse") else "streamable"}
        target = Http(peer.url, headers={"Authorization": f"Bearer {TOKEN}"}, **options)
        with syncmcp.Client(target, mode="legacy", retry=None) as client:
            client.call_tool("x")

    with serving(serve) as peer:
        shown = shown_by(use, caplog)
    assert ("Traceback" in shown) is (place != "listening")
    assert TOKEN not in shown
    assert session not in shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('bad {"cursor": "place-4711"}', 'bad {"cursor": "***'),
        ("bad requestState=place-4711", "bad requestState=***"),
        ("there is no page place-4711", "there is no page place-4711"),
    ],
)
def test_a_cursor_and_a_state_are_masked_by_their_names_only(said: str, shown: str) -> None:
    def refuse(params: dict[str, Any], context: Any) -> dict[str, Any]:
        raise RpcError(-32602, said)

    lister = Server("lister")
    lister.add_tool(lambda: 1, name="one")
    lister.on_request("tools/list", refuse)
    with serve_http(lister) as http, syncmcp.connect(Http(http.url)) as client:
        with pytest.raises(McpError) as caught:
            client.list_tools(cursor="place-4711")
        assert shown in str(caught.value)


def test_what_signing_in_receives_is_masked_for_client_and_errors() -> None:
    with world() as resource:
        desk = TokenDesk(resource)
        desk.extra = {"refresh_token": "refresh-me-please", "id_token": "who-i-am-token"}
        auth = ClientCredentials("me", client_secret="hush-hush-hush", issuer=None)
        assert desk.call(auth).status_code == 200
        secrets = ["refresh-me-please", "who-i-am-token", "hush-hush-hush", "access-1-very-secret"]
        assert {auth.secrets.redact(f"<{secret}>") for secret in secrets} == {"<***>"}


def test_the_secret_of_a_client_is_masked_although_it_is_sent_encoded() -> None:
    secret = "hu+sh/hush=%1"
    with world() as resource:
        desk = TokenDesk(resource)
        desk.check = lambda seen: Answer(401, {"error": "x", "error_description": f"not {secret}"})
        auth = ClientCredentials("me", client_secret=secret, issuer=None)
        with pytest.raises(AuthError) as caught:
            desk.call(auth)
    assert "not ***" in str(caught.value)


def test_what_a_session_adds_to_the_query_is_masked() -> None:
    session = requests.Session()
    session.params = {"key": "hu+sh/hush"}

    def answer(request: Request) -> None:
        request.connection.respond(500, b"it was hu+sh/hush")

    with serving(answer) as server, pytest.raises(McpError) as caught:
        syncmcp.connect(Http(server.url, session=session), retry=None)
    assert "it was ***" in str(caught.value)


def answer_with_credentials(request: Request) -> None:
    """Answer like a proxy that repeats the password, decoded and as it was sent."""
    sent = request.headers.get("proxy-authorization", "")
    pair = base64.b64decode(sent.partition(" ")[2]).decode()
    said = f"{pair} {sent}"
    head = f"HTTP/1.1 407 {said}\r\nConnection: close\r\nContent-Length: {len(said)}\r\n\r\n"
    request.connection.write(f"{head}{said}".encode())
    request.connection.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("place", ["option", "session", "environment", "sign-in"])
def test_the_password_of_a_proxy_is_masked_wherever_it_was_given(
    place: str, scheme: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(answer_with_credentials) as proxy:
        url = f"http://bob:hunter2secret@127.0.0.1:{proxy.port}"
        proxies = {"http": url, "https": url}
        with requests.Session() as session:
            if place == "environment":
                for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
                    monkeypatch.setenv(name, url)
            else:
                session.proxies = proxies
            options: Any = {"proxies": proxies} if place == "option" else {"session": session}
            target = Http(f"{scheme}://srv.example/mcp", **options)
            ask: Callable[[], object]
            if place == "sign-in":
                ask = OAuth(target.url, receiver=None, session=session).login
            else:
                ask = syncmcp.Client(target, lazy=True, retry=None).ping
            with pytest.raises(McpError) as caught:
                ask()
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "hunter2" not in shown
    assert base64.b64encode(b"bob:hunter2")[:-2].decode() not in shown


def test_a_stored_token_is_known_once_it_is_sent() -> None:
    store = MemoryStore()
    with world() as resource:
        one, other = (OAuth(receiver=Person(), store=store) for _ in range(2))
        assert call(resource, one).status_code == call(resource, other).status_code == 200
        resource.authorization_server.expire()
        assert call(resource, one).status_code == call(resource, other).status_code == 200
        assert other.token is not None
        assert other.token == one.token
        assert other.secrets.redact(other.token.access_token) == "***"


@pytest.mark.parametrize("pad", [0, 25, 70])
@pytest.mark.parametrize("place", ["error", "kind", "method"])
def test_an_authorization_server_that_repeats_a_secret_shows_no_part_of_it(
    place: str, pad: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The secret may be at the place where the library truncates the text of the server."""
    caplog.set_level(logging.DEBUG)
    with world() as resource:
        server = resource.authorization_server

        def answer(good: Answer) -> Answer:
            form = server.token_requests[-1].form
            secret = form.get("refresh_token") or form["code"]
            if place == "error":
                return Answer(400, {"error": "p" * pad + secret})
            return Answer(200, {**good.body, "token_type": "p" * pad + secret})

        if place == "method":
            more = {"client_id": "a", "client_secret": "code-1-very-secret"}
            more["token_endpoint_auth_method"] = "p" * pad + "code-1-very-secret"
            server.registered = lambda metadata: Answer(201, {**metadata, **more})
        server.token_answer = answer
        with pytest.raises(AuthError) as caught:
            call(resource, OAuth(receiver=Person()))
    error = caught.value
    shown = f"{error}{error!r}{error.error}{caplog.text}"
    assert "code-" not in shown
    assert "secret" not in shown.replace("client_secret", "")


@pytest.mark.parametrize("pad", [0, 172, 190, 265, 290])
@pytest.mark.parametrize("place", ["hint", "issuer"])
@pytest.mark.parametrize("way", ["request", "login"])
def test_no_error_of_signing_in_shows_a_part_of_a_token(way: str, place: str, pad: int) -> None:
    with signed_in(refresh=False) as (resource, auth, person):
        server = resource.authorization_server
        assert auth.token is not None
        token = "p" * pad + auth.token.access_token
        server.expire()
        if place == "hint":
            resource.challenge = f'Bearer resource_metadata="http://evil.example/{token}"'
        else:
            server.metadata["issuer"] = f"{server.origin}/{token}"
            server.metadata_at(f"/.well-known/oauth-authorization-server/{token}")
            resource.metadata["authorization_servers"] = [server.metadata["issuer"]]
            person.agrees = lambda request: False
        ask = auth.login if way == "login" else partial(call, resource, auth)
        with pytest.raises(AuthError) as caught:
            ask()
    shown = "".join(traceback.format_exception(caught.value))
    assert "access-" not in shown
    assert "evil.example" in shown or "too long" in shown or server.origin in shown


def test_urllib3_and_http_client_print_nothing_of_our_requests(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(http.client.HTTPConnection, "debuglevel", 1)
    with serve_http(Server()) as served:
        target = Http(f"{served.url}?key=abcdef&mode=fast", headers={"X-Custom": "header-value"})
        with syncmcp.connect(target, mode="legacy") as client:
            client.ping()
        requests.get(f"{served.url}?theirs=1", timeout=5)
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("urllib3")]
    assert any("POST" in line and "?***" in line for line in logged)
    assert not any("abcdef" in line or "fast" in line for line in logged)
    assert any("theirs=1" in line for line in logged)  # requests of other code are logged
    printed = capsys.readouterr().out
    assert "theirs=1" in printed
    assert "header-value" not in printed


def test_http_client_prints_for_an_adapter_of_the_programs_what_the_program_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(HTTPAdapter):
        """An adapter of the program."""

    monkeypatch.setattr(http.client.HTTPConnection, "debuglevel", 1)
    with serve_http(Server()) as served, requests.Session() as session:
        session.mount("http://", Own())
        with syncmcp.connect(Http(served.url, session=session), mode="legacy") as client:
            client.ping()
    assert "send: b'POST /mcp" in capsys.readouterr().out
