"""How a client proves itself at an authorization server's endpoints (OAuth 2.1 §2.4); no I/O."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias
from urllib.parse import quote, urlencode

from syncmcp.auth.steps import Fetch
from syncmcp.auth.token import AuthMethod, Registration
from syncmcp.errors import RegistrationFailed
from syncmcp.types.auth import AuthorizationServerMetadata

__all__ = ["ClientAssertion", "choose_method", "form_request", "token_request"]

ClientAssertion: TypeAlias = Callable[[AuthorizationServerMetadata], str]
"""Makes a signed statement of who the client is, for one authorization server (RFC 7523 §3)."""

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_SECRETS: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post")


def choose_method(
    server: AuthorizationServerMetadata, *, secret: bool, assertion: bool
) -> AuthMethod:
    """The method for a client that has a secret, can sign an assertion, or neither.

    Raises:
        RegistrationFailed: The server supports none that such a client can use.
    """
    # Without a list, RFC 8414 §2 says Basic; public clients exist at such servers all the same.
    listed = server.token_endpoint_auth_methods_supported
    able: tuple[AuthMethod, ...]
    able = ("private_key_jwt",) if assertion else _SECRETS if secret else ("none",)
    if listed is None:
        return able[0]
    for method in able:
        if method in listed:
            return method
    if not secret and not assertion:
        # Public clients need no method, and some servers forget to list that.
        return "none"
    raise RegistrationFailed(
        f"the authorization server {server.issuer[:200]!r} takes none of {', '.join(able)} at its"
        f" token endpoint, only {', '.join(listed)[:200]}"
    )


def token_request(
    server: AuthorizationServerMetadata,
    registration: Registration,
    fields: Mapping[str, str | None],
    assertion: ClientAssertion | None = None,
) -> Fetch:
    """A request to the token endpoint.

    Args:
        server: The authorization server.
        registration: Who asks.
        fields: What is asked for; those that are `None` are left out.
        assertion: Signs for a client that has a key.

    Raises:
        RegistrationFailed: The server has no token endpoint, or the client cannot prove itself.
    """
    if not server.token_endpoint:
        raise RegistrationFailed(
            f"the authorization server {server.issuer[:200]!r} has no token endpoint"
        )
    request = form_request(server.token_endpoint, server, registration, fields, assertion=assertion)
    algorithms = server.dpop_signing_alg_values_supported
    return replace(
        request,
        token=True,
        algorithms=None if algorithms is None else tuple(algorithms),
        # A signed statement is accepted once.
        renew=assertion and partial(token_request, server, registration, fields, assertion),
    )


def form_request(
    url: str,
    server: AuthorizationServerMetadata,
    registration: Registration,
    fields: Mapping[str, str | None],
    *,
    assertion: ClientAssertion | None = None,
) -> Fetch:
    """A form posted to an endpoint where clients prove themselves.

    Raises:
        RegistrationFailed: The client cannot prove itself there.
    """
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    form = {name: value for name, value in fields.items() if value is not None}
    secret = registration.client_secret
    method = registration.auth_method or choose_method(
        server, secret=secret is not None, assertion=assertion is not None
    )
    if method == "none":
        if registration.client_id:
            form["client_id"] = registration.client_id
    elif method == "private_key_jwt" and assertion is not None:
        form["client_assertion_type"] = _ASSERTION_TYPE
        form["client_assertion"] = assertion(server)
    elif method == "client_secret_post" and secret is not None:
        form["client_id"] = registration.client_id
        form["client_secret"] = secret
    elif method == "client_secret_basic" and secret is not None:
        # Both are encoded first, so that a colon in the id is told from the separator (RFC 6749
        # §2.3.1); a blank so that servers understand it, too, who take a plus for a plus.
        pair = f"{quote(registration.client_id, safe='')}:{quote(secret, safe='')}"
        # Servers on the official Python SDK look up the client by what the body says.
        form["client_id"] = registration.client_id
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        raise RegistrationFailed(
            f"this client cannot prove itself by {method[:40]!r} at the authorization server"
            f" {server.issuer[:200]!r}"
        )
    return Fetch("POST", url, headers, urlencode(form).encode())
