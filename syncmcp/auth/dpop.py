"""Proofs that whoever uses a token has the key that it was issued to (DPoP, RFC 9449).

Needs the extra ``oauth``: ``pip install "syncmcp-client[oauth]"``.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from syncmcp._concurrency.timing import Deadline
from syncmcp.auth import steps
from syncmcp.auth.discovery import Origin, origin_of
from syncmcp.auth.signing import SigningKey, require
from syncmcp.auth.steps import members
from syncmcp.errors import AuthError

if TYPE_CHECKING:
    import requests

    from syncmcp.auth.steps import Fetch, Fetched
    from syncmcp.auth.store import TokenStore
    from syncmcp.auth.tokens import Login

__all__ = ["Binder", "Proofs"]


_USE_NONCE: Final = "use_dpop_nonce"

# What a key of ours may be made for, the first that the authorization server takes.
_PREFERRED: Final = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256", "ES384", "ES512")

# How long another process may take to make and store a key, in seconds.
_TURN_SECONDS: Final = 30.0

# Nonces are short; what is longer is not to be kept, or carried in each request.
_LONGEST_NONCE: Final = 1024


class Proofs:
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
        require()
        self._store = store
        self._name = name
        self._given = key
        # Guards what follows; never held while anything is waited for.
        self._lock = threading.RLock()
        self._keys: dict[str, SigningKey] = {}
        self._nonces: dict[Origin, str] = {}

    def bind_token_request(self, request: Fetch) -> Fetch:
        """Return a request to a token endpoint with a proof (RFC 9449 §5).

        Raises:
            AuthError: The server takes no algorithm that the key is made for.
        """
        proof = self._proof(request.method, request.url, request.algorithms)
        return replace(request, headers={**request.headers, "DPoP": proof})

    def token_nonce(self, request: Fetch, answer: Fetched) -> bool:
        """Note the nonce in an answer; return whether the request failed for want of it."""
        noted = self._note(request.url, answer.headers.get("dpop-nonce"))
        return noted and answer.status in (400, 401) and members(answer).get("error") == _USE_NONCE

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

    def nonce(self, response: requests.Response) -> bool:
        """Note the nonce in a response; return whether the request failed for want of it."""
        noted = self._note(response.request.url or "", response.headers.get("DPoP-Nonce"))
        if not noted or response.status_code != 401:
            return False
        found = steps.demand(response.headers.get("WWW-Authenticate"))
        return found is not None and found.error == _USE_NONCE

    def _note(self, url: str, nonce: str | None) -> bool:
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
        if self._given is not None:
            algorithm = self._given.choose(accepted)
            if algorithm is None:
                raise _useless(accepted)
            return self._given, algorithm
        usable = (one for one in _PREFERRED if accepted is None or one in accepted)
        algorithm = next(usable, None)
        if algorithm is None:
            raise _useless(accepted)
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


def _useless(accepted: Collection[str] | None) -> AuthError:
    return AuthError(
        "the authorization server takes proofs of possession signed with"
        f" {', '.join(accepted or ())[:200] or 'nothing'}, which our key cannot make"
    )


# What ties tokens to a key of the client: a seam for proofs of possession (RFC 9449).


class Binder(Protocol):
    """Adds proofs to token requests and to requests with a token. Used from any thread."""

    def bind_token_request(self, request: Fetch) -> Fetch:
        """Return the request to a token endpoint with a fresh proof."""
        ...

    def token_nonce(self, request: Fetch, answer: Fetched) -> bool:
        """Look at each answer; return whether the request needs a new proof for its nonce."""
        ...

    def bind_request(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put a token and a fresh proof into the headers of a request to the MCP server."""
        ...

    def nonce(self, response: requests.Response) -> bool:
        """Look at each response; return whether the request needs a new proof for its nonce."""
        ...
