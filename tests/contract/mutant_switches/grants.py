"""Mutants of the grants without a person, and of proofs of possession."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, effects

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

ENTERPRISE = "syncmcp.auth.grants:EnterpriseManaged"
MACHINE = "syncmcp.auth.grants:MachineAuth"
PROOFS = "syncmcp.auth.signing:DPoPProver"
SIGNING = "syncmcp.auth.signing:SigningKey"


def _sign_for_nobody(original: Function) -> Function:
    def sign(self: Any, claims: Any, algorithm: str, **header: Any) -> Any:
        return original(self, {**claims, "aud": "somebody"}, algorithm, **header)

    return sign


def _leave_out(name: str) -> Any:
    """Leave a field out of each form."""

    def edit(request: Any) -> list[Any]:
        if request.body is None:
            return [request]
        fields = request.body.decode().split("&")
        kept = "&".join(field for field in fields if not field.startswith(f"{name}="))
        return [replace(request, body=kept.encode())]

    return effects(edit)


def _prove_nothing(request: Any) -> list[Any]:
    headers = {name: one for name, one in request.headers.items() if name != "Authorization"}
    body = request.body and request.body.replace(b"client_assertion=", b"nothing=")
    return [replace(request, headers=headers, body=body)]


def _say_it_in_the_url(request: Any) -> list[Any]:
    return [replace(request, url=f"{request.url}?{request.body.decode()}")]


def _show_the_key(original: Function) -> Function:
    return lambda self: f"<SigningKey {self.to_json()}>"


def _as_bearer(original: Function) -> Function:
    def bind(self: Any, request: Any, login: Any) -> None:
        original(self, request, login)
        request.headers["Authorization"] = f"Bearer {login.token.access_token}"

    return bind


def _same_proof(original: Function) -> Function:
    def proof(self: Any, method: str, url: str, accepted: Any, **claims: str) -> Any:
        made = self.__dict__.setdefault("made", {})
        return made.setdefault((method, url), original(self, method, url, accepted, **claims))

    return proof


def _nobody_pickles(original: Function) -> Function:
    return lambda self: (str, ("a copy",))


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "statements-for-nobody",
        "A client's signed statement is not made out to the issuer.",
        f"{SIGNING}.sign",
        _sign_for_nobody,
        ("AXT-01",),
    ),
    Mutant(
        "exchange-without-audience",
        "The exchange at an identity provider does not say who the statement is for.",
        f"{ENTERPRISE}._exchange_id_token",
        _leave_out("audience"),
        ("AXT-02",),
    ),
    Mutant(
        "plain-identity-provider",
        "An identity provider may be at a plain http address.",
        "syncmcp.auth.grants:_provider_url",
        lambda original: lambda issuer, endpoint: issuer or endpoint or "http://127.0.0.1",
        ("AXT-03",),
    ),
    Mutant(
        "statement-in-the-url",
        "What a token is traded for goes into the address, too.",
        f"{MACHINE}._request_token",
        effects(_say_it_in_the_url),
        ("AXT-04",),
    ),
    Mutant(
        "exchange-by-anybody",
        "The client does not prove itself at the identity provider.",
        f"{ENTERPRISE}._exchange_id_token",
        effects(_prove_nothing),
        ("AXT-05",),
    ),
    Mutant(
        "credentials-are-pickled",
        "Objects with secrets are pickled.",
        f"{MACHINE}.__reduce__",
        _nobody_pickles,
        ("AXT-06",),
    ),
    Mutant(
        "workload-without-resource",
        "The request for a workload's token does not name the server it is for.",
        f"{MACHINE}._request_token",
        _leave_out("resource"),
        ("AXT-07",),
    ),
    Mutant(
        "bound-token-as-bearer",
        "A bound token is sent as if it were a bearer's.",
        f"{PROOFS}.bind_request",
        _as_bearer,
        ("AXT-08",),
    ),
    Mutant(
        "one-proof-for-all",
        "A proof is sent again with the next request.",
        f"{PROOFS}._proof",
        _same_proof,
        ("AXT-08",),
    ),
    Mutant(
        "key-in-its-repr",
        "A private key shows itself.",
        f"{SIGNING}.__repr__",
        _show_the_key,
        ("AXT-08",),
    ),
    Mutant(
        "token-request-without-proof",
        "The request for a token has no proof.",
        f"{PROOFS}.bind_token_request",
        lambda original: lambda self, request: request,
        ("AXT-09",),
    ),
    Mutant(
        "nonces-are-not-used",
        "A nonce that a server demands is dropped.",
        f"{PROOFS}._remember_nonce",
        always(False),
        ("AXT-09",),
    ),
)
