"""JSON-RPC 2.0 as the test server reads and writes it, and the counters of the server.

It shares no code with the client, so that each is an independent check of the other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import pydantic_core

from syncmcp.testing.listener import Watched

Message = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""The code of stateful revisions only; 2026-07-28 uses `INVALID_PARAMS`."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
"""The code of 2025-11-25 only."""

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class RpcError(Exception):
    """A JSON-RPC error, which a handler raises instead of returning a result.

    Attributes:
        code: The JSON-RPC error code.
        message: One sentence for people.
        data: Any JSON value; `None` leaves it out.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if not isinstance(code, int):
            raise TypeError("the code of an RpcError must be an int: RpcError(code, message)")
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


def encode(message: Any) -> bytes:
    """Return `message` as compact JSON on one line; NaN and infinities become null."""
    return pydantic_core.to_json(message, inf_nan_mode="null")


def decode(frame: bytes) -> Any:
    """Return the JSON value in `frame`; raise `RpcError` (-32700), also for NaN and infinities."""
    try:
        return pydantic_core.from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"Not valid JSON: {error}") from error


def given(**members: Any) -> Message:
    """Return an object of these members, without members that are `None`."""
    return {name: value for name, value in members.items() if value is not None}


def notification(method: str, params: Message | None = None) -> Message:
    return given(jsonrpc="2.0", method=method, params=params)


def reply(identifier: str | int, result: Message) -> Message:
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def error_reply(identifier: str | int | None, error: RpcError) -> Message:
    """Return the response with an error; the id is null if that of the request is unknown."""
    body = given(code=error.code, message=error.message, data=error.data)
    return {"jsonrpc": "2.0", "id": identifier, "error": body}


def is_identifier(value: object) -> TypeGuard[str | int]:
    """Return whether `value` may be a request id: a string or an integer, never null or bool."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def params_of(message: Message) -> Message:
    """Return the message's params, `{}` if it has none; raise `RpcError` (-32602)."""
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object")
    return params


def meta_of(params: Any) -> Message:
    """Return the `_meta` of params or a result; `{}` unless both are objects."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def string_member(params: Message, name: str) -> str:
    """Return the string member `name` of `params`; raise `RpcError` (-32602)."""
    value = params.get(name)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be a string")
    return value


# Counters of what a server has received and sent.


class Stats(Watched):
    """Counters of one server; read them in a `with stats:` block or with `wait_for`.

    Attributes:
        requests: Requests received, by method.
        notifications: Notifications received, by method.
        cancels: The request ids of `notifications/cancelled`, in the order received.
        cancelled: Calls that were cancelled before their response, for whatever reason.
        disconnects: Calls over HTTP whose client closed the stream before the response
            (2026-07-28).
        replies: Responses sent (results and errors).
        errors: Responses sent that were JSON-RPC errors.
        responses: Responses received to the server's own requests.
        late_answers: Responses received after the question was withdrawn.
        questions: Questions asked, by method.
        tasks: Tasks that have not ended.
        paused: Tools that wait for the retry of their request (2026-07-28).
        violations: Violations of the protocol by clients, one sentence each.
        running: Calls that are being served.
        sessions: Open sessions (in memory, over stdio, stateful over HTTP).
        opened: Sessions opened so far.
        listeners: Open `subscriptions/listen` requests.
        streams: HTTP event streams with a reader.
    """

    cancelled = disconnects = replies = errors = responses = late_answers = 0
    tasks = paused = running = sessions = opened = listeners = streams = 0

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()
        self.notifications: Counter[str] = Counter()
        self.cancels: list[str | int] = []
        self.questions: Counter[str] = Counter()
        self.violations: list[str] = []

    def __repr__(self) -> str:
        return f"<Stats: {self.requests.total()} requests, {len(self.violations)} violations>"

    def _count(self, **changes: int) -> None:
        """Add to the counters of these names."""
        with self:
            for name, change in changes.items():
                setattr(self, name, getattr(self, name) + change)

    def blame(self, violation: str) -> None:
        """Record a violation of the protocol by a client, one sentence."""
        with self:
            self.violations.append(violation)


# Revisions of the protocol. They are compared by their place in this list and never as strings: an
# unknown name must not sort before or after a known one.


REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Every revision that this server speaks, oldest first."""

STATELESS = ("2026-07-28",)
"""Revisions without a handshake: the `_meta` of each request names the revision."""

BATCH_REVISION = "2025-03-26"
"""The only revision with JSON-RPC batches."""


def listed(given: Iterable[str], name: str) -> list[str]:
    """Return a list of strings; raise `TypeError` for a single string, which is iterable, too."""
    if isinstance(given, str):
        raise TypeError(f"{name} must be a list: write [{given!r}]")
    return list(given)


def sort_revisions(revisions: Iterable[str]) -> tuple[str, ...]:
    """Return `revisions` from the oldest to the newest; raise `ValueError`."""
    wanted = set(revisions)
    unknown = wanted.difference(REVISIONS)
    if unknown or not wanted:
        raise ValueError(f"revisions must be some of {REVISIONS}, not {sorted(wanted)}")
    return tuple(revision for revision in REVISIONS if revision in wanted)


def since(revision: str, first: str) -> bool:
    return REVISIONS.index(revision) >= REVISIONS.index(first)


class Outlet:
    """Sends the messages that belong to one request, here on the stream of the connection."""

    def __init__(self, push: Callable[[Any], object]) -> None:
        self._push = push

    def send(self, message: Message) -> None:
        self._push(message)

    def finish(self, message: Message | list[Message] | None) -> None:
        """Send the response; `None` means that no response will be sent."""
        if message is not None:
            self._push(message)

    def interrupt(self, retry_ms: int | None) -> None:
        """Close the event stream before the response, if the client can resume the stream."""


# JSON-RPC batches (2025-03-26).


@dataclass(frozen=True)
class Batches:
    """How a server handles JSON-RPC batches (2025-03-26).

    Attributes:
        parallel: Whether the requests of a batch run concurrently. Otherwise each starts when the
            one before it has its response.
        max_size: The maximum number of messages in a batch. A larger batch is refused as a whole.
        timeout: The seconds after which the open requests of a batch are cancelled and get the
            error -32603; `None` for no limit.
        together: Whether all responses are sent in one array, in the order of the requests, once
            the last response is there. Otherwise each response is sent as a message of its own at
            once. Over HTTP with `response="json"`, they are sent in one array in either case.
    """

    parallel: bool = True
    max_size: int = 100
    timeout: float | None = None
    together: bool = True


DEFAULT_BATCHES: Final = Batches()
"""The default of `Server(batches=)`."""


def check_batch(messages: list[Any], revision: str | None, batches: Batches) -> None:
    """Raise `RpcError` if the revision has no batches, or the batch is empty or too long."""
    if revision != BATCH_REVISION:
        raise RpcError(INVALID_REQUEST, f"Batches exist in {BATCH_REVISION} only")
    if not messages:
        raise RpcError(INVALID_REQUEST, "An empty batch")
    if len(messages) > batches.max_size:
        raise RpcError(INVALID_REQUEST, f"More than {batches.max_size} messages in a batch")


class Batch:
    """Collects the responses of one batch; `complete` is set when no member is open."""

    def __init__(self, outlet: Outlet, size: int, *, together: bool) -> None:
        self.outlet = outlet
        self.members = [BatchMember(self, index) for index in range(size)]
        self.complete = threading.Event()
        self._together = together
        self._lock = threading.Lock()  # Guards `_open`, and the answers of all members.
        self._open = size

    def settle(self, member: BatchMember, message: Any) -> None:
        """Store or send one response, unless the request has one; the last completes the batch."""
        with self._lock:
            if member.answered:
                return
            self._open -= 1
            member.answered, member.answer = True, message
            last = not self._open
        if last and self._together:
            message = [each.answer for each in self.members if each.answer is not None] or None
        if last:
            self.complete.set()
            self.outlet.finish(message)
        elif message is not None and not self._together:
            self.outlet.send(message)
        member.settled.set()


class BatchMember(Outlet):
    """The outlet of one request of a batch, at position `index` of the requests.

    `settled` is set when the response was sent, or stored for the array. The response is `None` if
    the request was cancelled.
    """

    def __init__(self, batch: Batch, index: int) -> None:
        super().__init__(batch.outlet.send)
        self.index = index
        self.settled = threading.Event()
        self.answered = False
        self.answer: Any = None
        self._batch = batch

    def finish(self, message: Message | list[Message] | None) -> None:
        self._batch.settle(self, message)

    def interrupt(self, retry_ms: int | None) -> None:
        self._batch.outlet.interrupt(retry_ms)


def expects_answer(message: Any) -> bool:
    """Return whether a message gets a response, as requests and invalid messages do."""
    if not isinstance(message, dict):
        return True
    if "method" in message:
        return "id" in message
    return not ("result" in message or "error" in message)


def refuse(message: Any, reason: str) -> Message:
    """Return the -32600 error response to a message that is invalid or not allowed here."""
    return error_reply(id_of(message), RpcError(INVALID_REQUEST, reason))


def id_of(message: Any) -> str | int | None:
    identifier = message.get("id") if isinstance(message, dict) else None
    return identifier if is_identifier(identifier) else None
