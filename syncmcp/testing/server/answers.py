"""What a client may answer: every breach of the protocol in one sentence."""

from __future__ import annotations

from typing import Any

from syncmcp.testing.server.revisions import since
from syncmcp.testing.server.wire import Message

_ACTIONS = ("accept", "decline", "cancel")


def breaches(method: str, params: Message, answer: Any, revision: str) -> list[str]:
    """Return what is wrong with `answer`, the result of a question under `revision`."""
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
    if isinstance(content, list) and not since(revision, "2025-11-25"):
        found.append(f"content is an array, which {revision} does not have")
    kinds = ["text", "image"]
    if since(revision, "2025-03-26"):
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
    if action not in _ACTIONS:
        return [f"action is {action!r}"]
    if action != "accept" or not form:
        return ["content that nobody asked for"] if answer.get("content") is not None else []
    return _content(params["requestedSchema"], answer.get("content", {}))


def _content(schema: Message, content: Any) -> list[str]:
    # Loaded late: most servers never ask.
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
    return [f"a root with the uri {uri!r}" for uri in uris if not _is_file(uri)]


def _is_file(uri: Any) -> bool:
    return isinstance(uri, str) and uri.startswith("file:///")
