"""Judges proofs that whoever has a token also has the key it was issued to (RFC 9449 §4.3)."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import Any

import jwt

RECENT = 300.0


class NonceWanted(Exception):
    """The proof is good, but could have been made long ago."""


class Proofs:
    """Remembers every proof, since none is good twice.

    Attributes:
        nonce: What proofs have to hold.
        seen: The ids of the good ones.
    """

    def __init__(self) -> None:
        self.nonce = "the first nonce"
        self.seen: list[str] = []

    def judge(self, proof: str, method: str, url: str, token: str, thumbprint: str | None) -> None:
        """Lets a good proof pass.

        Raises:
            InvalidTokenError: It is not for this request, this token and this key.
            NonceWanted: It is, but has not the nonce.
        """
        header = jwt.get_unverified_header(proof)
        key = header["jwk"]
        said: dict[str, Any] = jwt.decode(
            proof,
            jwt.PyJWK(key, "ES256"),
            algorithms=["ES256"],
            options={"require": ["jti", "htm", "htu", "iat", "ath"]},
        )
        about = (header["typ"], said["htm"], said["htu"], said["ath"], _thumbprint(key))
        if about != ("dpop+jwt", method, url, _digest(token.encode()), thumbprint):
            raise jwt.InvalidTokenError(f"it is about {about}")
        if "d" in key or said["jti"] in self.seen or abs(time.time() - said["iat"]) > RECENT:
            raise jwt.InvalidTokenError("it cannot be trusted")
        if said.get("nonce") != self.nonce:
            raise NonceWanted
        self.seen.append(said["jti"])


def _thumbprint(key: dict[str, str]) -> str:
    """What a token says of its key (RFC 7638 §3)."""
    needed = {name: key[name] for name in ("crv", "kty", "x", "y")}
    return _digest(json.dumps(needed, sort_keys=True, separators=(",", ":")).encode())


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
