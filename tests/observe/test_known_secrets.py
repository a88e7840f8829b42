"""What was given or sent as a secret is masked by its value, wherever a server repeats it."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import pickle
import re
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
from syncmcp._base.secrets import MOST_PARTS, MOST_SENT, Secrets
from syncmcp._connection.pending_request import error_of_response
from syncmcp._connection.wire_log import KEPT_BYTES
from syncmcp._protocol import jsonrpc
from syncmcp.auth import ClientCredentials, MemoryStore, OAuth
from syncmcp.errors import AuthError
from syncmcp.testing import Recording, RpcError, ScriptedPeer, Server, serve_http
from syncmcp.testing import script as s
from tests.auth.authorization_server import Answer, Person, call, signed_in, world
from tests.auth.token_desk import TokenDesk
from tests.support.scripts import EVERYTHING, OLD
from tests.transports.http_peer import Request, serving

PASSWORD = 'pa"ss/w+rd \\42'
TOKEN = "t0ken-aaaa-bbbb-cccc"


def escaped_as_json(secret: str, marks: str, *, upper: bool) -> str:
    """`secret` in JSON of a writer that escapes these, too."""
    text = json.dumps(secret)
    if upper:
        text = re.sub(r"(?<=\\u)....", lambda found: found[0].upper(), text)
    for mark in marks:
        code = f"{ord(mark):04X}" if upper else f"{ord(mark):04x}"
        text = text.replace(mark, "\\/" if mark == "/" else f"\\u{code}")
    return text


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: secret,
    "json": json.dumps,
    "json in json": lambda secret: json.dumps(json.dumps(secret)),
    **{
        f"json of {kind}": partial(escaped_as_json, marks=marks, upper=upper)
        for kind, marks, upper in (
            ("PHP", "/", False),
            ("Go", "&<>", False),
            ("Gson", "&<>'=", False),
            (".NET", "&<>'+`", True),
        )
    },
    "url": lambda secret: quote(secret, safe=""),
    "url in small letters": lambda secret: re.sub(
        "%..", lambda found: found[0].lower(), quote(secret, safe="")
    ),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 within 1": lambda secret: base64.b64encode(f"x{secret}y".encode()).decode(),
    "base64 within 2": lambda secret: base64.b64encode(f"xx{secret}yy".encode()).decode(),
    "urlsafe base64": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "repr": lambda secret: f"{secret!r}",
    "ascii": lambda secret: f"{secret!a}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "secret",
    [PASSWORD, TOKEN, "a+b/c&d=e<f>g'h==", "\u00fcml\u00e4ut-\u2603", "\u00ff\u00fe?>~~~\u00ff"],
)
def test_a_secret_is_found_however_it_is_encoded(form: str, secret: str) -> None:
    written = FORMS[form](secret)
    shown = Secrets([secret]).redact(f"before {written} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    # Of what surrounds the secret in base64, six characters may be left.
    assert not any(written[at : at + 7] in shown for at in range(len(written) - 6))


def test_of_two_secrets_that_overlap_no_part_is_left() -> None:
    secrets = Secrets(["abcdefgh", "fghijklm"])
    assert secrets.redact("<abcdefghijklm>") == "<***>"
    assert secrets.redact("abcdefgh fghijklm") == "*** ***"


@pytest.mark.parametrize("length", range(4, len(TOKEN)))
def test_a_cut_shows_no_part_of_a_secret(length: int) -> None:
    secrets = Secrets([TOKEN])
    assert secrets.redact(f"it was {TOKEN[:length]}", ends_cut=True) == "it was ***"
    assert secrets.redact(f"{TOKEN[-length:]} it was", starts_cut=True) == "*** it was"
    assert secrets.redact(f"\ufffd{TOKEN[-length:]} it was", starts_cut=True).endswith("*** it was")
    # Without a cut there is only a text that resembles it.
    assert secrets.redact(f"it was {TOKEN[:length]}") == f"it was {TOKEN[:length]}"


def test_what_resembles_a_secret_at_a_cut_stays() -> None:
    secrets = Secrets(["warning-sign"])
    assert secrets.redact("a war", ends_cut=True) == "a war"
    assert secrets.redact("a warden", ends_cut=True) == "a warden"
    assert secrets.redact("ign first", starts_cut=True) == "ign first"


def test_short_values_are_secrets_only_by_their_name() -> None:
    secrets = Secrets()
    secrets.give_variables(
        {"LOG": "debug", "PATH": "/usr/bin:/bin", "API_TOKEN": "p1ns", "PIN": "1"}
    )
    assert secrets.redact("debug /usr/bin:/bin p1ns 1") == "debug /usr/bin:/bin *** 1"


def test_variables_and_headers_are_taken_apart() -> None:
    secrets = Secrets()
    secrets.give_variables(
        {
            "AUTH_HEADER": "Bearer abcdefghij",
            "DATABASE_URL": "postgres://someuser:p%40ssword@db/x",
            "MOTTO": "production server",
        }
    )
    secrets.add_headers({"X-Key": "key=qwertzuiop; v=2", "Cookie": b"sid=cookie-value"})
    secrets.add_headers(
        {"Authorization": "Basic " + base64.b64encode(b"alice-1:wonder-land").decode()}
    )
    secrets.add_headers({"Mcp-Method": "tools/call", "Accept": "application/json"})
    for secret in (
        "abcdefghij", "someuser", "p@ssword", "p%40ssword", "qwertzuiop", "cookie-value",
        "alice-1", "wonder-land",
    ):  # fmt: skip
        assert secrets.redact(f"<{secret}>") == "<***>", secret
    assert secrets.redact("production tools/call server application/json Bearer Basic") == (
        "production tools/call server application/json Bearer Basic"
    )


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ('{"type": "robot", "key": {"parts": ["inner-one", "inner-two"]}}', ["inner-one"]),
        ('{"key": {"parts": ["inner-one", "inner-two"]}}', ["inner-two"]),
        ('[{"pat": "ghp_abcdefgh"}]', ["ghp_abcdefgh"]),
        (json.dumps({"private_key": "-----BEGIN-----\nline-of-key\n-----"}), ["line-of-key"]),
        ('{"pass": "x", "db_password": "p1ns"}', ["p1ns"]),
        ('{"dsn": "postgres://app-user:in-json-1@db/x"}', ["in-json-1"]),
        ('"just-a-string"', ["just-a-string"]),
        ("Server=db;User Id=app;Password=two words;Timeout=5", ["two words"]),
        ("host=db user=app password=libpq-word", ["libpq-word"]),
        ("redis.example:6379,password='in-list-1',ssl=True", ["in-list-1"]),
        ("AccountName=a;AccountKey=c29tZS1rZXk9PQ==;", ["c29tZS1rZXk9PQ=="]),
        ("-Dtrust.password=of-java-1 -Xmx1g", ["of-java-1"]),
        ("grant=a&code=in-form-1", ["in-form-1"]),
        ("someuser:word-behind", ["word-behind"]),
        ("someuser:word:with:colons", ["word:with:colons"]),
        ('{"broken": "in-broken-1', []),
    ],
)
def test_the_parts_of_a_variable_are_known_on_their_own(value: str, known: list[str]) -> None:
    secrets = Secrets()
    secrets.give_variables({"SETTINGS": value})
    for part in known:
        assert secrets.redact(f"<{part}>") == "<***>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"level": "debug", "n": 12345678, "ok": true, "none": null}', "debug 12345678 true null"),
        ("level=debug;retries=3", "level debug retries 3"),
        ("/usr/share/one:/usr/share/two", "/usr/share/two"),
        ("C:\\Program Files\\one", "\\Program Files\\one"),
        ("localhost:8080", "8080 localhost"),
        ("--max-old-space-size=4096", "4096 --max-old-space-size"),
    ],
)
def test_ordinary_parts_of_a_variable_are_not_masked(value: str, text: str) -> None:
    secrets = Secrets()
    secrets.give_variables({"SETTINGS": value})
    assert secrets.redact(text) == text


def test_a_bounded_number_of_parts_of_a_variable_is_known_and_telling_names_come_first() -> None:
    value = {f"n{number}": f"value-{number:05}" for number in range(9_000)}
    deep = "[" * 5_000 + "]" * 5_000
    secrets = Secrets()
    secrets.give_variables({"A": json.dumps({**value, "password": "last-word"}), "B": deep})
    assert secrets.redact("last-word value-00000") == "last-word value-00000"  # too long
    few = dict(list(value.items())[:500])
    secrets.give_variables({"C": json.dumps({**few, "password": "last-word"})})
    assert secrets.redact("last-word value-00000") == "*** ***"
    assert secrets.redact("value-00400") == "value-00400"
    assert int(repr(secrets).split()[0][1:]) <= MOST_PARTS + 3


@pytest.mark.parametrize("password", ["p/word-1", "p#word-1", "p?word-1", "p[word-1", "p@/word-1"])
def test_a_password_in_a_url_is_known_although_it_is_not_encoded(password: str) -> None:
    for port in ("", ":5432", ":x"):
        secrets = Secrets()
        secrets.give_url(f"postgres://someuser:{password}@db.example{port}/x?key=of-query")
        assert secrets.redact(f"<{password}> someuser") == "<***> ***"
    secrets = Secrets()
    secrets.give_url("https://example.com:99999/@path?key=of-query")
    assert secrets.redact("of-query @path") == "*** @path"
    secrets = Secrets()
    secrets.give_url("https://example.com:8080/a/@path/more")
    assert secrets.redact("https://example.com:8080/a/") == "https://example.com:8080/a/"


def test_the_password_of_a_proxy_without_a_scheme_is_known() -> None:
    secrets = Secrets()
    secrets.give_url("//someuser:word-1@proxy.example:3128")
    pair = base64.b64encode(b"someuser:word-1").decode()
    assert secrets.redact(f"someuser, word-1, {pair}") == "***, ***, ***"


def test_a_bounded_number_of_sent_values_is_kept_and_the_given_ones_always() -> None:
    secrets = Secrets(["given-value"])
    for number in range(3 * MOST_SENT):
        secrets.add_headers({"Authorization": f"Bearer rotated-{number:05}", "X-Key": "steady-key"})
    assert secrets.redact("given-value steady-key rotated-00767") == "*** *** ***"
    assert secrets.redact("rotated-00001") == "rotated-00001"
    assert repr(secrets) == f"<{MOST_SENT + 1} secrets>"
    copy = pickle.loads(pickle.dumps(secrets))
    assert copy.redact("given-value") == "***"


def test_a_copy_knows_what_the_original_knows_and_no_more() -> None:
    """Lines that are too short stay out of it: an empty one would be found everywhere."""
    secrets = Secrets()
    secrets.give("first-line\na\n\nthe-last")
    copy = pickle.loads(pickle.dumps(secrets))
    assert repr(copy) == repr(secrets) == "<3 secrets>"
    assert copy.redact("a first-line a the-last") == "a *** a ***"
    assert Http("https://a.example/?q=first-line%0A%0Athe-last").label == "https://a.example/?q=***"


def test_lines_of_secrets_of_a_recording_are_masked_unless_they_are_short(tmp_path: Path) -> None:
    recording = Recording(Stdio("a", "first-line"), tmp_path / "a", secrets=["first-line\na\n\nb"])
    assert recording._masks.mask_text("a first-line b") == "a ***2 b"


def rpc(id: int, members: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, **members}).encode()


@pytest.mark.parametrize("way", ["error", "type", "encoding", "page"])
def test_a_server_that_repeats_what_was_sent_shows_nothing(
    way: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Every value that a request carries comes back without its name."""
    caplog.set_level(logging.DEBUG)
    tokens = iter([f"rotating-{number}-token" for number in range(9)])
    sent = [
        "rotating-0-token", "alice-liddell", "Wonder-Land", "session-0123456789", "query-value-1",
        "cookie-value-9", "per-call-value-7",
    ]  # fmt: skip
    words = " and ".join([*sent, quote(sent[2]), base64.b64encode(sent[3].encode()).decode()])
    failure = {"error": {"code": 1, "message": words}}
    status, kind, body = {
        "error": (200, "application/json", rpc(2, failure)),
        "type": (200, words.replace(" ", "-"), b"x"),
        "encoding": (200, "application/json", b"x"),
        "page": (500, "text/plain", words.encode()),
    }[way]
    encoded = {"Content-Encoding": sent[2]} if way == "encoding" else {}
    opened = {"protocolVersion": OLD, "capabilities": EVERYTHING, "serverInfo": {}}
    script = [
        s.expect("initialize"),
        s.head(
            200,
            {
                "Content-Type": "application/json",
                "Mcp-Session-Id": sent[3],
                "Set-Cookie": f"sid={sent[5]}",
            },
        ),
        s.chunk(rpc(1, {"result": opened})),
        s.end(),
        s.expect("notifications/initialized"),
        s.accept(),
        s.expect("tools/call"),
        s.head(status, {"Content-Type": kind, **encoded}),
        s.chunk(body),
        s.end(),
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


@pytest.mark.parametrize("repeat", [repeat_in_a_chunk_size, repeat_in_a_redirect])
@pytest.mark.parametrize("place", ["call", "listening", "sse", "sse-stream"])
def test_no_exchange_shows_what_was_sent_in_its_error_its_traceback_or_the_log(
    place: str, repeat: Callable[[Request], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
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
        elif request.message["method"] == "initialize":
            opened = {"protocolVersion": OLD, "capabilities": EVERYTHING, "serverInfo": {}}
            answer = {"jsonrpc": "2.0", "id": request.id, "result": opened}
            connection.json(answer, headers={"Mcp-Session-Id": session})
        elif request.id is None:
            connection.respond(202)
        elif place == "call":
            repeat(request)
        else:
            connection.result(request)

    with serving(serve) as peer:
        target = Http(
            peer.url,
            transport="sse" if place.startswith("sse") else "streamable",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        shown = ""
        try:
            with syncmcp.Client(target, mode="legacy", retry=None) as client:
                client.call_tool("x")
        except McpError as error:
            logging.getLogger("program").exception("failed")
            shown = "".join(traceback.format_exception(error))
        assert shown or place == "listening"
    logged = logging.Formatter()
    shown += "".join(map(logged.format, caplog.records))
    assert TOKEN not in shown
    assert session not in shown


# The frame of its answer is cut within the secret.
ANSWERS_LONG = f"""
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {{"jsonrpc": "2.0", "id": asked["id"], "result": {{"a": ""}}}}
    if asked["method"] == "initialize":
        answer["result"] = {{
            "protocolVersion": "{OLD}", "capabilities": {{}},
            "serverInfo": {{"name": "a", "version": "1"}},
        }}
    else:
        before = json.dumps(answer).index('"a": ') + 6
        answer["result"]["a"] = "x" * ({KEPT_BYTES} - 12 - before) + os.environ["WHAT"]
    print(json.dumps(answer), flush=True)
"""


def test_a_frame_that_is_kept_in_part_shows_no_part_of_a_secret() -> None:
    secret = "environment-secret-0123456789"
    server = Stdio(sys.executable, "-c", ANSWERS_LONG, env={"WHAT": secret})
    with syncmcp.Client(server, mode="legacy") as client:
        client.ping()
        shown = client.dump().facts["frames"][-1]["text"]
    assert "xxx*** ... " in shown
    assert secret[:4] not in shown


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


def test_an_error_of_a_server_quotes_the_beginning_of_a_long_message() -> None:
    message = jsonrpc.Error(1, -32000, f"bad {TOKEN} " + "x y " * 100_000, None)
    error = error_of_response(message, None, "a-server", Secrets([TOKEN]))
    assert error.message.startswith("bad *** x y")
    assert error.message.endswith(" more characters)")
    assert len(error.message) < 20_000


def test_what_signing_in_receives_is_masked_for_client_and_errors() -> None:
    with world() as resource:
        desk = TokenDesk(resource)
        desk.extra = {"refresh_token": "refresh-me-please", "id_token": "who-i-am-token"}
        auth = ClientCredentials("me", client_secret="hush-hush-hush", issuer=None)
        assert desk.call(auth).status_code == 200
        for secret in (
            "refresh-me-please",
            "who-i-am-token",
            "hush-hush-hush",
            "access-1-very-secret",
        ):
            assert auth.secrets.redact(f"<{secret}>") == "<***>"


def test_the_secret_of_a_client_is_masked_although_it_is_sent_encoded() -> None:
    secret = "hu+sh/hush=%1"
    with world() as resource:
        desk = TokenDesk(resource)
        desk.check = lambda seen: Answer(401, {"error": "x", "error_description": f"not {secret}"})
        auth = ClientCredentials("me", client_secret=secret, issuer=None)
        with pytest.raises(AuthError) as caught:
            desk.call(auth)
    assert "not ***" in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_basic_credentials_are_read_in_either_encoding(encoding: str) -> None:
    secrets = Secrets()
    pair = "b\u00f6b:p\u00e4ssw\u00f6rd".encode(encoding)
    secrets.add_headers({"Authorization": f"Basic {base64.b64encode(pair).decode()}"})
    assert secrets.redact("it is p\u00e4ssw\u00f6rd") == "it is ***"


def test_a_value_that_is_encoded_is_known_without_its_escapes() -> None:
    secrets = Secrets()
    secrets.add_headers({"Cookie": "sid=s%3Aabc%2Bdef; b=%41%42"})
    assert secrets.redact("s:abc+def, s%3Aabc%2Bdef, AB") == "***, ***, AB"


def test_what_a_session_adds_to_the_query_is_masked() -> None:
    session = requests.Session()
    session.params = {"key": "hu+sh/hush"}

    def answer(request: Request) -> None:
        request.connection.respond(500, b"it was hu+sh/hush")

    with serving(answer) as server, pytest.raises(McpError) as caught:
        syncmcp.connect(Http(server.url, session=session), retry=None)
    assert "it was ***" in str(caught.value)


def proxy_url(port: int) -> str:
    return f"http://bob:hunter2secret@127.0.0.1:{port}"


def answer_with_credentials(request: Request) -> None:
    """A proxy that repeats the password, as it is and as it was sent."""
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
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(answer_with_credentials) as proxy:
        url = proxy_url(proxy.port)
        with requests.Session() as session:
            if place == "environment":
                for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
                    monkeypatch.setenv(name, url)
            else:
                session.proxies = {"http": url, "https": url}
            options: dict[str, Any] = {"session": session}
            if place == "option":
                options = {"proxies": {"http": url, "https": url}}
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


def test_cookies_of_a_server_push_out_nothing_that_the_program_sends() -> None:
    secrets = Secrets()
    many = "; ".join(f"c{number}=w{number:06}" for number in range(MOST_SENT))
    for name in ("Cookie", "cookie"):
        secrets.add_headers({"Authorization": f"Bearer {TOKEN}", name: f"{name}=1; {many}"})
        assert secrets.redact(TOKEN) == "***"


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
    """It may stand where the library would cut the text of the server."""
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
            more = {
                "client_id": "a",
                "client_secret": "code-1-very-secret",
                "token_endpoint_auth_method": "p" * pad + "code-1-very-secret",
            }
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
    assert any("theirs=1" in line for line in logged)  # what others send is logged as before
    printed = capsys.readouterr().out
    assert "theirs=1" in printed
    assert "header-value" not in printed


def test_http_client_prints_for_an_adapter_of_the_programs_what_the_program_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(HTTPAdapter):
        """An adapter of the program's."""

    monkeypatch.setattr(http.client.HTTPConnection, "debuglevel", 1)
    with serve_http(Server()) as served, requests.Session() as session:
        session.mount("http://", Own())
        with syncmcp.connect(Http(served.url, session=session), mode="legacy") as client:
            client.ping()
    assert "send: b'POST /mcp" in capsys.readouterr().out
