"""Signing in to servers over HTTP: OAuth 2.1 and given tokens, as `requests` authentication.

::

    from syncmcp.auth import FileStore, OAuth

    login = OAuth(store=FileStore("~/.config/example/tokens.json"))
    with syncmcp.connect(syncmcp.Http("https://example.com/mcp", auth=login)) as client:
        ...

(basic/authorization of the specification)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from syncmcp._concurrency.forks import delaying_forks as _delaying_forks

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import Deadline
    from syncmcp.auth.agreement import SignInRequest
    from syncmcp.auth.bearer import Bearer
    from syncmcp.auth.flow import ClientAssertion
    from syncmcp.auth.grants import (
        ClientCredentials,
        EnterpriseManaged,
        MachineOptions,
        WorkloadIdentity,
    )
    from syncmcp.auth.loopback import LoopbackReceiver
    from syncmcp.auth.oauth import OAuth
    from syncmcp.auth.receiver import PasteReceiver, Receiver, Waiting
    from syncmcp.auth.signing import PrivateKeyJwt, SigningKey
    from syncmcp.auth.steps import Redirect
    from syncmcp.auth.store import FileStore, Keyring, KeyringStore, MemoryStore, TokenStore
    from syncmcp.auth.tokens import Token

__all__ = [
    "Bearer",
    "ClientAssertion",
    "ClientCredentials",
    "Deadline",
    "EnterpriseManaged",
    "FileStore",
    "Keyring",
    "KeyringStore",
    "LoopbackReceiver",
    "MachineOptions",
    "MemoryStore",
    "OAuth",
    "PasteReceiver",
    "PrivateKeyJwt",
    "Receiver",
    "Redirect",
    "SignInRequest",
    "SigningKey",
    "Token",
    "TokenStore",
    "Waiting",
    "WorkloadIdentity",
]

# Imported at first use: most programs need one of them, or none.
_LAZY = {
    name: f"syncmcp.{module}"
    for module, names in {
        "_concurrency.timing": "Deadline",
        "auth.agreement": "SignInRequest",
        "auth.bearer": "Bearer",
        "auth.flow": "ClientAssertion",
        "auth.grants": "ClientCredentials EnterpriseManaged MachineOptions WorkloadIdentity",
        "auth.loopback": "LoopbackReceiver",
        "auth.oauth": "OAuth",
        "auth.receiver": "PasteReceiver Receiver Waiting",
        "auth.signing": "PrivateKeyJwt SigningKey",
        "auth.steps": "Redirect",
        "auth.store": "FileStore Keyring KeyringStore MemoryStore TokenStore",
        "auth.tokens": "Token",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # to a type checker, every name would seem to exist

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module 'syncmcp.auth' has no attribute {name!r}")
        with _delaying_forks():
            value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY})
