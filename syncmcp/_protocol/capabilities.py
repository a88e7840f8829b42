"""Capabilities: what a client offers, what a server declares, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from syncmcp._protocol.metadata import is_prefixed
from syncmcp.errors import MissingCapability, ServerError, UsageError

Undeclared = Literal["refuse", "try"]
"""The option for requests whose capability the server does not declare: fail, or send anyway."""


class Unavailable(NamedTuple):
    """Why a known request cannot be sent to a server."""

    reason: str  # the text of the error
    # The revision has the request, but the server does not declare its capability. Some servers
    # still handle such requests, so the option `Undeclared` may allow them.
    undeclared: bool = False


def not_declared(path: tuple[str, ...]) -> str:
    """Return the text of the error for a capability that the server does not declare."""
    name = ".".join(path)
    # A server of the test kit declares the kinds of features that it has at that time.
    first = {"tools": "tool", "resources": "resource", "prompts": "prompt"}.get(name)
    remedy = f"; in a test, register the first {first} before the client connects" if first else ""
    return (
        f"the server does not declare the capability {name}"
        f' (undeclared="try" sends the request anyway{remedy})'
    )


def declares(capabilities: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Return True if `capabilities` contain the capability at `path`."""
    value: Any = capabilities
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
        # Some servers write `true` instead of an empty object.
        if value is None or value is False:
            return False
    return True


def server_error(code: int, message: str, data: object, **facts: Any) -> ServerError:
    """Return the error that a server sent; its hint says how to declare a missing capability."""
    error = ServerError.from_wire(code, message, data, **facts)
    if isinstance(error, MissingCapability):
        error.hint = _hint_for_missing(data)
    return error


def _hint_for_missing(data: object) -> str | None:
    named = _members(_members(data).get("requiredCapabilities"))
    options = {name: f"{name}=" for name in ("sampling", "elicitation", "roots") if name in named}
    # A plain function answers forms only, and gets no tools.
    if named.get("elicitation") == {"url": {}}:
        options["elicitation"] += "Elicitation(form=..., url=...)"
    if "tools" in _members(named.get("sampling")):
        options["sampling"] += "Sampling(model, tools=True)"
    if options:
        return f"pass the client a handler: {', '.join(options.values())}"
    return "enable it with extensions={NAME: {}}" if _members(named.get("extensions")) else None


def _members(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


SAMPLING = "sampling/createMessage"
ELICITATION = "elicitation/create"
ROOTS = "roots/list"


class OfferedCapabilities(NamedTuple):
    """The questions of a server for which the client has handlers."""

    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    form: bool = False
    url: bool = False
    roots: bool = False


NO_OFFER = OfferedCapabilities()
"""The offer of a client without handlers."""


def client_capabilities(offer: OfferedCapabilities, *, modes: bool) -> dict[str, Any]:
    """Return the object that declares `offer`; without `modes`, elicitation means forms."""
    capabilities: dict[str, Any] = {}
    if offer.roots:
        capabilities["roots"] = {}
    if offer.sampling:
        sampling = {"tools": offer.sampling_tools, "context": offer.sampling_context}
        capabilities["sampling"] = {name: {} for name, has in sampling.items() if has}
    if offer.form or offer.url:
        elicitation = {"form": offer.form, "url": offer.url}
        capabilities["elicitation"] = {
            name: {} for name, has in elicitation.items() if has and modes
        }
    return capabilities


# Extensions of the protocol (spec: versioning, "Extension Negotiation").


def check_extensions(given: object) -> dict[str, dict[str, Any]]:
    """Return a checked copy of the extensions that a program enables: settings by identifier."""
    if not isinstance(given, Mapping):
        raise UsageError(f"extensions must be a mapping of identifiers to settings, not {given!r}")
    for identifier, settings in given.items():
        if not is_prefixed(identifier):
            raise UsageError(
                f"{identifier!r} is not an extension identifier: write a prefix, a slash"
                f" and a name, as in 'com.example/maps'"
            )
        if not isinstance(settings, Mapping):
            raise UsageError(f"the settings of {identifier} must be a mapping, not {settings!r}")
    return {identifier: dict(settings) for identifier, settings in given.items()}
