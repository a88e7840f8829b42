"""Tokens bound to a key (DPoP): keys, proofs, nonces; clients that authenticate with a key."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jws, jwt
from joserfc.jwk import import_key

from syncmcp.auth import (
    ClientCredentials,
    FileStore,
    MemoryStore,
    OAuth,
    PrivateKeyJwt,
    SigningKey,
    WorkloadIdentity,
)
from syncmcp.errors import AuthError, RegistrationFailed, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata
from tests.auth.authorization_server import Answer, Person, ResourceServer, Route, Seen, call, world
from tests.auth.token_desk import TokenDesk
from tests.support.stage import in_threads


class Judge:
    """Checks the proofs at both servers, as RFC 9449 §4.3 requires.

    Attributes:
        as_nonce: The nonce that proofs at the authorization server must contain, if any.
        rs_nonce: The nonce that they must contain at the resource server, if any.
        next_nonce: The nonce that the resource server requires after the next good request.
        bound: The thumbprint of the key of each token.
        verdicts: The parameters of the challenges that the resource server sent.
    """

    def __init__(self, resource: ResourceServer) -> None:
        self.resource = resource
        self.server = resource.authorization_server
        self.as_nonce: str | None = None
        self.rs_nonce: str | None = None
        self.next_nonce: str | None = None
        self.thumbprints: list[str] = []
        self.ids: list[str] = []
        self.bound: dict[str, str] = {}
        self.algorithms: list[str] = []
        self.verdicts: list[str] = []
        self.issue = self.server.routes["POST", "/token"]
        self.server.routes["POST", "/token"] = self.token
        for method in ("GET", "POST", "DELETE"):
            self.resource.routes[method, resource.path] = self.mcp

    def token(self, seen: Seen) -> Answer:
        proof = self.proof(seen, f"{self.server.origin}/token")
        if proof is None:
            return Answer(400, {"error": "invalid_dpop_proof"})
        if proof.get("nonce") != self.as_nonce:
            headers = {"DPoP-Nonce": self.as_nonce or ""}
            return Answer(400, {"error": "use_dpop_nonce"}, headers)
        answer = self.issue(seen)
        if answer.status == 200:
            answer.body["token_type"] = "DPoP"
            self.bound[answer.body["access_token"]] = self.thumbprints[-1]
        return answer

    def mcp(self, seen: Seen) -> Answer:
        scheme, _, token = seen.headers.get("authorization", "").partition(" ")
        with self.server.lock:
            known = token in self.server.valid
        if not known:
            place = f"{self.resource.origin}/.well-known/oauth-protected-resource/mcp"
            return self._refused(f'resource_metadata="{place}"')
        proof = self.proof(seen, self.resource.url)
        digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
        if (
            scheme != "DPoP"
            or proof is None
            or proof.get("ath") != digest.rstrip(b"=").decode()
            or self.bound[token] != self.thumbprints[-1]
        ):
            return self._refused('error="invalid_dpop_proof"')
        if proof.get("nonce") != self.rs_nonce:
            return self._refused('error="use_dpop_nonce"', self.rs_nonce or "")
        headers = {}
        if self.next_nonce is not None:
            self.rs_nonce = headers["DPoP-Nonce"] = self.next_nonce
        return Answer(200, {"token": token}, headers)

    def proof(self, seen: Seen, url: str) -> dict[str, Any] | None:
        """Check the proof of a request and return its claims; `None` if there is no proof."""
        text = seen.headers.get("dpop")
        if text is None:
            return None
        header, claims = (json.loads(urlsafe(part)) for part in text.split(".")[:2])
        key = import_key(header["jwk"])
        registry = jws.JWSRegistry(algorithms=[header["alg"]])
        registry.max_header_length = 2000  # an RSA key is long
        jws.deserialize_compact(text, key, registry=registry)
        assert header["typ"] == "dpop+jwt"
        assert not key.is_private
        assert claims["jti"] not in self.ids
        assert (claims["htm"], claims["htu"]) == (seen.method, url)
        assert abs(claims["iat"] - time.time()) < 60
        self.ids.append(claims["jti"])
        self.thumbprints.append(key.thumbprint())
        self.algorithms.append(header["alg"])
        return cast("dict[str, Any]", claims)

    def issue_like(self, desk: TokenDesk) -> None:
        """Issue the tokens of `desk`, and check the proofs of their requests."""
        self.issue = desk.answer
        self.server.routes["POST", "/token"] = self.token

    def _refused(self, what: str, nonce: str | None = None) -> Answer:
        self.verdicts.append(what)
        return refused(what, nonce)


def refused(what: str, nonce: str | None = None) -> Answer:
    headers = {} if nonce is None else {"DPoP-Nonce": nonce}
    return Answer(401, None, {**headers, "WWW-Authenticate": f"DPoP {what}"})


def urlsafe(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "===")


@pytest.fixture
def resource() -> Iterator[ResourceServer]:
    with world() as resource:
        yield resource


@pytest.fixture
def judge(resource: ResourceServer) -> Judge:
    return Judge(resource)


@pytest.mark.requirement("AXT-08", "AXT-09")
def test_each_request_has_a_proof_of_its_own_and_the_token_is_never_a_bearers(
    resource: ResourceServer, judge: Judge
) -> None:
    auth = OAuth(receiver=Person(), dpop=True)
    assert [call(resource, auth).status_code for _ in range(3)] == [200] * 3
    for method in ("GET", "DELETE"):
        with requests.request(method, f"{resource.url}?a=b#c", auth=auth, timeout=10) as response:
            assert response.status_code == 200
    assert len(judge.ids) == 6
    first, *sent = [one.headers.get("authorization") for one in resource.calls]
    assert first is None
    assert [str(one)[:5] for one in sent] == ["DPoP "] * 5
    assert auth.token is not None
    assert auth.token.token_type == "DPoP"
    # A refresh has a proof, too, with the same key.
    judge.server.expire()
    assert call(resource, auth).status_code == 200
    kinds = [one.form["grant_type"] for one in judge.server.token_requests]
    assert kinds == ["authorization_code", "refresh_token"]
    assert len(set(judge.thumbprints)) == 1


@pytest.mark.parametrize(
    "endpoint",
    ["https://[/token", "https://a:99999/token", "https://a" + "\u0301\u0316" * 30_000 + "/token"],
    ids=["brackets", "port", "host"],
)
def test_an_endpoint_that_is_no_url_gets_no_proof_and_is_the_servers_fault(
    endpoint: str, resource: ResourceServer
) -> None:
    resource.authorization_server.metadata["token_endpoint"] = endpoint
    before = time.process_time()
    with pytest.raises(AuthError, match="refuses to use a URL"):
        call(resource, OAuth(receiver=Person(), dpop=True))
    assert time.process_time() - before < 1


@pytest.mark.requirement("AUD-02", "AXT-09", "HTM-07")
def test_a_nonce_is_used_where_it_is_demanded_and_nobody_signs_in_for_it(
    resource: ResourceServer, judge: Judge
) -> None:
    resource.spelling = judge.server.spelling = str.upper
    judge.as_nonce, judge.rs_nonce = "for-the-one", "for-the-other"
    person = Person()
    auth = OAuth(receiver=person, dpop=True)
    assert call(resource, auth).status_code == 200
    assert len(judge.server.token_requests) == 2
    assert len(person.redirects) == 1
    assert judge.verdicts[1:] == ['error="use_dpop_nonce"']
    # The client remembers both nonces.
    judge.server.expire()
    assert call(resource, auth).status_code == 200
    assert len(judge.server.token_requests) == 3
    assert judge.verdicts.count('error="use_dpop_nonce"') == 1


@pytest.mark.requirement("AXT-09")
def test_a_nonce_that_comes_with_a_good_answer_is_the_next_one(
    resource: ResourceServer, judge: Judge
) -> None:
    auth = OAuth(receiver=Person(), dpop=True)
    for number in range(4):
        judge.next_nonce = f"nonce-{number}"
        assert call(resource, auth).status_code == 200
    assert not any("nonce" in one for one in judge.verdicts)


@pytest.mark.requirement("AXT-09")
@pytest.mark.parametrize(("error", "tries"), [("use_dpop_nonce", 2), ("invalid_dpop_proof", 1)])
def test_a_nonce_that_is_never_right_is_tried_once_and_leads_to_no_login(
    error: str, tries: int, resource: ResourceServer, judge: Judge
) -> None:
    person, nonces = Person(), (f"nonce-{number}" for number in range(100))
    auth = OAuth(receiver=person, dpop=True)
    call(resource, auth)
    before = len(resource.calls)
    resource.routes["POST", "/mcp"] = lambda _: refused(f'error="{error}"', next(nonces))
    assert call(resource, auth).status_code == 401
    assert len(resource.calls) == before + tries
    assert len(person.redirects) == len(judge.server.token_requests) == 1
    # The client does not use a very long nonce.
    resource.routes["POST", "/mcp"] = lambda _: refused('error="use_dpop_nonce"', "x" * 5000)
    assert call(resource, auth).status_code == 401
    sizes = [len(one.headers["dpop"]) for one in resource.calls[before + tries :]]
    assert 0 < max(sizes) < 3000


def test_a_token_endpoint_whose_nonce_is_never_right_is_asked_twice(
    resource: ResourceServer, judge: Judge
) -> None:
    numbers = itertools.count()
    judge.server.routes["POST", "/token"] = lambda _: Answer(
        400, {"error": "use_dpop_nonce"}, {"DPoP-Nonce": f"nonce-{next(numbers)}"}
    )
    with pytest.raises(AuthError) as caught:
        call(resource, OAuth(receiver=Person(), dpop=True))
    assert caught.value.error == "use_dpop_nonce"
    assert len(judge.server.token_requests) == 2


@pytest.mark.requirement("AXT-08")
@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # from the verifier of this test
@pytest.mark.parametrize("algorithm", ["RS256", "EdDSA", "Ed25519"])
def test_the_key_is_made_for_what_the_server_takes(
    resource: ResourceServer, judge: Judge, algorithm: str
) -> None:
    judge.server.metadata["dpop_signing_alg_values_supported"] = ["HS256", "none", algorithm]
    auth = OAuth(receiver=Person(), dpop=True)
    assert call(resource, auth).status_code == 200
    assert set(judge.algorithms) == {algorithm}


@pytest.mark.requirement("AXT-08")
@pytest.mark.parametrize("given", [True, "key"])
def test_a_shared_secret_is_no_proof(resource: ResourceServer, judge: Judge, given: Any) -> None:
    judge.server.metadata["dpop_signing_alg_values_supported"] = ["HS256", "none"]
    dpop = SigningKey.generate() if given == "key" else True
    with pytest.raises(AuthError, match="HS256, none"):
        call(resource, OAuth(receiver=Person(), dpop=dpop))
    assert judge.server.token_requests == []


def test_a_key_of_the_users_is_used(resource: ResourceServer, judge: Judge) -> None:
    key, store = SigningKey.generate("ES384"), MemoryStore()
    assert call(resource, OAuth(receiver=Person(), dpop=key, store=store)).status_code == 200
    assert set(judge.thumbprints) == {import_key(key.public).thumbprint()}
    assert store._texts
    assert not any(one.startswith("dpop") for one in store._texts)


@pytest.mark.requirement("AXT-08")
def test_threads_that_begin_together_have_one_key(
    resource: ResourceServer, judge: Judge, tmp_path: Path
) -> None:
    auths = [
        WorkloadIdentity("me", issuer=None, dpop=True, store=FileStore(tmp_path / "tokens.json"))
        for _ in range(2)
    ]
    desk, lock = TokenDesk(resource), threading.Lock()
    judge.issue_like(desk)
    for site, path in ((judge.server, "/token"), (resource, "/mcp")):
        answer = site.routes["POST", path]

        def one_by_one(seen: Seen, answer: Route = answer) -> Answer:
            with lock:
                return answer(seen)

        site.routes["POST", path] = one_by_one
    jobs = [partial(call, resource, auth) for auth in 3 * auths]
    assert [response.status_code for response in in_threads(*jobs)] == [200] * 6
    assert len(set(judge.thumbprints)) == 1
    assert len(desk.forms) == 1


def test_a_token_is_bound_where_that_was_wanted_and_nowhere_else(resource: ResourceServer) -> None:
    auth = OAuth(receiver=Person(), dpop=True)
    with pytest.raises(AuthError, match="not bound to the key"):
        call(resource, auth)
    assert auth.token is None
    assert ["authorization" in one.headers for one in resource.calls] == [False]

    def bound(answer: Answer) -> Answer:
        answer.body["token_type"] = "DPoP"
        return answer

    resource.authorization_server.token_answer = bound
    with pytest.raises(AuthError, match="dpop=True"):
        call(resource, OAuth(receiver=Person()))


def test_a_bearer_token_in_the_store_is_none_for_a_client_that_proves(
    resource: ResourceServer,
) -> None:
    store, person = MemoryStore(), Person()
    call(resource, OAuth(receiver=Person(), store=store))
    judge = Judge(resource)
    assert call(resource, OAuth(receiver=person, store=store, dpop=True)).status_code == 200
    assert (len(person.redirects), len(judge.ids)) == (1, 2)


@pytest.mark.requirement("AXT-01", "AXT-09")
def test_a_statement_of_who_the_client_is_is_made_anew_for_the_nonce(
    resource: ResourceServer, judge: Judge
) -> None:
    judge.issue_like(TokenDesk(resource))
    judge.as_nonce = "a-nonce"
    sign = PrivateKeyJwt("a-client", SigningKey.generate())
    auth = ClientCredentials("a-client", assertion=sign, issuer=None, dpop=True)
    assert call(resource, auth).status_code == 200
    said = [one.form["client_assertion"] for one in judge.server.token_requests]
    assert len(said) == len(set(said)) == 2


@pytest.mark.requirement("AXT-08")
def test_the_private_key_is_in_the_store_alone(
    resource: ResourceServer, judge: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = MemoryStore()
    auth = OAuth(receiver=Person(), dpop=True, store=store)
    call(resource, auth)
    (secret,) = [json.loads(text)["d"] for key, text in store._texts.items() if key[:4] == "dpop"]
    shown = f"{auth!r} {auth.prover!r} {vars(auth)!r} {caplog.text}"
    shown += "".join(f"{seen.headers} {seen.body!r}" for seen in resource.seen + judge.server.seen)
    assert secret not in shown


# -- clients that authenticate with a key, and signing keys

ISSUER = "https://login.example"


def pem_of(key: Any, password: bytes = b"") -> str:
    best = serialization.BestAvailableEncryption
    encryption = best(password) if password else serialization.NoEncryption()
    text: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return text.decode()


EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
KEYS: dict[str, Any] = {
    "ES256": EC,
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
    "RS256": RSA,
    "PS256": RSA,
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
}


def server(*algorithms: str) -> AuthorizationServerMetadata:
    return AuthorizationServerMetadata(
        issuer=ISSUER,
        token_endpoint=f"{ISSUER}/token",
        token_endpoint_auth_signing_alg_values_supported=list(algorithms) or None,
    )


def verified(statement: str, key: SigningKey, algorithm: str = "ES256") -> jwt.Token:
    return jwt.decode(statement, import_key(key.public), algorithms=[algorithm])


@pytest.mark.requirement("AXT-01")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("audience", [None, f"{ISSUER}/token"])
def test_a_statement_says_who_made_it_for_whom_and_until_when(audience: str | None) -> None:
    key = SigningKey(pem_of(EC), key_id="first")
    sign = PrivateKeyJwt("a-client", key, audience=audience)
    before = int(time.time())
    statement = verified(sign(server()), key)
    claims = statement.claims
    assert statement.header["kid"] == "first"
    assert claims["iss"] == claims["sub"] == "a-client"
    assert claims["aud"] == (audience or ISSUER)
    assert before <= claims["iat"] <= time.time()
    assert claims["exp"] == claims["iat"] + 60
    assert set(claims) == {"iss", "sub", "aud", "iat", "exp", "jti"}
    assert len({verified(sign(server()), key).claims["jti"] for _ in range(20)}) == 20


def test_an_assertion_for_a_given_audience_is_for_an_issuer_that_the_program_names() -> None:
    key = SigningKey.generate()
    for audience, issuer in ((f"{ISSUER}/token", ISSUER), (None, None)):
        signs = PrivateKeyJwt("one", key, audience=audience)
        OAuth("https://mcp.example/mcp", client_id="one", assertion=signs, issuer=issuer)
    signs = PrivateKeyJwt("one", key, audience=f"{ISSUER}/token")
    for allow in (None, ISSUER):
        with pytest.raises(UsageError, match="issuer"):
            OAuth("https://mcp.example/mcp", client_id="one", assertion=signs, allow=allow)


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # from the verifier of this test
@pytest.mark.requirement("AXT-01")
@pytest.mark.parametrize("algorithm", KEYS)
def test_each_kind_of_key_signs_as_the_server_takes_it(algorithm: str) -> None:
    key = SigningKey(pem_of(KEYS[algorithm]))
    statement = PrivateKeyJwt("a-client", key)(server("HS256", "none", algorithm))
    assert verified(statement, key, algorithm).header["alg"] == algorithm


def test_the_configured_algorithm_is_used_unless_the_server_says_that_it_takes_others() -> None:
    key = SigningKey(pem_of(RSA), "PS256")
    statement = PrivateKeyJwt("a-client", key)(server())
    assert verified(statement, key, "PS256").header["alg"] == "PS256"
    for given, algorithm in ((EC, None), (RSA, "RS256")):
        sign = PrivateKeyJwt("a-client", pem_of(given), algorithm)
        with pytest.raises(RegistrationFailed, match="PS512, HS256"):
            sign(server("PS512", "HS256"))


def test_a_key_is_read_from_text_bytes_file_and_json(tmp_path: Path) -> None:
    text = pem_of(EC)
    file = tmp_path / "key.pem"
    file.write_text(text)
    keys = [SigningKey(one) for one in (text, text.encode(), file, SigningKey(text).to_json())]
    assert all(key.public == keys[0].public for key in keys)
    assert "d" not in keys[0].public
    with pytest.raises(UsageError, match=r"absent\.pem"):
        SigningKey(tmp_path / "absent.pem")


CANARY = "very-secret-canary"


def bad_keys() -> dict[str, Any]:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return {
        "words": CANARY,
        "broken": pem_of(EC)[:60] + CANARY + "\n-----END PRIVATE KEY-----\n",
        "public": EC.public_key().public_bytes(serialization.Encoding.PEM, form),
        "encrypted": pem_of(EC, CANARY.encode()),
        "secret": {"kty": "oct", "k": CANARY},
        "public json": SigningKey(pem_of(EC)).public,
        "short": pem_of(rsa.generate_private_key(65537, 1024)),
        "curve": pem_of(ec.generate_private_key(ec.SECP256K1())),
        "json of nothing": {"d": CANARY},
    }


@pytest.mark.filterwarnings("ignore")  # about the key that is too short
@pytest.mark.parametrize("name", bad_keys())
def test_what_is_no_key_to_sign_with_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        SigningKey(bad_keys()[name])
    assert CANARY not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"


def test_a_key_does_not_sign_with_an_algorithm_of_others() -> None:
    with pytest.raises(UsageError, match="ES256"):
        SigningKey(pem_of(EC), "RS256")
    with pytest.raises(UsageError, match="HS256"):
        SigningKey.generate("HS256")


@pytest.mark.requirement("AXT-06", "AXT-08")
def test_a_key_shows_itself_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = SigningKey.generate()
    sign = PrivateKeyJwt("a-client", key)
    statement = sign(server())
    shown = f"{key!r} {key} {sign!r} {sign} {caplog.text}"
    assert key.to_json()["d"] not in shown
    assert statement not in shown
    for one in (key, sign):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(one)


def test_without_its_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pem = pem_of(EC)
    for name in ("joserfc", "joserfc.jwk"):
        monkeypatch.setitem(sys.modules, name, None)
    for make in (partial(OAuth, dpop=True), partial(PrivateKeyJwt, "a-client", pem)):
        with pytest.raises(UsageError, match=r"install syncmcp-client\[oauth\]"):
            make()


def test_nothing_is_loaded_until_something_is_to_be_signed() -> None:
    code = (
        "import sys, syncmcp.auth as auth\n"
        "[getattr(auth, name) for name in auth.__all__]\n"
        "auth.OAuth('https://server.example/mcp')\n"
        "auth.ClientCredentials('a-client', client_secret='a-secret', issuer=None)\n"
        "print('joserfc' in sys.modules, 'cryptography' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["False", "False"]
