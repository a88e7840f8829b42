"""Frames: how messages are decoded from bytes, and encoded."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol import jsonrpc
from syncmcp._protocol.jsonrpc import (
    Error,
    InvalidMessage,
    MalformedRequest,
    Message,
    Notification,
    Request,
    Result,
    decode,
    encode_batch,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    lacks_id,
    size_of,
    values_within,
)
from syncmcp.errors import LimitExceeded, UsageError
from tests.protocol.schema.deep import within
from tests.support.memory import peak

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)
IDS = st.integers() | TEXTS


def read(text: str) -> Message:
    (message,) = decode(text.encode())
    return message


@given(st.binary())
def test_bytes_of_any_kind_are_read_without_an_exception(frame: bytes) -> None:
    assert decode(frame)


ERRORS = VALUES | st.fixed_dictionaries({"code": VALUES}, optional={"message": VALUES})
MEMBERS = dict.fromkeys(("jsonrpc", "id", "method", "params", "result"), VALUES)


@given(st.fixed_dictionaries({}, optional={**MEMBERS, "error": ERRORS}))
def test_an_object_with_the_members_of_a_message_gives_one_message_with_a_proper_id(
    value: dict[str, Any],
) -> None:
    (message,) = decode(json.dumps(value).encode())
    if not isinstance(message, Notification):
        assert message.id is None or type(message.id) in (int, str)
    if isinstance(message, (Request, Notification)):
        assert type(message.method) is str
        assert type(message.params) is dict
    if isinstance(message, Error):
        assert type(message.code) is int
        assert type(message.message) is str


@pytest.mark.requirement("RPC-01", "RPC-02", "RPC-03", "RPC-09", "RPC-14")
@given(st.integers(), TEXTS, st.none() | OBJECTS)
def test_a_request_and_a_notification_read_back_as_they_were_written(
    id: int, method: str, params: dict[str, Any] | None
) -> None:
    asked, told = encode_request(id, method, params), encode_notification(method, params)
    assert decode(asked) == [Request(id, method, params or {})]
    assert decode(told) == [Notification(method, params or {})]
    written = json.loads(asked)
    assert type(written) is dict
    assert type(written["id"]) is int
    assert written["jsonrpc"] == json.loads(told)["jsonrpc"] == "2.0"


@pytest.mark.requirement("RPC-06", "RPC-08")
@given(IDS, st.integers(), TEXTS, VALUES, OBJECTS)
def test_an_answer_reads_back_with_the_same_id_of_the_same_type(
    id: int | str, code: int, text: str, data: Any, result: dict[str, Any]
) -> None:
    for frame, expected in (
        (encode_result(id, result), Result(id, result)),
        (encode_error(id, code, text, data), Error(id, code, text, data)),
    ):
        (message,) = decode(frame)
        assert message == expected
        assert isinstance(message, type(expected))
        assert type(message.id) is type(id)


@pytest.mark.requirement("RPC-07", "RPC-08", "RPC-09")
def test_an_answer_has_a_result_or_an_error() -> None:
    no = {"code": -3, "message": "no"}
    for frame, written in (
        (encode_result("q", {}), {"id": "q", "result": {}}),
        (encode_error(7, -3, "no"), {"id": 7, "error": no}),
        (encode_error(7, -3, "no", data=[]), {"id": 7, "error": {**no, "data": []}}),
        # Absent members are not written as null, and a notification has no id.
        (encode_request(1, "ping", None), {"id": 1, "method": "ping"}),
        (encode_notification("n", None), {"method": "n"}),
        (encode_notification("n", {}), {"method": "n", "params": {}}),
    ):
        assert json.loads(frame) == {"jsonrpc": "2.0", **written}


@pytest.mark.requirement("RPC-11", "STD-01")
@given(TEXTS)
def test_a_frame_is_utf_8_on_one_line(text: str) -> None:
    frame = encode_request(1, "tools/call", {"text": text, "letter": "ä"})
    assert json.loads(frame.decode("utf-8"))["params"] == {"text": text, "letter": "ä"}
    assert "ä".encode() in frame
    assert not {*b"\n\r"} & {*frame}


CIRCLE: dict[str, Any] = {}
CIRCLE["again"] = CIRCLE
WRITERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "the parameters of the request": partial(encode_request, 1, "m"),
    "the parameters of the notification": partial(encode_notification, "m"),
    "the result": partial(encode_result, 1),
    "the error": partial(encode_error, 1, -1, "no"),
}


# Including half of a surrogate pair, and bytes that are not text.
NO_JSON = [math.nan, math.inf, -math.inf, "\ud800", object(), b"\xff", CIRCLE, within("in", 5000)]


@pytest.mark.parametrize("value", NO_JSON, ids=map(str, range(8)))
def test_what_json_cannot_express_is_a_usage_error_and_makes_no_frame(value: Any) -> None:
    for what, write in WRITERS.items():
        assert write({"a": "something"})
        with pytest.raises(UsageError, match=f"^{what} cannot be sent as JSON") as caught:
            write({"a": value})
        assert caught.value.__cause__ is not None
    for what, name in (
        ("request", partial(encode_request, 1)),
        ("notification", encode_notification),
    ):
        with pytest.raises(UsageError, match=f"^the {what} cannot be sent as JSON"):
            name("\ud800", None)


def test_a_number_that_no_float_holds_is_infinity_and_is_not_sent_back() -> None:
    result = {"a": math.inf, "b": -math.inf, "c": -1e308}
    assert decode(b'{"id":1,"result":{"a":1e999,"b":-1e999,"c":-1e308}}') == [Result(1, result)]
    for number in (math.inf, -math.inf):
        with pytest.raises(UsageError, match="no Infinity"):
            encode_result(1, {"a": number})


@pytest.mark.requirement("RPC-12")
def test_a_batch_is_read_as_its_messages_in_order() -> None:
    odd = InvalidMessage("an element of a batch is not an object", None)
    assert decode(
        b'[{"id":1,"result":{}},{"method":"n"},{"id":"q","method":"ping"},5,'
        b'{"id":2,"error":{"code":-1,"message":"no"}},[]]'
    ) == [
        *(Result(1, {}), Notification("n", {}), Request("q", "ping", {}), odd),
        *(Error(2, -1, "no", None), odd),
    ]
    requests = [encode_request(id, "m", {"n": id}) for id in (3, 1, 2)]
    frame = encode_batch(requests)
    assert json.loads(frame) == [json.loads(request) for request in requests]
    assert decode(frame) == [Request(id, "m", {"n": id}) for id in (3, 1, 2)]


def test_an_error_without_an_id_and_a_wreck_name_nobody() -> None:
    for nobody in (Error(None, -1, "no", None), InvalidMessage("what?", None)):
        assert lacks_id(nobody) is True
        assert lacks_id(nobody._replace(id=1)) is False
    for message in (Result(None, {}), Notification("n", {})):
        assert lacks_id(message) is False


@pytest.mark.pitfall("12")
@pytest.mark.requirement("RPC-11")
def test_what_is_not_json_is_malformed_and_belongs_to_the_call_it_names() -> None:
    for frame, id in (
        *((b"", None), (b"   ", None), (b"Server listening on port 3000", None)),
        (b'\xef\xbb\xbf{"method":"a"}', None),
        (b'{"jsonrpc":"2.0","method":"a","params":{"b":"\xe4"}}', None),
        *((b'{"id":1,"resu', None), (b"[" * 100_000, None)),
        (b'{"id":' + b"9" * 6000 + b',"result":{}}', None),
        # A malformed response whose id can be read fails the call that it answers.
        *((b'{"id":1,"result":{}} trailing', 1), (b'{"id":1,"result":NaN}', 1)),
        *((b'{"id":1,"result":{"a":Infinity}}', 1), (b'{"id":1,"result":{"a":-Infinity}}', 1)),
        *((b'{"id":1,"result":"\\ud800"}', 1), (b'{"id":1,"result":{"cut": ', 1)),
        (b'{"result":{"cut": ', None),
        (b"{" + b" " * 256 + b'"id":1,"result":{"cut": ', None),  # beyond the searched part
    ):
        (message,) = decode(frame)
        assert isinstance(message, InvalidMessage)
        assert message.reason.startswith("not JSON: ")
        assert message.id == id
        # The reason names the bound that was exceeded.
        assert ("at most 200 levels" in message.reason) is frame.startswith(b"[[")
        assert ("at most 4,300 digits" in message.reason) is (b"999" in frame)


NO = '{"code":1,"message":"no"}'
TOO_DEEP = b"[" * 300 + b"]" * 300


def test_of_a_batch_that_cannot_be_decoded_each_message_counts_by_itself() -> None:
    good = b'{"id":1,"result":{"text":"[{\\"\\\\"}}'
    deep, late = b'{"id":2,"result":%b}' % TOO_DEEP, b'{"result":%b,"id":"3"}' % TOO_DEEP
    nobody = b'{"method":"m","params":%b}' % TOO_DEEP
    batch = b" [%b]" % b", ".join([good, deep, nobody, b"[{}]", b"7", late, nobody])
    answer, *wrecks = decode(batch)
    assert answer == Result(1, {"text": '[{"\\'})
    (reason,) = {each.reason for each in wrecks if isinstance(each, InvalidMessage)}
    assert len(wrecks) == 3
    assert set(wrecks) == {InvalidMessage(reason, id) for id in (2, 3, None)}

    # The complete messages of a truncated batch are read.
    for cut in (b'[{"id":1,"result":{}},{"id":2,"res', b'[{"id":1,"result":{}}, x'):
        assert decode(cut)[0] == Result(1, {})


@pytest.mark.parametrize("frame", [b"[" + TOO_DEEP + b"]", b"[[{]", b"[]]]{}", b'["{}', b"[1,,2]"])
def test_an_array_without_objects_is_one_malformed_message(frame: bytes) -> None:
    (message,) = decode(frame)
    assert isinstance(message, InvalidMessage)
    assert message.id is None


@pytest.mark.parametrize("unit", [b"{}", b'{"method":"m"}', b"7"])
@pytest.mark.parametrize("end", [b"]", b""])
def test_a_batch_of_more_messages_than_the_bound_is_not_read(unit: bytes, end: bytes) -> None:
    whole = b"[" + b",".join([unit] * jsonrpc.MAX_MESSAGES)
    assert decode(whole + end)
    if end or unit != b"7":  # in a malformed batch, only objects count
        with pytest.raises(LimitExceeded, match="10,000 messages"):
            decode(whole + b"," + unit + end)


@pytest.mark.parametrize("bracket", [b"]", b"}"])
def test_what_comes_after_a_batch_is_not_looked_at(bracket: bytes) -> None:
    frame = b"[{}]" + bracket * 4_000_000
    started = time.thread_time()
    assert len(decode(frame)) == 1
    assert time.thread_time() - started < 0.5


def test_a_batch_of_many_wrecks_takes_no_more_memory_than_a_sound_one() -> None:
    sound, wreck = (
        b"[%b]" % b",".join(b'{"id":%d,"result":%b}' % (n, result) for n in range(1_000))
        for result in (b"null", b"nope")
    )
    assert peak(partial(decode, wreck)) < 2 * peak(partial(decode, sound))


@pytest.mark.requirement("RPC-03")
@pytest.mark.pitfall("23")
def test_json_that_is_no_message_is_malformed_and_fails_the_request_it_answers() -> None:
    for frames, reason, id in (
        (["[]", "5", "null", '"text"', "true", "1.5"], "neither an object nor a batch", None),
        (
            [
                f'{{"id":{odd},{rest}}}'
                for odd in ("true", "false", "1.0", "1e0", "[1]", '{"a":1}')
                for rest in ('"result":{}', '"method":"ping"', '"error":{"code":1}')
            ],
            "an id is neither a string nor an integer",
            None,
        ),
        (['{"id":null,"method":"ping"}'], "the request ping has a null id", None),
        (
            [f'{{"id":3,"method":{odd}}}' for odd in ("5", "true", "[]", '{"a":1}', "0", "false")],
            "a method is not a string",
            None,
        ),
        ([f'{{"id":4,"result":{{}},"error":{NO}}}'], "both a result and an error", 4),
        (['{"id":4}', '{"id":4,"error":null}'], "neither a method, a result nor an error", 4),
        (["{}"], "neither a method, a result nor an error", None),
        (
            [
                f'{{"id":4,"error":{odd}}}'
                for odd in ('"no"', "[]", "{}", '{"code":"1"}', '{"code":true}', "5")
            ],
            "an error without an integer code",
            4,
        ),
    ):
        for frame in frames:
            assert read(frame) == InvalidMessage(reason, id), frame


RESULTS: list[Any] = [None, 5, "text", [], {}, False]
NO_CALL = (-32700, "?", [1])


@pytest.mark.requirement("RPC-10")
def test_what_a_message_may_leave_out_or_add() -> None:
    for frame, message in (
        ('{"id":7,"method":"ping"}', Request(7, "ping", {})),
        ('{"id":"7","method":"ping"}', Request("7", "ping", {})),
        *(
            (f'{{{id}"method":"m"{params}}}', message)
            for id, message in (('"id":1,', Request(1, "m", {})), ("", Notification("m", {})))
            for params in ("", ',"params":null', ',"params":{}')
        ),
        (
            '{"id":1,"method":"m","params":{"text":"NaN","Infinity":["-Infinity"]}}',
            Request(1, "m", {"text": "NaN", "Infinity": ["-Infinity"]}),
        ),
        ('{"jsonrpc":"1.0","id":1,"result":{"a":1},"extra":true}', Result(1, {"a": 1})),
        *((f'{{"id":1,"result":{json.dumps(result)}}}', Result(1, result)) for result in RESULTS),
        ('{"id":1,"result":{},"error":null}', Result(1, {})),
        *(  # an error without an id belongs to no request
            (f'{{{id}"error":{{"code":-32700,"message":"?","data":[1]}}}}', Error(None, *NO_CALL))
            for id in ("", '"id":null,')
        ),
        ('{"id":1,"result":null,"error":{"code":-5,"message":"no"}}', Error(1, -5, "no", None)),
        *(
            (f'{{"id":1,"error":{{"code":0{text}}}}}', Error(1, 0, "", None))
            for text in ("", ',"message":null', ',"message":5')
        ),
    ):
        found = read(frame)
        assert found == message
        assert type(getattr(found, "id", None)) is type(getattr(message, "id", None))


@pytest.mark.parametrize("params", ["[]", "5", '"text"', "false"])
def test_a_request_whose_params_are_no_object_can_still_be_refused(params: str) -> None:
    reason = "the params of m are not an object"
    assert read(f'{{"id":3,"method":"m","params":{params}}}') == MalformedRequest(3, reason)
    assert read(f'{{"method":"m","params":{params}}}') == InvalidMessage(reason, None)


# The number of values in a message apart from those of its result; keys count, too.
AROUND = 7


def message(result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}"


@pytest.mark.parametrize(
    ("unit", "values"),
    [
        *((b"[]", 1), (b"{}", 1), (b"0", 1), (b"-1.5e-3", 1), (b" null ", 1), (b'""', 1)),
        *((b'"\\\\"', 1), (b'",\\",[{:"', 1), (b"[1]", 2), (b'{"a":{}}', 3)),
        (b'{"a\\"b" : [true,\n"x"]}', 5),
    ],
)
def test_a_frame_with_more_values_than_the_bound_is_not_decoded(unit: bytes, values: int) -> None:
    frame = message(b"[" + b",".join([unit] * 100) + b"]")
    (read,) = decode(frame, 100 * values + AROUND)
    assert isinstance(read, Result)
    with pytest.raises(LimitExceeded, match="values"):
        decode(frame, 100 * values + AROUND - 1)


@pytest.mark.parametrize("unit", [b",", b"[{:,", b'\\",\\"', b"\\\\,"])
def test_what_is_within_a_string_counts_for_nothing(unit: bytes) -> None:
    (read,) = decode(message(b'"' + unit * 10_000 + b'"'), AROUND)
    assert isinstance(read, Result)


def test_a_frame_that_is_no_json_is_read_within_the_bound_too() -> None:
    for frame in (b'"' * 100_000, b'["' + b'\\"' * 100_000):
        (read,) = decode(frame, 1000)
        assert isinstance(read, InvalidMessage)
    with pytest.raises(LimitExceeded):
        decode(b"[" * 100_000, 1000)


@pytest.mark.parametrize("unit", [b"[],", b'{"a":{}},'])
def test_a_frame_of_tiny_values_takes_no_more_memory_than_its_bytes(unit: bytes) -> None:
    frame = message(b"[" + unit * (2**18 // len(unit)) + b"0]")

    def refuse() -> None:
        with pytest.raises(LimitExceeded):
            decode(frame, 75_000)

    assert peak(refuse) < 2 * len(frame)


DEEP = '{"content":[],"_meta":{"x":' + "[" * 400 + "]" * 400 + "}}"
LONG = '{"content":[],"structuredContent":{"x":' + "9" * 5000 + "}}"


@pytest.mark.parametrize("result", [DEEP, LONG])
@pytest.mark.parametrize(
    ("frame", "id"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":%s}', 7),
        ('{ "id": "7", "jsonrpc": "2.0", "result": %s }', 7),
        *(('{"result":%s,"jsonrpc":"2.0","id":7}', 7), ('{"jsonrpc":"2.0","error":%s,"id":7}', 7)),
        # A frame that may not be a response belongs to no call.
        ('{"jsonrpc":"2.0","id":7,"method":"ping","params":%s}', None),
        ('{"jsonrpc":"2.0","method":"ping","params":%s,"id":7}', None),
        ('{"jsonrpc":"2.0","id":{"id":7},"result":%s}', None),
        ('{"jsonrpc":"2.0","x":"\\",\\"id\\":7,\\"result\\":","y":%s}', None),
        *(('{"note":[{"id":7,"result":1}],"x":%s}', None), ("{id: 7, result: %s", None)),
    ],
)
def test_an_answer_that_cannot_be_decoded_has_the_id_of_its_call(
    frame: str, id: int | None, result: str
) -> None:
    message = read(frame % result)
    assert isinstance(message, InvalidMessage)
    assert message.id == id


@pytest.mark.parametrize("unit", [b'""', b"[]", b"{[]}"])
def test_no_long_time_is_spent_on_a_batch_that_is_no_json(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonrpc, "check_values", lambda *_: None)
    assert type(decode(b"[" + unit * 100, 1000)[0]) is InvalidMessage
    with pytest.raises(LimitExceeded, match="an invalid message has over"):
        decode(b"[" + unit * 1001, 1000)


def test_the_bounds_of_the_decoder() -> None:
    # The bound on values depends on the bound on the size of a frame.
    sizes = (0, 1_600_016, 4 * 2**20, 64 * 2**20)
    assert [*map(values_within, sizes)] == [100_000, 100_001, 262_144, 4_000_000]
    with pytest.raises(LimitExceeded, match="more than 4,000,000 values"):
        decode(b"[" + b"0," * 4_000_000 + b"0]")
    for depth, digits in ((jsonrpc.MAX_NESTING, 1), (1, jsonrpc.MAX_DIGITS)):
        frame = b'{"id":1,"result":' + b"[" * (depth - 1) + b"9" * digits + b"]" * (depth - 1)
        assert type(decode(frame + b"}")[0]) is Result
    for frame in (TOO_DEEP, b'{"id":1,"result":' + b"9" * 4301 + b"}"):
        assert type(decode(frame)[0]) is InvalidMessage


def test_the_size_of_a_value_is_what_it_takes_as_an_object() -> None:
    for end in ("", "\xe9", "\u20ac", "\U0001f600"):
        text = "x" * 100_000 + end
        assert sys.getsizeof(text) <= size_of({"text": text}) <= sys.getsizeof(text) + 1000
    assert size_of({"list": [0] * 1000}) > 50_000
    assert size_of({"text": "x" * 1000}) < 2000
    # Parameters that an interceptor changed have a size, even if they are not JSON.
    assert size_of({"half a character": "\ud800", "object": object(), (1, 2): 3}) > 50  # type: ignore[dict-item]
