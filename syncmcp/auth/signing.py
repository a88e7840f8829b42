"""Signatures of the client: private keys, client assertions (RFC 7523), DPoP proofs (RFC 9449).

Assertions and proofs are signed JSON Web Tokens (RFC 7519). The module needs the extra ``oauth``:
``pip install "syncmcp-client[oauth]"``.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlunsplit

from syncmcp._base.origin import Origin, origin_of, split_url
from syncmcp._concurrency.timing import Deadline
from syncmcp.auth import steps
from syncmcp.auth.discovery import named
from syncmcp.auth.steps import HttpRequest, HttpResponse, json_members
from syncmcp.errors import AuthError, RegistrationFailed, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata

if TYPE_CHECKING:
    import requests
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    from syncmcp.auth.store import TokenStore
    from syncmcp.auth.tokens import Login

# The algorithms of each key type or curve, the default first.
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    # Two names of the same algorithm; the second is the newer one (RFC 9864).
    "Ed25519": ("EdDSA", "Ed25519"),
    "RSA": ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512"),
}

_RSA_BITS: Final = 2048


class SigningKey:
    """A private key for signatures.

    The `repr` shows no secret. The methods may be called from any thread.

    Args:
        key: The key in unencrypted PEM, as `str` or `bytes`; the path of a PEM file; or a JSON Web
            Key as a mapping. The type is EC (P-256, P-384, P-521), Ed25519, or RSA with at least
            2,048 bits.
        algorithm: The signature algorithm; by default the first that the key supports and the
            server accepts.
        key_id: The ``kid`` by which the server distinguishes the keys of the client.

    Raises:
        UsageError: The key is not such a private key, or does not support `algorithm`; or the extra
            ``oauth`` is not installed.
    """

    def __init__(
        self,
        key: str | bytes | Path | Mapping[str, Any],
        algorithm: str | None = None,
        *,
        key_id: str | None = None,
    ) -> None:
        require_joserfc()
        self._key = _load_key(key)
        self._algorithms = _ALGORITHMS[_key_type(self._key)]
        if algorithm is not None:
            if algorithm not in self._algorithms:
                raise UsageError(
                    f"this key signs with {' or '.join(self._algorithms)}, not {algorithm[:40]!r}"
                )
            self._algorithms = (algorithm,)
        self._key_id = key_id

    @classmethod
    def generate(cls, algorithm: str = "ES256") -> SigningKey:
        """Generate a key for an algorithm.

        Raises:
            UsageError: The algorithm is unknown, or the extra ``oauth`` is not installed.
        """
        require_joserfc()
        from joserfc import jwk

        kind = next((kind for kind, able in _ALGORITHMS.items() if algorithm in able), None)
        if kind is None:
            raise UsageError(f"there are no keys for the algorithm {algorithm[:40]!r}")
        family: Any = {"RSA": "RSA", "Ed25519": "OKP"}.get(kind, "EC")
        size: Any = _RSA_BITS if kind == "RSA" else kind
        made = jwk.generate_key(family, size)
        return cls(dict(made.as_dict(private=True)), algorithm)

    @property
    def public(self) -> dict[str, Any]:
        """The public key, as a JSON Web Key."""
        return dict(self._key.as_dict(private=False))

    def choose(self, accepted: Collection[str] | None) -> str | None:
        """Choose the algorithm to sign with, of those that the server accepts.

        Args:
            accepted: The algorithms that the server accepts; `None` if they are unknown.

        Returns:
            The algorithm, or `None` if the key supports no accepted algorithm.
        """
        return next((one for one in self._algorithms if accepted is None or one in accepted), None)

    def sign(self, claims: Mapping[str, Any], algorithm: str, **header: Any) -> str:
        """Return a signed JSON Web Token.

        Args:
            claims: The claims.
            algorithm: The algorithm that `choose` returned.
            header: Further header parameters.
        """
        from joserfc import jwt
        from joserfc.jws import JWSRegistry

        class Chosen(JWSRegistry):
            """Accepts any algorithm: joserfc warns of the older names of some."""

            def get_alg(self, name: str) -> Any:
                return self.algorithms[name]

        named = header if self._key_id is None else {**header, "kid": self._key_id}
        return jwt.encode({**named, "alg": algorithm}, dict(claims), self._key, registry=Chosen())

    def to_json(self) -> dict[str, Any]:
        """Return the key as a JSON Web Key with its private half, for a store of secrets."""
        return dict(self._key.as_dict(private=True))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {' or '.join(self._algorithms)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a private key cannot be pickled: create it again in the other process")


def require_joserfc() -> None:
    """Raise `UsageError` if the package for signatures is not installed."""
    try:
        import_module("joserfc.jwk")
    except ImportError as error:
        raise UsageError(
            "signing needs packages that are not installed: install syncmcp-client[oauth]"
        ) from error


def _load_key(given: str | bytes | Path | Mapping[str, Any]) -> ECKey | OKPKey | RSAKey:
    from joserfc import jwk
    from joserfc.errors import JoseError

    found: Any = None
    try:
        if isinstance(given, Mapping):
            found = jwk.import_key(dict(given))
        else:
            pem = given.read_bytes() if isinstance(given, Path) else given
            found = jwk.import_key(pem, _pem_kind(pem))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    except (JoseError, ValueError, TypeError, KeyError):
        # Their messages may quote the key, and so may those of their causes.
        found = None
    if not isinstance(found, (jwk.ECKey, jwk.OKPKey, jwk.RSAKey)) or not found.is_private:
        raise UsageError(
            "a private key must be an EC, Ed25519 or RSA key: pass unencrypted PEM, the Path"
            " of such a file, or a JSON Web Key"
        )
    return found


def _pem_kind(pem: str | bytes) -> Any:
    """Return the type of the private key in a PEM text, as a JSON Web Key names it."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem.encode() if isinstance(pem, str) else pem, None)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return "EC"
    return "RSA" if isinstance(key, rsa.RSAPrivateKey) else "OKP"


def _key_type(key: ECKey | OKPKey | RSAKey) -> str:
    from joserfc.jwk import RSAKey

    if isinstance(key, RSAKey):
        if key.raw_value.key_size < _RSA_BITS:
            raise UsageError(f"an RSA key must have at least {_RSA_BITS} bits")
        return "RSA"
    curve = str(key.curve_name)
    if curve not in _ALGORITHMS:
        raise UsageError(f"keys on the curve {curve[:40]!r} are not supported")
    return curve


# The lifetime of a client assertion in seconds: servers accept a minute or more, and each assertion
# is for one request, sent at once.
_LIFE: Final = 60


class PrivateKeyJwt:
    """Authenticates a client by a signed assertion (``private_key_jwt``, RFC 7523 §2.2, §3).

    Pass it as ``assertion=`` of `OAuth` or of one of the other grants. Each request gets a new
    assertion. The object may be called from any thread.

    Args:
        client_id: The client id, or the URL of the client's metadata document.
        key: The client's private key; see `SigningKey`.
        algorithm: The signature algorithm; by default the first that both the key and the
            authorization server support.
        audience: The ``aud`` claim, for authorization servers that expect another one than their
            issuer, such as their token endpoint. Pass `issuer` to `OAuth` or the grant as well.
            Otherwise another server that gets such an assertion could use it at the audience.
        key_id: The ``kid`` by which the server distinguishes the keys of the client.

    Raises:
        UsageError: The key is invalid, or the extra ``oauth`` is not installed.
    """

    def __init__(
        self,
        client_id: str,
        key: SigningKey | str | bytes | Path | Mapping[str, Any],
        algorithm: str | None = None,
        *,
        audience: str | None = None,
        key_id: str | None = None,
    ) -> None:
        self._client_id = client_id
        given = key if isinstance(key, SigningKey) else SigningKey(key, algorithm, key_id=key_id)
        self._key = given
        self.audience = audience

    def __call__(self, server: AuthorizationServerMetadata) -> str:
        """Return an assertion for one request to an authorization server.

        Args:
            server: The metadata of the authorization server.

        Raises:
            RegistrationFailed: The authorization server accepts no algorithm that the key supports.
        """
        accepted = server.token_endpoint_auth_signing_alg_values_supported
        algorithm = self._key.choose(accepted)
        if algorithm is None:
            raise RegistrationFailed(
                f"{named(server)} accepts signatures with"
                f" {steps.printable(', '.join(accepted or ()), 'nothing')}, which this key cannot"
                " make"
            )
        now = int(time.time())
        claims = {
            "iss": self._client_id,
            "sub": self._client_id,
            "aud": self.audience or server.issuer,
            "iat": now,
            "exp": now + _LIFE,
            "jti": secrets.token_urlsafe(16),
        }
        return self._key.sign(claims, algorithm)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client_id!r}>"


_USE_NONCE: Final = "use_dpop_nonce"

# The algorithms for generated keys; the first that the authorization server accepts is used.
_PREFERRED: Final = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256", "ES384", "ES512")

# How long to wait for another process that generates and stores a key, in seconds.
_TURN_SECONDS: Final = 30.0

# Longer nonces are ignored: each request would have to contain them.
_LONGEST_NONCE: Final = 1024


class DPoPProver:
    """Binds tokens to a key by DPoP proofs (RFC 9449). Methods may be called from any thread.

    A proof shows that the sender of a token has the key that the token was issued for. This is
    `key`, or a key that is generated and stored, so that all processes use the same key. `name`
    returns the MCP server and the client of the stored key.

    Raises `UsageError` if the extra ``oauth`` is not installed.
    """

    def __init__(
        self, store: TokenStore, name: Callable[[], str], key: SigningKey | None = None
    ) -> None:
        require_joserfc()
        self._store = store
        self._name = name
        self._given_key = key
        # Guards the fields below; never held during I/O.
        self._lock = threading.RLock()
        self._keys: dict[str, SigningKey] = {}
        self._nonces: dict[Origin, str] = {}

    def bind_token_request(self, request: HttpRequest) -> HttpRequest:
        """Return the request to a token endpoint with a proof added (RFC 9449 §5)."""
        proof = self._proof(request.method, request.url, request.algorithms)
        return replace(request, headers={**request.headers, "DPoP": proof})

    def token_request_needs_nonce(self, request: HttpRequest, answer: HttpResponse) -> bool:
        """Remember the nonce of a response; return whether the request failed without it."""
        noted = self._remember_nonce(request.url, answer.headers.get("dpop-nonce"))
        return (
            noted
            and answer.status in (400, 401)
            and json_members(answer).get("error") == _USE_NONCE
        )

    def bind_request(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put the token and a proof into a request to the MCP server (RFC 9449 §7.1).

        Raises:
            AuthError: The store fails, or the server accepts no algorithm that the key supports.
        """
        token = login.token.access_token
        digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest())
        request.headers["Authorization"] = f"DPoP {token}"
        request.headers["DPoP"] = self._proof(
            request.method or "",
            request.url or "",
            login.server.dpop_signing_alg_values_supported,
            ath=digest.rstrip(b"=").decode(),
        )

    def needs_nonce(self, response: requests.Response) -> bool:
        """Remember the nonce of a response; return whether the request failed without it."""
        noted = self._remember_nonce(response.request.url or "", response.headers.get("DPoP-Nonce"))
        if not noted or response.status_code != 401:
            return False
        found = steps.auth_challenge(response.headers.get("WWW-Authenticate"))
        return found is not None and found.error == _USE_NONCE

    def _remember_nonce(self, url: str, nonce: str | None) -> bool:
        """Store a nonce for the next proofs (RFC 9449 §8.2); return whether there is one."""
        if not nonce or len(nonce) > _LONGEST_NONCE:
            return False
        with self._lock:
            self._nonces[origin_of(url)] = nonce
        return True

    def _proof(self, method: str, url: str, accepted: Collection[str] | None, **claims: str) -> str:
        """A proof for one request (RFC 9449 §4.2)."""
        key, algorithm = self._key_for(accepted)
        with self._lock:
            nonce = self._nonces.get(origin_of(url))
        if nonce is not None:
            claims["nonce"] = nonce
        payload = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit(split_url(url)._replace(query="", fragment="")),
            "iat": int(time.time()),
            **claims,
        }
        return key.sign(payload, algorithm, typ="dpop+jwt", jwk=key.public)

    def _key_for(self, accepted: Collection[str] | None) -> tuple[SigningKey, str]:
        given = self._given_key
        if given is None:
            usable = (one for one in _PREFERRED if accepted is None or one in accepted)
            algorithm = next(usable, None)
        else:
            algorithm = given.choose(accepted)
        if algorithm is None:
            raise AuthError(
                "the authorization server accepts DPoP proofs signed with"
                f" {steps.printable(', '.join(accepted or ()), 'nothing')}, which this key cannot"
                " make"
            )
        if given is not None:
            return given, algorithm
        with self._lock:
            key = self._keys.get(algorithm)
        if key is None:
            key = self._stored_key(algorithm)
            with self._lock:
                key = self._keys.setdefault(algorithm, key)
        return key, algorithm

    def _stored_key(self, algorithm: str) -> SigningKey:
        """The stored key for an algorithm, generated if there is none."""
        name = f"dpop {algorithm} {self._name()}"
        with self._store.lock(name, Deadline(_TURN_SECONDS)):
            value = self._store.load(name)
            if value is not None:
                return SigningKey(value, algorithm)
            key = SigningKey.generate(algorithm)
            self._store.save(name, key.to_json())
            return key
