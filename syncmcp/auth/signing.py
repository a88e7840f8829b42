"""A private key, what it signs (RFC 7519), and clients that prove themselves so (RFC 7523).

Needs the extra ``oauth``: ``pip install "syncmcp-client[oauth]"``.
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
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from syncmcp._concurrency.timing import Deadline
from syncmcp.auth import steps
from syncmcp.auth.discovery import Origin, origin_of
from syncmcp.auth.steps import json_members
from syncmcp.errors import AuthError, RegistrationFailed, UsageError

if TYPE_CHECKING:
    import requests
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    from syncmcp.auth.steps import HttpRequest, HttpResponse
    from syncmcp.auth.store import TokenStore
    from syncmcp.auth.tokens import Login
    from syncmcp.types.extensions import AuthorizationServerMetadata

__all__ = ["Binder", "DPoPProver", "PrivateKeyJwt", "SigningKey", "require_joserfc"]


# By type of key, or its curve; the first is what is used where nobody asks for another.
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    # The second name is the newer one of the same (RFC 9864).
    "Ed25519": ("EdDSA", "Ed25519"),
    "RSA": ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512"),
}

_RSA_BITS: Final = 2048


class SigningKey:
    """A private key that signs, and never shows itself. Used from any thread.

    Args:
        key: The key in PEM, not encrypted, as `str` or `bytes`; the path of a file with that; or a
            JSON Web Key as a mapping.
        algorithm: What to sign with; by default the first that the key is made for and the server
            says it takes.
        key_id: How the server tells this key from others of the client.

    Raises:
        UsageError: It is no private key that can sign, or not in that way; or the packages of the
            extra are not installed.
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
        """Make a new key for an algorithm.

        Raises:
            UsageError: Nobody here knows the algorithm, or the packages of the extra are not
                installed.
        """
        require_joserfc()
        from joserfc import jwk

        kind = next((kind for kind, able in _ALGORITHMS.items() if algorithm in able), None)
        if kind is None:
            raise UsageError(f"there are no keys for the algorithm {algorithm[:40]!r}")
        made: ECKey | OKPKey | RSAKey
        if kind == "RSA":
            made = jwk.RSAKey.generate_key(_RSA_BITS)
        elif kind == "Ed25519":
            made = jwk.OKPKey.generate_key("Ed25519")
        else:
            made = jwk.ECKey.generate_key(kind)
        return cls(dict(made.as_dict(private=True)), algorithm)

    @property
    def public(self) -> dict[str, Any]:
        """The public half, as a JSON Web Key."""
        return dict(self._key.as_dict(private=False))

    def choose(self, accepted: Collection[str] | None) -> str | None:
        """What to sign with where these algorithms are accepted (`None`: nobody says).

        Returns:
            `None` if the key can do none of them.
        """
        return next((one for one in self._algorithms if accepted is None or one in accepted), None)

    def sign(self, claims: Mapping[str, Any], algorithm: str, **header: Any) -> str:
        """Return a signed JSON Web Token.

        Args:
            claims: What it says.
            algorithm: What `choose` returned.
            header: What its header says beside that.
        """
        from joserfc import jwt
        from joserfc.jws import JWSRegistry

        class Chosen(JWSRegistry):
            """Takes the algorithm that was chosen; joserfc warns of older names of some."""

            def get_alg(self, name: str) -> Any:
                return self.algorithms[name]

        named = header if self._key_id is None else {**header, "kid": self._key_id}
        return jwt.encode({**named, "alg": algorithm}, dict(claims), self._key, registry=Chosen())

    def to_json(self) -> dict[str, Any]:
        """The key as a JSON Web Key with its private half, for a store that keeps secrets."""
        return dict(self._key.as_dict(private=True))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {' or '.join(self._algorithms)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a private key is not pickled: make it again where it is needed")


def require_joserfc() -> None:
    """Make sure that what signs is installed.

    Raises:
        UsageError: It is not.
    """
    try:
        import_module("joserfc.jwk")
    except ImportError as error:
        raise UsageError(
            "signing needs packages that are not here: install syncmcp-client[oauth]"
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
        # What those say may quote the key, and so may what they were raised from.
        found = None
    if not isinstance(found, (jwk.ECKey, jwk.OKPKey, jwk.RSAKey)) or not found.is_private:
        raise UsageError(
            "a private key is EC, Ed25519 or RSA: as PEM that is not encrypted, the Path of a file"
            " with that, or a JSON Web Key"
        )
    return found


def _pem_kind(pem: str | bytes) -> Any:
    """The type of the private key in a PEM text, as a JSON Web Key names it."""
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
            raise UsageError(f"an RSA key has at least {_RSA_BITS} bits")
        return "RSA"
    curve = str(key.curve_name)
    if curve not in _ALGORITHMS:
        raise UsageError(f"a key on the curve {curve[:40]!r} cannot sign here")
    return curve


# Clients that prove who they are by a signature (RFC 7523 §2.2, §3).
#
# Needs the extra ``oauth``: ``pip install "syncmcp-client[oauth]"``.


# How long a statement is good for, in seconds: servers allow a minute or more, and it is made for
# one request that follows at once.
_LIFE: Final = 60


class PrivateKeyJwt:
    """Signs who the client is, anew for each request (``private_key_jwt``).

    Pass it as ``assertion=`` of `OAuth` or of one of the other grants. Used from any thread.

    Args:
        client_id: The client, or the address of its metadata document.
        key: Its private key; see `SigningKey`.
        algorithm: What to sign with; by default what the key and the server have in common.
        audience: Whom the statement is made for, instead of the issuer, for servers that want
            something else, such as their token endpoint.
        key_id: How the server tells this key from others of the client.

    Raises:
        UsageError: It is no key that can sign, or the packages of the extra are not installed.
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
        self._audience = audience

    def __call__(self, server: AuthorizationServerMetadata) -> str:
        """Return a statement for one request to an authorization server.

        Raises:
            RegistrationFailed: The server takes no algorithm that the key is made for.
        """
        accepted = server.token_endpoint_auth_signing_alg_values_supported
        algorithm = self._key.choose(accepted)
        if algorithm is None:
            raise RegistrationFailed(
                f"the authorization server {server.issuer[:200]!r} takes signatures with"
                f" {', '.join(accepted or ())[:200]}, which this key cannot make"
            )
        now = int(time.time())
        claims = {
            "iss": self._client_id,
            "sub": self._client_id,
            "aud": self._audience or server.issuer,
            "iat": now,
            "exp": now + _LIFE,
            "jti": secrets.token_urlsafe(16),
        }
        return self._key.sign(claims, algorithm)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client_id!r}>"


# Proofs that whoever uses a token has the key that it was issued to (DPoP, RFC 9449).
#
# Needs the extra ``oauth``: ``pip install "syncmcp-client[oauth]"``.


_USE_NONCE: Final = "use_dpop_nonce"

# What a key of ours may be made for, the first that the authorization server takes.
_PREFERRED: Final = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256", "ES384", "ES512")

# How long another process may take to make and store a key, in seconds.
_TURN_SECONDS: Final = 30.0

# Nonces are short; what is longer is not to be kept, or carried in each request.
_LONGEST_NONCE: Final = 1024


class DPoPProver:
    """Binds tokens to a key, which is kept in the store beside them. Used from any thread.

    Args:
        store: Where a key that is made here is kept, so that each process has the same.
        name: What the key is kept for: a server and a client there.
        key: The key to use instead.

    Raises:
        UsageError: The packages of the extra are not installed.
    """

    def __init__(
        self, store: TokenStore, name: Callable[[], str], key: SigningKey | None = None
    ) -> None:
        require_joserfc()
        self._store = store
        self._name = name
        self._given_key = key
        # Guards what follows; never held while anything is waited for.
        self._lock = threading.RLock()
        self._keys: dict[str, SigningKey] = {}
        self._nonces: dict[Origin, str] = {}

    def bind_token_request(self, request: HttpRequest) -> HttpRequest:
        """Return a request to a token endpoint with a proof (RFC 9449 §5).

        Raises:
            AuthError: The server takes no algorithm that the key is made for.
        """
        proof = self._proof(request.method, request.url, request.algorithms)
        return replace(request, headers={**request.headers, "DPoP": proof})

    def token_request_needs_nonce(self, request: HttpRequest, answer: HttpResponse) -> bool:
        """Note the nonce in an answer; return whether the request failed for want of it."""
        noted = self._remember_nonce(request.url, answer.headers.get("dpop-nonce"))
        return (
            noted
            and answer.status in (400, 401)
            and json_members(answer).get("error") == _USE_NONCE
        )

    def bind_request(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put the token and a proof into a request to the MCP server (RFC 9449 §7.1).

        Raises:
            AuthError: The key is gone, or the authorization server does not take it.
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
        """Note the nonce in a response; return whether the request failed for want of it."""
        noted = self._remember_nonce(response.request.url or "", response.headers.get("DPoP-Nonce"))
        if not noted or response.status_code != 401:
            return False
        found = steps.auth_challenge(response.headers.get("WWW-Authenticate"))
        return found is not None and found.error == _USE_NONCE

    def _remember_nonce(self, url: str, nonce: str | None) -> bool:
        """Whether there is a nonce, which is the one to use from now on (RFC 9449 §8.2)."""
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
        said = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit(urlsplit(url)._replace(query="", fragment="")),
            "iat": int(time.time()),
            **claims,
        }
        return key.sign(said, algorithm, typ="dpop+jwt", jwk=key.public)

    def _key_for(self, accepted: Collection[str] | None) -> tuple[SigningKey, str]:
        if self._given_key is not None:
            algorithm = self._given_key.choose(accepted)
            if algorithm is None:
                raise _no_algorithm(accepted)
            return self._given_key, algorithm
        usable = (one for one in _PREFERRED if accepted is None or one in accepted)
        algorithm = next(usable, None)
        if algorithm is None:
            raise _no_algorithm(accepted)
        with self._lock:
            key = self._keys.get(algorithm)
        if key is None:
            key = self._stored_key(algorithm)
            with self._lock:
                key = self._keys.setdefault(algorithm, key)
        return key, algorithm

    def _stored_key(self, algorithm: str) -> SigningKey:
        """The key for an algorithm, made if nobody has done so."""
        name = f"dpop {algorithm} {self._name()}"
        with self._store.lock(name, Deadline(_TURN_SECONDS)):
            value = self._store.load(name)
            if value is not None:
                return SigningKey(value, algorithm)
            key = SigningKey.generate(algorithm)
            self._store.save(name, key.to_json())
            return key


def _no_algorithm(accepted: Collection[str] | None) -> AuthError:
    return AuthError(
        "the authorization server takes proofs of possession signed with"
        f" {', '.join(accepted or ())[:200] or 'nothing'}, which our key cannot make"
    )


# What ties tokens to a key of the client: a seam for proofs of possession (RFC 9449).


class Binder(Protocol):
    """Adds proofs to token requests and to requests with a token. Used from any thread."""

    def bind_token_request(self, request: HttpRequest) -> HttpRequest:
        """Return the request to a token endpoint with a fresh proof."""
        ...

    def token_request_needs_nonce(self, request: HttpRequest, answer: HttpResponse) -> bool:
        """Look at each answer; return whether the request needs a new proof for its nonce."""
        ...

    def bind_request(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put a token and a fresh proof into the headers of a request to the MCP server."""
        ...

    def needs_nonce(self, response: requests.Response) -> bool:
        """Look at each response; return whether the request needs a new proof for its nonce."""
        ...
