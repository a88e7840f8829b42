"""Duties of care: addresses, local servers, scopes."""

# fmt: off
from __future__ import annotations

from .row import ALL, EXT_TASKS, PRACTICES, STATELESS, Row

LOCAL = f"{PRACTICES}#local-mcp-server-compromise"
LINKS = f"{PRACTICES}#oauth-authorization-url-validation"
FORGERY = f"{PRACTICES}#server-side-request-forgery-ssrf"

ROWS = (
    Row("SEC-01", "MUST", ALL, FORGERY,
        "Addresses found while signing in cannot make us reach into a private network."),
    Row("SEC-02", "SHOULD", ALL, FORGERY,
        "Such addresses are https, outside private ranges, and stay so after a redirect."),
    Row("SEC-03", "MUST", ALL, LINKS,
        "Only web addresses are opened for signing in."),
    Row("SEC-04", "MUST NOT", ALL, LINKS,
        "No address passes through a shell on its way to a browser."),
    Row("SEC-05", "MUST", ALL, LINKS,
        "An address that a server supplied is checked before any use."),
    Row("SEC-06", "MUST", ALL, LOCAL,
        "A command found in a file runs only after someone saw it whole and agreed."),
    Row("SEC-07", "SHOULD", ALL, LOCAL,
        "Dangerous-looking commands carry a warning, and a server can be confined."),
    Row("SEC-08", "SHOULD", ALL, f"{PRACTICES}#scope-minimization",
        "Signing in begins with few scopes; a refused one is not asked for again and again."),
    Row("SEC-09", "MUST", STATELESS, f"{EXT_TASKS}#security-considerations",
        "Questions of a task are trusted no more than any other question."),
)
