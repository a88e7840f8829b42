"""Questions of a server inside of a result (basic/patterns/mrtr). Since 2026-07-28."""

from __future__ import annotations

from typing import Any

from syncmcp.types.base import MetaModel, RequestParams, Result, WireModel
from syncmcp.types.elicitation import ElicitRequestFormParams, ElicitRequestURLParams
from syncmcp.types.lifecycle import ClientCapabilities
from syncmcp.types.sampling import CreateMessageRequestParams

# The ``data`` of errors that say more than their message (basic/index#error-codes).


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


# Roots: where a client lets servers work (client/roots).


class Root(MetaModel):
    """A directory or file (client/roots#root).

    Attributes:
        uri: A ``file:`` URI.
    """

    uri: str
    name: str | None = None


class ListRootsRequestParams(RequestParams):
    """Parameters of ``roots/list`` (client/roots#listing-roots)."""


class ListRootsResult(Result):
    """Answer to ``roots/list`` (client/roots#listing-roots)."""

    roots: list[Root]


class InputRequest(WireModel):
    """A question: what would have been a request of the server in an older revision.

    Attributes:
        method: ``"sampling/createMessage"``, ``"elicitation/create"`` or ``"roots/list"``.
        params: As in a request of that method.
    """

    method: str
    params: dict[str, Any] | None = None

    def read(
        self,
    ) -> (
        CreateMessageRequestParams
        | ElicitRequestFormParams
        | ElicitRequestURLParams
        | ListRootsRequestParams
    ):
        """The parameters as the model of that method.

        Raises:
            ValueError: They do not fit it, or there is no such question.
        """
        params = self.params or {}
        if self.method == "sampling/createMessage":
            return CreateMessageRequestParams.from_wire(params)
        if self.method == "roots/list":
            return ListRootsRequestParams.from_wire(params)
        if self.method == "elicitation/create" and params.get("mode", "form") == "form":
            return ElicitRequestFormParams.from_wire(params)
        if self.method == "elicitation/create" and params["mode"] == "url":
            return ElicitRequestURLParams.from_wire(params)
        raise ValueError(f"this is no question of a server: {self.method}")


class InputRequiredResult(Result):
    """The server wants answers before it gives a result (basic/patterns/mrtr).

    Attributes:
        input_requests: The questions by key; the answers go back under the same keys.
        request_state: Opaque and secret; goes back exactly as it came, an empty string too.
    """

    input_requests: dict[str, InputRequest] | None = None
    request_state: str | None = None
