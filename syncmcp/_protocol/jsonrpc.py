"""JSON-RPC 2.0: encoding and decoding of frames, and the open requests by id (basic, "Messages").

The peer is the server of the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import pydantic_core

from syncmcp._protocol.subscription import LISTEN
from syncmcp.errors import UsageError

Id = int | str

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class Request(NamedTuple):
    """A request of the peer, to be answered by a response with the same id."""

    id: Id
    method: str
    params: dict[str, Any]


class Notification(NamedTuple):
    """A notification of the peer; it must not be answered, not even with an error."""

    method: str
    params: dict[str, Any]


class Result(NamedTuple):
    """The result of a request of ours."""

    id: Id | None
    result: Any


class Error(NamedTuple):
    """The error of a request of ours; without an id if the peer could not read our request."""

    id: Id | None
    code: int
    message: str
    data: Any


class MalformedRequest(NamedTuple):
    """A request of the peer that is invalid, but has a readable id."""

    id: Id
    reason: str


class InvalidMessage(NamedTuple):
    """JSON that is no valid message; `id` is that of the request it responds to, if readable."""

    reason: str
    id: Id | None


Message = Request | Notification | Result | Error | MalformedRequest | InvalidMessage


def decode(frame: bytes) -> list[Message]:
    """Read one frame: a single message, or the messages of a batch.

    Never raises: an unreadable message is returned as `InvalidMessage`.
    """
    try:
        value = pydantic_core.from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        return [InvalidMessage(f"not JSON: {error}", None)]
    if type(value) is dict:
        return [_classify(value)]
    if type(value) is list and value:
        return [
            _classify(item)
            if type(item) is dict
            else InvalidMessage("an element of a batch is not an object", None)
            for item in value
        ]
    return [InvalidMessage("neither an object nor a batch", None)]


def lacks_id(message: Message) -> bool:
    """True for an error or an invalid message that cannot be attributed to a request."""
    return isinstance(message, (Error, InvalidMessage)) and message.id is None


def _classify(value: dict[str, Any]) -> Message:
    id = value.get("id")
    # bool is a subclass of int, and True == 1 would match the request with the id 1.
    if id is not None and type(id) is not int and type(id) is not str:
        return InvalidMessage("an id is neither a string nor an integer", None)
    method = value.get("method")
    if method is not None:
        return _read_call(value, id, method)
    error = value.get("error")
    if error is not None:
        if "result" in value and value["result"] is not None:
            return InvalidMessage("both a result and an error", id)
        return _read_error(error, id)
    if "result" in value:
        return Result(id, value["result"])
    return InvalidMessage("neither a method, a result nor an error", id)


def _read_call(value: dict[str, Any], id: Id | None, method: object) -> Message:
    if type(method) is not str:
        return InvalidMessage("a method is not a string", None)  # the id is one of the peer's
    params = value.get("params")
    if params is None:
        params = {}
    elif type(params) is not dict:
        reason = f"the params of {method} are not an object"
        return InvalidMessage(reason, None) if id is None else MalformedRequest(id, reason)
    if "id" not in value:
        return Notification(method, params)
    if id is None:
        return InvalidMessage(f"the request {method} has a null id", None)
    return Request(id, method, params)


def _read_error(error: object, id: Id | None) -> Message:
    if type(error) is not dict or type(error.get("code")) is not int:
        return InvalidMessage("an error without an integer code", id)
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
    """Join encoded requests to one frame (2025-03-26, basic, "Batching")."""
    return b"[" + b",".join(requests) + b"]"


def encode_result(id: Id, result: dict[str, Any]) -> bytes:
    """Write the result of a request of the peer.

    Raises:
        UsageError: `result` holds something that JSON cannot express.
    """
    return _encode({"jsonrpc": "2.0", "id": id, "result": result})


def encode_error(id: Id, code: int, message: str, data: Any = None) -> bytes:
    """Write the error of a request of the peer.

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
    # JSON has no NaN, and the encoder has no option to refuse it. Searching for the word is cheap;
    # only a frame with the word (perhaps inside a string) is parsed to make sure. `find` is used
    # because `in` first tries to convert the word to an integer, which is slower than the search.
    if frame.find(b"NaN") >= 0 or frame.find(b"Infinity") >= 0:
        try:
            pydantic_core.from_json(frame, allow_inf_nan=False)
        except ValueError as error:
            raise UsageError(
                "this cannot be sent as JSON, which has no NaN and no Infinity"
            ) from error
    return frame


class TrackedCall(Protocol):
    """A request of ours in a `RequestTable`."""

    id: int
    method: str


C = TypeVar("C", bound=TrackedCall)


class RequestTable(Generic[C]):
    """Our open requests of one connection, by id.

    Those of the peer are kept elsewhere, because both sides choose ids freely: the peer's cancel of
    *its* request 3 must not affect *our* request 3.

    Whoever *takes* a call settles it; later takers get `None`. So each call is settled once. The
    table has no lock: its connection guards it.

    Attributes:
        next_id: The id of the next request.
        queued: The ids of the calls that wait for a free slot.
    """

    def __init__(self, first_id: int, max_in_flight: int) -> None:
        self.next_id = first_id
        self._max = max_in_flight
        self._calls: dict[int, C] = {}
        # Calls of `LISTEN`, which stay open until the subscription ends.
        self._subscriptions: dict[int, C] = {}
        # The ids of registered calls that wait for a free slot, in order; `queued` says which of
        # them still wait.
        self._queue: deque[int] = deque()
        self.queued: set[int] = set()

    def __len__(self) -> int:
        """The number of open calls, without subscriptions."""
        return len(self._calls)

    def register(self, call: C, *, skip_queue: bool = False) -> bool:
        """Assign the next id to `call` and add it.

        Args:
            call: The request.
            skip_queue: Never queue the call, because calls in flight may depend on it.

        Returns:
            True if the call may be sent now; false if it is queued until `next_queued` returns it.
        """
        id = call.id = self.next_id
        self.next_id = id + 1
        if call.method == LISTEN:
            self._subscriptions[id] = call
            return True
        self._calls[id] = call
        if skip_queue or len(self._calls) - len(self.queued) <= self._max:
            return True
        self._queue.append(id)
        self.queued.add(id)
        return False

    def open_calls(self) -> list[C]:
        """All open calls, subscriptions included."""
        return [*self._calls.values(), *self._subscriptions.values()]

    def get(self, id: object) -> C | None:
        """The open call with this id, `None` if there is none."""
        key = id if type(id) is int else own_id(id)
        return None if key is None else self._calls.get(key) or self._subscriptions.get(key)

    def sole_call(self) -> C | None:
        """The open call, if there is exactly one.

        Pings and subscriptions do not count: no question or notification belongs to them.
        """
        if len(self._calls) > 2:
            return None
        calls = [call for call in self._calls.values() if call.method != "ping"]
        return calls[0] if len(calls) == 1 else None

    def take(self, id: object) -> C | None:
        """Remove and return the call with this id; `None` if it was taken before."""
        key = id if type(id) is int else own_id(id)
        if key is None:
            return None
        call = self._calls.pop(key, None) or self._subscriptions.pop(key, None)
        if key in self.queued:
            self.queued.remove(key)
            if not self.queued:
                self._queue.clear()
        return call

    def next_queued(self) -> C | None:
        """After a `take`: remove the first call from the queue, which may be sent now."""
        while self._queue and len(self._calls) - len(self.queued) < self._max:
            id = self._queue.popleft()
            if id in self.queued:
                self.queued.remove(id)
                return self._calls[id]
        return None

    def take_all(self) -> list[C]:
        """Take every open call."""
        calls = self.open_calls()
        self._calls.clear()
        self._subscriptions.clear()
        self._queue.clear()
        self.queued.clear()
        return calls


def own_id(id: object) -> int | None:
    """The id of a call from an id as the peer sent it: some servers turn numbers into strings."""
    if type(id) is int:
        return id
    if type(id) is str and id.isascii() and id.isdigit() and len(id) < 20:
        return int(id)
    return None
