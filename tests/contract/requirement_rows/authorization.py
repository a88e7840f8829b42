"""Signing in over HTTP: discovery, registration, the flow, tokens, scopes, grants."""

# fmt: off
from __future__ import annotations

from .row import (
    EXT_AUTH,
    EXTENSION,
    FROM_2503,
    FROM_2506,
    FROM_2511,
    ONLY_2503,
    S26,
    S2503,
    STATELESS,
    Row,
)

AUTH = f"{S26}/basic/authorization/index"
FIND = f"{S26}/basic/authorization/authorization-server-discovery"
REGISTER = f"{S26}/basic/authorization/client-registration"
SECURITY = f"{S26}/basic/authorization/security-considerations"
OLD = f"{S2503}/basic/authorization"

DISCOVERY = (
    Row("AUD-01", "MUST", FROM_2506, f"{AUTH}#overview",
        "The resource's own metadata says where to sign in."),
    Row("AUD-02", "MUST", FROM_2506, f"{FIND}#protected-resource-metadata-discovery-requirements",
        "A 401 starts the sign-in, guided by its challenge header."),
    Row("AUD-03", "MUST", FROM_2511, f"{FIND}#protected-resource-metadata-discovery-requirements",
        "Resource metadata: the challenge's address, then the path's well-known, then the root's."),
    Row("AUD-04", "MUST", FROM_2511, f"{AUTH}#overview",
        "Both OAuth and OpenID Connect metadata documents are understood."),
    Row("AUD-05", "MUST", FROM_2511, f"{FIND}#authorization-server-metadata-discovery",
        "An issuer with a path has three metadata addresses, tried in order."),
    Row("AUD-06", "MUST", FROM_2511, f"{FIND}#authorization-server-metadata-discovery",
        "An issuer without a path has two metadata addresses, tried in order."),
    Row("AUD-07", "MUST", STATELESS, f"{FIND}#authorization-server-metadata-discovery",
        "Metadata that names another issuer is discarded."),
    Row("AUD-08", "MUST", ONLY_2503, f"{OLD}#fallbacks-for-servers-without-metadata-discovery",
        "Old servers: metadata at the origin's root, else three default paths."),
    Row("AUD-09", "SHOULD", ONLY_2503, f"{OLD}#server-metadata-discovery-headers",
        "Old servers: looking for metadata names the revision in a header."),
    Row("AUD-10", "MUST", STATELESS, f"{FIND}#authorization-server-location",
        "Registrations and tokens are stored per authorization server."),
    Row("AUD-11", "MUST NOT", STATELESS, f"{FIND}#authorization-server-location",
        "Credentials of one authorization server are not tried at another."),
    Row("AUD-12", "MUST", FROM_2506, "conformance scenario auth/resource-mismatch",
        "Resource metadata about another server than ours is refused."),
)

REGISTRATION = (
    Row("REG-01", "MUST", STATELESS, f"{AUTH}#client-registration",
        "There is a client id before the browser opens."),
    Row("REG-02", "SHOULD", FROM_2511, REGISTER,
        "Client id: configured, else metadata document, else registration, else the user."),
    Row("REG-03", "MUST", FROM_2511, f"{REGISTER}#implementation-requirements",
        "A client id document is an https URL that names itself."),
    Row("REG-04", "MUST", STATELESS,
        f"{REGISTER}#application-type-and-redirect-uri-constraints",
        "Registration says what type of application we are."),
    Row("REG-05", "MUST", STATELESS,
        f"{REGISTER}#application-type-and-redirect-uri-constraints",
        "A refused redirect address is a helpful error."),
    Row("REG-06", "MUST", STATELESS, f"{REGISTER}#authorization-server-binding",
        "A registration remembers the issuer that made it."),
    Row("REG-07", "MUST NOT", STATELESS, f"{REGISTER}#authorization-server-binding",
        "A changed issuer causes a new registration."),
    Row("REG-08", "SHOULD", STATELESS, f"{REGISTER}#authorization-server-binding",
        "A given id that belongs to another issuer is an error."),
    Row("REG-09", "MUST", FROM_2506, f"{SECURITY}#open-redirection",
        "The redirect address in use is one that was registered."),
    Row("REG-10", "MUST", FROM_2503, f"{SECURITY}#communication-security",
        "Redirects go to this machine or to https."),
    Row("REG-11", "SHOULD", FROM_2511, f"{REGISTER}#pre-registration",
        "A client id and secret can be given by the user."),
)

FLOW = (
    Row("FLW-01", "MUST", FROM_2503, f"{SECURITY}#authorization-code-protection",
        "Every code flow uses PKCE."),
    Row("FLW-02", "MUST", FROM_2511, f"{SECURITY}#authorization-code-protection",
        "The PKCE challenge is hashed with SHA-256."),
    Row("FLW-03", "MUST", FROM_2511, f"{SECURITY}#authorization-code-protection",
        "A server whose metadata does not offer PKCE is refused."),
    Row("FLW-04", "MUST", FROM_2506, f"{AUTH}#resource-parameter-implementation",
        "Authorization and token requests both name the resource."),
    Row("FLW-05", "MUST", FROM_2506, f"{AUTH}#canonical-server-uri",
        "The `resource` is the canonical URL of the MCP server."),
    Row("FLW-06", "MUST", STATELESS, f"{AUTH}#authorization-response-validation",
        "Before the redirect, issuer, state and verifier are stored together."),
    Row("FLW-07", "MUST", STATELESS, f"{AUTH}#authorization-response-validation",
        "The redirect's issuer is checked in all four cases before the code."),
    Row("FLW-08", "MUST NOT", STATELESS, f"{AUTH}#authorization-response-validation",
        "Issuers are compared letter by letter."),
    Row("FLW-09", "MUST NOT", STATELESS, f"{AUTH}#authorization-response-validation",
        "Errors in a redirect from the wrong issuer are ignored."),
    Row("FLW-10", "SHOULD", FROM_2506, f"{SECURITY}#open-redirection",
        "A redirect without our state is dropped."),
)

TOKENS = (
    Row("TOK-01", "MUST", FROM_2503, f"{AUTH}#token-requirements",
        "Each request carries the token in its header."),
    Row("TOK-02", "MUST NOT", FROM_2503, f"{AUTH}#token-requirements",
        "A token is never part of a URL."),
    Row("TOK-03", "MUST NOT", FROM_2506, f"{AUTH}#token-handling",
        "A server gets only tokens that its own authorization server issued."),
    Row("TOK-04", "MUST", FROM_2503, f"{SECURITY}#token-theft",
        "Only their owner can read stored tokens, in any form."),
    Row("TOK-05", "MUST", STATELESS, f"{AUTH}#refresh-tokens",
        "Refresh tokens are sent encrypted and stored like passwords."),
    Row("TOK-06", "MUST NOT", STATELESS, f"{AUTH}#refresh-tokens",
        "A login without a refresh token works until it expires."),
    Row("TOK-07", "SHOULD", STATELESS, f"{AUTH}#refresh-tokens",
        "Registration asks for the refresh grant."),
    Row("TOK-08", "MUST", STATELESS, "conformance scenario auth/offline-access-not-supported",
        "Offline access is asked for only where the server lists it."),
    Row("SCO-01", "SHOULD", FROM_2511, f"{AUTH}#scope-selection-strategy",
        "Scopes come from the challenge, else the metadata, else none."),
    Row("SCO-02", "MUST NOT", FROM_2511, f"{AUTH}#scope-selection-strategy",
        "Scopes of a challenge need not appear in the metadata."),
    Row("SCO-03", "MUST", FROM_2511, f"{AUTH}#scope-selection-strategy",
        "The scopes of a challenge are what the request needs."),
    Row("SCO-04", "SHOULD", FROM_2511, f"{AUTH}#step-up-authorization-flow",
        "Insufficient scope causes a sign-in for old and new scopes together."),
    Row("SCO-05", "SHOULD", FROM_2511, f"{AUTH}#step-up-authorization-flow",
        "Sign-ins for more scope are counted and limited."),
)

PRACTICE = (
    Row("ASC-01", "MUST", FROM_2503, SECURITY,
        "The flow keeps to the security rules of OAuth 2.1."),
    Row("ASC-02", "MUST", FROM_2503, f"{SECURITY}#communication-security",
        "Endpoints of an authorization server are https."),
    Row("ASC-03", "MUST", FROM_2503, f"{AUTH}#protocol-requirements",
        "A caller's own transport brings its own way to authenticate."),
)

MANAGED = f"{EXT_AUTH}/stable/enterprise-managed-authorization"
PROOF = f"{EXT_AUTH}/draft/dpop-extension"

GRANTS = (
    Row("AXT-01", "MUST", EXTENSION,
        f"{EXT_AUTH}/draft/oauth-client-credentials#client-authentication-methods",
        "Without a person, the client proves itself by secret or signed assertion."),
    Row("AXT-02", "MUST", EXTENSION, f"{MANAGED}#4-token-exchange",
        "An exchanged assertion names the authorization server and the MCP server."),
    Row("AXT-03", "MUST", EXTENSION,
        f"{MANAGED}#73-transport-security-and-endpoint-authentication",
        "Enterprise endpoints are https with their certificates checked."),
    Row("AXT-04", "MUST NOT", EXTENSION, f"{MANAGED}#742-stolen-assertions-and-replay",
        "Assertions and tokens appear in no URL and no log."),
    Row("AXT-05", "MUST", EXTENSION, f"{MANAGED}#77-token-exchange-security",
        "The exchange authenticates the client, and a returned state is checked."),
    Row("AXT-06", "MUST", EXTENSION,
        f"{MANAGED}#751-client-authentication-and-credential-protection",
        "Enterprise secrets are stored safely; none is shipped with the library."),
    Row("AXT-07", "MUST", EXTENSION,
        f"{EXT_AUTH}/draft/workload-identity-federation#flow-steps",
        "A workload exchanges its signed identity for a token for the resource."),
    Row("AXT-08", "MUST", EXTENSION, f"{PROOF}#access-token-presentation",
        "Each request with a bound token has a new proof."),
    Row("AXT-09", "MUST", EXTENSION, "conformance scenario auth/dpop-nonce",
        "The token request has a proof, too; nonces are used everywhere."),
)

ROWS = DISCOVERY + REGISTRATION + FLOW + TOKENS + PRACTICE + GRANTS
