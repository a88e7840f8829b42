"""Questions that a server asks its client: the required capabilities, and the valid answers."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from syncmcp.testing.server import wire
from syncmcp.testing.server.wire import Message, RpcError

# The capabilities of a client that a question requires.


_SINCE = {
    "elicitation": "2025-06-18",
    "elicitation.url": "2025-11-25",
    "sampling.context": "2025-11-25",
    "sampling.tools": "2025-11-25",
}


class MissingCapability(RpcError):
    """The client did not declare a capability that a question needs.

    The code is -32021; before 2026-07-28, it is -32600.

    Attributes:
        feature: The capability, for example "sampling.tools".
    """

    def __init__(self, feature: str, revision: str) -> None:
        data: Any = None
        for step in reversed(feature.split(".")):
            data = {step: data or {}}
        stateless = revision in wire.STATELESS
        lacks = not wire.since(revision, _SINCE.get(feature, revision))
        why = f": revision {revision} does not have it" if lacks else ""
        if not (lacks or stateless or "." in feature):  # in 2026-07-28, `data` names it
            why = f": it needs a handler, {feature}="
        super().__init__(
            wire.MISSING_CAPABILITY if stateless else wire.INVALID_REQUEST,
            f"The client did not declare {feature}{why}",
            {"requiredCapabilities": data} if stateless else None,
        )
        self.feature = feature


class UrlElicitationRequired(RpcError):
    """A tool needs the user to visit URLs first. The code is -32042, in 2025-11-25 only.

    A tool raises it. The client is expected to call the tool again afterwards.

    Args:
        elicitations: Message and URL of each elicitation, by its id.
        message: The message of the error, one sentence for people.
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
        super().__init__(wire.URL_ELICITATION_REQUIRED, message, {"elicitations": entries})


def declared(capabilities: Message, feature: str, revision: str) -> bool:
    """Return whether the revision has `feature`, a dotted path, and the client declared it."""
    if not wire.since(revision, _SINCE.get(feature, revision)):
        return False
    if feature.startswith("elicitation.") and not declared(capabilities, "elicitation", revision):
        return False
    # An empty object means forms: 2025-06-18 had no other mode.
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
    """Return the first undeclared capability that the question needs, or `None`."""
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


# Requests of the server to its client (before 2026-07-28).


Progress = Callable[[float, "float | None", "str | None"], object]


class Withdrawn(Exception):
    """A question ended without an answer: it was withdrawn, or its call has ended."""


class Question:
    """A request of the server to its client.

    The methods may be called from any thread.

    Attributes:
        id: The request's id, which is also its progress token, if it has one.
    """

    def __init__(
        self,
        identifier: int,
        method: str,
        *,
        withdraw: Callable[[Question, str | None], bool],
        progress: Progress | None,
    ) -> None:
        self.id = identifier
        self._method = method
        self._withdraw = withdraw
        self._progress = progress
        self._reached: float | None = None
        # Progress and the response, in the order received; or the exception that ended `result`.
        self._inbox: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()

    def __repr__(self) -> str:
        return f"<Question {self.id}: {self._method}>"

    def result(self, timeout: float = 300.0) -> Any:
        """Wait for the result, an object unless the client violates the protocol.

        Progress callbacks run on this thread.

        Args:
            timeout: The longest time to wait, in seconds; each progress notification restarts it.
                Then the question is withdrawn.

        Raises:
            RpcError: The client answered with an error.
            TimeoutError: No answer came in time.
            Withdrawn: The question was withdrawn, or the call to which it belongs has ended.
            ConnectionError: The session has ended.
        """
        while True:
            try:
                item = self._inbox.get(timeout=timeout)
            except queue.Empty:
                text = f"the client did not answer {self._method} in {timeout} s"
                self._withdraw(self, text)
                raise TimeoutError(text) from None
            if isinstance(item, Exception):
                raise item
            if "method" not in item:
                return _result(item)
            params: Message = item["params"]
            if self._progress is not None:
                self._progress(params["progress"], params.get("total"), params.get("message"))

    def cancel(self, reason: str | None = None) -> bool:
        """Withdraw the question and notify the client; return whether it was still open."""
        if not self._withdraw(self, reason):
            return False
        self.end(Withdrawn(reason or f"{self._method} was withdrawn"))
        return True

    def answered(self, message: Message) -> None:
        """Accept the client's response, on behalf of the session."""
        self._inbox.put(message)

    def progressed(self, params: Message) -> str | None:
        """Accept a progress notification; return its violation of the protocol, or `None`."""
        reached = params.get("progress")
        if self._progress is None:
            return f"progress of question {self.id}, which has no progress token"
        if not isinstance(reached, (int, float)) or isinstance(reached, bool):
            return f"progress of question {self.id} is not a number: {reached!r}"
        if self._reached is not None and reached <= self._reached:
            return f"progress of question {self.id} went from {self._reached} to {reached}"
        self._reached = reached
        self._inbox.put({"method": "notifications/progress", "params": params})
        return None

    def end(self, error: Exception) -> None:
        """Make `result` raise `error`."""
        self._inbox.put(error)


def _result(answer: Message) -> Any:
    error = answer.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        raise RpcError(
            code if isinstance(code, int) else 0, str(error.get("message")), error.get("data")
        )
    return answer.get("result")


# Validation of answers.


def find_violations(method: str, params: Message, answer: Any, revision: str) -> list[str]:
    """Return the violations of the protocol in `answer`, the result of a question."""
    if not isinstance(answer, dict):
        return [f"{method}: the answer is not an object"]
    found: list[str] = [
        f"{name} in an answer" for name in ("jsonrpc", "id", "resultType") if name in answer
    ]
    if method == "sampling/createMessage":
        found += _sampling(params, answer, revision)
    elif method == "elicitation/create":
        found += _elicitation(params, answer)
    elif method == "roots/list":
        found += _roots(answer)
    return [f"{method}: {breach}" for breach in found]


def _sampling(params: Message, answer: Message, revision: str) -> list[str]:
    found: list[str] = []
    if answer.get("role") not in ("user", "assistant"):
        found.append(f"role is {answer.get('role')!r}")
    if not isinstance(answer.get("model"), str):
        found.append("model is not a string")
    if not isinstance(answer.get("stopReason", ""), str):
        found.append("stopReason is not a string")
    content = answer.get("content")
    if isinstance(content, list) and not wire.since(revision, "2025-11-25"):
        found.append(f"content is an array, which {revision} does not have")
    kinds = ["text", "image"]
    if wire.since(revision, "2025-03-26"):
        kinds.append("audio")
    if params.get("tools"):
        kinds.append("tool_use")
    for block in content if isinstance(content, list) else [content]:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in kinds:
            found.append(f"a content block of type {kind!r}")
    return found


def _elicitation(params: Message, answer: Message) -> list[str]:
    action = answer.get("action")
    form = params.get("mode", "form") == "form"
    if action not in ("accept", "decline", "cancel"):
        return [f"action is {action!r}"]
    if action != "accept" or not form:
        return ["unrequested content"] if answer.get("content") is not None else []
    return _content(params["requestedSchema"], answer.get("content", {}))


def _content(schema: Message, content: Any) -> list[str]:
    # Imported here because few servers need it, and the import is slow.
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(
        {**schema, "additionalProperties": False},
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )
    return [
        f"content{''.join(f'.{step}' for step in error.absolute_path)}: {error.message}"
        for error in validator.iter_errors(content)
    ]


def _roots(answer: Message) -> list[str]:
    roots = answer.get("roots")
    if not isinstance(roots, list):
        return ["roots is not an array"]
    uris = [root.get("uri") if isinstance(root, dict) else None for root in roots]
    return [f"a root with the uri {uri!r}" for uri in uris if not str(uri).startswith("file:///")]
