"""JSON-RPC 2.0 as this server reads and writes it.

Written without a look at the client's half, so that the two check each other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pydantic_core

Message = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Stateful revisions only; 2026-07-28 uses `INVALID_PARAMS`."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
"""2025-11-25 only."""

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class RpcError(Exception):
    """Raised by a handler to answer with a JSON-RPC error instead of a result.

    Attributes:
        code: The JSON-RPC error code.
        message: One sentence for people.
        data: Any JSON value, or `None` to leave it out.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
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
    """Return the JSON value in `frame`.

    Raises:
        RpcError: It is not UTF-8 JSON, or holds NaN or an infinity (code -32700).
    """
    try:
        return pydantic_core.from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"Not valid JSON: {error}") from error


def notification(method: str, params: Message | None = None) -> Message:
    """Return a notification; `params` is left out when there are none."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def request(identifier: str | int, method: str, params: Message | None = None) -> Message:
    """Return a request; `params` is left out when there are none."""
    return {"id": identifier, **notification(method, params)}


def reply(identifier: str | int, result: Message) -> Message:
    """Return the answer to a request that went well."""
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def failure(identifier: str | int | None, error: RpcError) -> Message:
    """Return the answer to a request that failed; the id is null when it could not be read."""
    body: Message = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": identifier, "error": body}


def is_identifier(value: object) -> bool:
    """Return whether `value` may be a request id: a string or an integer, never null or bool."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def identity(identifier: str | int) -> tuple[type, str | int]:
    """Return a table key that keeps `1` and `"1"` apart."""
    return type(identifier), identifier


def params_of(message: Message) -> Message:
    """Return the message's params, `{}` when it has none.

    Raises:
        RpcError: They are not an object (code -32602).
    """
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params must be an object")
    return params


def meta_of(params: Message) -> Message:
    """Return the params' `_meta`, `{}` when it has none or it is not an object."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def text_of(params: Message, name: str) -> str:
    """Return the string member `name` of `params`.

    Raises:
        RpcError: It is absent or not a string (code -32602).
    """
    value = params.get(name)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"params.{name} must be a string")
    return value


# What the server has seen, and a way to wait for it without sleeping.


class Stats:
    """Counters of one server; read them under `with stats:` or through `wait_for`.

    Attributes:
        requests: Requests received, by method.
        notifications: Notifications received, by method.
        cancels: Request ids named by `notifications/cancelled`, in the order received.
        cancelled: Calls that were stopped before they answered, for whatever reason.
        disconnects: HTTP calls whose client went away before the answer.
        replies: Answers sent (results and errors).
        errors: Answers sent that were JSON-RPC errors.
        responses: Answers received to the server's own requests.
        late_answers: Those of them that came after the question was withdrawn.
        questions: Questions asked, by method, in either era.
        tasks: Tasks that have not ended.
        paused: Tools waiting for the retry of their request (2026-07-28).
        violations: What clients did that the protocol forbids, one sentence each.
        running: Calls being served now.
        sessions: Sessions open now (connections in memory, stdio, stateful HTTP sessions).
        opened: Sessions opened so far.
        listeners: Open `subscriptions/listen` streams.
        streams: HTTP event streams being read now.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self.requests: Counter[str] = Counter()
        self.notifications: Counter[str] = Counter()
        self.cancels: list[str | int] = []
        self.cancelled = 0
        self.disconnects = 0
        self.replies = 0
        self.errors = 0
        self.responses = 0
        self.late_answers = 0
        self.questions: Counter[str] = Counter()
        self.tasks = 0
        self.paused = 0
        self.violations: list[str] = []
        self.running = 0
        self.sessions = 0
        self.opened = 0
        self.listeners = 0
        self.streams = 0

    def __enter__(self) -> Stats:
        self._changed.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        # Whoever held the lock may have changed something.
        self._changed.notify_all()
        self._changed.release()

    def blame(self, violation: str) -> None:
        """Record a breach of the protocol by a client."""
        with self:
            self.violations.append(violation)

    def wait_for(self, predicate: Callable[[Stats], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(stats)` is true.

        Args:
            predicate: Called under the lock; must not block.
            timeout: Seconds to wait at most.

        Returns:
            Whether it became true.
        """
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self), timeout)


# The protocol's published revisions, oldest first, and what separates them.
#
# Revision names are an enumerated list. They are never compared as strings: an unknown name must
# not sort before or after a known one.


REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Every revision this server speaks, oldest first."""

STATELESS = ("2026-07-28",)
"""Revisions without a handshake: each request says in `_meta` what it speaks."""

BATCHING = "2025-03-26"
"""The only revision with JSON-RPC batches."""


def select(revisions: Iterable[str]) -> tuple[str, ...]:
    """Return `revisions` in order of age.

    Raises:
        ValueError: One of them is unknown, or there are none.
    """
    wanted = set(revisions)
    unknown = wanted.difference(REVISIONS)
    if unknown or not wanted:
        raise ValueError(f"revisions must be some of {REVISIONS}, not {sorted(wanted)}")
    return tuple(revision for revision in REVISIONS if revision in wanted)


def since(revision: str, first: str) -> bool:
    """Return whether `revision` is `first` or a newer one."""
    return REVISIONS.index(revision) >= REVISIONS.index(first)


# What a client declared, and what a question needs of it.


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
