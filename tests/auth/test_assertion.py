"""Clients that prove themselves by a key, and keys that sign."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwt
from joserfc.jwk import import_key

from syncmcp.auth import OAuth, PrivateKeyJwt, SigningKey
from syncmcp.errors import RegistrationFailed, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata

ISSUER = "https://login.example"


def pem_of(key: Any, password: bytes | None = None) -> str:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
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


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # by what verifies here
@pytest.mark.requirement("AXT-01")
@pytest.mark.parametrize("algorithm", KEYS)
def test_each_kind_of_key_signs_as_the_server_takes_it(algorithm: str) -> None:
    key = SigningKey(pem_of(KEYS[algorithm]))
    statement = PrivateKeyJwt("a-client", key)(server("HS256", "none", algorithm))
    assert verified(statement, key, algorithm).header["alg"] == algorithm


def test_where_the_server_does_not_say_the_configured_algorithm_is_used() -> None:
    key = SigningKey(pem_of(RSA), "PS256")
    statement = PrivateKeyJwt("a-client", key)(server())
    assert verified(statement, key, "PS256").header["alg"] == "PS256"


@pytest.mark.parametrize(("given", "algorithm"), [(EC, None), (RSA, "RS256")])
def test_without_an_algorithm_in_common_nothing_is_signed(given: Any, algorithm: Any) -> None:
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


CANARY = "very-secret-canary"


def bad_keys() -> dict[str, Any]:
    public = EC.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return {
        "words": CANARY,
        "broken": pem_of(EC)[:60] + CANARY + "\n-----END PRIVATE KEY-----\n",
        "public": public,
        "encrypted": pem_of(EC, CANARY.encode()),
        "secret": {"kty": "oct", "k": CANARY},
        "public json": SigningKey(pem_of(EC)).public,
        "short": pem_of(rsa.generate_private_key(65537, 1024)),
        "curve": pem_of(ec.generate_private_key(ec.SECP256K1())),
        "json of nothing": {"d": CANARY},
    }


@pytest.mark.filterwarnings("ignore")  # of the key that is too short
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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.pem"):
        SigningKey(tmp_path / "absent.pem")


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
    for name in ("joserfc", "joserfc.jwk"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"install syncmcp-client\[oauth\]"):
        PrivateKeyJwt("a-client", pem_of(EC))


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
