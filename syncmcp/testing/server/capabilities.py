"""What a client declared, and what a question needs of it."""

from __future__ import annotations

from typing import Any

from syncmcp.testing.server.revisions import STATELESS, since
from syncmcp.testing.server.wire import (
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    Message,
    RpcError,
)

_SINCE = {
    "elicitation": "2025-06-18",
    "elicitation.url": "2025-11-25",
    "sampling.context": "2025-11-25",
    "sampling.tools": "2025-11-25",
}


class MissingCapability(RpcError):
    """The client did not declare what a question needs: -32021, before 2026-07-28 -32600.

    Attributes:
        feature: What is missing, for example "sampling.tools".
    """

    def __init__(self, feature: str, revision: str) -> None:
        data: Any = None
        for step in reversed(feature.split(".")):
            data = {step: data or {}}
        stateless = revision in STATELESS
        super().__init__(
            MISSING_CAPABILITY if stateless else INVALID_REQUEST,
            f"The client did not declare {feature}",
            {"requiredCapabilities": data} if stateless else None,
        )
        self.feature = feature


class UrlElicitationRequired(RpcError):
    """Raised by a tool that needs a person to visit urls first: code -32042, 2025-11-25 only.

    Args:
        elicitations: Message and url of each, by its elicitation id.
        message: One sentence for people.
    """

    def __init__(
        self,
        elicitations: dict[str, tuple[str, str]],
        message: str = "This needs you to visit a page first.",
    ) -> None:
        entries = [
            {"mode": "url", "elicitationId": identifier, "message": text, "url": url}
            for identifier, (text, url) in elicitations.items()
        ]
        super().__init__(URL_ELICITATION_REQUIRED, message, {"elicitations": entries})


def declared(capabilities: Message, feature: str, revision: str) -> bool:
    """Return whether `capabilities` has the path `feature` and the revision does, too."""
    if not since(revision, _SINCE.get(feature, revision)):
        return False
    if feature.startswith("elicitation.") and not declared(capabilities, "elicitation", revision):
        return False
    # An empty object means forms: the first revision with elicitation had nothing else.
    if feature == "elicitation.form" and (
        not capabilities["elicitation"] or revision == "2025-06-18"
    ):
        return True
    value: Any = capabilities
    for step in feature.split("."):
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return value is not False


def missing_for(method: str, params: Message, capabilities: Message, revision: str) -> str | None:
    """Return the first feature the question needs that was not declared, or `None`."""
    for feature in _needs(method, params):
        if not declared(capabilities, feature, revision):
            return feature
    return None


def _needs(method: str, params: Message) -> list[str]:
    if method == "elicitation/create":
        return ["elicitation", f"elicitation.{params.get('mode', 'form')}"]
    if method == "roots/list":
        return ["roots"]
    if method == "sampling/createMessage":
        needs = ["sampling"]
        if "tools" in params or "toolChoice" in params:
            needs.append("sampling.tools")
        if params.get("includeContext", "none") != "none":
            needs.append("sampling.context")
        return needs
    return []
