"""The context of a request: its properties, and how its handler notifies and asks the client."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from syncmcp._base.checks import kind_of, pairs
from syncmcp.testing.server import wire
from syncmcp.testing.server.asking import Asked, Asker
from syncmcp.testing.server.questions import Progress, Question, declared
from syncmcp.testing.server.session import Session
from syncmcp.testing.server.wire import INVALID_PARAMS, STATELESS, Message, RpcError, since

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

QUESTION_TIMEOUT = 300.0
"""The default timeout of a question, in seconds."""


def check_level(level: object) -> str:
    """Return `level` if it is a log level of the protocol; raise `RpcError` (-32602)."""
    if not isinstance(level, str) or level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}")
    return level


class ToolContext(Asker):
    """The context of a request that is being served.

    A parameter annotated `ToolContext` of a tool, prompt or resource function receives the context.
    The methods may be called from any thread. After the request has ended, by a response or a
    cancellation, they send nothing.

    The methods that ask the client a question (`sample`, `elicit`, `elicit_url`, `list_roots`,
    `ask_all`, `request`) block until the answer has come. Before 2026-07-28, the question is a
    request on the stream of this call. In 2026-07-28, the response to the call is `input_required`.
    Then the thread waits for the client's retry of the request, and goes on with the retry. From
    then on, `request_id`, `meta`, the progress token and the stream are those of the retry.

    Attributes:
        call: The request: the latest retry, if the client has sent it again (2026-07-28).
        cancelled: Set when the client has cancelled the request, by `notifications/cancelled` or by
            closing the response stream (2026-07-28 over HTTP). It is also set if the client ends
            the session, or does not send the retry in time.
    """

    def __repr__(self) -> str:
        return f"<ToolContext of {self.method} {self.request_id!r}>"

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
        """The protocol revision of the request."""
        return self.call.revision

    @property
    def meta(self) -> Message:
        """The request's `_meta`; `{}` if absent."""
        return wire.meta_of(self.call.params)

    @property
    def client_info(self) -> Message | None:
        """The client's `clientInfo`, or `None`."""
        return self.call.client_info

    @property
    def client_capabilities(self) -> Message:
        """The capabilities that the client declared."""
        return self.call.client_capabilities

    @property
    def cancel_reason(self) -> str | None:
        """The reason in `notifications/cancelled`, if any."""
        return self.call.cancel_reason

    @property
    def session(self) -> Session | None:
        """The session of the request; `None` in 2026-07-28 over HTTP, which has no sessions."""
        return self.call.session

    @property
    def session_id(self) -> str | None:
        """The session's id over HTTP; `None` over other transports, or without a session."""
        return self.session.id if self.session is not None else None

    @property
    def batch(self) -> tuple[int, int] | None:
        """The position and size `(index, size)` of the request in a JSON-RPC batch, or `None`."""
        return self.call.batch

    # Notifications

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send `notifications/progress`, if the request has a progress token.

        Args:
            progress: The progress so far, which must grow from call to call.
            total: The progress at the end, if known.
            message: A short text for people. It is not sent in 2024-11-05, which does not have it.
        """
        token = self.meta.get("progressToken")
        if not wire.is_identifier(token):
            return
        text = None if self.revision == "2024-11-05" else message
        params = wire.given(progressToken=token, progress=progress, total=total, message=text)
        self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send `notifications/message`, if the client wants messages of this level.

        In stateful revisions, the client wants messages at or above the level of
        `logging/setLevel`, by default "info". In 2026-07-28, it wants messages at or above the
        level in the request's `_meta`; without that level, nothing is sent.

        Args:
            level: One of "debug", "info", "notice", "warning", "error", "critical", "alert" and
                "emergency".
            data: Any JSON value.
            logger: The name of the logger.

        Raises:
            RpcError: `level` is not a level of the protocol (code -32602).
        """
        wanted = self.call.log_level
        if self.session is not None and self.session.revision == self.revision:
            wanted = self.session.log_level
        rank = LEVELS.index(check_level(level))
        if wanted is None or rank < LEVELS.index(wanted):
            return
        named = wire.given(logger=logger)
        self.notify("notifications/message", {"level": level, "data": data, **named})

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send any notification on the stream of this request."""
        self.call.notify(method, params)

    def describe_task(self, message: str) -> None:
        """Set the status message of the task in which the tool runs, if it runs in a task."""

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Close the HTTP event stream of this call while the call goes on (2025-11-25, polling).

        The client reconnects with `Last-Event-ID`, and receives the events that it missed. With
        other revisions and transports, the method does nothing.

        Args:
            retry_ms: The reconnection time to send, in milliseconds; `None` sends none.
        """
        self.call.interrupt(retry_ms)

    # Questions

    def can(self, feature: str) -> bool:
        """Return whether the revision has a feature and the client declared it.

        Args:
            feature: "sampling", "sampling.tools", "sampling.context", "elicitation",
                "elicitation.form", "elicitation.url", "roots", "roots.listChanged", or the path of
                any other capability.
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
        """Ask the client's model (`sampling/createMessage`).

        Args:
            messages: The conversation; a text is one message with the role "user".
            max_tokens: The maximum number of tokens of the answer.
            system_prompt: The system prompt.
            tools: Tools that the model may call (2025-11-25 and newer).
            tool_choice: Whether the model may or must call one (2025-11-25 and newer).
            timeout: Seconds to wait at most.
            progress: See `ask` (not in 2026-07-28).
            params: Any other params, in camel case (`temperature`, `modelPreferences`, ...).

        Returns:
            The result: `role`, `content`, `model`, and more.

        Raises:
            MissingCapability: The client did not declare the capability for this.
            RpcError, TimeoutError, Withdrawn, ConnectionError: See `ask_all`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
        asked: Message = {"messages": messages, "maxTokens": max_tokens, **params}
        asked |= wire.given(systemPrompt=system_prompt, tools=tools, toolChoice=tool_choice)
        return self._ask(("sampling/createMessage", asked), timeout, progress)

    def elicit(
        self,
        message: str,
        schema: Mapping[str, Any],
        *,
        timeout: float = QUESTION_TIMEOUT,
        progress: Progress | None = None,
    ) -> Message:
        """Ask the user to fill in a form (`elicitation/create`).

        Args:
            message: The text that is shown with the form.
            schema: The JSON Schema of the content: a flat object.
            timeout: Seconds to wait at most.
            progress: See `ask` (not in 2026-07-28).

        Returns:
            The result: `action`, and `content` if that is "accept".

        Raises:
            MissingCapability: The client did not declare form elicitation.
            TypeError: `schema` is not a mapping.
            RpcError, TimeoutError, Withdrawn, ConnectionError: See `ask_all`.
        """
        given: Any = schema
        if not isinstance(given, Mapping):
            raise TypeError(
                f"schema must be a JSON Schema as a mapping, not {kind_of(schema)}: write"
                " elicit(message, schema)"
            )
        params: Message = {"message": message, "requestedSchema": dict(schema)}
        if since(self.revision, "2025-11-25"):
            params["mode"] = "form"
        return self._ask(("elicitation/create", params), timeout, progress)

    def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = None,
        *,
        timeout: float = QUESTION_TIMEOUT,
        progress: Progress | None = None,
    ) -> Message:
        """Ask the user to visit `url` (`elicitation/create` with the mode "url").

        Args:
            message: The text that is shown with the URL.
            url: The URL.
            elicitation_id: The id for `complete_elicitation`; by default a new id (2025-11-25;
                newer revisions have none).
            timeout: Seconds to wait at most.
            progress: See `ask` (not in 2026-07-28).

        Returns:
            The result, whose `action` says whether the user agreed.

        Raises:
            MissingCapability: The client did not declare URL elicitation.
            RpcError, TimeoutError, Withdrawn, ConnectionError: See `ask_all`.
        """
        params: Message = {"message": message, "mode": "url", "url": url}
        if self.revision == "2025-11-25":
            params["elicitationId"] = elicitation_id or str(uuid.uuid4())
        return self._ask(("elicitation/create", params), timeout, progress)

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Send `notifications/elicitation/complete`, in 2025-11-25 only.

        The notification tells the client that the user has done what `elicit_url` or an error
        -32042 asked for. It may be sent after the call has ended, on the session's own stream.
        """
        if self.revision != "2025-11-25" or self.session is None:
            return
        method, params = "notifications/elicitation/complete", {"elicitationId": elicitation_id}
        if not self.call.notify(method, params):
            self.session.notify(method, params)

    def list_roots(self, *, timeout: float = QUESTION_TIMEOUT) -> list[Message]:
        """Ask for the client's roots (`roots/list`); each has a `uri` and perhaps a `name`.

        Raises:
            MissingCapability: The client did not declare roots.
            RpcError, TimeoutError, Withdrawn, ConnectionError: See `ask_all`.
        """
        roots = self._ask(("roots/list", None), timeout, None).get("roots")
        return roots if isinstance(roots, list) else []

    def ask(
        self, method: str, params: Message | None = None, *, progress: Progress | None = None
    ) -> Question:
        """Send the client a request and return at once; `Question.cancel` withdraws it.

        Args:
            method: "sampling/createMessage", "elicitation/create" or "roots/list".
            params: The request's params.
            progress: Called as `progress(value, total, message)` for each progress notification of
                the client, on the thread that waits for the result. If given, the request has a
                progress token.

        Raises:
            MissingCapability: The client did not declare the capability for this.
            RpcError: The revision has no requests from servers (2026-07-28).
            Withdrawn: The call has ended.
            ConnectionError: The session has ended.
        """
        self._check(method, params)
        return self.call.question(method, params, progress)

    def ask_all(
        self, questions: Mapping[str, Asked], *, timeout: float = QUESTION_TIMEOUT
    ) -> dict[str, Message]:
        """Ask several questions at once and return the results by key.

        In 2026-07-28, one `input_required` result has all questions; questions that a retry does
        not answer are asked again. Before 2026-07-28, the questions are concurrent requests.

        Args:
            questions: Method and params of each question, by key.
            timeout: The longest time to wait for each answer, or for a retry, in seconds.

        Raises:
            TypeError: `questions` has another form.
            MissingCapability: The client did not declare the capability for a question.
            RpcError: The client answered a question with an error; the others are withdrawn.
            TimeoutError: An answer or retry did not come in time.
            Withdrawn: The call has ended.
            ConnectionError: The session has ended.
        """
        pairs(questions, "questions")
        return self._ask_all(questions, timeout)

    def pause_round(self, *, timeout: float = QUESTION_TIMEOUT) -> None:
        """Have the client retry its request, without a question (2026-07-28).

        The response to the call is an `input_required` result that has no questions. In other
        revisions, the method does nothing.

        Args:
            timeout: The longest time to wait for the retry, in seconds.

        Raises:
            TimeoutError: No retry came in time.
            Withdrawn: The call has ended.
        """
        if self.revision in STATELESS:
            self._round({}, timeout)

    def request(
        self, method: str, params: Message | None = None, *, timeout: float = 30.0
    ) -> Message:
        """Send the client any request, and wait for its result (before 2026-07-28).

        Use it to test how a client treats a server that violates the protocol: neither the client's
        capabilities nor its answer are checked.

        Args:
            method: The method.
            params: The request's params.
            timeout: Seconds to wait at most.

        Raises:
            RpcError: The client answered with an error, or the revision has no requests from
                servers.
            TimeoutError: No answer came in time.
            Withdrawn: The call has ended.
            ConnectionError: The session has ended.
        """
        result = self.call.question(method, params, None).result(timeout)
        return result if isinstance(result, dict) else {}
