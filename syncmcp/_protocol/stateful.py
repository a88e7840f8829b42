"""The stateful revisions, 2024-11-05 to 2025-11-25: a handshake, a session, two-way requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from syncmcp._protocol.capabilities import (
    ELICITATION,
    NO_OFFER,
    ROOTS,
    SAMPLING,
    OfferedCapabilities,
    client_capabilities,
)
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.metadata import merge_meta
from syncmcp._protocol.steps import InputRound
from syncmcp._protocol.tasks import AUGMENTED, CORE_TASKS, TASK_METHODS, TaskState
from syncmcp.errors import ProtocolError

Revision: TypeAlias = Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


class RevisionFeatures(NamedTuple):
    """The requests, notifications and features of one revision."""

    requests: Mapping[str, tuple[str, ...]]  # the client's, with the server capability of each
    questions: frozenset[str]  # the server's requests
    notifications: frozenset[str]  # the client's
    completion_context: bool  # ``completion/complete`` has the parameter ``context``
    content_lists: bool  # sampling has tools and lists of blocks, and elicitation has modes
    single_blocks: frozenset[str]  # see `Dialect`
    batches: bool = False


_REQUESTS_2024: dict[str, tuple[str, ...]] = {
    "initialize": (),
    "ping": (),
    "completion/complete": (),  # the capability exists since 2025-03-26
    "logging/setLevel": ("logging",),
    "prompts/get": ("prompts",),
    "prompts/list": ("prompts",),
    "resources/list": ("resources",),
    "resources/read": ("resources",),
    "resources/subscribe": ("resources", "subscribe"),
    "resources/templates/list": ("resources",),
    "resources/unsubscribe": ("resources", "subscribe"),
    "tools/call": ("tools",),
    "tools/list": ("tools",),
}
_REQUESTS_2503 = {**_REQUESTS_2024, "completion/complete": ("completions",)}
_REQUESTS_2511 = {
    **_REQUESTS_2503,
    "tasks/cancel": ("tasks", "cancel"),
    "tasks/get": ("tasks",),
    "tasks/list": ("tasks", "list"),
    "tasks/result": ("tasks",),
}
_QUESTIONS_2024 = frozenset(("ping", ROOTS, SAMPLING))
_QUESTIONS_2506 = _QUESTIONS_2024 | {ELICITATION}
_QUESTIONS_2511 = _QUESTIONS_2506 | {"tasks/cancel", "tasks/get", "tasks/list", "tasks/result"}
_NOTIFICATIONS_2024 = frozenset(
    (
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
    )
)
_NOTIFICATIONS_2511 = _NOTIFICATIONS_2024 | {"notifications/tasks/status"}
_BLOCKS_2024 = frozenset(("image", "text"))
_BLOCKS_2503 = _BLOCKS_2024 | {"audio"}

REVISION_FEATURES: dict[str, RevisionFeatures] = {
    "2025-11-25": RevisionFeatures(
        _REQUESTS_2511, _QUESTIONS_2511, _NOTIFICATIONS_2511, True, True, frozenset()
    ),
    "2025-06-18": RevisionFeatures(
        _REQUESTS_2503, _QUESTIONS_2506, _NOTIFICATIONS_2024, True, False, _BLOCKS_2503
    ),
    "2025-03-26": RevisionFeatures(
        _REQUESTS_2503,
        _QUESTIONS_2024,
        _NOTIFICATIONS_2024,
        False,
        False,
        _BLOCKS_2503,
        batches=True,
    ),
    "2024-11-05": RevisionFeatures(
        _REQUESTS_2024, _QUESTIONS_2024, _NOTIFICATIONS_2024, False, False, _BLOCKS_2024
    ),
}
"""The stateful revisions, newest first."""

# Requests without a progress token: they end too soon to report progress, or come before the
# handshake is complete. Tasks report progress with the token of the call that created them.
_WITHOUT_PROGRESS = frozenset(("initialize", "ping")) | TASK_METHODS


class Stateful(Dialect):
    """The dialect of a stateful revision. See `Dialect`."""

    stateful = True

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self._features = REVISION_FEATURES[revision]
        self.content_lists = self._features.content_lists
        self.single_blocks = self._features.single_blocks
        self.batches = self._features.batches
        has_tasks = not TASK_METHODS.isdisjoint(self._features.requests)
        self.tasks = CORE_TASKS if has_tasks else None

    def required_capability(self, method: str) -> tuple[str, ...] | None:
        return self._features.requests.get(method)

    def supports_notification(self, method: str) -> bool:
        return method in self._features.notifications

    def supported_part(self, offer: OfferedCapabilities) -> OfferedCapabilities:
        if self._features.content_lists:
            return offer
        return offer._replace(
            sampling_tools=False,
            sampling_context=False,
            form=offer.form and ELICITATION in self._features.questions,
            url=False,
        )

    def capabilities(self, offer: OfferedCapabilities) -> dict[str, Any]:
        """Return the capabilities object of the handshake, without extensions."""
        offer = self.supported_part(offer)
        capabilities = client_capabilities(offer, modes=self._features.content_lists)
        if offer.roots:
            capabilities["roots"] = {"listChanged": True}
        return capabilities

    def request_params(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
        offer: OfferedCapabilities = NO_OFFER,
    ) -> dict[str, Any] | None:
        """See `Dialect`. The request's id is also its progress token: it is unique."""
        if method in _WITHOUT_PROGRESS and not meta:
            return params
        params = dict(params) if params else {}
        merged = merge_meta(params, meta) if meta or "_meta" in params else {}
        if method not in _WITHOUT_PROGRESS:
            # Also without a progress callback: progress resets the idle timeout of the call.
            merged["progressToken"] = id
        params["_meta"] = merged
        if method == "completion/complete" and not self._features.completion_context:
            params.pop("context", None)
        return params

    def session_headers(self) -> Mapping[str, str]:
        return {"MCP-Protocol-Version": self.revision}

    def read_result(self, method: str, result: Any) -> dict[str, Any] | InputRound | TaskState:
        if type(result) is not dict:
            raise ProtocolError("the result is not an object", method=method)
        if "task" in result and "content" not in result and method == AUGMENTED and self.tasks:
            return self.tasks.read(method, result["task"])
        return result
