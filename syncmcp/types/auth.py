"""Metadata that sign-in is guided by (basic/authorization); URLs stay the strings they were.

They are compared letter by letter, so nothing may normalise them. Members have the names that the
RFCs give them; those that nobody here needs are kept, too.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import ConfigDict

from syncmcp.types.base import Flag, Hint, WireModel

Words: TypeAlias = Annotated[list[str] | None, Hint]
"""A list of what is supported; a malformed one reads as absent."""

Address: TypeAlias = Annotated[str | None, Hint]
"""A URL that is optional; a malformed one reads as absent."""


class AuthModel(WireModel):
    """Base of the metadata documents of OAuth, whose names are snake_case on the wire, too."""

    model_config = ConfigDict(alias_generator=None)


class ProtectedResourceMetadata(AuthModel):
    """What an MCP server says about itself (RFC 9728 §2).

    Attributes:
        resource: The identifier of the resource.
        authorization_servers: The issuers whose tokens it takes.
        scopes_supported: The scopes that matter to it.
        resource_name: What to call it before people.
    """

    resource: str
    authorization_servers: Words = None
    scopes_supported: Words = None
    resource_name: Annotated[str | None, Hint] = None


class AuthorizationServerMetadata(AuthModel):
    """What an authorization server says about itself (RFC 8414 §2, OpenID Connect Discovery §3).

    Attributes:
        issuer: Its identifier.
        authorization_endpoint: Where people are sent.
        token_endpoint: Where tokens come from.
        registration_endpoint: Where clients register (RFC 7591).
        revocation_endpoint: Where tokens are given back (RFC 7009).
        code_challenge_methods_supported: What it knows of PKCE; absent: nothing.
        client_id_metadata_document_supported: Whether a client id may be the URL of a document.
        authorization_response_iss_parameter_supported: Whether redirects name it (RFC 9207).
    """

    issuer: str
    authorization_endpoint: Address = None
    token_endpoint: Address = None
    registration_endpoint: Address = None
    revocation_endpoint: Address = None
    scopes_supported: Words = None
    response_types_supported: Words = None
    grant_types_supported: Words = None
    code_challenge_methods_supported: Words = None
    token_endpoint_auth_methods_supported: Words = None
    token_endpoint_auth_signing_alg_values_supported: Words = None
    dpop_signing_alg_values_supported: Words = None
    authorization_grant_profiles_supported: Words = None
    client_id_metadata_document_supported: Annotated[Flag, Hint] = False
    authorization_response_iss_parameter_supported: Annotated[Flag, Hint] = False
