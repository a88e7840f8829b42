"""Signing in without a person: client credentials, workload identity, enterprise-managed."""

from __future__ import annotations

import base64
import logging
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import import_key

import syncmcp
from syncmcp.auth import (
    Bearer,
    ClientCredentials,
    EnterpriseManaged,
    FileStore,
    MemoryStore,
    PrivateKeyJwt,
    SigningKey,
    WorkloadIdentity,
)
from syncmcp.errors import AuthError, DiscoveryFailed, TokenRefused, UsageError
from tests.auth.authorization_server import Answer, Seen, Site, world
from tests.auth.token_desk import TokenDesk

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SECRET = "secret-canary/ä+"


@pytest.fixture
def desk() -> Iterator[TokenDesk]:
    with world() as resource:
        yield TokenDesk(resource)


def with_secret(**options: Any) -> ClientCredentials:
    given: dict[str, Any] = {"client_secret": SECRET, "issuer": None, **options}
    return ClientCredentials("a-client", **given)


def audience(statement: str, key: SigningKey) -> str:
    """Return the audience of a statement that a client signed about itself."""
    claims = jwt.decode(statement, import_key(key.public), algorithms=["ES256"]).claims
    assert claims["iss"] == claims["sub"]
    return str(claims["aud"])


def basic(seen: Seen) -> str:
    return base64.b64decode(seen.headers["authorization"].removeprefix("Basic ")).decode()


# -- client credentials -----------------------------------------------------------------------


@pytest.mark.requirement("AXT-01")
def test_a_program_signs_in_with_its_secret(desk: TokenDesk) -> None:
    issuer = desk.server.issuer
    auth = ClientCredentials("a client", client_secret=SECRET, issuer=issuer, scopes=["read"])
    assert [desk.call(auth).status_code for _ in range(3)] == [200] * 3
    (form,) = desk.forms
    assert form == {
        "grant_type": "client_credentials",
        "scope": "read",
        "resource": desk.resource.url,
        "client_id": "a client",
    }
    assert basic(desk.seen[0]) == "a%20client:secret-canary%2F%C3%A4%2B"
    assert desk.server.authorizations == []
    assert "/register" not in desk.server.paths()


@pytest.mark.requirement("AXT-01")
def test_a_program_signs_in_with_its_key(desk: TokenDesk) -> None:
    key = SigningKey.generate("ES256")
    auth = ClientCredentials("a-client", private_key=key, issuer=desk.server.issuer)
    assert desk.call(auth).status_code == 200
    form = desk.forms[0]
    assert form["client_assertion_type"] == ASSERTION
    assert "client_secret" not in form
    assert audience(form["client_assertion"], key) == desk.server.issuer


def test_the_callers_own_statement_is_made_for_the_server_that_gets_it(desk: TokenDesk) -> None:
    auth = ClientCredentials(
        "a-client", assertion=lambda server: f"statement-for-{server.issuer}", issuer=None
    )
    assert desk.call(auth).status_code == 200
    assert desk.forms[0]["client_assertion"] == f"statement-for-{desk.server.issuer}"


def test_there_is_one_way_to_prove_who_it_is() -> None:
    for secret, assertion in ((None, None), (SECRET, lambda _: "x")):
        with pytest.raises(UsageError, match="one of"):
            with_secret(client_secret=secret, assertion=assertion)


@pytest.mark.requirement("AXT-01", "AXT-06")
def test_no_other_issuer_than_the_configured_one_gets_a_credential(desk: TokenDesk) -> None:
    issuer = "https://login.example"
    for auth in (with_secret(issuer=issuer), WorkloadIdentity("an-identity", issuer=issuer)):
        with pytest.raises(DiscoveryFailed, match=r"login\.example"):
            desk.call(auth)
    assert desk.seen == []


def test_credentials_do_not_follow_the_server_to_another_issuer(desk: TokenDesk) -> None:
    auth = with_secret()
    desk.call(auth)
    desk.server.expire()
    with world() as other:
        elsewhere = TokenDesk(other)
        desk.resource.metadata["authorization_servers"] = [other.authorization_server.issuer]
        with pytest.raises(AuthError, match="belong to"):
            desk.call(auth)
        assert elsewhere.seen == []


def test_an_expired_token_is_replaced_and_more_scope_got_by_the_same_grant(desk: TokenDesk) -> None:
    desk.extra = {"refresh_token": "refresh-very-secret"}
    auth = with_secret(scopes=["read"])
    desk.call(auth)
    desk.server.expire()
    assert desk.call(auth).status_code == 200
    desk.resource.needed["tools/call"] = "write"
    assert desk.call(auth, "tools/call").status_code == 200
    assert [form["grant_type"] for form in desk.forms] == ["client_credentials"] * 3
    assert [form["scope"] for form in desk.forms] == ["read", "read", "read write"]


# -- workload identity ------------------------------------------------------------------------


@pytest.mark.requirement("AXT-07")
def test_a_workload_trades_its_identity_which_is_looked_up_each_time_for_a_token(
    desk: TokenDesk,
) -> None:
    identities = ["head.body.first", "head.body.second"]
    auth = WorkloadIdentity(iter(identities).__next__, issuer=desk.server.issuer)
    for _ in identities:
        assert desk.call(auth).status_code == 200
        desk.server.expire()
    assert desk.forms == [
        {"grant_type": JWT_BEARER, "assertion": one, "resource": desk.resource.url}
        for one in identities
    ]
    assert not any("authorization" in one.headers for one in desk.seen)


@pytest.mark.requirement("AXT-07")
def test_a_refused_identity_is_told_at_once_and_nothing_else_is_tried(desk: TokenDesk) -> None:
    refusal = {"error": "invalid_grant", "error_description": "not you"}
    desk.check = lambda _: Answer(400, refusal)
    auth = WorkloadIdentity("an-identity-canary", issuer=None, client_id="a-client")
    target = syncmcp.Http(desk.resource.url, auth=auth)
    with pytest.raises(TokenRefused, match="not you") as caught, syncmcp.connect(target):
        pass
    assert caught.value.error == "invalid_grant"
    assert desk.forms[0]["client_id"] == "a-client"
    assert len(desk.forms) == 1
    assert desk.server.authorizations == []
    assert "canary" not in repr(caught.value)


# -- enterprise-managed -----------------------------------------------------------------------


class IdentityProvider(Site):
    """An identity provider that exchanges each ID token for an ID-JAG, without checks."""

    def __init__(self) -> None:
        super().__init__()
        self.issuer = self.origin
        self.metadata: dict[str, Any] = {
            "issuer": self.origin,
            "token_endpoint": f"{self.origin}/exchange",
        }
        self.refusal: Answer | None = None
        self.change: dict[str, Any] = {}
        published = ("GET", "/.well-known/openid-configuration")
        self.routes[published] = lambda _: Answer(200, self.metadata)
        self.routes["POST", "/exchange"] = self._exchange

    def _exchange(self, seen: Seen) -> Answer:
        token = f"jag-{len(self.exchanges)}-very-secret"
        kind = {"issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}
        return self.refusal or Answer(200, {"access_token": token, **kind, **self.change})

    @property
    def exchanges(self) -> list[Seen]:
        return self.requests_to("/exchange")


@pytest.fixture
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as idp:
        yield idp


def employee(idp: IdentityProvider, **options: Any) -> EnterpriseManaged:
    defaults: dict[str, Any] = {
        "id_token": "id-token-canary",
        "idp_token_endpoint": f"{idp.origin}/exchange",
        "idp_client_id": "idp-client",
        "idp_client_secret": "idp-secret-canary",
        "client_id": "a-client",
        "client_secret": SECRET,
        "issuer": None,
    }
    return EnterpriseManaged(**{**defaults, **options})


@pytest.mark.requirement("AXT-02", "AXT-05")
def test_the_companys_word_is_exchanged_for_a_token(desk: TokenDesk, idp: IdentityProvider) -> None:
    auth = employee(idp, scopes=["read"])
    assert [desk.call(auth).status_code for _ in range(2)] == [200, 200]
    (first,) = idp.exchanges
    assert first.form == {
        "grant_type": EXCHANGE,
        "requested_token_type": ID_JAG,
        "audience": desk.server.issuer,
        "resource": desk.resource.url,
        "scope": "read",
        "subject_token": "id-token-canary",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "client_id": "idp-client",
    }
    assert basic(first) == "idp-client:idp-secret-canary"
    (second,) = desk.seen
    assert second.form == {
        "grant_type": JWT_BEARER,
        "assertion": "jag-1-very-secret",
        "resource": desk.resource.url,
        "client_id": "a-client",
    }
    assert basic(second).startswith("a-client:secret-canary")
    assert desk.server.authorizations == []
    for secret in ("id-token-canary", "idp-secret-canary", "jag-1-very-secret"):
        assert auth.secrets.redact(f"<{secret}>") == "<***>"


@pytest.mark.requirement("AXT-05")
def test_a_key_proves_the_client_at_both_servers(desk: TokenDesk, idp: IdentityProvider) -> None:
    key = SigningKey.generate()
    idp.metadata["token_endpoint_auth_methods_supported"] = ["private_key_jwt"]
    auth = employee(
        idp,
        idp_issuer=idp.issuer,
        idp_token_endpoint=None,
        idp_client_secret=None,
        idp_assertion=PrivateKeyJwt("idp-client", key),
        client_secret=None,
        assertion=PrivateKeyJwt("a-client", key),
    )
    assert desk.call(auth).status_code == 200
    for seen, issuer in ((idp.exchanges[0], idp.issuer), (desk.seen[0], desk.server.issuer)):
        assert audience(seen.form["client_assertion"], key) == issuer


@pytest.mark.parametrize(
    "change",
    [
        {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
        {"issued_token_type": None},
        {"token_type": "Bearer"},
        {"access_token": ""},
    ],
    ids=str,
)
def test_what_is_no_statement_for_others_is_passed_on_to_nobody(
    desk: TokenDesk, idp: IdentityProvider, change: dict[str, Any]
) -> None:
    idp.change = change
    with pytest.raises(AuthError, match="ID-JAG") as caught:
        desk.call(employee(idp))
    assert desk.seen == []
    assert "very-secret" not in repr(caught.value)


def test_a_refusal_of_either_server_is_told_and_the_other_one_not_asked(
    desk: TokenDesk, idp: IdentityProvider
) -> None:
    desk.server.metadata["authorization_grant_profiles_supported"] = ["urn:example:other"]
    with pytest.raises(DiscoveryFailed, match="identity"):
        desk.call(employee(idp))
    assert idp.exchanges == []
    del desk.server.metadata["authorization_grant_profiles_supported"]
    idp.refusal = Answer(400, {"error": "access_denied", "error_description": "policy says no"})
    with pytest.raises(TokenRefused, match=r"refused this sign-in.*policy says no"):
        desk.call(employee(idp))
    assert desk.seen == []


@pytest.mark.requirement("AXT-03")
@pytest.mark.parametrize(
    "where",
    [
        {"idp_token_endpoint": "http://login.example/token"},
        {"idp_token_endpoint": None, "idp_issuer": "http://login.example"},
        {"idp_token_endpoint": None},
        {"idp_issuer": "https://login.example"},
        {"idp_assertion": lambda _: "x"},
    ],
    ids=["plain", "plain issuer", "nowhere", "twice", "two proofs"],
)
def test_the_identity_provider_is_one_and_encrypted(
    idp: IdentityProvider, where: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        employee(idp, **where)


@pytest.mark.requirement("AXT-03")
def test_metadata_of_the_identity_provider_do_not_lead_to_a_plain_address(
    desk: TokenDesk, idp: IdentityProvider
) -> None:
    idp.metadata["token_endpoint"] = "http://login.example/token"
    with pytest.raises(AuthError, match=r"login\.example"):
        desk.call(employee(idp, idp_issuer=idp.issuer, idp_token_endpoint=None))


# -- all kinds of credentials -----------------------------------------------------------------

MAKERS: dict[str, Callable[[IdentityProvider], Any]] = {
    "credentials": lambda idp: with_secret(),
    "workload": lambda idp: WorkloadIdentity("identity-canary", issuer=None),
    "enterprise": employee,
    "bearer": lambda idp: Bearer("bearer-canary"),
}


@pytest.mark.requirement("AXT-04", "AXT-06")
@pytest.mark.parametrize("name", MAKERS)
def test_no_secret_is_shown_logged_pickled_or_put_into_a_url(
    desk: TokenDesk, idp: IdentityProvider, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    auth = MAKERS[name](idp)
    desk.call(auth)
    desk.server.expire()
    desk.check = lambda seen: Answer(
        400, {"error": "invalid_grant", "error_description": f"assertion={seen.body.decode()}"}
    )
    if name != "bearer":
        with pytest.raises(TokenRefused) as caught:
            desk.call(auth)
        assert "canary" not in f"{caught.value!r} {caught.value}"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(auth)
    sent = [seen.headers.get("authorization", "") for seen in desk.resource.seen]
    tokens = {one.removeprefix("Bearer ") for one in sent if one}
    assert tokens
    shown = f"{auth!r} {auth} {caplog.text} {syncmcp.Http(desk.resource.url, auth=auth)!r}"
    for site in (desk.resource, desk.server, idp):
        shown += "".join(f"{seen.path} {seen.query}" for seen in site.seen)
    assert [secret for secret in ("canary", "very-secret", *tokens) if secret in shown] == []


@pytest.mark.requirement("AXT-06")
def test_neither_credential_nor_statement_is_kept(
    desk: TokenDesk, idp: IdentityProvider, tmp_path: Path
) -> None:
    file = tmp_path / "tokens.json"
    desk.call(employee(idp, store=FileStore(file)))
    assert "access-1-very-secret" in file.read_text()
    assert not re.search("jag-|id-token|secret-canary", file.read_text())


def test_a_token_is_given_back_by_whoever_got_it(desk: TokenDesk) -> None:
    store = MemoryStore()
    desk.call(with_secret(store=store))
    desk.server.routes["POST", "/revoke"] = lambda _: Answer(200)
    # Another object, which has the token only from the store.
    again = with_secret(store=store, url=desk.resource.url)
    again.logout()
    (revoked,) = desk.server.requests_to("/revoke")
    assert revoked.form["token"] == "access-1-very-secret"
    assert basic(revoked).startswith("a-client:secret-canary")
    assert again.token is None
