"""Redaction of secrets in every form in which they occur, and of no other text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from syncmcp import Http, Stdio
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import MASK, MOST_QUOTED, quote, redact, redact_url

CANARY = "c4nary-5ECRET"


def json_in_json(text: str, depth: int) -> str:
    for _ in range(depth):
        text = json.dumps({"error": text})
    return text


SHAPES = {
    "password in a URL": f"connect to https://user:{CANARY}@host/mcp failed",
    "user in a URL": f"https://{CANARY}@host/",
    "password with an @": f"https://user:{CANARY}@{CANARY}@host/mcp",
    "password with a quote": f"https://user:it's{CANARY}@host/mcp",
    "password in the URL of a database": f"DATABASE_URL=postgres://app:{CANARY}@db:5432/app",
    "query": f"https://host/mcp?key={CANARY}",
    "second value of a query": f"GET /mcp?a=1&sid={CANARY} HTTP/1.1",
    "encoded value of a query": f"https://host/?q=%20{CANARY}%3D",
    "value of a query with a quote": f"https://host/?q=it's{CANARY}",
    "value of a query behind a name with brackets": f"https://host/?auth[key]={CANARY}",
    "code of a sign-in": f"http://127.0.0.1:1234/callback?code={CANARY}&state=1",
    "query without names": f"https://host/mcp?{CANARY}{CANARY}",
    "fragment": f"https://host/cb#access_token={CANARY}&expires_in=3600",
    "bearer token": f"invalid token: Bearer {CANARY}",
    "bearer token in small letters": f"bearer {CANARY}",
    "bearer token said twice": f"got Bearer Bearer {CANARY}",
    "bearer token of small letters only": "Bearer canarysecret",
    "token bound to a key": f"DPoP {CANARY}",
    "basic credentials": "Basic Y2FuYXJ5c2VjcmV0OmNhbmFyeXNlY3JldA==",
    "basic credentials not encoded": f"basic user:{CANARY}",
    "digest credentials": f'Digest username="{CANARY}", response="{CANARY}"',
    "header line": f"Authorization: {CANARY}",
    "header line in capitals": f"AUTHORIZATION:{CANARY}",
    "header line of an own scheme": f"authorization: Custom a, {CANARY}",
    "header line with digest": f'Authorization: Digest username="a", response="{CANARY}"',
    "header line of a proxy": f"Proxy-Authorization: Negotiate {CANARY}",
    "header with an equals sign": f"authorization={CANARY}",
    "header lines in one string": rf"GET / HTTP/1.1\nHost: h\nAuthorization: X {CANARY}\nA: b",
    "cookie": f"Cookie: a=1; sid={CANARY}",
    "cookie behind a quoted one": f'Cookie: a="1"; sid={CANARY}',
    "cookie behind a comma": f"Cookie: a=1,2; sid={CANARY}",
    "cookie being set": f"Set-Cookie: sid={CANARY}; HttpOnly; Path=/",
    "cookie in an escaped string": rf"GET /\r\nCookie: sid={CANARY}",
    "headers as a mapping": str({"Authorization": f"Own {CANARY}", "Accept": "*/*"}),
    "headers as a mapping of bytes": str({b"Cookie": f"sid={CANARY}".encode()}),
    "headers as pairs": str([(b"cookie", f"sid={CANARY}".encode()), (b"accept", b"a")]),
    "headers as JSON": json.dumps({"cookie": f"sid={CANARY}", "accept": "*/*"}),
    "header with an escaped quote": json.dumps({"authorization": f'Digest a="{CANARY}"'}),
    "session header": f"Mcp-Session-Id: {CANARY}",
    "session header in a mapping": str({"mcp-session-id": CANARY}),
    "session as a member": json.dumps({"sessionId": CANARY}),
    "session in an address": f"event: endpoint data: /messages/?session_id={CANARY}",
    "place in a stream": f"Last-Event-ID: {CANARY}",
    "key header": f"X-API-Key: {CANARY}",
    "key header of a vendor": f"x-goog-api-key: {CANARY}",
    "token header": f"X-Auth-Token: {CANARY}",
    "JSON token": json.dumps({"access_token": CANARY, "token_type": "Bearer"}),
    "JSON token without blanks": json.dumps({"refresh_token": CANARY}, separators=(",", ":")),
    "JSON token with a quote in it": json.dumps({"idToken": f'a"b{CANARY}'}),
    "JSON token that is cut off": f'{{"access_token": "{CANARY}',
    "JSON token that is cut off in an escape": f'{{"access_token": "{CANARY}\\',
    "JSON in JSON": json_in_json(json.dumps({"access_token": CANARY}), 1),
    "JSON in JSON in JSON": json_in_json(json.dumps({"client_secret": CANARY}), 2),
    "JSON in JSON that is cut off": json_in_json(json.dumps({"token": CANARY}), 1)[:-4],
    "mapping of Python": str({"api_key": CANARY, "model": "m"}),
    "mapping with double quotes": str({"password": f"it's{CANARY}"}),
    "keyword argument": f"Client(password='{CANARY}')",
    "form": f"grant_type=refresh_token&refresh_token={CANARY}&client_id=a",
    "form that starts with it": f"client_secret={CANARY}&a=b",
    "assertion": f"client_assertion={CANARY}",
    "code verifier": f"code_verifier={CANARY}",
    "private key": json.dumps({"private_key": f"-----BEGIN-----\n{CANARY}"}),
    "request state": json.dumps({"resultType": "input_required", "requestState": CANARY}),
    "cursor": json.dumps({"method": "tools/list", "params": {"cursor": CANARY}}),
    "next cursor": json.dumps({"tools": [], "nextCursor": CANARY}),
    "variable": f"GITHUB_PERSONAL_ACCESS_TOKEN={CANARY}",
    "variable of a cloud": f"export AWS_SECRET_ACCESS_KEY={CANARY}",
    "variable in quotes": f'OPENAI_API_KEY="{CANARY}"',
    "option of a command": f"server --api-key {CANARY} --verbose",
    "option with an equals sign": f"server --auth-token={CANARY}",
    "option with one dash": f"server -password '{CANARY}'",
    "YAML": f"password: {CANARY}",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_a_secret_in_any_shape_is_masked_alone_and_amid_other_text(text: str) -> None:
    shown = redact(text)
    for part in (CANARY, "canarysecret", "Y2FuYXJ5"):
        assert part not in shown
    assert MASK in shown
    assert redact(shown) == shown
    around = redact(f"first line\nrequest failed: {text}\nlast line")
    assert CANARY not in around
    assert around.startswith("first line\nrequest failed: ")
    assert around.endswith("\nlast line")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Traceback (most recent call last):",
        "ModuleNotFoundError: No module named 'mcp'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/etc/app.toml'",
        "Error: listen EADDRINUSE: address already in use :::3000",
        "Unexpected token < in JSON at position 0",
        "max_tokens=100, tokens: 5, tokenizer: fast",
        'usage: {"input_tokens": 12, "output_tokens": 7}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}',
        '{"method":"notifications/progress","params":{"progressToken":3,"progress":0.5}}',
        "Bearer authentication is required",
        "a Bearer token is missing",
        'WWW-Authenticate: Bearer realm="mcp", error="invalid_token"',
        'Bearer resource_metadata="https://host/.well-known/oauth-protected-resource"',
        "HTTP Basic authentication failed",
        "a basic example of the digest algorithm",
        "Session not found",
        "No valid session ID provided",
        "authorization server metadata is missing",
        "see https://example.com/docs/errors#not-found or http://localhost:8080/mcp",
        "mail the operator (ops@example.com)",
        "is it ready? yes; a == b && c != d",
        "the secret of the cookie jar, and a password",
        "python server.py --token-file /run/token --verbose",
        "Starting server v1.2.3 on 127.0.0.1:8000 (pid=4711)",
        "grüße 😀 \x00 \\ \" '",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host:8443/mcp?a=1&b=2", "https://***@host:8443/mcp?a=***&b=***"),
        ("key: Bearer abcdefgh refused", "key: Bearer *** refused"),
        ("Cookie: a=1\r\nAccept: */*", "Cookie: ***\r\nAccept: */*"),
        ('{"access_token":"abc","expires_in":3600}', '{"access_token":"***","expires_in":3600}'),
        ("{'Authorization': 'Own abc', 'Accept': 'a'}", "{'Authorization': '***', 'Accept': 'a'}"),
        ("server --api-key abc --verbose", "server --api-key *** --verbose"),
        ("password: banana", "password: ***"),
        ("API_TOKEN=abc LEVEL=debug", "API_TOKEN=*** LEVEL=debug"),
    ],
)
def test_what_stands_around_a_secret_is_still_readable(text: str, shown: str) -> None:
    assert redact(text) == shown


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="*"), min_size=6),
    st.text(),
)
@example("", "line one\nline two", "")
def test_a_known_secret_is_masked_wherever_it_stands(before: str, secret: str, after: str) -> None:
    assert secret not in redact(before + secret + after, [secret])


def test_known_secrets_are_masked_line_by_line_and_the_longer_first() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"
    for line in key.splitlines():
        assert redact(f"line: {line}", [key]) == "line: ***"
    assert redact("abcdefghi abcdef", ["abcdef", "abcdefghi"]) == "*** ***"
    # Values that are too short for a secret are not masked.
    assert redact("level debug, port 80", ["debug", "80", "", "1"]) == "level debug, port 80"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.sampled_from("Bearer token=:\"'\\@?&#/-_ \n{}aA1,;")), st.integers(1, 3))
def test_no_text_is_too_strange_and_the_rest_of_it_stands_as_it_was(text: str, times: int) -> None:
    whole, at = text * times, 0
    masked = redact(whole)
    for piece in masked.split("***"):
        at = whole.find(piece, at)
        assert at >= 0, masked
        at += len(piece)
    assert redact(masked) == masked


@pytest.mark.parametrize(
    ("read", "unit", "size"),
    [
        *(
            (redact, unit, 65_536)
            for unit in ("a-", "a", "_", "?a", "://", "://@", "Bearer ", "basic A:", "\\", '"',
                         '="\\', "--token", ":")
        ),
        *((redact_url, unit, 400_000) for unit in (":", "://", "@", ":@")),
    ],
)  # fmt: skip
def test_long_text_is_read_in_one_go(read: Callable[[str], str], unit: str, size: int) -> None:
    before = time.process_time()
    read(unit * (size // len(unit)))
    # In seconds; a quarter of one is usual. A search from every position takes minutes.
    assert time.process_time() - before < 10


def test_a_target_shows_none_of_its_secrets() -> None:
    url = Http(
        f"https://user:{CANARY}@host/mcp?key={CANARY}",
        headers={"Authorization": f"Bearer {CANARY}"},
        proxies={"https": f"http://u:{CANARY}@proxy"},
    )
    args = ("--token", CANARY, f"--api-key={CANARY}", f"https://u:{CANARY}@h/", "from-the-env")
    command = Stdio("server", *args, env={"ANYTHING": "from-the-env", "OTHER": CANARY})
    for target in (url, command):
        for shown in (target.label, repr(target), str(target)):
            assert CANARY not in shown
            assert "from-the-env" not in shown
    assert url.label == "https://***@host/mcp?key=***"
    assert command.label == "server --token *** --api-key=*** https://***@h/ ***"


# A long text is quoted in part


@pytest.mark.parametrize("room", range(0, 60, 2))
def test_no_secret_is_cut_out_of_what_masks_it(room: int) -> None:
    for secret in (
        f"https://user:{CANARY}@host/mcp",
        f"Bearer {CANARY}",
        f"https://host/mcp?{CANARY}{CANARY}",
        f"password={CANARY}",
        f"Cookie: a=1; sid={CANARY}",
        json.dumps({"password": f"a {CANARY} b {CANARY}"}),
    ):
        text = "x " * (MOST_QUOTED // 2 - room) + secret + " y" * MOST_QUOTED
        shown = quote(text)
        for part in (CANARY, CANARY[:6], CANARY[-6:]):
            assert part not in shown
        assert len(shown) < MOST_QUOTED + 100


def test_a_value_is_masked_where_a_long_text_is_cut_within_it() -> None:
    secrets = Secrets(["correct horse battery staple"])
    for room in range(40):
        text = "x " * (MOST_QUOTED // 2 - room) + "correct horse battery staple"
        shown = secrets.quote(text + " y" * MOST_QUOTED)
        assert "correct" not in shown
        assert "horse" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * MOST_QUOTED, "x" * MOST_QUOTED),
        ("", ""),
        (" " * (MOST_QUOTED + 1), f"… ({MOST_QUOTED + 1:,} more characters)"),
        ("x" * (MOST_QUOTED + 2), "x" * MOST_QUOTED + "… (2 more characters)"),
        (f"a {'x' * MOST_QUOTED}", f"a… ({MOST_QUOTED + 1:,} more characters)"),
    ],
    ids=["short", "empty", "blank", "one word", "two words"],
)
def test_a_long_text_is_cut_between_words(text: str, shown: str) -> None:
    assert quote(text) == shown


def test_a_long_text_costs_no_more_than_what_is_quoted_of_it() -> None:
    mask = Mock(side_effect=str)
    quote("password=a " * 1_000_000, mask)
    assert sum(len(call.args[0]) for call in mask.call_args_list) <= MOST_QUOTED
