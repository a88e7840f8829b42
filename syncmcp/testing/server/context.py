"""What a tool sees of the request it serves."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from syncmcp.testing.server import wire
from syncmcp.testing.server.asking import Asked, Asker
from syncmcp.testing.server.questions import Progress, Question, declared
from syncmcp.testing.server.session import Call, Session
from syncmcp.testing.server.wire import INVALID_PARAMS, STATELESS, Message, RpcError, since

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

QUESTION_TIMEOUT = 300.0
"""Seconds a question waits for its answer unless told otherwise."""


def check_level(level: object) -> str:
    """Return `level` if it is a log level of the protocol.

    Raises:
        RpcError: It is not (code -32602).
    """
    if not isinstance(level, str) or level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}")
    return level


class ToolContext:
    """The request being served. A parameter annotated `ToolContext` receives it.

    Its methods may be called from any thread. After the request was answered or cancelled
    they send nothing.

    What asks the client something blocks until the answer is there, in either era, and serves
    prompts and resources as well as tools. Up to 2025-11-25 it is a request on the stream of
    this call. In 2026-07-28 the call is answered with `input_required`, the thread waits for
    the retry and then goes on under it: id, `_meta`, progress token and stream are then those
    of the retry.

    Attributes:
        cancelled: Set when the caller gave up: by `notifications/cancelled`, by closing the
            response stream (2026-07-28 over HTTP), by ending the session, or by not sending the
            request again.
    """

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self.cancelled = asker.cancelled

    @property
    def call(self) -> Call:
        """The request on the wire: the latest one, if the client had to send it again."""
        return self._asker.call

    @property
    def method(self) -> str:
        """The request's method."""
        return self.call.method

    @property
    def params(self) -> Message:
        """The request's params, as received."""
        return self.call.params

    @property
    def request_id(self) -> str | int:
        """The request's id."""
        return self.call.request_id

    @property
    def revision(self) -> str:
        """The protocol revision the request is served under."""
        return self.call.revision

    @property
    def meta(self) -> Message:
        """The request's `_meta` (`{}` when absent)."""
        return wire.meta_of(self.call.params)

    @property
    def client_info(self) -> Message | None:
        """What the client said of itself, or `None`."""
        return self.call.client_info

    @property
    def client_capabilities(self) -> Message:
        """What the client can do, as it declared it."""
        return self.call.client_capabilities

    @property
    def cancel_reason(self) -> str | None:
        """The reason given with `notifications/cancelled`, if any."""
        return self.call.cancel_reason

    @property
    def session(self) -> Session | None:
        """The session the request came in, `None` where there is none (2026-07-28 over HTTP)."""
        return self.call.session

    @property
    def session_id(self) -> str | None:
        """The session's id over stateful HTTP, else `None`."""
        return self.session.id if self.session is not None else None

    @property
    def batch(self) -> tuple[int, int] | None:
        """Position and size `(index, size)` when the request came in a JSON-RPC batch."""
        return self.call.batch

    # What it tells the client

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send `notifications/progress`; nothing is sent unless the caller gave a token.

        Args:
            progress: How far the work is; must grow from call to call.
            total: Where it ends, if known.
            message: What is happening, briefly (not sent before 2025-03-26).
        """
        token = self.meta.get("progressToken")
        if not wire.is_identifier(token):
            return
        params: Message = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self.revision != "2024-11-05":
            params["message"] = message
        self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send `notifications/message` if the client wants this level.

        Stateful revisions: at or above the level of `logging/setLevel`, "info" before that.
        2026-07-28: only when the request's `_meta` asked, at or above the level it named.

        Raises:
            RpcError: `level` is not a level of the protocol.
        """
        wanted = self.call.log_level
        if self.session is not None and self.session.revision == self.revision:
            wanted = self.session.log_level
        rank = LEVELS.index(check_level(level))
        if wanted is None or rank < LEVELS.index(wanted):
            return
        params: Message = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        self.notify("notifications/message", params)

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send any notification on the stream of this request."""
        self.call.notify(method, params)

    def describe_task(self, message: str) -> None:
        """Have the task in which the tool runs say `message`; without one this does nothing."""

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Drop the HTTP event stream of this call while it goes on (2025-11-25, polling).

        The client comes back with `Last-Event-ID` and receives what it missed. Elsewhere this
        does nothing.

        Args:
            retry_ms: Milliseconds the client is told to wait before it comes back.
        """
        self.call.interrupt(retry_ms)

    # What it asks the client

    def can(self, feature: str) -> bool:
        """Return whether the client declared a feature the revision has.

        "sampling", "sampling.tools", "sampling.context", "elicitation", "elicitation.form",
        "elicitation.url", "roots", "roots.listChanged", or the path of any other capability.
        """
        return declared(self.client_capabilities, feature, self.revision)

    def sample(
        self,
        messages: str | list[Message],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        tools: list[Message] | None = None,
        tool_choice: Message | None = None,
        timeout: float = QUESTION_TIMEOUT,
        progress: Progress | None = None,
        **params: Any,
    ) -> Message:
        """Have the client's model answer; return the result (`role`, `content`, `model`).

        Args:
            messages: The conversation; a text is one message of the user.
            max_tokens: How many tokens it may take.
            system_prompt: The system prompt.
            tools: Tools it may ask for (2025-11-25 and newer).
            tool_choice: Whether it may or must (2025-11-25 and newer).
            timeout: Seconds to wait at most.
            progress: As for `ask` (not in 2026-07-28).
            params: Any other param, in camel case (`temperature`, `modelPreferences`, ...).

        Raises:
            MissingCapability: The client did not declare what this needs.
            RpcError, TimeoutError, Withdrawn, ConnectionError: As `ask_all`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        asked: Message = {"messages": messages, "maxTokens": max_tokens, **params}
        more = {"systemPrompt": system_prompt, "tools": tools, "toolChoice": tool_choice}
        asked |= {name: value for name, value in more.items() if value is not None}
        return self._asker.ask(("sampling/createMessage", asked), timeout, progress)

    def elicit(
        self,
        message: str,
        schema: Mapping[str, Any],
        *,
        timeout: float = QUESTION_TIMEOUT,
        progress: Progress | None = None,
    ) -> Message:
        """Have a person fill in a form; return the result (`action`, and `content` on accept).

        Args:
            message: What it is about.
            schema: The JSON Schema of the content: a flat object.
            timeout: Seconds to wait at most.
            progress: As for `ask` (not in 2026-07-28).

        Raises:
            MissingCapability: The client did not declare forms.
            RpcError, TimeoutError, Withdrawn, ConnectionError: As `ask_all`.
        """
        params: Message = {"message": message, "requestedSchema": dict(schema)}
        if since(self.revision, "2025-11-25"):
            params["mode"] = "form"
        return self._asker.ask(("elicitation/create", params), timeout, progress)

    def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = None,
        *,
        timeout: float = QUESTION_TIMEOUT,
        progress: Progress | None = None,
    ) -> Message:
        """Have a person visit `url`; the result's `action` says whether they agreed to.

        Args:
            message: What it is about.
            url: Where to go.
            elicitation_id: The id for `complete_elicitation`; a new one unless given
                (2025-11-25; newer revisions have none).
            timeout: Seconds to wait at most.
            progress: As for `ask` (not in 2026-07-28).

        Raises:
            MissingCapability: The client did not declare urls.
            RpcError, TimeoutError, Withdrawn, ConnectionError: As `ask_all`.
        """
        params: Message = {"message": message, "mode": "url", "url": url}
        if self.revision == "2025-11-25":
            params["elicitationId"] = elicitation_id or str(uuid.uuid4())
        return self._asker.ask(("elicitation/create", params), timeout, progress)

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Say that what `elicit_url` or an error -32042 sent a person to do is done.

        2025-11-25 only; elsewhere nothing is sent. It may come after the call was answered.
        """
        if self.revision != "2025-11-25" or self.session is None:
            return
        method, params = "notifications/elicitation/complete", {"elicitationId": elicitation_id}
        if not self.call.notify(method, params):
            self.session.notify(method, params)

    def list_roots(self, *, timeout: float = QUESTION_TIMEOUT) -> list[Message]:
        """Return the client's roots (`uri`, `name`).

        Raises:
            MissingCapability: The client did not declare roots.
            RpcError, TimeoutError, Withdrawn, ConnectionError: As `ask_all`.
        """
        roots = self._asker.ask(("roots/list", None), timeout, None).get("roots")
        return roots if isinstance(roots, list) else []

    def ask(
        self, method: str, params: Message | None = None, *, progress: Progress | None = None
    ) -> Question:
        """Send a request and return at once; the question can be withdrawn with `cancel`.

        Args:
            method: "sampling/createMessage", "elicitation/create" or "roots/list".
            params: The request's params.
            progress: Called as `progress(value, total, message)` for what the client reports,
                on the thread that waits for the result; the request gets a progress token.

        Raises:
            MissingCapability: The client did not declare what this needs.
            RpcError: The revision has no such direction (2026-07-28).
            Withdrawn: The call has ended.
            ConnectionError: The session has ended.
        """
        self._asker.check(method, params)
        return self._asker.send(method, params, progress)

    def ask_all(
        self,
        questions: Mapping[str, Asked],
        *,
        timeout: float = QUESTION_TIMEOUT,
    ) -> dict[str, Message]:
        """Ask several questions at once and return the results by key.

        In 2026-07-28 they travel in one `input_required` result; what a retry does not answer
        is asked again. Before that they are requests side by side.

        Args:
            questions: Method and params of each.
            timeout: Seconds to wait for each answer, or for a retry.

        Raises:
            MissingCapability: The client did not declare what one of them needs.
            RpcError: The client answered one with an error; the others are withdrawn.
            TimeoutError: An answer or retry did not come in time.
            Withdrawn: The call ended meanwhile.
            ConnectionError: The session ended meanwhile.
        """
        return self._asker.ask_all(questions, timeout)

    def pause_round(self, *, timeout: float = QUESTION_TIMEOUT) -> None:
        """Have the client send its request again without asking anything (2026-07-28).

        In other revisions this does nothing.

        Raises:
            TimeoutError: No retry came in time.
            Withdrawn: The call ended meanwhile.
        """
        if self.revision in STATELESS:
            self._asker.round({}, timeout)

    def request(
        self, method: str, params: Message | None = None, *, timeout: float = 30.0
    ) -> Message:
        """Send the client any request, declared or not, and wait for its result.

        For stateful revisions, and for tests of what a client does with a server that asks
        more than it may: neither capabilities nor the answer are checked.

        Args:
            method: The method.
            params: The request's params.
            timeout: Seconds to wait at most.

        Raises:
            RpcError: The client answered with an error, or the revision has no such direction.
            TimeoutError: No answer came in time.
            Withdrawn: The call has ended.
            ConnectionError: The session ended first.
        """
        question = self._asker.send(method, params, None)
        try:
            result = question.result(timeout)
            return result if isinstance(result, dict) else {}
        finally:
            self._asker.discard(question)
