"""JSON-RPC 2.0 frames: bytes to messages and back (spec: basic, "Messages")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pydantic_core

from syncmcp.errors import UsageError

Id = int | str

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class Request(NamedTuple):
    """The peer asks; it waits for an answer with the same id."""

    id: Id
    method: str
    params: dict[str, Any]


class Notification(NamedTuple):
    """The peer tells; it must not be answered, not even with an error."""

    method: str
    params: dict[str, Any]


class Result(NamedTuple):
    """The answer to a request of ours."""

    id: Id | None
    result: Any


class Error(NamedTuple):
    """The refusal of a request of ours; without an id when the peer could not read ours."""

    id: Id | None
    code: int
    message: str
    data: Any


class BadRequest(NamedTuple):
    """A request of the peer's that cannot be carried out, but whose id can be read."""

    id: Id
    reason: str


class Malformed(NamedTuple):
    """Something that is no message; with the id of the request it was meant to answer, if any."""

    reason: str
    id: Id | None


Message = Request | Notification | Result | Error | BadRequest | Malformed


def decode(frame: bytes) -> list[Message]:
    """Read one frame: a single message, or the messages of a batch.

    Never raises: what cannot be read comes back as `Malformed`.
    """
    try:
        value = pydantic_core.from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        return [Malformed(f"not JSON: {error}", None)]
    if type(value) is dict:
        return [_classify(value)]
    if type(value) is list and value:
        return [
            _classify(item)
            if type(item) is dict
            else Malformed("an element of a batch is not an object", None)
            for item in value
        ]
    return [Malformed("neither an object nor a batch", None)]


def names_nobody(message: Message) -> bool:
    """Whether it is an error or a wreck that does not say which request it is about."""
    return isinstance(message, (Error, Malformed)) and message.id is None


def _classify(value: dict[str, Any]) -> Message:
    id = value.get("id")
    # bool is an int in Python, and True == 1 would hit somebody's request.
    if id is not None and type(id) is not int and type(id) is not str:
        return Malformed("an id is neither a string nor an integer", None)
    method = value.get("method")
    if method is not None:
        return _read_call(value, id, method)
    error = value.get("error")
    if error is not None:
        if "result" in value and value["result"] is not None:
            return Malformed("both a result and an error", id)
        return _read_error(error, id)
    if "result" in value:
        return Result(id, value["result"])
    return Malformed("neither a method, a result nor an error", id)


def _read_call(value: dict[str, Any], id: Id | None, method: object) -> Message:
    if type(method) is not str:
        return Malformed("a method is not a string", None)  # the id would be the server's
    params = value.get("params")
    if params is None:
        params = {}
    elif type(params) is not dict:
        reason = f"the params of {method} are not an object"
        return Malformed(reason, None) if id is None else BadRequest(id, reason)
    if "id" not in value:
        return Notification(method, params)
    if id is None:
        return Malformed(f"the request {method} has a null id", None)
    return Request(id, method, params)


def _read_error(error: object, id: Id | None) -> Message:
    if type(error) is not dict or type(error.get("code")) is not int:
        return Malformed("an error without an integer code", id)
    message = error.get("message")
    return Error(id, error["code"], message if type(message) is str else "", error.get("data"))


def encode_request(id: int, method: str, params: dict[str, Any] | None) -> bytes:
    """Write a request.

    Raises:
        UsageError: `params` hold something that JSON cannot express.
    """
    if params is None:
        return _encode({"jsonrpc": "2.0", "id": id, "method": method})
    return _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: dict[str, Any] | None) -> bytes:
    """Write a notification.

    Raises:
        UsageError: `params` hold something that JSON cannot express.
    """
    if params is None:
        return _encode({"jsonrpc": "2.0", "method": method})
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_batch(requests: Sequence[bytes]) -> bytes:
    """Put requests that are written already into one frame (2025-03-26, basic, "Batching")."""
    return b"[" + b",".join(requests) + b"]"


def encode_result(id: Id, result: dict[str, Any]) -> bytes:
    """Write the answer to a request of the server.

    Raises:
        UsageError: `result` holds something that JSON cannot express.
    """
    return _encode({"jsonrpc": "2.0", "id": id, "result": result})


def encode_error(id: Id, code: int, message: str, data: Any = None) -> bytes:
    """Write the refusal of a request of the server.

    Raises:
        UsageError: `data` holds something that JSON cannot express.
    """
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encode({"jsonrpc": "2.0", "id": id, "error": error})


def _encode(value: dict[str, Any]) -> bytes:
    try:
        frame = pydantic_core.to_json(value, inf_nan_mode="constants")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this cannot be sent as JSON: {error}") from error
    # JSON has no NaN, and the encoder cannot refuse it. Looking for the word costs next to nothing;
    # only a frame that has it (perhaps inside a string) is read back to make sure. (`find`, because
    # `in` first tries the word as a number, and the error inside costs more than the search.)
    if frame.find(b"NaN") >= 0 or frame.find(b"Infinity") >= 0:
        try:
            pydantic_core.from_json(frame, allow_inf_nan=False)
        except ValueError as error:
            raise UsageError(
                "this cannot be sent as JSON, which has no NaN and no Infinity"
            ) from error
    return frame
