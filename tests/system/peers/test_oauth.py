"""Signing in at authorization servers of other projects, on their pages."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import Queue
from typing import TYPE_CHECKING, Any

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa

import syncmcp
from syncmcp import AuthError
from syncmcp.auth import (
    ClientCredentials,
    LoopbackReceiver,
    OAuth,
    PrivateKeyJwt,
    SigningKey,
)
from tests.support.ports import free_port
from tests.support.setup_programs import CHROMIUM, in_ci
from tests.system.peers.launch import HttpServer, http_server
from tests.system.peers.oauth.guarded import Proofs, guarded
from tests.system.peers.oauth.person import Person, anywhere
from tests.system.peers.oauth.sign_ins import ASKING, DEMO, FASTMCP, JUDGING, MCP_1_9
from tests.system.peers.oauth.stage import AN_HOUR, PATIENCE, Stage, notebook, set_clock, staged
from tests.system.peers.peers import Program
from tests.system.peers.setup_peers import HERE, NODE_MODULES, venv_python
from tests.transports import certificates
from tests.transports.http_peer import Request, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


pytestmark = [
    pytest.mark.peer,
]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
DEMO_SCRIPT = "examples/server/simpleStreamableHttp.js"
TOOLS = ("read", "write")


@pytest.fixture(scope="module")
def key() -> SigningKey:
    """Generate the key of the client "robot"."""
    return SigningKey.generate("ES256")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    """Make certificates of an authority that the authorization server trusts."""
    return certificates.make(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def running(key: SigningKey, papers: certificates.Certificates) -> Iterator[HttpServer]:
    """Run the authorization server."""
    script = HERE / "oauth" / "authorization_server.mjs"
    # Single braces in a command mark placeholders.
    public = json.dumps(key.public).replace("{", "{{").replace("}", "}}")
    command = ("{node}", str(script), "{port}", public)
    env = {"NODE_EXTRA_CA_CERTS": papers.authority}
    with http_server(Program(command, env, path="")) as server:
        yield server


class Published:
    """A page with the metadata document of a client; `asked` is True once it was fetched."""

    def __init__(self) -> None:
        self.url = ""
        self.document: dict[str, Any] = {}
        self.asked = False

    def answer(self, request: Request) -> None:
        self.asked = True
        request.connection.json(self.document)


@pytest.fixture
def page(papers: certificates.Certificates) -> Iterator[Published]:
    page = Published()
    with serving(page.answer, papers.server_context()) as server:
        page.url = server.url
        yield page


@pytest.fixture
def issuer(running: HttpServer) -> Iterator[HttpServer]:
    """Return the authorization server; reset its clock after the test."""
    yield running
    set_clock(running, 0.0)


@pytest.fixture
def stage(issuer: HttpServer) -> Iterator[Stage]:
    """Provide the participants of a sign-in."""
    with staged(issuer) as stage:
        yield stage


def status_for(url: str, token: str) -> int | None:
    """Return the HTTP status with which a server refuses a request with this token."""
    with pytest.raises(AuthError) as caught:
        syncmcp.connect(syncmcp.Http(url, headers={"Authorization": f"Bearer {token}"}))
    return caught.value.status


@pytest.mark.signs_in(JUDGING, "login", "renewal", "logout")
@pytest.mark.requirement("AUD-01", "AUD-02", "AUD-04", "REG-01", "FLW-01", "FLW-04")
def test_a_person_signs_in_on_its_pages_once_until_the_program_logs_out(stage: Stage) -> None:
    auth = stage.auth()
    with stage.connect(auth) as client:
        assert client.call_tool("read").text == "a line"
        assert stage.person.pages == ["login", "consent"]
        assert "Back to your program" in stage.person.saw
        assert stage.guard.refused == [("401", None)]
        assert {claims["sub"] for _, claims in stage.guard.let_in} == {"ann"}
        assert [event["type"] for event in stage.events("registered")] == ["native"]
        [request] = stage.events("authorized")
        assert request["code_challenge_method"] == "S256"
        assert request["resource"] == stage.guard.url
        assert request["scope"] == "mcp:read offline_access"
        for _ in range(2):
            stage.an_hour_passes()
            assert client.call_tool("read").text == "a line"
        assert stage.guard.refused[1:] == [("401", "invalid_token")] * 2
        grants = [event["grant"] for event in stage.events("granted")]
        assert grants == ["authorization_code", *["refresh_token"] * 2]
        # The authorization server would revoke the grant if a refresh token were used twice.
        assert stage.events("revoked") == []
        token = auth.token
        assert token
        auth.logout()
        assert stage.events("revoked")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": token.refresh_token,
            "client_id": token.client_id,
        }
        answer = requests.post(f"{stage.issuer.url}/token", data=form, timeout=PATIENCE)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
        assert client.call_tool("read").text == "a line"
    # The browser is still signed in; the program needs consent again.
    assert stage.person.pages == ["login", "consent", "consent"]


def test_chromium_takes_a_person_through_the_pages_and_back(stage: Stage) -> None:
    program = CHROMIUM.find()
    if program is None and not in_ci():
        pytest.skip("there is no Chromium here")
    from playwright.sync_api import expect, sync_playwright

    shown: Queue[str] = Queue()
    complaints: list[str] = []
    receiver = LoopbackReceiver(open_browser=False, show=shown.put)
    auth = OAuth(allow=anywhere, receiver=receiver, login_timeout=PATIENCE)
    with ThreadPoolExecutor(1) as pool, sync_playwright() as playwright:
        connecting = pool.submit(stage.connect, auth)
        [address] = [word for word in shown.get(timeout=PATIENCE).split() if "://" in word]
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        page = browser.new_page()
        # The pages load a font from another host.
        page.route(
            lambda url: not url.startswith("http://127.0.0.1:"),
            lambda route: route.fulfill(content_type="text/css", body=""),
        )
        page.goto(address)
        page.get_by_placeholder("Enter any login").fill("ann")
        page.get_by_placeholder("and password").fill("open sesame")
        page.get_by_role("button", name="Sign-in").click()
        expect(page.get_by_role("heading")).to_have_text("Authorize")
        page.on("console", lambda message: complaints.append(message.text))
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("heading")).to_have_text("Back to your program")
        with connecting.result(PATIENCE) as client:
            assert client.call_tool("read").text == "a line"
        assert "code=" not in page.content()
        browser.close()
    assert complaints == []


@pytest.mark.signs_in(JUDGING, "more scope")
@pytest.mark.requirement("SCO-01", "SCO-03", "SCO-04")
def test_what_needs_more_scope_leads_back_to_the_page_for_old_and_new(stage: Stage) -> None:
    with stage.connect(stage.auth()) as client:
        assert client.call_tool("read").text == "a line"
        assert client.call_tool("write").text == "written"
        assert client.call_tool("read").text == "a line"
    assert stage.guard.refused == [("401", None), ("403", "insufficient_scope")]
    assert stage.person.pages == ["login", "consent", "consent"]
    asked = [set(event["scope"].split()) for event in stage.events("authorized")]
    assert asked == [
        {"mcp:read", "offline_access"},
        {"mcp:read", "mcp:write", "offline_access"},
    ]
    calls = [(what, claims["scope"]) for what, claims in stage.guard.let_in if what in TOOLS]
    both = "mcp:read mcp:write"
    assert calls == [("read", "mcp:read"), ("write", both), ("read", both)]


def sign_in_by_document(show: Callable[[str], None], page: Published, **proof: Any) -> OAuth:
    """Return the `OAuth` of a client whose id is the URL of `page`; publish its document there."""
    receiver = LoopbackReceiver(port=free_port(), open_browser=False, show=show)
    auth = OAuth(
        client_metadata_url=page.url,
        client_name="Notes",
        allow=anywhere,
        receiver=receiver,
        **proof,
    )
    with receiver.start() as waiting:
        page.document = auth.client_metadata([waiting.redirect_uri])
    return auth


@pytest.mark.signs_in(JUDGING, "document")
@pytest.mark.requirement("REG-01", "REG-02", "REG-03")
def test_the_address_of_a_document_is_a_client_that_needs_no_registration(
    stage: Stage, page: Published
) -> None:
    auth = sign_in_by_document(stage.person.read, page)
    with stage.connect(auth) as client:
        assert client.call_tool("read").text == "a line"
        stage.an_hour_passes()
        assert client.call_tool("read").text == "a line"
        assert client.call_tool("write").text == "written"
    assert page.asked
    assert stage.events("registered") == []
    assert [event["client_id"] for event in stage.events("authorized")] == [page.url] * 2
    grants = [event["grant"] for event in stage.events("granted")]
    assert grants == ["authorization_code", "refresh_token", "authorization_code"]
    assert {claims["client_id"] for _, claims in stage.guard.let_in} == {page.url}
    auth.logout()
    assert stage.events("revoked")


@pytest.mark.signs_in(JUDGING, "document")
@pytest.mark.requirement("REG-03")
def test_a_document_with_a_key_is_a_client_that_proves_itself_by_it(
    stage: Stage, page: Published, key: SigningKey
) -> None:
    auth = sign_in_by_document(stage.person.read, page, assertion=PrivateKeyJwt(page.url, key))
    page.document["jwks"] = {"keys": [key.public]}
    with stage.connect(auth) as client:
        assert client.call_tool("read").text == "a line"
    assert page.document["token_endpoint_auth_method"] == "private_key_jwt"
    assert [event["grant"] for event in stage.events("granted")] == ["authorization_code"]
    auth.logout()
    assert stage.events("revoked")


def forged(token: str) -> str:
    """Return a token with the same claims, signed by another key."""
    claims = jwt.decode(token, options={"verify_signature": False})
    key = rsa.generate_private_key(65537, 2048)
    return jwt.encode(claims, key, "RS256", headers=dict(jwt.get_unverified_header(token)))


@pytest.mark.signs_in(JUDGING, "login")
@pytest.mark.requirement("FLW-05", "TOK-03")
def test_a_token_is_good_for_the_server_it_was_asked_for_alone(stage: Stage) -> None:
    auth = stage.auth()
    with stage.connect(auth) as client, guarded(notebook(), stage.issuer.url) as other:
        assert client.call_tool("read").text == "a line"
        with syncmcp.connect(syncmcp.Http(other.url, auth=stage.auth())) as elsewhere:
            assert elsewhere.call_tool("read").text == "a line"
        assert other.refused == [("401", None)]  # the token for the first server was not sent
        audiences = [{claims["aud"] for _, claims in one.let_in} for one in (stage.guard, other)]
        assert audiences == [{stage.guard.url}, {other.url}]
        assert auth.token
        token = auth.token.access_token
        for guard, wrong in ((other, token), (stage.guard, forged(token))):
            assert status_for(guard.url, wrong) == 401
            assert guard.refused[1:] == [("401", "invalid_token")]


@pytest.mark.signs_in(JUDGING, "DPoP")
@pytest.mark.requirement("AXT-08", "AXT-09")
def test_a_token_that_is_bound_to_a_key_has_a_fresh_proof_each_time(issuer: HttpServer) -> None:
    proofs = Proofs()
    with staged(issuer, proofs) as stage:
        auth = OAuth(allow=anywhere, receiver=stage.person.receiver(), store=stage.store, dpop=True)
        with stage.connect(auth) as client:
            assert client.call_tool("read").text == "a line"
            proofs.nonce = "the second nonce"
            assert client.call_tool("read").text == "a line"
            stage.an_hour_passes()
            assert client.call_tool("read").text == "a line"
        # One valid proof came with the expired token.
        assert len(proofs.seen) == len(stage.guard.let_in) + 1
        # The first refusal contained the first nonce.
        reasons = [reason for _, reason in stage.guard.refused]
        assert reasons == [None, "use_dpop_nonce", "invalid_token"]
        grants = [(event["grant"], event["type"]) for event in stage.events("granted")]
        assert grants == [("authorization_code", "DPoP"), ("refresh_token", "DPoP")]
        assert stage.person.pages == ["login", "consent"]
        assert auth.token
        assert status_for(stage.guard.url, auth.token.access_token) == 401


@pytest.mark.signs_in(JUDGING, "as itself")
@pytest.mark.requirement("AXT-01")
@pytest.mark.parametrize(("name", "dpop"), [("clerk", False), ("robot", True)])
def test_a_program_signs_in_as_itself_and_gets_more_scope_when_it_needs_it(
    issuer: HttpServer, key: SigningKey, name: str, dpop: bool
) -> None:
    proof: dict[str, Any] = {"client_secret": "secret-of-the-tests"}
    if name == "robot":
        proof = {"private_key": key}
    with staged(issuer, Proofs() if dpop else None) as stage:
        auth = ClientCredentials(name, **proof, issuer=issuer.url, dpop=dpop)
        with stage.connect(auth) as client:
            assert client.call_tool("read").text == "a line"
            assert client.call_tool("write").text == "written"
        scopes = [event["scope"] for event in stage.events("granted")]
        assert scopes == ["mcp:read", "mcp:read mcp:write"]
        assert {event["grant"] for event in stage.events("granted")} == {"client_credentials"}
        assert {claims["sub"] for _, claims in stage.guard.let_in} == {name}
        assert stage.person.pages == []


# -- the official SDK as the server, with opaque tokens ------------------------------------------


@pytest.fixture(scope="module")
def official(running: HttpServer) -> Iterator[str]:
    """Run the server, which introspects every token; yield its URL."""
    command = (sys.executable, "-m", "tests.system.peers.oauth.official", "{port}", running.url)
    with http_server(Program(command, path="/notebook")) as server:
        yield server.url


@pytest.fixture
def person() -> Iterator[Person]:
    """Return a person who signs in."""
    with closing(Person()) as person:
        yield person


@pytest.mark.signs_in(ASKING, "login", "renewal", "logout")
@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
def test_the_official_server_lets_in_who_signed_in_until_they_log_out(
    official: str, issuer: HttpServer, person: Person, mode: syncmcp.Mode
) -> None:
    auth = OAuth(allow=anywhere, receiver=person.receiver())
    with syncmcp.connect(syncmcp.Http(official, auth=auth), mode=mode) as client:
        assert client.call_tool("read").text == "a line"
        first = auth.token
        set_clock(issuer, AN_HOUR)
        assert client.call_tool("read").text == "a line"
        second = auth.token
    assert person.pages == ["login", "consent"]
    assert first
    assert second
    assert first.scope == "mcp:read mcp:write"
    assert first.refresh_token != second.refresh_token
    auth.logout()
    assert [status_for(official, token.access_token) for token in (first, second)] == [401, 401]


# -- servers that are their own authorization servers: FastMCP, and an old one without metadata


@pytest.mark.parametrize(
    ("venv", "module", "revision"),
    [
        pytest.param(
            "fastmcp-4",
            "fastmcp_4",
            "2026-07-28",
            marks=pytest.mark.signs_in(FASTMCP, "login", "renewal", "logout"),
        ),
        pytest.param(
            "mcp-1.9",
            "official_1",
            "2025-03-26",
            marks=[
                pytest.mark.signs_in(MCP_1_9, "login", "renewal", "logout"),
                pytest.mark.requirement("AUD-08"),
            ],
        ),
    ],
)
def test_a_server_signs_people_in_by_itself_renews_their_tokens_and_takes_them_back(
    venv: str, module: str, revision: str, person: Person
) -> None:
    command = (str(venv_python(venv)), "-m", f"tests.system.peers.oauth.{module}", "{port}")
    auth = OAuth(allow=anywhere, receiver=person.receiver())
    with (
        http_server(Program(command)) as server,
        syncmcp.connect(syncmcp.Http(server.url, auth=auth)) as client,
    ):
        assert client.server.revision == revision
        first = auth.token
        assert client.call_tool("expire").text == "1"
        assert client.call_tool("read").text == "a line"
        second = auth.token
        assert first
        assert second
        assert first.refresh_token != second.refresh_token
        auth.logout()
        assert status_for(server.url, second.access_token) == 401
    assert second.issuer == server.url.replace("/mcp", "/")
    assert "Back to your program" in person.saw


# -- the demo of the TypeScript SDK: an MCP server and its authorization server ------------------


@pytest.mark.signs_in(DEMO, "login")
def test_the_strict_typescript_demo_lets_in_who_signed_in_for_it(person: Person) -> None:
    port = free_port()
    script = NODE_MODULES / "@modelcontextprotocol" / "sdk" / "dist" / "esm" / DEMO_SCRIPT
    command = ("{node}", str(script), "--oauth", "--oauth-strict")
    env = {"MCP_PORT": "{port}", "MCP_AUTH_PORT": str(port)}
    auth = OAuth(allow=anywhere, receiver=person.receiver())
    with http_server(Program(command, env)) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with syncmcp.connect(syncmcp.Http(url, auth=auth)) as client:
            assert client.call_tool("greet", {"name": "Ann"}).text == "Hello, Ann!"
    assert auth.token
    assert auth.token.resource == url
    assert auth.token.issuer == f"http://localhost:{port}/"
    assert auth.token.refresh_token is None
    assert "Back to your program" in person.saw
