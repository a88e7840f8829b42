"""The stateless revision, 2026-07-28: every request says by itself what it needs to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.headers import encode_value
from syncmcp._protocol.meta import callers_meta
from syncmcp.errors import ProtocolError

REVISION = "2026-07-28"

REQUESTS: Mapping[str, tuple[str, ...]] = {
    "completion/complete": ("completions",),
    "prompts/get": ("prompts",),
    "prompts/list": ("prompts",),
    "resources/list": ("resources",),
    "resources/read": ("resources",),
    "resources/templates/list": ("resources",),
    "server/discover": (),
    "subscriptions/listen": (),
    "tools/call": ("tools",),
    "tools/list": ("tools",),
}

_PREFIX = "io.modelcontextprotocol/"
_VERSION_KEY = _PREFIX + "protocolVersion"
_CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
_INFO_KEY = _PREFIX + "clientInfo"
_LOG_LEVEL_KEY = _PREFIX + "logLevel"

# The parameter that the Mcp-Name header repeats.
_NAMED_BY = {"prompts/get": "name", "resources/read": "uri", "tools/call": "name"}


class Stateless:
    """The stateless revision."""

    revision = REVISION
    stateful = False

    def __init__(self, client_info: dict[str, Any] | None, capabilities: dict[str, Any]) -> None:
        self._meta: dict[str, Any] = {_VERSION_KEY: REVISION, _CAPABILITIES_KEY: capabilities}
        if client_info is not None:
            self._meta[_INFO_KEY] = client_info

    def needs(self, method: str) -> tuple[str, ...] | None:
        """See `Dialect`."""
        return REQUESTS.get(method)

    def has_notification(self, method: str) -> bool:
        """See `Dialect`. The only one there is, a cancel, is the library's own business."""
        return False

    def params(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
    ) -> dict[str, Any] | None:
        """See `Dialect`. Caller's `_meta` first, then the protocol's own keys over it."""
        params = dict(params) if params else {}
        merged = {**callers_meta(params, meta), **self._meta}
        if method != "server/discover":
            merged["progressToken"] = id
        if log_level is not None:
            merged[_LOG_LEVEL_KEY] = log_level
        params["_meta"] = merged
        return params

    def headers(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, str]:
        """See `Dialect`."""
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
        key = _NAMED_BY.get(method)
        if key is not None and params is not None and isinstance(params.get(key), str):
            headers["Mcp-Name"] = encode_value(params[key])
        return headers

    def session_headers(self) -> Mapping[str, str]:
        """See `Dialect`. There is no session."""
        return {}

    def announces_cancel(self, *, own_stream: bool) -> bool:
        """See `Dialect`. Closing a request's own stream is the cancel."""
        return not own_stream

    def final_result(self, method: str, result: Any) -> dict[str, Any]:
        """See `Dialect`. An absent ``resultType`` means a complete result."""
        if type(result) is not dict:
            raise ProtocolError("the result is not an object", method=method)
        kind = result.get("resultType", "complete")
        if kind == "complete":
            return result
        if kind == "input_required":
            raise ProtocolError(
                "the server asks for input, but this client declared no capability for it",
                method=method,
            )
        raise ProtocolError(f"the result is of an unknown kind, {kind!r}", method=method)
