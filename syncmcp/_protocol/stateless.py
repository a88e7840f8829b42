"""The stateless revision, 2026-07-28: every request carries the client's info and capabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from syncmcp._protocol import tasks
from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities, client_capabilities
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.metadata import ParamHeaders, encode_value, merge_meta
from syncmcp._protocol.steps import InputRound, read_round
from syncmcp.errors import ProtocolError

Revision: TypeAlias = Literal["2026-07-28"]

REVISIONS: tuple[Revision, ...] = ("2026-07-28",)
"""The stateless revisions, newest first."""

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

EXTENSION_REQUESTS: Mapping[str, str] = {
    tasks.CANCEL: tasks.EXTENSION,
    tasks.GET: tasks.EXTENSION,
    tasks.UPDATE: tasks.EXTENSION,
}
"""The requests that extensions add, with the identifier of the extension."""

_PREFIX = "io.modelcontextprotocol/"
_VERSION_KEY = _PREFIX + "protocolVersion"
_CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
_INFO_KEY = _PREFIX + "clientInfo"
_LOG_LEVEL_KEY = _PREFIX + "logLevel"

# Requests of other revisions, and what replaces them.
_INSTEAD = {
    "ping": "any other request shows whether the server answers",
    "resources/subscribe": "listen(uris=...) watches resources",
    "resources/unsubscribe": "listen(uris=...) watches resources",
}

# Requests without a progress token: the probe, subscriptions, and requests about tasks.
_WITHOUT_PROGRESS = frozenset(("server/discover", "subscriptions/listen", *EXTENSION_REQUESTS))

# The parameter that the Mcp-Name header mirrors.
_NAMED_BY = {
    "prompts/get": "name",
    "resources/read": "uri",
    "tools/call": "name",
    **dict.fromkeys(EXTENSION_REQUESTS, "taskId"),
}


class Stateless(Dialect):
    """The dialect of the stateless revision. See `Dialect`."""

    stateful = False

    def __init__(
        self, revision: str, client_info: dict[str, Any] | None, extensions: Mapping[str, Any]
    ) -> None:
        self.revision = revision
        self._client_info = client_info
        self._extensions = extensions
        self.tasks = tasks.EXTENSION_TASKS if tasks.EXTENSION in extensions else None
        # The protocol's keys of `_meta` by offer: a client has few different offers.
        self._metas: dict[OfferedCapabilities, dict[str, Any]] = {}
        self._param_headers: ParamHeaders | None = None

    def required_capability(self, method: str) -> tuple[str, ...] | None:
        extension = EXTENSION_REQUESTS.get(method)
        if extension is not None:
            return ("extensions", extension) if extension in self._extensions else None
        return REQUESTS.get(method)

    def unsupported_reason(self, method: str) -> str:
        extension = EXTENSION_REQUESTS.get(method)
        if extension is None:
            hint = f": {_INSTEAD[method]}" if method in _INSTEAD else ""
            return super().unsupported_reason(method) + hint
        return (
            f"the extension {extension} is not enabled: Client(extensions={{{extension!r}: {{}}}})"
        )

    def _meta(self, offer: OfferedCapabilities) -> dict[str, Any]:
        made = self._metas.get(offer)
        if made is None:
            capabilities = client_capabilities(offer, modes=True)
            if self._extensions:
                capabilities["extensions"] = dict(self._extensions)
            made = {_VERSION_KEY: self.revision, _CAPABILITIES_KEY: capabilities}
            if self._client_info is not None:
                made[_INFO_KEY] = self._client_info
            self._metas[offer] = made
        return made

    def request_params(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
        offer: OfferedCapabilities = NO_OFFER,
    ) -> dict[str, Any] | None:
        """See `Dialect`. The protocol's own keys override those in the caller's `_meta`."""
        params = dict(params) if params else {}
        merged = {**merge_meta(params, meta), **self._meta(offer)}
        if method not in _WITHOUT_PROGRESS:
            merged["progressToken"] = id
        if log_level is not None:
            merged[_LOG_LEVEL_KEY] = log_level
        params["_meta"] = merged
        return params

    def headers(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, str]:
        headers = {"MCP-Protocol-Version": self.revision, "Mcp-Method": method}
        key = _NAMED_BY.get(method)
        if key is not None and params is not None and isinstance(params.get(key), str):
            headers["Mcp-Name"] = encode_value(params[key])
        if self._param_headers is not None and method == "tools/call" and params is not None:
            headers.update(self._param_headers.headers(params))
        return headers

    def mirror_arguments(self, on_excluded: Callable[[str, str], object]) -> None:
        self._param_headers = ParamHeaders(on_excluded)

    def notifies_cancel(self, *, own_stream: bool) -> bool:
        """See `Dialect`. If a request has a separate stream, closing the stream cancels it."""
        return not own_stream

    def read_result(
        self, method: str, result: Any
    ) -> dict[str, Any] | InputRound | tasks.TaskState:
        """See `Dialect`. An absent ``resultType`` means a complete result."""
        if type(result) is not dict:
            raise ProtocolError("the result is not an object", method=method)
        kind = result.get("resultType", "complete")
        if kind == "complete":
            if self._param_headers is not None and method == "tools/list":
                tools = result.get("tools")
                if isinstance(tools, list):
                    return {**result, "tools": self._param_headers.filter_tools(tools)}
            return result
        if kind == "input_required":
            return read_round(method, result)
        if kind == "task" and self.tasks is not None:
            if method != tasks.AUGMENTED:
                raise ProtocolError("the server must not run this request as a task", method=method)
            return self.tasks.read(method, result)
        raise ProtocolError(f"the result has an unknown type, {kind!r}", method=method)
