"""Admits requests and runs their handlers, on a worker thread if the handler may block."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from syncmcp._base.checks import kind_of
from syncmcp._concurrency.pool import DaemonPool
from syncmcp.testing.server import wire
from syncmcp.testing.server.asking import RESPONSES, STATE, Rounds
from syncmcp.testing.server.context import ToolContext, check_level
from syncmcp.testing.server.features import Features
from syncmcp.testing.server.session import Call, Session
from syncmcp.testing.server.tasks import TASK_IDS, Tasks
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


# Open `subscriptions/listen` requests (2026-07-28) and the events they receive.


_KINDS = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
URIS = "resourceSubscriptions"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Listeners:
    """Every open listen request of one server, over all its transports."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._lock = threading.Lock()  # Guards both tables.
        self._open: dict[Call, Message] = {}
        # Queued notifications of requests whose acknowledgement was not sent yet.
        self._unacknowledged: dict[Call, list[tuple[str, Message]]] = {}

    def open(self, call: Call, known_tasks: Callable[[list[Any], Call], list[str]]) -> None:
        """Acknowledge a listen request, and keep it open until it is cancelled or ended.

        `known_tasks` returns which of the requested tasks the client may listen for.
        """
        wanted = call.params.get("notifications")
        if not isinstance(wanted, dict):
            raise RpcError(wire.INVALID_PARAMS, "params.notifications must be an object")
        honoured: Message = {kind: True for kind in _KINDS if wanted.get(kind) is True}
        if isinstance(wanted.get(URIS), list):
            honoured[URIS] = wanted[URIS]
        if isinstance(wanted.get(TASK_IDS), list):
            honoured[TASK_IDS] = known_tasks(wanted[TASK_IDS], call)
        with self._lock:
            self._open[call] = honoured
            self._unacknowledged[call] = []
        self._stats._count(listeners=1)
        call.add_done_callback(self._remove)
        # The acknowledgement is sent first; until then, `notify` queues notifications.
        call.notify(_ACKNOWLEDGED, {"notifications": honoured, **_tag(call)})
        while True:
            with self._lock:
                early = self._unacknowledged.pop(call, [])
                if early:
                    self._unacknowledged[call] = []
            if not early:
                return
            for method, params in early:
                call.notify(method, params)

    def notify(self, method: str, params: Message, kind: str, value: object = True) -> None:
        """Notify the listeners for a kind of event, or for one URI or task (`value`)."""
        with self._lock:
            wishes = [(call, honoured.get(kind)) for call, honoured in self._open.items()]
        for call, wish in wishes:
            if value not in (wish if isinstance(wish, list) else [wish]):
                continue
            tagged = {**params, **_tag(call)}
            with self._lock:
                early = self._unacknowledged.get(call)
                if early is not None:
                    early.append((method, tagged))
                    continue
            call.notify(method, tagged)

    def end(self) -> None:
        """End every subscription in order: each listen request gets its result."""
        with self._lock:
            calls = list(self._open)
        for call in calls:
            result: Message = {"resultType": "complete", **_tag(call)}
            call.answer(wire.reply(call.request_id, result))

    def _remove(self, call: Call) -> None:
        with self._lock:
            known = self._open.pop(call, None) is not None
            self._unacknowledged.pop(call, None)
        if known:
            self._stats._count(listeners=-1)


def _tag(call: Call) -> Message:
    return {"_meta": {wire.SUBSCRIPTION_ID: call.request_id}}


def _new_pool() -> DaemonPool:
    return DaemonPool("syncmcp-testing-tool", sys.maxsize, linger=0.1)


class Dispatcher:
    """Admits requests and runs the handler of each request's method; the base class of `Server`."""

    instructions: str | None
    ttl_ms: int | None
    cache_scope: Literal["private", "public"] | None

    def __init__(
        self,
        info: Message,
        revisions: Iterable[str],
        page_size: int | None,
        capabilities: Mapping[str, Any],
    ) -> None:
        self.info = info
        self.revisions = wire.sort_revisions(wire.listed(revisions, "revisions"))
        self.stateful = tuple(r for r in self.revisions if r not in wire.STATELESS)
        self.stateless = tuple(r for r in self.revisions if r in wire.STATELESS)
        self.stats = Stats()
        self.handlers: dict[str, Handler] = {}
        self._capabilities = dict(capabilities)
        self._workers = _new_pool()
        self.features = features = Features(page_size)
        self.rounds = Rounds(self.stats, info, self.answer)
        self.listeners = Listeners(self.stats)
        self.tasks = tasks = Tasks(features, self.rounds, self.run_job, self.listeners.notify)
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

    def capabilities(self, revision: str) -> Message:
        """Return the capabilities that the server declares under `revision`."""
        return {**self.features.capabilities(revision), **self._capabilities}

    # Admission

    def _negotiate(self, wanted: object) -> tuple[str, Message]:
        """Return the revision and the result of an `initialize`; raise `RpcError` (-32022)."""
        if not self.stateful:
            raise self._unsupported(wanted)
        revision = wanted if isinstance(wanted, str) and wanted in self.stateful else None
        revision = self.stateful[-1] if revision is None else revision
        offer = self._offer(revision)
        return revision, {"protocolVersion": revision, "serverInfo": self.info, **offer}

    def _admit(self, message: Message, outlet: Outlet, session: Session) -> Call:
        """Decide the revision of a session's request and return it as a call; raise `RpcError`."""
        method, revision = message["method"], session.revision
        if self._is_stateless(message, in_session=revision is not None):
            return self._admit_stateless(message, outlet, session)
        if revision is None:
            if method == "server/discover":
                raise RpcError(wire.METHOD_NOT_FOUND, f"Method not found: {method}")
            if method != "ping":
                raise RpcError(wire.INVALID_REQUEST, f"{method} before initialize")
            revision = self.stateful[-1]
        told = session.client_capabilities, session.client_info
        return Call(message, outlet, revision, session, *told)

    def _admit_stateless(
        self, message: Message, outlet: Outlet, session: Session | None = None
    ) -> Call:
        """Check what 2026-07-28 demands of every request and return the request as a call.

        Raises `RpcError` if `_meta` lacks something (-32602) or names another version (-32022).
        """
        meta = wire.meta_of(wire.params_of(message))
        version = meta.get(wire.PROTOCOL_VERSION)
        if not isinstance(version, str):
            raise RpcError(wire.INVALID_PARAMS, f"_meta needs the string {wire.PROTOCOL_VERSION}")
        if version not in self.stateless:
            raise self._unsupported(version)
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

    def _unsupported(self, version: object) -> RpcError:
        supported = list(self.revisions)
        return RpcError(
            wire.UNSUPPORTED_VERSION,
            f"Unsupported protocol version {version!r}; this server speaks {', '.join(supported)}",
            {"supported": supported, "requested": version},
        )

    def _has_handler(self, call: Call) -> bool:
        return call.method in self.handlers or call.method in self._table(call)

    def _is_stateless(self, message: Message, *, in_session: bool) -> bool:
        """Return whether a request is one of 2026-07-28, even if it is invalid there."""
        if not self.stateless:
            return False
        if wire.PROTOCOL_VERSION in wire.meta_of(message.get("params")):
            return True
        if in_session:
            return False
        return not self.stateful or message.get("method") in ("server/discover", LISTEN)

    def _table(self, call: Call) -> dict[str, Handler]:
        return self._stateless if call.revision in wire.STATELESS else self._stateful

    # Handling

    def _start(self, call: Call) -> None:
        """Serve a call on this thread, or on a worker thread if its handler may block.

        A retry for which a tool waits is passed to the thread of that tool.
        """
        call.add_done_callback(self.call_ended)
        self.stats._count(running=1)
        table = self._table(call)
        custom = self.handlers.get(call.method)
        try:
            if self._is_retry(call, custom is not None):
                self.rounds.resume(call)
            elif custom is not None:
                self.run_job(partial(self._serve, call, custom))
            elif call.method == LISTEN and call.revision in wire.STATELESS:
                self.listeners.open(call, self.tasks.known_tasks)
            elif call.method not in table:
                raise RpcError(wire.METHOD_NOT_FOUND, f"Method not found: {call.method}")
            elif call.method in _BLOCKING:
                self.run_job(partial(self._serve, call, table[call.method]))
            else:
                self._serve(call, table[call.method])
        except RpcError as error:
            self.answer(call, wire.error_reply(call.request_id, error))

    def answer(self, call: Call, message: Message) -> bool:
        """Respond to a call and count the response; return whether the call was still open."""
        # Counted before it is sent: a test that has received the response must find it counted.
        failed = "error" in message
        self.stats._count(replies=1, errors=failed)
        if call.answer(message):
            return True
        self.stats._count(replies=-1, errors=-failed)
        return False

    def call_ended(self, call: Call) -> None:
        """Count a call that has ended with a response or a cancellation."""
        self.stats._count(running=-1, cancelled=call.cancelled.is_set())

    def run_job(self, job: Callable[[], None]) -> None:
        """Run `job` at once on a thread of its own, so that it may block."""
        self._workers.run(job)

    def end_idle_workers(self) -> None:
        """End the idle threads of `run_job`, which otherwise wait briefly for later jobs."""
        idle, self._workers = self._workers, _new_pool()
        idle.close()

    def _is_retry(self, call: Call, custom: bool) -> bool:
        """Return whether a request answers an `input_required` result."""
        if call.method == "tasks/update":
            return False
        if STATE not in call.params and RESPONSES not in call.params:
            return False
        if call.revision not in wire.STATELESS:
            self.stats.blame(f"{call.method}: {STATE} or {RESPONSES} under {call.revision}")
            return False
        # A custom handler may use a `requestState` of its own.
        return not custom or self.rounds.is_open(call)

    def _serve(self, call: Call, handler: Handler) -> None:
        context = ToolContext(call, self.rounds)
        try:
            result = handler(call.params, context)
            if call.revision in wire.STATELESS:
                result = self._complete(call.method, result)
            message = wire.reply(context.request_id, result)
        except RpcError as error:
            message = wire.error_reply(context.request_id, error)
        except (Exception, SystemExit) as error:
            # The function of the server's author may raise anything; the client needs an answer.
            _logger.exception("%s failed", call.method)
            text = f"{type(error).__name__}: {error}"
            message = wire.error_reply(context.request_id, RpcError(wire.INTERNAL_ERROR, text))
        # After a round (2026-07-28) the call of the context is the latest retry.
        self.answer(context.call, message)

    def _complete(self, method: str, result: Message) -> Message:
        """Add the members that every 2026-07-28 result has."""
        if not isinstance(result, Mapping):
            raise TypeError(f"the function for {method} returned {kind_of(result)}, not a dict")
        envelope: Message = {"resultType": "complete", **result}
        if method in _CACHEABLE and envelope["resultType"] == "complete":
            hints = wire.given(ttlMs=self.ttl_ms, cacheScope=self.cache_scope)
            envelope = {**hints, **envelope}
        envelope["_meta"] = {wire.SERVER_INFO: self.info, **wire.meta_of(result)}
        return envelope

    def _discover(self, params: Message, context: ToolContext) -> Message:
        return {"supportedVersions": list(self.revisions), **self._offer(context.revision)}

    def _offer(self, revision: str) -> Message:
        offered = self.capabilities(revision)
        return wire.given(capabilities=offered, instructions=self.instructions)


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
