"""The steps of the scripts that a `ScriptedPeer` plays in memory, over stdio and over HTTP.

A script is a list of steps, which are played in order on one connection (over HTTP: on the whole
endpoint). The functions of this module return steps. In a value that a step sends, the strings
`"$id"` and `"$token"` are replaced by the id and the progress token of the message to which the
step responds::

    from syncmcp.testing import ScriptedPeer, script as s

    opening = s.handshake(probe=True)  # as a client with mode="auto" opens
    peer = ScriptedPeer([*opening, s.expect("tools/call"), s.delay(0.2), s.cut(code=3)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncmcp._base import checks

__all__ = [
    "ID",
    "PROGRESS_TOKEN",
    "Script",
    "Step",
    "accept",
    "chunk",
    "comment",
    "cut",
    "delay",
    "drip",
    "end",
    "error",
    "event",
    "expect",
    "garbage",
    "gate",
    "handshake",
    "head",
    "input_required",
    "message",
    "notify",
    "progress",
    "raw",
    "repeat",
    "reply",
    "request",
    "silence",
    "stderr",
    "stop_reading",
    "withdraw",
]

Step = dict[str, Any]
"""A step: the type of the return values of this module's functions."""

Script = Sequence[Step]
"""The steps of one connection."""

ID = "$id"
"""Stands for the id of the request to which a step responds."""

PROGRESS_TOKEN = "$token"  # noqa: S105 - a placeholder, no secret
"""Stands for the progress token of the request to which a step responds."""


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise TypeError(f"data must be bytes, not {checks.kind_of(data)}")


# Messages


def expect(method: str, *, label: str | None = None) -> Step:
    """Wait for a message of this method.

    The steps after this one respond to the message.

    Messages of other methods are kept until an `expect` of their own.

    Args:
        method: The method; "response" for the client's response to a request of the script; "batch"
            for a batch; over HTTP also "GET" and "DELETE".
        label: A name by which later steps can respond to this message (`to=`).
    """
    return {"do": "expect", "method": method, "label": label}


def reply(result: Any, *, to: str | None = None) -> Step:
    """Respond with a result to the request that the last `expect` took.

    `to` is the label of another request; see `message`.
    """
    return message({"jsonrpc": "2.0", "id": ID, "result": result}, to=to)


def error(code: int, text: str, data: Any = None, *, to: str | None = None) -> Step:
    """Respond with a JSON-RPC error. `to` is the label of the message; see `message`."""
    if isinstance(code, str) and isinstance(text, int):
        raise TypeError("code must be an int: write error(code, text)")
    body = _given(code=code, message=text, data=data)
    return message({"jsonrpc": "2.0", "id": ID, "error": body}, to=to)


def notify(method: str, params: Any = None, *, to: str | None = None) -> Step:
    """Send a notification, over HTTP on the response to the message with the label `to`."""
    body = _given(jsonrpc="2.0", method=method, params=params)
    return message(body, to=to, final=False)


def progress(
    value: float, total: float | None = None, text: str | None = None, *, to: str | None = None
) -> Step:
    """Send `notifications/progress` for the message with the label `to`; see `message`."""
    params = _given(progressToken=PROGRESS_TOKEN, progress=value, total=total, message=text)
    return notify("notifications/progress", params, to=to)


def request(
    method: str, params: Any = None, *, identifier: str | int = 1, to: str | None = None
) -> Step:
    """Send the client a request; `expect("response")` waits for the client's response.

    Steps after that `expect` still answer the message before it if they name its label::

        asking = [
            expect("tools/call", label="call"),
            request("ping"),
            expect("response"),
            reply({"content": []}, to="call"),
        ]
    """
    body = _given(jsonrpc="2.0", id=identifier, method=method, params=params)
    return message(body, to=to, final=False)


def withdraw(
    identifier: str | int = 1, reason: str | None = None, *, to: str | None = None
) -> Step:
    """Send `notifications/cancelled` for the script's request with this id."""
    params = _given(requestId=identifier, reason=reason)
    return notify("notifications/cancelled", params, to=to)


def input_required(
    questions: Mapping[str, tuple[str, Any]] | None = None,
    state: Any = None,
    *,
    to: str | None = None,
) -> Step:
    """Respond with an `input_required` result: questions to answer in a retry (2026-07-28).

    Args:
        questions: Method and params of each question, by key; `None` leaves out `inputRequests`.
        state: The `requestState`; `None` leaves it out.
        to: The label of the message to respond to; see `message`.

    Raises:
        TypeError: A question is not a tuple of two.
    """
    asked = None
    if questions is not None:
        checks.pairs(questions, "questions")
        asked = {name: _given(method=method, params=of) for name, (method, of) in questions.items()}
    result = _given(resultType="input_required", inputRequests=asked, requestState=state)
    return reply(result, to=to)


def message(value: Any, *, to: str | None = None, final: bool = True) -> Step:
    """Send any JSON value as one message.

    Args:
        value: The value; `"$id"` and `"$token"` in it are replaced.
        to: The label of the message to respond to; by default the message of the last `expect`.
        final: Whether the HTTP response ends with it.
    """
    return {"do": "message", "value": value, "to": to, "final": final}


def handshake(
    revision: str = "2025-11-25", *, capabilities: Any = None, probe: bool = False
) -> list[Step]:
    """Return the steps of an ordinary handshake.

    Args:
        revision: The revision to speak. With 2026-07-28, the step responds to `server/discover`
            instead.
        capabilities: The server's capabilities; by default tools, resources, prompts and logging.
        probe: Whether the client sends `server/discover` first, as it does with ``mode="auto"``.
            The response is the error -32601 (not with 2026-07-28). Without that response, such a
            client waits for `probe_timeout`, 10 seconds, before it sends `initialize`.
    """
    offered = capabilities
    if offered is None:
        offered = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
    info = {"name": "scripted", "version": "1"}
    if revision == "2026-07-28":
        result = {
            "resultType": "complete",
            "supportedVersions": [revision],
            "capabilities": offered,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": info},
        }
        return [expect("server/discover"), reply(result)]
    probed = [expect("server/discover"), error(-32601, "Method not found")] if probe else []
    opened = {"protocolVersion": revision, "capabilities": offered, "serverInfo": info}
    return [
        *probed,
        expect("initialize"),
        reply(opened),
        expect("notifications/initialized"),
        accept(),
    ]


# Faults on every transport


def raw(data: bytes, *, to: str | None = None) -> Step:
    """Write these bytes unchanged: without a line end, chunk size or head."""
    _check_bytes(data)
    return {"do": "raw", "data": data, "to": to}


def garbage(lines: int = 1) -> Step:
    """Write lines that are not JSON, as a stray `print` would (in memory: one frame each)."""
    return raw(b"Loading model... 42% {not json\xff\n" * lines)


def delay(seconds: float) -> Step:
    """Wait for some seconds."""
    return {"do": "delay", "seconds": checks.finite_seconds(seconds, "seconds")}


def gate(name: str) -> Step:
    """Wait until the test calls `ScriptedPeer.open(name)`."""
    return {"do": "gate", "name": name}


def drip(step: Step, every: float) -> Step:
    """Play `step`, but write one byte at a time, with `every` seconds after each."""
    if not isinstance(step, Mapping):
        raise TypeError(f"step must be one step, not {checks.kind_of(step)}: write drip(step, 0.1)")
    return {"do": "drip", "step": step, "every": checks.finite_seconds(every, "every")}


def cut(code: int = 0, *, reset: bool = False, to: str | None = None) -> Step:
    """End the connection at once.

    Args:
        code: The exit code of the process (stdio).
        reset: Whether to send a TCP reset instead of an orderly end (HTTP).
        to: The label of the message whose connection ends (HTTP).
    """
    return {"do": "cut", "code": code, "reset": reset, "to": to}


def silence() -> Step:
    """Send nothing more, and wait until the client ends the connection."""
    return {"do": "silence"}


def repeat(steps: Script, times: int | None = None) -> Step:
    """Play `steps` repeatedly: `times` times, or until the client ends the connection."""
    if isinstance(steps, Mapping):
        raise TypeError("steps must be a list: write repeat([step])")
    return {"do": "repeat", "steps": list(steps), "times": times}


# Faults of a process (over stdio only; on other transports the script fails)


def stderr(data: bytes) -> Step:
    """Write to stderr (over stdio only)."""
    _check_bytes(data)
    return {"do": "stderr", "data": data}


def stop_reading() -> Step:
    """Stop reading stdin, which stays open (over stdio only).

    As the first step, it reads nothing at all.
    """
    return {"do": "stop_reading"}


# HTTP responses (over HTTP only, except `accept`)


def accept(status: int = 202, *, to: str | None = None) -> Step:
    """Respond with a status and no body over HTTP; over other transports, do nothing."""
    return {"do": "accept", "status": status, "to": to}


def head(
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    chunked: bool = True,
    to: str | None = None,
) -> Step:
    """Write a status line and headers (over HTTP only).

    The next steps write the body, if any. Then `end` or `cut` must follow: without it, the client
    waits for the rest of the response::

        [expect("tools/call"), head(503, {"retry-after": "1"}), end()]

    Args:
        status: The status code.
        headers: The headers; the default `content-type` is that of an event stream.
        chunked: Whether the body is sent in chunks. If not, the body ends with the connection
            (`cut`), unless the headers have a length.
        to: The label of the message to respond to; see `message`.
    """
    if not isinstance(status, int):
        raise TypeError(f"status must be an int, not {checks.kind_of(status)}: write head(200)")
    return {"do": "head", "status": status, "headers": headers or {}, "chunked": chunked, "to": to}


def chunk(data: bytes, *, to: str | None = None) -> Step:
    """Write a piece of the body (over HTTP only)."""
    _check_bytes(data)
    return {"do": "chunk", "data": data, "to": to}


def event(
    value: Any = None,
    *,
    identifier: str | None = None,
    retry: int | None = None,
    kind: str | None = None,
    to: str | None = None,
) -> Step:
    """Write one server-sent event (over HTTP only).

    Args:
        value: The data: a JSON value, in which `"$id"` is replaced, or a `str` that is sent as it
            is. `None` leaves the data out; `""` makes a priming event.
        identifier: The event id.
        retry: The reconnection time, in milliseconds.
        kind: The event type.
        to: The label of the message to respond to; see `message`.
    """
    return {
        "do": "event",
        "value": value,
        "identifier": identifier,
        "retry": retry,
        "kind": kind,
        "to": to,
    }


def comment(text: str = "", *, to: str | None = None) -> Step:
    """Write a comment line on an event stream (over HTTP only)."""
    return chunk(f":{text}\n\n".encode(), to=to)


def end(*, to: str | None = None) -> Step:
    """End the body of the response (over HTTP only)."""
    return {"do": "end", "to": to}
