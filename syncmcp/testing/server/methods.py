"""Which methods each era has, how one request is served, and what its headers must say."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from syncmcp.testing.server import wire
from syncmcp.testing.server.asking import RESPONSES, STATE
from syncmcp.testing.server.calls import Call, Outlet
from syncmcp.testing.server.context import ToolContext, check_level
from syncmcp.testing.server.features import Tool
from syncmcp.testing.server.wire import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    STATELESS,
    Message,
    RpcError,
)

if TYPE_CHECKING:
    from syncmcp.testing.server.server import Server
    from syncmcp.testing.server.session import Session


_logger = logging.getLogger(__name__)

Handler = Callable[["Server", Message, ToolContext], Message]

LISTEN = "subscriptions/listen"


def admit_stateless(
    server: Server, message: Message, outlet: Outlet, session: Session | None = None
) -> Call:
    """Check what 2026-07-28 demands of every request and return it as a call.

    Raises:
        RpcError: `_meta` lacks something (-32602) or names a version this server does not
            speak (-32022, `data.supported` and `data.requested`).
    """
    params = wire.params_of(message)
    meta = wire.meta_of(params)
    version = meta.get(wire.PROTOCOL_VERSION)
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, f"_meta needs the string {wire.PROTOCOL_VERSION}")
    if version not in server.revisions or version not in STATELESS:
        raise unsupported(server, version)
    capabilities = meta.get(wire.CLIENT_CAPABILITIES)
    if not isinstance(capabilities, dict):
        raise RpcError(INVALID_PARAMS, f"_meta needs the object {wire.CLIENT_CAPABILITIES}")
    client_info = meta.get(wire.CLIENT_INFO)
    if client_info is not None and not isinstance(client_info, dict):
        raise RpcError(INVALID_PARAMS, f"{wire.CLIENT_INFO} must be an object")
    level = meta.get(wire.LOG_LEVEL)
    return Call(
        message,
        outlet,
        revision=version,
        session=session,
        client_capabilities=capabilities,
        client_info=client_info,
        log_level=None if level is None else check_level(level),
    )


def unsupported(server: Server, version: object) -> RpcError:
    """Return the -32022 error; its text names the versions for people."""
    supported = list(server.revisions)
    return RpcError(
        wire.UNSUPPORTED_VERSION,
        f"Unsupported protocol version {version!r}; this server speaks {', '.join(supported)}",
        {"supported": supported, "requested": version},
    )


def knows(server: Server, call: Call) -> bool:
    """Return whether the request's method exists for it."""
    table = _STATELESS if call.revision in STATELESS else _STATEFUL
    return call.method in server.handlers or call.method in table


def start(server: Server, call: Call) -> None:
    """Serve a request: at once, or on a worker where the server author's code runs.

    The retry of a request whose tool waits for it goes to the thread of that tool.
    """
    call.at_end(server.call_ended)
    with server.stats as stats:
        stats.running += 1
    table = _STATELESS if call.revision in STATELESS else _STATEFUL
    custom = server.handlers.get(call.method)
    if _is_retry(server, call, custom is not None):
        _resume(server, call)
    elif custom is not None:
        server.workers.run(lambda: _serve(server, call, lambda _, *args: custom(*args)))
    elif call.method == LISTEN and call.revision in STATELESS:
        server.listeners.open(call)
    elif call.method not in table:
        error = RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}")
        server.answer(call, wire.failure(call.request_id, error))
    elif call.method in _FOREIGN:
        server.workers.run(lambda: _serve(server, call, table[call.method]))
    else:
        _serve(server, call, table[call.method])


def _is_retry(server: Server, call: Call, custom: bool) -> bool:
    """Return whether a round has to say what becomes of this request."""
    if call.method == "tasks/update" or (STATE not in call.params and RESPONSES not in call.params):
        return False
    if call.revision not in STATELESS:
        server.stats.blame(f"{call.method}: {STATE} or {RESPONSES} under {call.revision}")
        return False
    # A custom handler may have given a state of its own.
    return not custom or server.rounds.knows(call)


def _resume(server: Server, call: Call) -> None:
    try:
        server.rounds.resume(call)
    except RpcError as error:
        server.answer(call, wire.failure(call.request_id, error))


def _serve(server: Server, call: Call, handler: Handler) -> None:
    context = ToolContext(call, server)
    try:
        result = handler(server, call.params, context)
        if call.revision in STATELESS:
            result = _complete(server, call.method, result)
        message = wire.reply(context.request_id, result)
    except RpcError as error:
        message = wire.failure(context.request_id, error)
    except Exception as error:
        # The server author's code may raise anything; the caller must get an answer still.
        _logger.exception("%s failed", call.method)
        text = f"{type(error).__name__}: {error}"
        message = wire.failure(context.request_id, RpcError(wire.INTERNAL_ERROR, text))
    # Not the call it began with, if the tool asked something (2026-07-28).
    server.answer(context.call, message)


def _complete(server: Server, method: str, result: Message) -> Message:
    """Add what every 2026-07-28 result carries."""
    envelope: Message = {"resultType": "complete", **result}
    if method in _CACHEABLE and envelope["resultType"] == "complete":
        for name, hint in (("ttlMs", server.ttl_ms), ("cacheScope", server.cache_scope)):
            if hint is not None:
                envelope.setdefault(name, hint)
    envelope["_meta"] = {wire.SERVER_INFO: server.info, **wire.meta_of(result)}
    return envelope


def _discover(server: Server, params: Message, context: ToolContext) -> Message:
    result: Message = {
        "supportedVersions": list(server.revisions),
        "capabilities": server.capabilities(context.revision),
    }
    if server.instructions is not None:
        result["instructions"] = server.instructions
    return result


def _ping(server: Server, params: Message, context: ToolContext) -> Message:
    return {}


def _session(context: ToolContext) -> Session:
    if context.session is None:
        raise RpcError(wire.INTERNAL_ERROR, f"{context.method} needs a session")
    return context.session


def _set_level(server: Server, params: Message, context: ToolContext) -> Message:
    _session(context).log_level = check_level(params.get("level"))
    return {}


def _subscribe(server: Server, params: Message, context: ToolContext) -> Message:
    _session(context).subscribe(wire.text_of(params, "uri"))
    return {}


def _unsubscribe(server: Server, params: Message, context: ToolContext) -> Message:
    _session(context).unsubscribe(wire.text_of(params, "uri"))
    return {}


_SHARED: dict[str, Handler] = {
    "tools/list": lambda server, params, context: server.features.list_tools(params, context),
    "tools/call": lambda server, params, context: server.tasks.call_tool(params, context),
    "tasks/get": lambda server, params, context: server.tasks.get(params, context),
    "tasks/cancel": lambda server, params, context: server.tasks.cancel(params, context),
    "resources/list": lambda server, params, context: server.features.list_resources(
        params, context
    ),
    "resources/templates/list": lambda server, params, context: server.features.list_templates(
        params, context
    ),
    "resources/read": lambda server, params, context: server.features.read_resource(
        params, context
    ),
    "prompts/list": lambda server, params, context: server.features.list_prompts(params, context),
    "prompts/get": lambda server, params, context: server.features.get_prompt(params, context),
    "completion/complete": lambda server, params, context: server.features.complete(
        params, context
    ),
}
_STATEFUL: dict[str, Handler] = {
    **_SHARED,
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "tasks/list": lambda server, params, context: server.tasks.page(params, context),
    "tasks/result": lambda server, params, context: server.tasks.result(params, context),
}
_STATELESS: dict[str, Handler] = {
    **_SHARED,
    "server/discover": _discover,
    LISTEN: _ping,
    "tasks/update": lambda server, params, context: server.tasks.update(params, context),
}
_FOREIGN = frozenset(
    {"tools/call", "resources/read", "prompts/get", "completion/complete", "tasks/result"}
)
_CACHEABLE = frozenset(
    {
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
    }
)


# The request headers of 2026-07-28: they must say what the body says (-32020 otherwise).


VERSION = "mcp-protocol-version"

_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_START, _END = "=?base64?", "?="


def check(headers: Mapping[str, str], message: Message, tools: Mapping[str, Tool]) -> None:
    """Compare the headers (names in lower case) with a request or notification.

    Raises:
        RpcError: One is missing or says something else (code -32020).
    """
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    version = wire.meta_of(params).get(wire.PROTOCOL_VERSION)
    if isinstance(version, str):
        _compare("MCP-Protocol-Version", headers.get(VERSION), version)
    _compare("Mcp-Method", headers.get("mcp-method"), message.get("method"))
    member = _NAMED_BY.get(str(message.get("method")))
    if member is not None and isinstance(params.get(member), str):
        _compare("Mcp-Name", _decode("Mcp-Name", headers.get("mcp-name")), params[member])
    if message.get("method") == "tools/call":
        tool = tools.get(str(params.get("name")))
        if tool is not None:
            _check_parameters(headers, tool.input_schema, params.get("arguments"))


def _check_parameters(headers: Mapping[str, str], schema: Message, arguments: Any) -> None:
    for header, path in _annotated(schema, ()):
        value = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        name = f"Mcp-Param-{header}"
        given = _decode(name, headers.get(name.lower()))
        if value is None:
            expected = None
        elif isinstance(value, bool):
            expected = "true" if value else "false"
        elif isinstance(value, float) and value.is_integer():
            expected = str(int(value))
        else:
            expected = str(value)
        _compare(name, given, expected)


def _annotated(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(inner, dict) and isinstance(inner.get("x-mcp-header"), str):
            yield inner["x-mcp-header"], (*path, name)
        yield from _annotated(inner, (*path, name))


def _compare(name: str, given: str | None, expected: object) -> None:
    if given != expected:
        problem = "missing" if given is None else f"{given!r}, but the body says {expected!r}"
        raise RpcError(HEADER_MISMATCH, f"{name} is {problem}")


def _decode(name: str, value: str | None) -> str | None:
    """Undo the Base64 form of a value that is not plain visible ASCII."""
    if value is None or not (value.startswith(_START) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_START) : -len(_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise RpcError(HEADER_MISMATCH, f"{name} is not valid Base64") from error
