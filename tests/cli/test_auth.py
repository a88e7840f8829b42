"""Signing in from the shell, and later commands with the stored sign-in."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncmcp.cli.logins import stored_login
from syncmcp.cli.session import Session
from syncmcp.config import Http
from syncmcp.testing import AuthorizationServer, Server, serve_http
from tests.auth.authorization_server import Answer, call, world
from tests.cli.running import Command, Ran, at_terminal, log_in
from tests.support.pages import address_behind
from tests.support.ports import free_port
from tests.transports.http_peer import Request, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def issuer() -> Iterator[AuthorizationServer]:
    with AuthorizationServer(scopes=["notes:read"]) as server:
        yield server


@pytest.fixture(scope="module")
def private(issuer: AuthorizationServer) -> Iterator[str]:
    """The URL of a server that requires a token."""
    server = Server("notebook")
    server.add_tool(lambda: "a line", name="read", annotations={"readOnlyHint": True})
    with serve_http(server, authorization_server=issuer) as http:
        yield http.url


@pytest.fixture
def sign_in(command: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Return a function that signs in at a named issuer, with a simulated browser."""

    def visit(page: str) -> bool:
        with urllib.request.urlopen(address_behind(page), timeout=30) as answer:
            return bool(answer.read())

    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", visit)

    def run(url: str, issuer: str, *given: str) -> Ran:
        ran = command("auth", "login", url, "--issuer", issuer, *given)
        assert (ran.code, ran.out) == (0, f"signed in to {url}\n"), ran.err
        return ran

    return run


def test_who_is_not_signed_in_is_told_so_and_not_sent_anywhere(
    command: Command, private: str, issuer: AuthorizationServer
) -> None:
    ran = command("tools", private)
    assert (ran.code, ran.out, ran.error["kind"]) == (3, "", "LoginRequired")
    assert f"syncmcp auth login {private}`," in ran.error["hint"]
    assert "receiver=" not in ran.err
    assert command("auth", "status", private) == (3, f"not signed in to {private}\n", "")
    assert command("auth", "status", private, "--json").result["signed_in"] is False
    assert issuer.granted == []


@pytest.mark.usefixtures("sign_in")
def test_a_person_signs_in_once_for_all_later_commands(
    elsewhere: Path,
    private: str,
    issuer: AuthorizationServer,
    command: Command,
) -> None:
    assert f"signed in to {private}" in log_in(private)
    assert command("call", private, "read").out == "a line\n"
    issuer.expire()  # renewed without a person
    assert command("record", "tape.jsonl", "call", private, "read").out == "a line\n"
    assert command("replay", "tape.jsonl", "call", "read").out == "a line\n"
    own = Path.home() / ".cursor/own.json"
    own.parent.mkdir()
    own.write_text(f'{{"mcpServers": {{"mine": {{"url": "{private}"}}}}}}')
    assert command("call", "mine", "read", "-c", str(own)).out == "a line\n"
    # A second login that names the same issuer leaves the person signed in.
    again = command("auth", "login", private, "--issuer", issuer.issuer)
    assert (again.code, again.out) == (0, f"signed in to {private} for notes:read\n")
    ran = command("auth", "status", private)
    assert "refreshed automatically" in ran.out
    assert dict(ran.rows)["authorization server"] == issuer.issuer
    status = command("auth", "status", private, "--json")
    assert status.result["signed_in"] is True
    assert "token" not in status.out
    examined = command("doctor", private, "--json").result["steps"]
    said = "with the token of an earlier sign-in"
    assert {"step": "sign-in", "verdict": "ok", "said": said} in examined
    assert command("auth", "logout", private).out == f"signed out of {private}\n"
    assert command("auth", "logout", private).out == f"not signed in to {private}\n"
    assert command("tools", private).code == 3


def test_an_error_does_not_speak_of_the_person_who_reads_it(private: str, elsewhere: Path) -> None:
    with at_terminal("auth", "login", private, "--no-browser", columns=1000) as terminal:
        terminal.answers("Sign in there? [y/N]", "n\r")
        assert terminal.ends() == 3
    assert "error: permission was denied to sign in at " in terminal.screen


def test_a_token_can_come_from_a_file(
    command: Command, private: str, elsewhere: Path, issuer: AuthorizationServer
) -> None:
    (elsewhere / "header").write_text("Bearer nonsense")
    ran = command("tools", private, "-H", "Authorization:@header")
    assert (ran.code, ran.error["kind"], ran.error["status"]) == (3, "AuthError", 401)
    assert ("token=" in ran.error["message"], "--bearer" in ran.error["hint"]) == (False, True)
    assert "nonsense" not in ran.err


def test_the_help_of_a_sign_in_has_no_options_of_calls(command: Command) -> None:
    for words in (["auth", "login", "--help"], ["auth", "status", "-h"]):
        shown = command(*words).out
        assert "--bearer" in shown
        assert not [word for word in ("--yes", "--env", "--model", "--idle-") if word in shown]
    ran = command("auth", "status", "http://x", "--model", "openai:x")
    assert (ran.code, ran.error["message"]) == (2, "--model does not apply to a sign-in")


def test_commands_have_no_sign_in(command: Command) -> None:
    ran = command("auth", "login", "--", "true")
    assert (ran.code, "--env" in ran.error["hint"]) == (2, True)


def test_a_client_that_was_registered_by_hand_is_used_and_remembered(
    command: Command, sign_in: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    back = f"http://localhost:{free_port()}/back"
    monkeypatch.setenv("SECRET", "its-secret")
    with world() as resource:
        server = resource.authorization_server
        server.clients["mine"] = ("its-secret", "client_secret_basic")
        server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
        del server.metadata["registration_endpoint"]
        given = ["--client-id", "mine", "--client-secret-env", "SECRET", "--redirect-uri", back]
        sign_in(resource.url, server.issuer, *given)
        assert server.authorizations[-1]["redirect_uri"] == back
        assert server.authorizations[-1]["client_id"] == "mine"
        status = command("auth", "status", resource.url, "--json").result
        assert (status["signed_in"], status["client_id"]) == (True, "mine")
        assert dict(command("auth", "status", resource.url).rows)["client"] == "mine"
        assert "its-secret" not in str(status)
        # Later commands renew the token as that client: the secret is stored.
        server.expire()
        assert call(resource, stored_login(Http(resource.url))).status_code == 200
        assert command("auth", "logout", resource.url).code == 0
        assert server.valid == {}
        assert command("auth", "status", resource.url).code == 3


def test_without_a_terminal_only_an_issuer_that_is_named_is_signed_in_at(command: Command) -> None:
    with world() as resource:
        ran = command("auth", "login", resource.url, "--no-browser")
        assert (ran.code, ran.error["kind"]) == (3, "LoginRequired")
        assert "--issuer" in ran.error["hint"]
        assert "auth login" not in ran.error["hint"]
        assert "allow=" not in ran.err
        assert resource.authorization_server.paths("POST") == []


def test_nobody_signs_in_where_nobody_wants_it_or_no_server_is(command: Command, demo: str) -> None:
    root = demo.removesuffix("/mcp")
    for issuer in [], ["--issuer", root]:
        ran = command("auth", "login", demo, *issuer)
        assert (ran.code, ran.out) == (2, "")
        assert ran.error["message"] == f"{demo} does not require a sign-in"
        assert "auth login" not in ran.error["hint"]
        ran = command("auth", "login", f"{root}/elsewhere", *issuer)
        assert (ran.code, ran.out, "404" in ran.error["message"]) == (1, "", True)


def test_a_server_that_wants_a_token_and_says_nothing_of_a_sign_in_is_no_place_to_sign_in(
    command: Command,
) -> None:
    def refuses(request: Request) -> None:
        request.connection.respond(401 if request.path == "/mcp" else 404)

    with serving(refuses) as server:
        url = server.url
        ran = command("auth", "login", url, "--no-browser")
        assert (ran.code, ran.error["kind"]) == (3, "LoginRequired")
        assert "does not say where" in ran.error["message"]
        ran = command("auth", "login", url, "--no-browser", "--issuer", url.removesuffix("/mcp"))
        assert (ran.code, ran.error["kind"]) == (3, "DiscoveryFailed")
        assert "and is not one itself" in ran.error["message"]
        assert ran.error["hint"] == "--bearer sends a token that you get elsewhere"
        posted = [request.path for request in server.requests if request.method == "POST"]
        assert posted[-1] == "/register"


def test_who_lets_everybody_in_and_says_where_to_sign_in_is_signed_in_to(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "opens_without_sign_in", lambda *_: True)
    with world() as resource:
        assert command("auth", "login", resource.url).error["kind"] == "LoginRequired"


@pytest.mark.parametrize(
    ("answer", "helps"),
    [
        (Answer(400, {"error": "invalid_client_metadata"}), ["--client-id"]),
        (Answer(400, {"error": "invalid_redirect_uri"}), ["--redirect-uri", "--client-id"]),
        (None, ["--client-id"]),
    ],
)
def test_who_is_not_registered_is_told_the_options_of_the_command(
    command: Command, answer: Answer | None, helps: list[str]
) -> None:
    with world() as resource:
        server = resource.authorization_server
        server.registered = lambda metadata: answer
        if answer is None:
            del server.metadata["registration_endpoint"]
        ran = command("auth", "login", resource.url, "--no-browser", "--issuer", server.issuer)
    assert (ran.code, ran.error["kind"]) == (3, "RegistrationFailed")
    assert [word for word in ran.error["hint"].split() if word.startswith("--")] == helps
    assert "client_id=" not in ran.err


def test_a_sign_in_that_fails_is_no_reason_to_sign_in(command: Command) -> None:
    with world() as resource:
        ran = command("auth", "login", resource.url, "--issuer", "https://other.example")
    assert (ran.code, ran.error["kind"]) == (3, "DiscoveryFailed")
    assert "hint" not in ran.error


def test_who_signs_in_as_another_client_is_signed_out_as_the_earlier_one(
    command: Command, sign_in: Callable[..., Ran]
) -> None:
    with world() as resource:
        server = resource.authorization_server
        server.clients["mine"] = (None, "none")
        for given in (["--client-id", "mine"], []):
            sign_in(resource.url, server.issuer, *given)
            # A sign-in is stored with the metadata of its time; this affects only later ones.
            server.metadata["revocation_endpoint"] = f"{server.origin}/nowhere"
        assert command("auth", "status", resource.url, "--json").result["client_id"] != "mine"
        assert [grant["client"] for grant in server.valid.values()] != ["mine"]
        assert len(server.valid) == len(server.refreshable) == 1
        ran = sign_in(resource.url, server.issuer, "--client-id", "mine")
        assert "was not revoked" in ran.err
        assert command("auth", "status", resource.url, "--json").result["client_id"] == "mine"
        ran = command("auth", "logout", resource.url)
        assert (ran.code, ran.out) == (0, f"signed out of {resource.url}\n")
        assert "could not revoke the token" in ran.err
        assert command("auth", "status", resource.url).code == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--client-secret-env", "SECRET"], "--client-secret-env needs --client-id and --issuer"),
        (
            ["--client-id", "x", "--issuer", "http://127.0.0.1:9", "--client-secret-env", "s3cret"],
            "the variable that --client-secret-env names is not set",
        ),
        (["--client-metadata-url", "http://example.com/"], "https:// URL"),
        (
            ["--issuer", "http://login.example"],
            "issuer 'http://login.example' cannot be used, because it is not encrypted",
        ),
    ],
)
def test_what_no_client_can_be_is_refused_before_anything_is_sent(
    command: Command, given: list[str], said: str
) -> None:
    ran = command("auth", "login", "http://127.0.0.1:9/mcp", *given)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.error["message"]
    assert "s3cret" not in ran.err  # the person gave the secret instead of a name
