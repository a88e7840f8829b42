"""The ``data`` of errors that say more than their message (basic/index#error-codes)."""

from __future__ import annotations

from syncmcp.types.base import WireModel
from syncmcp.types.elicitation import ElicitRequestURLParams
from syncmcp.types.lifecycle import ClientCapabilities


class UnsupportedProtocolVersionErrorData(WireModel):
    """Data of error -32022 (basic/versioning). Since 2026-07-28.

    Attributes:
        supported: The revisions that the server speaks.
        requested: The one that it was asked to speak.
    """

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityErrorData(WireModel):
    """Data of error -32021 (basic/index#error-codes). Since 2026-07-28.

    Attributes:
        required_capabilities: What the client would have to declare.
    """

    required_capabilities: ClientCapabilities


class URLElicitationRequiredErrorData(WireModel):
    """Data of error -32042. Only 2025-11-25.

    See client/elicitation#url-elicitation-required-error.

    Attributes:
        elicitations: Where to send the user before the request is sent again.
    """

    elicitations: list[ElicitRequestURLParams]
