"""JSON-RPC 2.0: encoding and decoding of frames, and the open requests by id (basic, "Messages").

The peer is the server of the connection.
"""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import pydantic_core

from syncmcp._protocol.subscription import LISTEN
from syncmcp.errors import LimitExceeded, UsageError

Id = int | str

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_VALUES = 4_000_000
"""The most values in one frame, the keys of objects counted as well."""

MIN_VALUES = 100_000
"""The least limit on the values in one frame, however short the frames must be."""

BYTES_PER_VALUE = 16

MAX_MESSAGES = 10_000
"""The most messages in one frame: handling each of them can delay a call beyond its deadline."""

MAX_NESTING = 200
"""How deep the values of a frame may be nested: the limit of the decoder."""

MAX_DIGITS = 4300
"""How many digits an integer of a frame may have: the limit of the decoder."""

# The beginning of a response, up to its result or error, and the end after it. The members there
# must be neither arrays nor objects.
_MEMBER = rb'"(?!id")[^"\\]*"\s*:\s*(?:"[^"\\]*"|[^\s"{}\[\],:]+)\s*'
_ID = rb'"id"\s*:\s*(?P<id>\d{1,19}|"\d{1,19}")\s*'
_HEAD = re.compile(
    rb"\s*\{\s*(?:" + _MEMBER + rb",\s*)*?(?:" + _ID + rb",\s*(?:" + _MEMBER + rb",\s*)*?)?"
    rb'"(?:result|error)"\s*:'
)
_TAIL = re.compile(_ID + rb"(?:,\s*" + _MEMBER + rb")*\}\s*\Z")

# The bytes that are searched at the beginning and at the end of a frame.
_EDGE_BYTES = 256

# The size of a small value as a Python object, in bytes, with its place in a list or dict.
_VALUE_BYTES = 64

# A string, the beginning of an array or object, or another value; escaped quotes were removed.
_VALUE = re.compile(rb'"[^"]*"?|[\[{]|[^\s\[\]{},:"]+')

_ARRAY = re.compile(rb"\s*\[")

# A string, so that the brackets in it do not count, or a bracket; escaped quotes were removed.
_BRACKET = re.compile(rb'"[^"]*"?|[\[\]{}]')


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
    """The result of a request of the client."""

    id: Id | None
    result: Any


class Error(NamedTuple):
    """The error of a request of the client; without an id if the peer could not read that."""

    id: Id | None
    code: int
    message: str
    data: Any


class MalformedRequest(NamedTuple):
    """A request of the peer that is invalid, but has a readable id."""

    id: Id
    reason: str


class InvalidMessage(NamedTuple):
    """JSON that is not a valid message; `id` is that of the request it responds to, if readable."""

    reason: str
    id: Id | None


Message = Request | Notification | Result | Error | MalformedRequest | InvalidMessage


def size_of(params: dict[str, Any], *names: object) -> int:
    """Return the size of parameters in memory, in bytes; too much for long texts or many escapes.

    Interceptors may have put any objects into them. `names` count, too: a server chooses the length
    of the method and the id of a message.
    """
    try:
        data = pydantic_core.to_json(params, serialize_unknown=True)
    except ValueError:  # UTF-8 cannot encode a text
        data = json.dumps(params, default=repr, skipkeys=True).encode()
    # As text: with one wide character, a whole string takes up to four bytes per character.
    size = sys.getsizeof(data.decode()) + _VALUE_BYTES * _separators(data)
    return size + sum(map(sys.getsizeof, names))


def _separators(frame: bytes) -> int:
    """Return the number of characters that separate values. A frame has at most one more value."""
    return sum(map(frame.count, b",:[{"))


def values_within(size: int) -> int:
    """Return how many values a frame may have if frames may have `size` bytes.

    A value of two bytes may become an object of a hundred bytes. So the values of a decoded frame
    take about six times `size`, or ten megabytes, plus the characters of its texts.
    """
    return min(MAX_VALUES, max(MIN_VALUES, size // BYTES_PER_VALUE))


def count_values(frame: bytes, limit: int = MAX_VALUES) -> int:
    """Return the number of values in JSON, including keys of objects; at most `limit` + 1."""
    # Without escaped quotes, the pattern needs no group for a string, which would take memory.
    bare = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A generator in Python lets other threads run; a single call in C would not.
    return sum(1 for _ in islice(_VALUE.finditer(bare), limit + 1))


def check_values(frame: bytes, limit: int) -> None:
    """Raise `LimitExceeded` if JSON, which is not decoded yet, has more than `limit` values."""
    # Few frames have this many separators, and most of these frames have them in long strings.
    if _separators(frame) >= limit and count_values(frame, limit) > limit:
        raise LimitExceeded(f"a message of the server has more than {limit:,} values")


# The limits of the decoder, by a part of the decoder's error message.
_BOUNDS = {
    "recursion limit": f"at most {MAX_NESTING} levels",
    "out of range": f"at most {MAX_DIGITS:,} digits of an integer",
}


def decode(frame: bytes, max_values: int = MAX_VALUES) -> list[Message]:
    """Read one frame: a single message, or the messages of a batch.

    An unreadable message is returned as `InvalidMessage`. A frame of more than `max_values` values
    or `MAX_MESSAGES` messages is refused: `LimitExceeded`.

    NaN is not JSON. `1e999` is, and becomes infinity, as with the `json` of Python. Searching for
    such numbers takes longer than decoding, in a frame of base64 up to thirty times. Code that
    calculates with a number checks it (`is_number`).
    """
    if len(frame) > max_values:  # every value takes a byte
        check_values(frame, max_values)
    try:
        value = pydantic_core.from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        reason = f"not JSON: {error}"
        for sign, bound in _BOUNDS.items():
            if sign in reason:
                reason += f" ({bound})"
        return _read_wreck(frame, reason, max_values)
    if type(value) is dict:
        return [_classify(value)]
    if type(value) is list and value:
        if len(value) > MAX_MESSAGES:
            raise _too_many_messages()
        return [
            _classify(item)
            if type(item) is dict
            else InvalidMessage("an element of a batch is not an object", None)
            for item in value
        ]
    return [InvalidMessage("neither an object nor a batch", None)]


def _read_wreck(frame: bytes, reason: str, max_values: int) -> list[Message]:
    """Read the valid messages and the ids of a frame that cannot be decoded as a whole.

    All invalid messages without a readable id become one `InvalidMessage`.
    """
    parts = _objects_of_array(frame, max_values) or [frame]
    messages: list[Message] = []
    ids: set[Id | None] = set()
    for part in parts:
        try:
            messages.append(_classify(pydantic_core.from_json(part, allow_inf_nan=False)))
        except ValueError:
            ids.add(_id_of_response(part))
    return [*messages, *(InvalidMessage(reason, id) for id in ids)]


def _objects_of_array(frame: bytes, max_values: int) -> list[bytes]:
    """Return the objects in an array, valid or not; empty if `frame` is not an array."""
    if _ARRAY.match(frame) is None:
        return []
    found: list[bytes] = []
    depth = begin = 0
    # Without escaped quotes, as in `count_values`, but of the same length.
    bare = frame.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    for count, bracket in enumerate(_BRACKET.finditer(bare)):
        if count == max_values:  # `check_values` does not count strings without separators
            raise LimitExceeded(f"an invalid message has over {max_values:,} strings and brackets")
        if bracket[0] in (b"[", b"{"):
            depth += 1
            if depth == 2:
                begin = bracket.start()
        elif bracket[0] in (b"]", b"}"):
            depth -= 1
            if depth == 1 and frame.startswith(b"{", begin):
                found.append(frame[begin : bracket.end()])
                if len(found) > MAX_MESSAGES:
                    raise _too_many_messages()
            if depth < 1:  # the end of the array
                break
    return found


def _too_many_messages() -> LimitExceeded:
    return LimitExceeded(f"a batch of the server has more than {MAX_MESSAGES:,} messages")


def _id_of_response(frame: bytes) -> Id | None:
    """Return the id of a response that cannot be decoded, from its beginning or its end.

    `None` unless it certainly is a response: a request of the peer has an id of the peer.
    """
    head = _HEAD.match(frame, 0, _EDGE_BYTES)
    if head is None:
        return None
    found = head["id"]
    if found is None and (tail := _TAIL.search(frame, max(0, len(frame) - _EDGE_BYTES))):
        found = tail["id"]
    return None if found is None else own_id(found.strip(b'"').decode("ascii"))


def lacks_id(message: Message) -> bool:
    """Return True for an error or an invalid message without the id of a request."""
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
    """Write a request; `UsageError` if JSON cannot express `params`."""
    if params is None:
        return _encode({"jsonrpc": "2.0", "id": id, "method": method}, "the request")
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return _encode(message, "the parameters of the request")


def encode_notification(method: str, params: dict[str, Any] | None) -> bytes:
    """Write a notification; `UsageError` if JSON cannot express `params`."""
    if params is None:
        return _encode({"jsonrpc": "2.0", "method": method}, "the notification")
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return _encode(message, "the parameters of the notification")


def encode_batch(requests: Sequence[bytes]) -> bytes:
    """Join encoded requests to one frame (2025-03-26, basic, "Batching")."""
    return b"[" + b",".join(requests) + b"]"


def encode_result(id: Id, result: dict[str, Any]) -> bytes:
    """Write the result of a request of the peer; `UsageError` if JSON cannot express it."""
    return _encode({"jsonrpc": "2.0", "id": id, "result": result}, "the result")


def encode_error(id: Id, code: int, message: str, data: Any = None) -> bytes:
    """Write the error of a request of the peer; `UsageError` if JSON cannot express `data`."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encode({"jsonrpc": "2.0", "id": id, "error": error}, "the error")


def _encode(value: dict[str, Any], what: str) -> bytes:
    try:
        frame = pydantic_core.to_json(value, inf_nan_mode="constants")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what} cannot be sent as JSON: {error}") from error
    # JSON has no NaN, and the encoder has no option to refuse it. Searching for the word is cheap;
    # only a frame with the word (perhaps inside a string) is parsed to make sure. `find` is used
    # because `in` first tries to convert the word to an integer, which is slower than the search.
    if frame.find(b"NaN") >= 0 or frame.find(b"Infinity") >= 0:
        try:
            pydantic_core.from_json(frame, allow_inf_nan=False)
        except ValueError as error:
            raise UsageError(
                f"{what} cannot be sent as JSON, which has no NaN and no Infinity"
            ) from error
    return frame


class TrackedCall(Protocol):
    """A request of the client in a `RequestTable`."""

    id: int
    method: str


C = TypeVar("C", bound=TrackedCall)


class RequestTable(Generic[C]):
    """The client's open requests of one connection, by id.

    Requests of the peer are stored elsewhere, because both sides choose ids freely: if the peer
    cancels *its* request 3, the *client's* request 3 continues.

    The thread that *takes* a call settles it; later takers get `None`. So each call is settled
    once. The table has no lock: its connection guards it. `queued` has calls waiting for a slot.
    """

    def __init__(self, first_id: int, max_in_flight: int) -> None:
        self.next_id = first_id
        self._max = max_in_flight
        self._calls: dict[int, C] = {}
        # Calls of `LISTEN`, which stay open until the subscription ends.
        self._subscriptions: dict[int, C] = {}
        self.queued: OrderedDict[int, C] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of open calls, without subscriptions."""
        return len(self._calls)

    def register(self, call: C, *, skip_queue: bool = False) -> bool:
        """Assign the next id to `call` and add it; return whether it may be sent now.

        Otherwise it is queued until `next_queued` returns it. With `skip_queue` it is not queued,
        because calls in flight may depend on it.
        """
        id = call.id = self.next_id
        self.next_id = id + 1
        if call.method == LISTEN:
            self._subscriptions[id] = call
            return True
        self._calls[id] = call
        if skip_queue or len(self._calls) - len(self.queued) <= self._max:
            return True
        self.queued[id] = call
        return False

    def open_calls(self) -> list[C]:
        """Return all open calls, including subscriptions."""
        return [*self._calls.values(), *self._subscriptions.values()]

    def get(self, id: object) -> C | None:
        """Return the open call with this id, or `None`."""
        key = id if type(id) is int else own_id(id)
        return None if key is None else self._calls.get(key) or self._subscriptions.get(key)

    def sole_call(self) -> C | None:
        """Return the open call, if there is exactly one.

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
        self.queued.pop(key, None)
        return self._calls.pop(key, None) or self._subscriptions.pop(key, None)

    def next_queued(self) -> C | None:
        """After a `take`: remove the first call from the queue, which may be sent now."""
        if self.queued and len(self._calls) - len(self.queued) < self._max:
            return self.queued.popitem(last=False)[1]
        return None

    def take_all(self) -> list[C]:
        """Take every open call."""
        calls = self.open_calls()
        self._calls.clear()
        self._subscriptions.clear()
        self.queued.clear()
        return calls


def own_id(id: object) -> int | None:
    """Return the id of a call from the id that the peer sent: some servers make it a string."""
    if type(id) is int:
        return id
    if type(id) is str and id.isascii() and id.isdigit() and len(id) < 20:
        return int(id)
    return None
