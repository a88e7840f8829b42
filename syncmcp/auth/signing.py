"""A private key, what it signs (RFC 7519), and clients that prove themselves so (RFC 7523).

Needs the extra ``oauth``: ``pip install "syncmcp-client[oauth]"``.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from syncmcp.errors import RegistrationFailed, UsageError

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    from syncmcp.types.extensions import AuthorizationServerMetadata

__all__ = ["PrivateKeyJwt", "SigningKey", "require"]


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
        require()
        self._key = _read(key)
        self._able = _ALGORITHMS[_kind(self._key)]
        if algorithm is not None:
            if algorithm not in self._able:
                raise UsageError(
                    f"this key signs with {' or '.join(self._able)}, not {algorithm[:40]!r}"
                )
            self._able = (algorithm,)
        self._key_id = key_id

    @classmethod
    def generate(cls, algorithm: str = "ES256") -> SigningKey:
        """Make a new key for an algorithm.

        Raises:
            UsageError: Nobody here knows the algorithm, or the packages of the extra are not
                installed.
        """
        require()
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
        return next((one for one in self._able if accepted is None or one in accepted), None)

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
        return f"<{type(self).__name__} for {' or '.join(self._able)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a private key is not pickled: make it again where it is needed")


def require() -> None:
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


def _read(given: str | bytes | Path | Mapping[str, Any]) -> ECKey | OKPKey | RSAKey:
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


def _kind(key: ECKey | OKPKey | RSAKey) -> str:
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
