"""Duties of care: addresses, local servers, scopes."""

# fmt: off
from __future__ import annotations

from .row import ALL, EXT_TASKS, PRACTICES, STATELESS, Row

LOCAL = f"{PRACTICES}#local-mcp-server-compromise"
LINKS = f"{PRACTICES}#oauth-authorization-url-validation"
FORGERY = f"{PRACTICES}#server-side-request-forgery-ssrf"

ROWS = (
    Row("SEC-01", "MUST", ALL, FORGERY,
        "Addresses found while signing in lead into no private network."),
    Row("SEC-02", "SHOULD", ALL, FORGERY,
        "These addresses stay https and public, also after redirects."),
    Row("SEC-03", "MUST", ALL, LINKS,
        "Only web addresses are opened for signing in."),
    Row("SEC-04", "MUST NOT", ALL, LINKS,
        "No address passes through a shell on its way to a browser."),
    Row("SEC-05", "MUST", ALL, LINKS,
        "An address that a server supplied is checked before any use."),
    Row("SEC-06", "MUST", ALL, LOCAL,
        "A command from a file runs only after a person approved it."),
    Row("SEC-07", "SHOULD", ALL, LOCAL,
        "Dangerous-looking commands carry a warning, and a server can be confined."),
    Row("SEC-08", "SHOULD", ALL, f"{PRACTICES}#scope-minimization",
        "Sign-in requests few scopes; denied scopes are not requested again."),
    Row("SEC-09", "MUST", STATELESS, f"{EXT_TASKS}#security-considerations",
        "Questions of a task are trusted no more than any other question."),
)
