"""What a client offers to answer, and extensions: the source of the capabilities it declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syncmcp._protocol.meta import is_prefixed
from syncmcp.errors import UsageError

SAMPLING = "sampling/createMessage"
ELICITATION = "elicitation/create"
ROOTS = "roots/list"


class OfferedCapabilities(NamedTuple):
    """Which questions of a server have somebody to answer them."""

    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    form: bool = False
    url: bool = False
    roots: bool = False


NOTHING = OfferedCapabilities()
"""The offer of a client without handlers."""


def client_capabilities(offer: OfferedCapabilities, *, modes: bool) -> dict[str, Any]:
    """The capabilities that stand for `offer`, which the revision has.

    Args:
        offer: What is offered.
        modes: Whether elicitation has modes; without them it means forms.
    """
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


# Extensions, which add to the protocol (spec: versioning, "Extension Negotiation").


def check_extensions(given: object) -> dict[str, dict[str, Any]]:
    """Return a copy of the extensions that a program switches on: settings by identifier.

    Raises:
        UsageError: An identifier has no prefix or is not valid, or settings are no mapping.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"extensions is a mapping of identifiers to settings, not {given!r}")
    for identifier, settings in given.items():
        if not is_prefixed(identifier):
            raise UsageError(
                f"{identifier!r} is no identifier of an extension: that is a prefix, a slash and a "
                f"name, as in 'com.example/maps'"
            )
        if not isinstance(settings, Mapping):
            raise UsageError(f"the settings of {identifier} are a mapping, not {settings!r}")
    return {identifier: dict(settings) for identifier, settings in given.items()}
