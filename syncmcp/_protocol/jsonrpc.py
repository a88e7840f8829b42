"""JSON-RPC 2.0 frames: bytes to messages and back (spec: basic, "Messages")."""

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


class MalformedRequest(NamedTuple):
    """A request of the peer's that cannot be carried out, but whose id can be read."""

    id: Id
    reason: str


class InvalidMessage(NamedTuple):
    """Something that is no message; with the id of the request it was meant to answer, if any."""

    reason: str
    id: Id | None


Message = Request | Notification | Result | Error | MalformedRequest | InvalidMessage


def decode(frame: bytes) -> list[Message]:
    """Read one frame: a single message, or the messages of a batch.

    Never raises: what cannot be read comes back as `Malformed`.
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
    """Whether it is an error or a wreck that does not say which request it is about."""
    return isinstance(message, (Error, InvalidMessage)) and message.id is None


def _classify(value: dict[str, Any]) -> Message:
    id = value.get("id")
    # bool is an int in Python, and True == 1 would hit somebody's request.
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
        return InvalidMessage("a method is not a string", None)  # the id would be the server's
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


class TrackedCall(Protocol):
    """What a table entry needs to know of itself."""

    id: int
    method: str


C = TypeVar("C", bound=TrackedCall)
Q = TypeVar("Q")


class RequestTable(Generic[C, Q]):
    """The two tables of one connection: our open requests, and the server's.

    They are two because both sides count from wherever they like: the server's cancel of *its*
    request 3 must never touch *our* request 3.
    """

    def __init__(self, first_id: int, max_in_flight: int) -> None:
        self.next_id = first_id
        self._max = max_in_flight
        self._calls: dict[int, C] = {}
        # Those that last as long as somebody listens: nothing waits for their end.
        self._lasting: dict[int, C] = {}
        # Registered, but not to be sent before others are done.
        self._queue: deque[int] = deque()
        self._queued: set[int] = set()
        self._questions: dict[Id, Q] = {}

    def __len__(self) -> int:
        """How many of our requests will end by themselves."""
        return len(self._calls)

    def register(self, call: C, *, skip_queue: bool = False) -> bool:
        """Give `call` an id never used before and keep it.

        Args:
            call: The request.
            skip_queue: It does not stand in line: those in front may be waiting for it.

        Returns:
            Whether it may be sent now; otherwise it stands in line, and `take` says when.
        """
        id = call.id = self.next_id
        self.next_id = id + 1
        if call.method == LISTEN:
            self._lasting[id] = call
            return True
        self._calls[id] = call
        if skip_queue or len(self._calls) - len(self._queued) <= self._max:
            return True
        self._queue.append(id)
        self._queued.add(id)
        return False

    @property
    def queued(self) -> int:
        """How many requests wait for their turn."""
        return len(self._queued)

    def open_calls(self) -> list[C]:
        """Our open requests."""
        return [*self._calls.values(), *self._lasting.values()]

    def get(self, id: object) -> C | None:
        """The request of ours with this id, if it is open."""
        key = own_id(id)
        return None if key is None else self._calls.get(key) or self._lasting.get(key)

    def sole_call(self) -> C | None:
        """Our open request, if there is exactly one.

        A ping is none, and neither is one that lasts: nothing else belongs to them.
        """
        if len(self._calls) > 2:
            return None
        calls = [call for call in self._calls.values() if call.method != "ping"]
        return calls[0] if len(calls) == 1 else None

    def take(self, id: object) -> C | None:
        """Remove and return the request of ours with this id; `None` if somebody was faster."""
        key = own_id(id)
        if key is None:
            return None
        call = self._calls.pop(key, None) or self._lasting.pop(key, None)
        self._queued.discard(key)
        return call

    def next_queued(self) -> C | None:
        """After a `take`: the request that may be sent now, if one was waiting for its turn."""
        while self._queue and len(self._calls) - len(self._queued) < self._max:
            id = self._queue.popleft()
            if id in self._queued:
                self._queued.remove(id)
                return self._calls[id]
        return None

    def take_all(self) -> list[C]:
        """Take every open request."""
        calls = self.open_calls()
        self._calls.clear()
        self._lasting.clear()
        self._queue.clear()
        self._queued.clear()
        return calls

    @property
    def open_questions(self) -> int:
        """How many requests of the server's have no answer yet."""
        return len(self._questions)

    def add_question(self, id: Id, question: Q) -> bool:
        """Keep a request of the server's; `False` if its id is in use already."""
        if id in self._questions:
            return False
        self._questions[id] = question
        return True

    def remove_question(self, id: object, question: Q | None = None) -> Q | None:
        """Remove a request of the server's: answered, or cancelled by the server.

        With `question`, only that one: another may have its id by now.
        """
        if type(id) is not int and type(id) is not str:
            return None
        if question is not None and self._questions.get(id) is not question:
            return None
        return self._questions.pop(id, None)


def own_id(id: object) -> int | None:
    """The id of ours that the peer means. Some servers turn numbers into strings."""
    if type(id) is int:
        return id
    if type(id) is str and id.isascii() and id.isdigit() and len(id) < 20:
        return int(id)
    return None
