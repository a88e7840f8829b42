"""Admits requests, finds the handler of each and runs it, on a worker thread where it may block."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, Protocol

from syncmcp.testing.server import wire
from syncmcp.testing.server.asking import RESPONSES, STATE, Rounds
from syncmcp.testing.server.context import ToolContext, check_level
from syncmcp.testing.server.features import Features, Tool
from syncmcp.testing.server.session import Call, Session
from syncmcp.testing.server.tasks import Tasks
from syncmcp.testing.server.wire import Message, Outlet, RpcError, Stats

_logger = logging.getLogger(__name__)

Handler = Callable[[Message, ToolContext], Message]

LISTEN = "subscriptions/listen"

# Handlers of these methods run code of the server's author, or wait.
_BLOCKING = frozenset(
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
        "skills/list",
        "skills/get",
    }
)


class _Server(Protocol):
    """What the dispatcher needs of its `Server`."""

    info: Message
    instructions: str | None
    revisions: tuple[str, ...]
    stateful: tuple[str, ...]
    stateless: tuple[str, ...]
    ttl_ms: int | None
    cache_scope: Literal["private", "public"] | None
    handlers: dict[str, Handler]
    stats: Stats
    features: Features
    tasks: Tasks
    rounds: Rounds

    def capabilities(self, revision: str) -> Message: ...

    def run_job(self, job: Callable[[], None]) -> None: ...

    def answer(self, call: Call, message: Message) -> bool: ...

    def call_ended(self, call: Call) -> None: ...


class Dispatcher:
    """Admits requests and has each answered by the handler of its method."""

    def __init__(self, server: _Server, listen: Callable[[Call], None]) -> None:
        self._server = server
        self._listen = listen
        features, tasks = server.features, server.tasks
        shared: dict[str, Handler] = {
            "tools/list": features.list_tools,
            "tools/call": tasks.call_tool,
            "tasks/get": tasks.get,
            "tasks/cancel": tasks.cancel,
            "resources/list": partial(features.page, "resources", features.resources),
            "resources/templates/list": partial(
                features.page, "resourceTemplates", features.templates
            ),
            "resources/read": features.read_resource,
            "prompts/list": partial(features.page, "prompts", features.prompts),
            "prompts/get": features.get_prompt,
            "completion/complete": features.complete,
        }
        self._stateful: dict[str, Handler] = {
            **shared,
            "ping": _empty_result,
            "logging/setLevel": _set_level,
            "resources/subscribe": _subscribe,
            "resources/unsubscribe": _unsubscribe,
            "tasks/list": tasks.list_tasks,
            "tasks/result": tasks.result,
        }
        self._stateless: dict[str, Handler] = {
            **shared,
            "server/discover": self._discover,
            LISTEN: _empty_result,
            "tasks/update": tasks.update,
        }

    # Admission

    def negotiate(self, wanted: object) -> tuple[str, Message]:
        """Return the revision and the result of an `initialize`. Raises `RpcError` (-32022)."""
        server = self._server
        if not server.stateful:
            raise self.unsupported(wanted)
        revision = wanted if isinstance(wanted, str) and wanted in server.stateful else None
        revision = server.stateful[-1] if revision is None else revision
        offer = self._offer(revision)
        return revision, {"protocolVersion": revision, "serverInfo": server.info, **offer}

    def admit(self, message: Message, outlet: Outlet, session: Session) -> Call:
        """Decide the revision of a session's request and return it as a call. Raises `RpcError`."""
        server, method, revision = self._server, message["method"], session.revision
        if self.is_stateless(message, in_session=revision is not None):
            return self.admit_stateless(message, outlet, session)
        if revision is None:
            if method == "server/discover":
                raise RpcError(wire.METHOD_NOT_FOUND, f"Method not found: {method}")
            if method != "ping":
                raise RpcError(wire.INVALID_REQUEST, f"{method} before initialize")
            revision = server.stateful[-1]
        told = session.client_capabilities, session.client_info
        return Call(message, outlet, revision, session, *told)

    def admit_stateless(
        self, message: Message, outlet: Outlet, session: Session | None = None
    ) -> Call:
        """Check what 2026-07-28 demands of every request and return the request as a call.

        Raises `RpcError` if `_meta` lacks something (-32602) or names another version (-32022).
        """
        meta = wire.meta_of(wire.params_of(message))
        version = meta.get(wire.PROTOCOL_VERSION)
        if not isinstance(version, str):
            raise RpcError(wire.INVALID_PARAMS, f"_meta needs the string {wire.PROTOCOL_VERSION}")
        if version not in self._server.stateless:
            raise self.unsupported(version)
        capabilities = meta.get(wire.CLIENT_CAPABILITIES)
        if not isinstance(capabilities, dict):
            raise RpcError(
                wire.INVALID_PARAMS, f"_meta needs the object {wire.CLIENT_CAPABILITIES}"
            )
        client_info = meta.get(wire.CLIENT_INFO)
        if client_info is not None and not isinstance(client_info, dict):
            raise RpcError(wire.INVALID_PARAMS, f"{wire.CLIENT_INFO} must be an object")
        level = meta.get(wire.LOG_LEVEL)
        level = None if level is None else check_level(level)
        return Call(message, outlet, version, session, capabilities, client_info, level)

    def unsupported(self, version: object) -> RpcError:
        supported = list(self._server.revisions)
        return RpcError(
            wire.UNSUPPORTED_VERSION,
            f"Unsupported protocol version {version!r}; this server speaks {', '.join(supported)}",
            {"supported": supported, "requested": version},
        )

    def has_handler(self, call: Call) -> bool:
        return call.method in self._server.handlers or call.method in self._table(call)

    def is_stateless(self, message: Message, *, in_session: bool) -> bool:
        """Return whether a request is one of 2026-07-28, whether or not it is valid there."""
        if not self._server.stateless:
            return False
        params = message.get("params")
        if wire.PROTOCOL_VERSION in wire.meta_of(params if isinstance(params, dict) else {}):
            return True
        if in_session:
            return False
        return not self._server.stateful or message.get("method") in ("server/discover", LISTEN)

    def _table(self, call: Call) -> dict[str, Handler]:
        return self._stateless if call.revision in wire.STATELESS else self._stateful

    # Handling

    def start(self, call: Call) -> None:
        """Serve a call on this thread, or on a worker thread if its handler may block.

        The retry of a request whose tool waits for it goes to the thread of that tool.
        """
        server = self._server
        call.add_done_callback(server.call_ended)
        server.stats._count(running=1)
        table = self._table(call)
        custom = server.handlers.get(call.method)
        try:
            if self._is_retry(call, custom is not None):
                server.rounds.resume(call)
            elif custom is not None:
                server.run_job(partial(self._serve, call, custom))
            elif call.method == LISTEN and call.revision in wire.STATELESS:
                self._listen(call)
            elif call.method not in table:
                raise RpcError(wire.METHOD_NOT_FOUND, f"Method not found: {call.method}")
            elif call.method in _BLOCKING:
                server.run_job(partial(self._serve, call, table[call.method]))
            else:
                self._serve(call, table[call.method])
        except RpcError as error:
            server.answer(call, wire.error_reply(call.request_id, error))

    def _is_retry(self, call: Call, custom: bool) -> bool:
        """Return whether a request answers an `input_required` result."""
        if call.method == "tasks/update":
            return False
        if STATE not in call.params and RESPONSES not in call.params:
            return False
        if call.revision not in wire.STATELESS:
            self._server.stats.blame(f"{call.method}: {STATE} or {RESPONSES} under {call.revision}")
            return False
        # A custom handler may use a `requestState` of its own.
        return not custom or self._server.rounds.is_open(call)

    def _serve(self, call: Call, handler: Handler) -> None:
        context = ToolContext(call, self._server.rounds)
        try:
            result = handler(call.params, context)
            if call.revision in wire.STATELESS:
                result = self._complete(call.method, result)
            message = wire.reply(context.request_id, result)
        except RpcError as error:
            message = wire.error_reply(context.request_id, error)
        except Exception as error:
            # The function of the server's author may raise anything; the client needs an answer.
            _logger.exception("%s failed", call.method)
            text = f"{type(error).__name__}: {error}"
            message = wire.error_reply(context.request_id, RpcError(wire.INTERNAL_ERROR, text))
        # After a round (2026-07-28) the call of the context is the latest retry.
        self._server.answer(context.call, message)

    def _complete(self, method: str, result: Message) -> Message:
        """Add the members that every 2026-07-28 result has."""
        server = self._server
        envelope: Message = {"resultType": "complete", **result}
        if method in _CACHEABLE and envelope["resultType"] == "complete":
            hints = wire.given(ttlMs=server.ttl_ms, cacheScope=server.cache_scope)
            envelope = {**hints, **envelope}
        envelope["_meta"] = {wire.SERVER_INFO: server.info, **wire.meta_of(result)}
        return envelope

    def _discover(self, params: Message, context: ToolContext) -> Message:
        return {"supportedVersions": list(self._server.revisions), **self._offer(context.revision)}

    def _offer(self, revision: str) -> Message:
        server = self._server
        offered = server.capabilities(revision)
        return wire.given(capabilities=offered, instructions=server.instructions)


def _empty_result(params: Message, context: ToolContext) -> Message:
    return {}


def _session(context: ToolContext) -> Session:
    if context.session is None:
        raise RpcError(wire.INTERNAL_ERROR, f"{context.method} needs a session")
    return context.session


def _set_level(params: Message, context: ToolContext) -> Message:
    _session(context).log_level = check_level(params.get("level"))
    return {}


def _subscribe(params: Message, context: ToolContext) -> Message:
    _session(context).subscriptions.add(wire.string_member(params, "uri"))
    return {}


def _unsubscribe(params: Message, context: ToolContext) -> Message:
    _session(context).subscriptions.discard(wire.string_member(params, "uri"))
    return {}


# The request headers of 2026-07-28, which repeat parts of the body.


VERSION = "mcp-protocol-version"

_NAME_MEMBERS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_START, _END = "=?base64?", "?="


def check_headers(headers: Mapping[str, str], message: Message, tools: Mapping[str, Tool]) -> None:
    """Compare the headers (names in lower case) with the body. Raises `RpcError` (-32020)."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    version = wire.meta_of(params).get(wire.PROTOCOL_VERSION)
    if isinstance(version, str):
        _require_equal("MCP-Protocol-Version", headers.get(VERSION), version)
    _require_equal("Mcp-Method", headers.get("mcp-method"), message.get("method"))
    member = _NAME_MEMBERS.get(str(message.get("method")))
    if member is not None and isinstance(params.get(member), str):
        _require_equal("Mcp-Name", _decode("Mcp-Name", headers.get("mcp-name")), params[member])
    if message.get("method") == "tools/call":
        tool = tools.get(str(params.get("name")))
        if tool is not None:
            _check_parameters(headers, tool.input_schema, params.get("arguments"))


def _check_parameters(headers: Mapping[str, str], schema: Message, arguments: Any) -> None:
    for header, path in _header_parameters(schema, ()):
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
        _require_equal(name, given, expected)


def _header_parameters(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(inner, dict) and isinstance(inner.get("x-mcp-header"), str):
            yield inner["x-mcp-header"], (*path, name)
        yield from _header_parameters(inner, (*path, name))


def _require_equal(name: str, given: str | None, expected: object) -> None:
    if given != expected:
        problem = "missing" if given is None else f"{given!r}, but the body says {expected!r}"
        raise RpcError(wire.HEADER_MISMATCH, f"{name} is {problem}")


def _decode(name: str, value: str | None) -> str | None:
    """Decode a value that is in Base64 because it is not visible ASCII."""
    if value is None or not (value.startswith(_START) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_START) : -len(_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise RpcError(wire.HEADER_MISMATCH, f"{name} is not valid Base64") from error
