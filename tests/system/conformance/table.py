"""Which scenarios of the conformance suite are run, each on which wires."""

from __future__ import annotations

_STATELESS = ("2026-07-28",)
_BOTH = ("2025-11-25", *_STATELESS)
_THREE = ("2025-06-18", *_BOTH)

WIRES = {
    "initialize": ("2025-06-18", "2025-11-25"),
    "tools_call": _THREE,
    "sse-retry": ("2025-11-25",),
    "request-metadata": _STATELESS,
    "http-standard-headers": _STATELESS,
    "http-custom-headers": _STATELESS,
    "http-invalid-tool-headers": _STATELESS,
    "json-schema-ref-no-deref": _STATELESS,
    "json-schema-2020-12-preservation": _BOTH,
    "elicitation-sep1034-client-defaults": ("2025-11-25",),
    "sep-2322-client-request-state": _STATELESS,
    "sep-2640-client-no-prefetch": _STATELESS,
    "sep-2640-client-verify-digest": _STATELESS,
    "sep-2640-client-verify-size": _STATELESS,
    "sep-2640-client-verify-frontmatter": _STATELESS,
    "auth/2025-03-26-oauth-endpoint-fallback": ("2025-03-26",),
    "auth/2025-03-26-oauth-metadata-backcompat": ("2025-03-26",),
    "auth/authorization-server-migration": _STATELESS,
    "auth/basic-cimd": _BOTH,
    "auth/client-credentials-basic": _BOTH,
    "auth/client-credentials-jwt": _BOTH,
    "auth/dpop": _BOTH,
    "auth/dpop-nonce": _BOTH,
    "auth/enterprise-managed-authorization": _BOTH,
    "auth/iss-normalized": _STATELESS,
    "auth/iss-not-advertised": _STATELESS,
    "auth/iss-supported": _STATELESS,
    "auth/iss-supported-missing": _STATELESS,
    "auth/iss-unexpected": _STATELESS,
    "auth/iss-wrong-issuer": _STATELESS,
    "auth/metadata-default": _BOTH,
    "auth/metadata-issuer-mismatch": _STATELESS,
    "auth/metadata-var1": _BOTH,
    "auth/metadata-var2": _BOTH,
    "auth/metadata-var3": _BOTH,
    "auth/offline-access-not-supported": _STATELESS,
    "auth/offline-access-scope": _STATELESS,
    "auth/pre-registration": _BOTH,
    "auth/resource-mismatch": _STATELESS,
    "auth/scope-from-scopes-supported": _BOTH,
    "auth/scope-from-www-authenticate": _BOTH,
    "auth/scope-omitted-when-undefined": _BOTH,
    "auth/scope-retry-limit": _BOTH,
    "auth/scope-step-up": _BOTH,
    "auth/token-endpoint-auth-basic": _THREE,
    "auth/token-endpoint-auth-none": _THREE,
    "auth/token-endpoint-auth-post": _THREE,
    "auth/wif-jwt-bearer": _BOTH,
}

PAIRS = tuple((scenario, wire) for scenario, wires in WIRES.items() for wire in wires)

EXTENSIONS = frozenset(
    {
        "auth/client-credentials-basic",
        "auth/client-credentials-jwt",
        "auth/dpop",
        "auth/dpop-nonce",
        "auth/enterprise-managed-authorization",
        "auth/wif-jwt-bearer",
        "sep-2640-client-no-prefetch",
        "sep-2640-client-verify-digest",
        "sep-2640-client-verify-size",
        "sep-2640-client-verify-frontmatter",
    }
)
"""Scenarios that belong to no revision; the suite runs them with `--force` alone."""

REFUSING = {
    "auth/iss-normalized": "AuthError",
    "auth/iss-supported-missing": "AuthError",
    "auth/iss-unexpected": "AuthError",
    "auth/iss-wrong-issuer": "AuthError",
    "auth/metadata-issuer-mismatch": "DiscoveryFailed",
    "auth/resource-mismatch": "DiscoveryFailed",
    "auth/scope-retry-limit": "AuthError",
    "sep-2640-client-verify-digest": "SkillRefused",
    "sep-2640-client-verify-size": "SkillRefused",
    "sep-2640-client-verify-frontmatter": "SkillRefused",
}
"""Scenarios in which the client has to give up, and with which error."""
