"""Whatever a server sends, a call ends with a result or an `McpError`, and the client still works.

Hypothesis generates the messages, and shrinks those that cause a failure. `make test` uses a few
examples, always the same; `make stress` uses ten thousand random ones for each test. It prints
their seed, and `SYNCMCP_STRESS_SEED` repeats a run.

`tests/contract/mutant_switches/machinery.txt` has mutants that these tests must detect.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import strategies as st

import syncmcp
from syncmcp import InvalidOutput, LimitExceeded, ProtocolError
from syncmcp.errors import McpError
from syncmcp.transports import _pipes
from syncmcp.types import CallToolResult
from tests.system.stress.doubles import (
    WAYS,
    Bench,
    Way,
    bench,
    call,
    encode,
    in_pieces,
    saying,
    sound,
)
from tests.system.stress.sizes import FEW, MANY, explore, sizes

METHODS: Final = (
    *("notifications/progress", "notifications/message", "notifications/cancelled"),
    *("notifications/initialized", "notifications/tools/list_changed"),
    *("notifications/resources/updated", "notifications/elicitation/complete"),
    *("sampling/createMessage", "elicitation/create", "roots/list"),
    *("acme/question", "ping", "tools/call", "initialize", "no/such", ""),
)
KEYS: Final = (
    *("_meta", "capabilities", "content", "contents", "completion", "data", "isError", "level"),
    *("logger", "message", "messages", "name", "nextCursor", "progress", "prompts", "reason"),
    *("resources", "resultType", "structuredContent", "text", "tools", "total", "type"),
    *("progressToken", "requestId", "ü\u2028"),
)

EACH: Final = MANY // len(WAYS)
"""The number of examples for each way of a test that has several."""

every_way = pytest.mark.parametrize("way", WAYS, ids=str)
# For behaviour that does not depend on the transport.
in_memory = pytest.mark.parametrize("way", [WAYS[0], WAYS[2]], ids=str)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Discard the many warnings, which would fill the memory; errors are recorded."""
    caplog.set_level(logging.ERROR, "syncmcp")


# -- values

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | finite
    | st.text(max_size=20)
    | st.sampled_from(["complete", "input_required", "", "\u2028", "info", 10**400])
)
names = st.sampled_from(KEYS) | st.text(max_size=5)


def values_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    )


# Without NaN and infinity, which are no JSON: such an answer is ignored, and the call would hang.
values = values_of(scalars)
wild = values_of(scalars | st.floats())
objects = st.dictionaries(names, values, max_size=5)


# -- frames

OWN: Final = "@the id of the call@"

ids = st.just(OWN) | st.just(f"x{OWN}") | st.integers() | wild
methods = st.sampled_from(METHODS) | st.text(max_size=10)
errors = st.fixed_dictionaries(
    {}, optional={"code": st.integers() | wild, "message": wild, "data": wild}
)
reports = st.fixed_dictionaries(
    {"progressToken": st.just(OWN)},
    optional={"progress": finite | wild, "total": finite | wild, "message": wild},
)
logs = st.fixed_dictionaries({}, optional={"level": st.just("warning") | wild, "data": values})


def notified(
    method: st.SearchStrategy[str], params: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Generate valid notifications with any parameters: these reach the callbacks of a program."""
    return st.fixed_dictionaries({"jsonrpc": st.just("2.0"), "method": method, "params": params})


notifications = st.one_of(
    notified(st.just("notifications/progress"), reports),
    notified(st.just("notifications/message"), logs),
    notified(methods, objects | wild),
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | wild,
        "id": ids,
        "method": methods | wild,
        "params": objects | wild,
        "result": objects | wild,
        "error": errors | wild,
    },
)


def deep(depth: int, ends: tuple[str, str]) -> bytes:
    return f'{{"id":"{OWN}","result":{ends[0] * depth}0{ends[1] * depth}}}'.encode()


frames = st.one_of(
    messages.map(encode),
    notifications.map(encode),
    st.lists(messages | wild, max_size=4).map(encode),
    wild.map(encode),
    st.binary(max_size=60),
    st.builds(deep, st.integers(1, 3000), st.sampled_from([("[", "]"), ('{"a":', "}")])),
    st.builds(
        lambda frame, at, to, piece: frame[:at] + piece + frame[to:],
        messages.map(encode),
        st.integers(0, 80),
        st.integers(0, 80),
        st.binary(max_size=4),
    ),
)


def addressed(frame: bytes, id: int) -> bytes:
    """Return the frame with the id of a call in place of `OWN`."""
    return frame.replace(encode(OWN), b"%d" % id).replace(OWN.encode(), b"%d" % id)


def hear_frames(bench: Bench, given: list[bytes]) -> None:
    def answer(message: dict[str, Any]) -> list[bytes]:
        return [*(addressed(frame, message["id"]) for frame in given), saying(message["id"], "x")]

    outcome = bench.examine(answer, call)
    assert isinstance(outcome, (CallToolResult, McpError))


@pytest.mark.pitfall("12")
@every_way
@sizes(2 * FEW, EACH, 1800)
def test_frames_do_no_harm(way: Way, size: int) -> None:
    with bench(way) as place:
        explore(st.lists(frames, max_size=6), partial(hear_frames, place), size)


# -- ids: a response whose id is only similar to that of a call does not answer it

STRANGERS: Final = (
    *('"+{}"', '"-{}"', '" {}"', '"{} "', '"{}\\n"', '"x{}"', '"{}x"', '"{}.0"', '"{}e0"'),
    *('"0x{}"', '"{}_0"', "-{}", "{}1", "1{}", '""'),
    '"\u0660{}"',  # a digit that Python's `int` reads
)
"""Valid ids that belong to no call."""
NO_IDS: Final = ("{}.5", "[{}]", '{{"id":{}}}', "true", "false")
"""Values that are no valid ids."""


def hear_near_misses(bench: Bench, given: list[str]) -> None:
    def answer(message: dict[str, Any]) -> list[bytes]:
        id = message["id"]
        wrong = '{"content":[{"type":"text","text":"wrong"}],"resultType":"complete"}'
        return [
            *(
                f'{{"jsonrpc":"2.0","id":{near.format(id)},"result":{wrong}}}'.encode()
                for near in given
            ),
            saying(id, "right"),
        ]

    outcome = bench.examine(answer, call)
    if bench.own_streams and not set(given).isdisjoint(NO_IDS):
        # An invalid message ends the call, because the stream belongs to that call only.
        assert type(outcome) is ProtocolError, outcome
        return
    assert isinstance(outcome, CallToolResult), outcome
    assert outcome.text == "right"


@every_way
@sizes(FEW, EACH, 1800)
def test_ids_that_are_nearly_right_answer_nothing(way: Way, size: int) -> None:
    with bench(way) as place:
        near = st.sampled_from(STRANGERS + NO_IDS)
        explore(st.lists(near, min_size=1, max_size=4), partial(hear_near_misses, place), size)


# -- framing: lines are split at line ends, in whatever pieces they arrive, up to the limit

pieces = st.lists(st.sampled_from([b"", b"a", b"\r", b"\xe2\x80\xa8", b"bcdefgh"]), max_size=6)


def cut_lines(given: tuple[int, list[bytes], list[int]]) -> None:
    limit, contents, cuts = given
    stream = b"".join(line + b"\n" for line in contents)
    lines = _pipes.LineReader(limit)
    read = [line for piece in in_pieces(stream, cuts) for line in lines.feed(piece)]
    expected = []
    for content in contents:
        line = content.removesuffix(b"\r")
        expected.append(line if len(line) <= limit else line[:limit])
    assert read == expected
    whole = [len(content.removesuffix(b"\r")) <= limit for content in contents]
    assert [not isinstance(line, _pipes.TruncatedLine) for line in read] == whole
    assert lines.rest() == b""


@sizes(4 * FEW, MANY, 1800)
def test_lines_come_out_as_they_went_in(size: int) -> None:
    line = pieces.map(b"".join)
    streams = st.lists(line, max_size=6)
    explore(
        st.tuples(st.integers(1, 20), streams, st.lists(st.integers(0, 300), max_size=8)),
        cut_lines,
        size,
    )


texts = st.text(max_size=300) | st.integers(0, 70_000).map(lambda size: "x" * size)


def echo(bench: Bench, given: list[str]) -> None:
    for text in given:
        outcome = bench.examine(lambda message: [saying(message["id"], text)], call)  # noqa: B023
        assert isinstance(outcome, CallToolResult), outcome
        assert outcome.text == text


@every_way
@sizes(FEW, EACH, 1800)
def test_texts_arrive_as_they_were_sent(way: Way, size: int) -> None:
    with bench(way) as place:
        explore(st.lists(texts, min_size=1, max_size=3), partial(echo, place), size)


# -- cursors: each is sent back unchanged, until there is none, a cycle, or one page too many

cursors = st.text(max_size=3) | st.sampled_from(["", "0", "null", "false", " ", "\x00", "ü"])
ends = st.none() | st.just("absent") | st.integers() | st.booleans() | st.lists(cursors, max_size=1)


def follow_cursors(bench: Bench, given: tuple[list[str], Any, bool]) -> None:
    chain, end, lazily = given
    stated: list[Any] = [*chain, end]
    asked: list[Any] = []

    def answer(message: dict[str, Any]) -> list[bytes] | None:
        if message["method"] != "tools/list":
            return None
        number = len(asked)
        asked.append((message.get("params") or {}).get("cursor", "absent"))
        page: dict[str, Any] = {"tools": [{"name": f"tool {number}", "inputSchema": {}}]}
        if number < len(chain) or end != "absent":
            page["nextCursor"] = stated[number]
        return [sound(message["id"], page)]

    def use(client: syncmcp.Client) -> list[str]:
        tools = client.iter_tools() if lazily else client.list_tools().tools
        return [tool.name for tool in tools]

    outcome = bench.examine(answer, use)
    followed = ["absent"]
    for cursor in chain:
        if cursor in followed[1:]:
            assert type(outcome) is ProtocolError
            break
        if len(followed) == 10:
            assert type(outcome) is LimitExceeded
            break
        followed.append(cursor)
    else:
        if end in (None, "absent"):
            assert outcome == [f"tool {number}" for number in range(len(followed))]
        else:
            assert type(outcome) is InvalidOutput
    assert asked == followed


@in_memory
@sizes(FEW, MANY // 2, 1800)
def test_cursors_are_followed_to_their_end(way: Way, size: int) -> None:
    lists = st.tuples(st.lists(cursors, max_size=12), ends, st.booleans())
    with bench(way) as place:
        explore(lists, partial(follow_cursors, place), size)


# -- schemas: the check of any value by any schema ends with a verdict or an `McpError`

references = st.sampled_from(
    ["#", "#/$defs/a", "#/properties/a", "#a", "http://127.0.0.1:9/x", "file:///etc/passwd", "a#b"]
)
patterns = st.sampled_from(["(a+)+$", "^a", "[", "(?=a)", "\\d+", "a{1000}", "(a|a)*b", ""])
kinds = st.sampled_from(["object", "array", "string", "number", "integer", "null", "boolean", "x"])
numbers = st.integers(-3, 10) | finite | st.just(10**30)


def inside(schema: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(schema, max_size=3)
    named = st.dictionaries(st.sampled_from(["a", "b", "", "^a", "["]), schema, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": kinds | st.lists(kinds, max_size=2) | values,
            "properties": named | values,
            "patternProperties": named,
            "additionalProperties": schema,
            "unevaluatedProperties": schema,
            "propertyNames": schema,
            "items": schema | many,
            "prefixItems": many,
            "contains": schema,
            "unevaluatedItems": schema,
            "uniqueItems": st.booleans() | values,
            "allOf": many | values,
            "anyOf": many,
            "oneOf": many,
            "not": schema,
            "if": schema,
            "then": schema,
            "else": schema,
            "dependentSchemas": named,
            "required": st.lists(st.sampled_from(["a", "b"]), max_size=2) | values,
            "enum": st.lists(values, max_size=3) | values,
            "const": values,
            "minimum": numbers | values,
            "multipleOf": numbers | values,
            "minItems": numbers,
            "maxLength": numbers,
            "pattern": patterns | values,
            "format": st.sampled_from(["date", "uri", "x"]) | values,
            "$ref": references | values,
            "$dynamicRef": references,
            "$id": references | values,
            "$anchor": st.sampled_from(["a", ""]) | values,
            "$defs": named,
            "$schema": st.sampled_from(
                [
                    "https://json-schema.org/draft/2020-12/schema",
                    "http://json-schema.org/draft-07/schema#",
                    "http://json-schema.org/draft-04/schema#",
                    "x",
                ]
            ),
        },
    )


def nested(depth: int, word: str, core: Any) -> Any:
    """Return `core` nested in `depth` schemas."""
    for _ in range(depth):
        core = {word: [core] if word == "allOf" else {"a": core} if word == "properties" else core}
    return core


whole_schemas: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.just({}), inside, max_leaves=8
)
schemas = st.one_of(
    whole_schemas,
    st.builds(
        nested,
        st.integers(1, 60),
        st.sampled_from(["not", "items", "allOf", "properties"]),
        st.just({"$ref": "#"}) | whole_schemas,
    ),
    values,
)
contents = st.one_of(
    st.sampled_from(["absent", None, {}, {"a": {"a": {}}}, {"a": "a" * 40}]), objects, values
)


def check_schemas(bench: Bench, given: tuple[Any, Any, Any, dict[str, Any]]) -> None:
    inputs, outputs, content, arguments = given
    tool = {"name": "victim", "inputSchema": inputs, "outputSchema": outputs}

    def answer(message: dict[str, Any]) -> list[bytes] | None:
        if message["method"] == "tools/list":
            return [sound(message["id"], {"tools": [tool]})]
        result: dict[str, Any] = {"content": []}
        if content != "absent":
            result["structuredContent"] = content
        return [sound(message["id"], result)]

    def use(client: syncmcp.Client) -> CallToolResult:
        client.list_tools()
        return client.call_tool("victim", arguments, validate_output="raise")

    outcome = bench.examine(answer, use)
    assert isinstance(outcome, (CallToolResult, McpError))
    assert not isinstance(outcome, syncmcp.TransportError), outcome


@in_memory
@sizes(4 * FEW, MANY // 2, 1800)
def test_schemas_give_a_verdict_or_an_error(way: Way, size: int) -> None:
    arguments = st.dictionaries(st.sampled_from(["a", "b"]), st.integers() | st.text(), max_size=2)
    with bench(way) as place:
        explore(
            st.tuples(schemas, schemas, contents, arguments), partial(check_schemas, place), size
        )
