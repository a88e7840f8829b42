"""What a server cannot be asked, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.dialect import KNOWN_REQUESTS, Dialect


def gates(dialect: Dialect, capabilities: Mapping[str, Any]) -> dict[str, str]:
    """For each known request that cannot be made here, why not."""
    missing = {}
    for method in KNOWN_REQUESTS:
        path = dialect.needs(method)
        if path is None:
            missing[method] = f"revision {dialect.revision} has no such request"
            continue
        value: Any = capabilities
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
            # Some servers write `true` or an empty object for the same thing.
            if value is None or value is False:
                missing[method] = f"the server does not declare the capability {'.'.join(path)}"
                break
    return missing
