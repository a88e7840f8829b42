"""Extensions, which add to the protocol (spec: versioning, "Extension Negotiation")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.meta import is_prefixed
from syncmcp.errors import UsageError


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
