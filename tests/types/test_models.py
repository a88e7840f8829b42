"""The behaviour of the models, apart from their fields."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp import errors, types
from syncmcp.errors import InvalidOutput
from syncmcp.types import CallToolResult, TextContent
from syncmcp.types.base import WireModel
from tests.support.memory import peak

TEXT = {"type": "text", "text": "hello"}


def tool_result(**fields: Any) -> types.CallToolResult:
    return types.CallToolResult.from_wire({"content": [TEXT], **fields})


def result(*texts: str, **fields: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text) for text in texts], **fields)


def test_attributes_are_snake_case_and_the_wire_is_camel_case_and_plain_json() -> None:
    built = types.Tool(name="a", input_schema={"type": "object"}, meta={"k": 1})
    assert built.to_wire() == {"name": "a", "inputSchema": {"type": "object"}, "_meta": {"k": 1}}
    assert types.Tool.from_wire(built.to_wire()) == built
    # Fields that are not set are not written, and URLs are not changed.
    assert types.CallToolResult(content=[]).to_wire() == {"content": []}
    uri = "HTTPS://Example.COM:443/a b"
    assert types.Root.from_wire({"uri": uri}).uri == uri
    message = types.PromptMessage(role="user", content=TextContent(text="x"))
    assert message.to_wire() == {"role": "user", "content": {"type": "text", "text": "x"}}

    url = types.ElicitRequestURLParams(message="m", url="https://example.com")
    assert url.to_wire() == {"mode": "url", "message": "m", "url": "https://example.com"}
    given = result("x", structured_content=(1, 2)).to_wire()
    assert json.loads(json.dumps(given)) == given


@given(
    st.dictionaries(
        st.text().map("x-{}".format),
        st.none() | st.integers(-(2**53), 2**53) | st.text() | st.lists(st.text(), max_size=2),
    )
)
def test_unknown_fields_survive_at_every_depth(extra: dict[str, Any]) -> None:
    block = {**extra, **TEXT}
    annotated = {**block, "annotations": {**extra, "priority": 1.0}}
    wire = {"content": [block, annotated], "isError": False, "zz": extra}

    assert types.CallToolResult.from_wire(wire).to_wire() == wire


def test_an_unknown_field_named_like_an_attribute_is_not_taken_for_the_field() -> None:
    wire = {"content": [], "is_error": True, "meta": 3, "structured_content": {}, "text": "t"}

    result = types.CallToolResult.from_wire(wire)

    assert (result.is_error, result.meta, result.has_data, result.text) == (False, None, False, "")
    assert {**result.to_wire(), **wire} == result.to_wire()


def test_a_misspelt_field_is_refused_where_a_program_makes_a_model() -> None:
    made: Any = types.CallToolResult
    with pytest.raises(TypeError, match=r"'isEror': did you mean 'is_error'\?"):
        made(content=[], isEror=True)
    assert made(content=[], isError=True, _meta={"a": 1}, other=1).to_wire() == {
        "content": [],
        "isError": True,
        "_meta": {"a": 1},
        "other": 1,
    }
    received = {"content": [{"type": "text", "text": "a", "txet": "b"}], "isEror": True}
    assert made.from_wire(received).to_wire() == received


def test_help_shows_the_fields_of_a_model_by_their_names_before_and_after_its_first_use() -> None:
    class Fresh(WireModel):
        is_new: bool
        parts: list[int] = pydantic.Field(default_factory=list)

    class Unfinished(Fresh):
        other: Missing | None = None  # type: ignore[name-defined]  # noqa: F821

    assert str(inspect.signature(Fresh)) == "(*, is_new, parts=[])"
    assert Fresh.from_wire({"isNew": True}).to_wire() == {"isNew": True}
    assert str(inspect.signature(Fresh)) == "(*, is_new, parts=[])"
    assert str(inspect.signature(Unfinished)) == "(*, is_new, parts=[], other=None)"


@pytest.mark.parametrize("data", [{"a": 1}, [], 0, False, None])
def test_data_is_the_structured_content_and_null_counts_as_some(data: Any) -> None:
    result = tool_result(structuredContent=data)
    assert (result.has_data, result.data) == (True, data)
    assert result.to_wire()["structuredContent"] == data
    without = tool_result()
    assert (without.has_data, without.data) == (False, None)
    assert "structuredContent" not in without.to_wire()


def test_raise_for_error_raises_with_the_whole_result_and_masks_what_is_a_secret() -> None:
    good = tool_result(isError=False)
    bad = result("refused: api_key=4711-canary, and canary-4711", is_error=True)
    assert good.raise_for_error() is good
    masked = r"refused: api_key=\*\*\*, and canary-4711"
    with pytest.raises(errors.ToolError, match=masked) as caught:
        bad.raise_for_error()
    assert caught.value.result is bad


def test_raise_for_error_quotes_no_more_of_a_long_text_than_it_removes_secrets_from() -> None:
    filler = "password=canary-4711 " * 600
    for end in (filler, "x" * 40_000, "https://me:canary-4711" + "1" * 40_000 + "@h/"):
        with pytest.raises(errors.ToolError) as caught:
            result(filler + end, is_error=True).raise_for_error()
        message = str(caught.value)
        assert len(message) < 2 * 16 * 1024
        assert "canary" not in message
        assert "more characters)" in message
        assert caught.value.result.text == filler + end


@pytest.mark.parametrize(
    "change",
    [{"title": "B"}, {"inputSchema": {"type": "array"}}, {"annotations": {}}, {"acme/new": 1}],
)
def test_the_json_of_a_tool_tells_whether_it_is_the_same(change: dict[str, Any]) -> None:
    def told(wire: Any) -> str:
        return types.Tool.model_validate(wire).model_dump_json()

    wire = {"name": "a", "inputSchema": {"type": "object"}, "acme/x": [1]}
    assert told(json.loads(json.dumps(wire))) == told(wire) != told({**wire, **change})


class Weather(pydantic.BaseModel):
    degrees: float


def test_parse_gives_a_model_or_any_type() -> None:
    parsed: Weather = tool_result(structuredContent={"degrees": 3}).parse(Weather)
    assert parsed == Weather(degrees=3)
    assert tool_result(structuredContent=[1, 2]).parse(list[int]) == [1, 2]
    assert tool_result(structuredContent=None).parse(int | None) is None
    with pytest.raises(errors.InvalidOutput, match="no structured content"):
        tool_result().parse(Weather)
    with pytest.raises(errors.InvalidOutput, match="degrees") as caught:
        tool_result(structuredContent={"degrees": "warm"}).parse(Weather)
    assert isinstance(caught.value.__cause__, pydantic.ValidationError)


def test_a_block_of_unknown_type_keeps_its_fields_and_fails_nothing() -> None:
    hologram = {"type": "hologram", "beams": [1, 2], "_meta": {"k": 1}}
    result = types.CallToolResult.from_wire({"content": [hologram, TEXT, {**TEXT, "text": "you"}]})
    assert isinstance(result.content[0], types.UnknownContent)
    assert result.content[0].model_extra == {"beams": [1, 2]}
    assert result.to_wire()["content"][0] == hologram
    assert result.text == "hello\nyou"  # only the text blocks


NO_BLOCKS: list[Any] = [
    *({}, {"type": 1}, {"type": []}, {"type": None}, "text", None, 3),
    {"type": "text"},
    {"type": "text", "text": 1},
    {"type": "image", "data": "AA=="},
    {"type": "resource", "resource": {"uri": "a:b"}},
    {"type": "resource_link", "uri": "a:b"},
]
NO_CONTENT: list[Any] = [*({"content": [block]} for block in NO_BLOCKS), {"content": "x"}]


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        *((types.CallToolResult, wire) for wire in (*NO_CONTENT, {"content": None}, [])),
        (types.ListToolsResult, {}),
        (types.ListToolsResult, {"tools": [{"name": 1, "inputSchema": {}}]}),
        (types.ListToolsResult, {"tools": [{"name": "a", "inputSchema": None}]}),
        (types.GetPromptResult, {"messages": [{"role": "system", "content": TEXT}]}),
        (types.ElicitResult, {"action": "maybe"}),
    ],
)
def test_what_is_no_such_value_is_an_error(model: type[types.WireModel], wire: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        model.from_wire(wire)


@pytest.mark.parametrize("data", ["AAE", "AA E", "AA==\n", "AA-_", "é"])
def test_what_is_not_strict_base64_is_kept_and_refused_only_when_decoded(data: str) -> None:
    contents = types.ReadResourceResult.from_wire({"contents": [{"uri": "a:b", "blob": data}]})
    (blob,) = contents.contents
    assert isinstance(blob, types.BlobResourceContents)
    with pytest.raises(errors.InvalidOutput, match="a:b"):
        blob.decode()
    for model in (types.ImageContent, types.AudioContent):
        assert model(data="AAEC", mime_type="x/y").decode() == b"\x00\x01\x02"


def test_resource_contents_are_text_or_bytes_and_sampling_content_one_block_or_several() -> None:
    result = types.ReadResourceResult.from_wire(
        {"contents": [{"uri": "a:b", "text": "", "blob": None}, {"uri": "a:c", "blob": "AA=="}]}
    )
    text, blob = result.contents
    assert isinstance(text, types.TextResourceContents)
    assert isinstance(blob, types.BlobResourceContents)
    assert blob.decode() == b"\x00"
    use = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
    one = types.SamplingMessage.from_wire({"role": "assistant", "content": TEXT})
    several = types.SamplingMessage.from_wire({"role": "assistant", "content": [TEXT, use]})

    assert [type(block) for block in one.blocks] == [types.TextContent]
    assert [type(block) for block in several.blocks] == [types.TextContent, types.ToolUseContent]
    assert one.text == several.text == "hello"


def test_null_is_as_good_as_absent_and_words_may_be_new() -> None:
    nulls = ("title", "description", "outputSchema", "annotations", "icons", "_meta")
    tool: dict[str, Any] = {"name": "a", "inputSchema": {}, **dict.fromkeys(nulls)}
    listed = types.ListToolsResult.from_wire({"tools": [tool], "nextCursor": None, "_meta": None})
    assert listed.next_cursor is None
    assert listed.tools[0].display_name == "a"
    assert tool_result(isError=None).is_error is False
    capabilities = types.ServerCapabilities.from_wire({"tools": {"listChanged": None}})
    assert capabilities.tools is not None
    assert capabilities.tools.list_changed is False
    one, other = types.CallToolResult.from_wire({"structuredContent": {}}), tool_result(content=[])
    without = types.CallToolResult.from_wire({})
    one.content.append(TextContent(text="x"))
    assert other.content == without.content == []
    log = types.LoggingMessageNotificationParams.from_wire({"level": "loud", "data": 1})
    assert log.level == "loud"
    message = {"role": "assistant", "content": TEXT, "model": "m", "stopReason": "bored"}
    assert types.CreateMessageResult.from_wire(message).stop_reason == "bored"
    assert types.Icon.from_wire({"src": "data:,", "theme": "sepia"}).theme == "sepia"


NO_LIFETIMES: list[Any] = [1.5, "soon", None, {}]


@pytest.mark.parametrize(
    ("field", "sent", "read"),
    [
        *(("ttlMs", sent, read) for sent, read in ((5, 5), (0, 0), (-1, 0), (1.0, 1))),
        *(("ttlMs", sent, None) for sent in NO_LIFETIMES),
        *(("cacheScope", sent, sent) for sent in ("public", "new")),
        ("cacheScope", 7, None),
    ],
)
def test_odd_metadata_of_a_list_never_fails_it(field: str, sent: Any, read: Any) -> None:
    wire = {"tools": [], "ttlMs": 0, "cacheScope": "private", "nextCursor": "", field: sent}
    listed = types.ListToolsResult.from_wire(wire)
    assert (listed.ttl_ms if field == "ttlMs" else listed.cache_scope) == read
    assert listed.next_cursor == ""  # an empty cursor is valid


def test_an_elicitation_of_unknown_mode_is_an_error() -> None:
    def read(**params: Any) -> Any:
        params = {"message": "m", **params}
        return types.InputRequest(method="elicitation/create", params=params).read()

    assert isinstance(read(requestedSchema={}), types.ElicitRequestFormParams)
    assert isinstance(read(mode="url", url="https://a"), types.ElicitRequestURLParams)
    for mode in ("telepathy", 1):
        with pytest.raises(ValueError, match="not a question"):
            read(requestedSchema={}, mode=mode)


def test_the_name_to_show_is_the_title_then_the_hint_then_the_name() -> None:
    tool: dict[str, Any] = {"name": "a", "inputSchema": {}}
    assert types.Tool.from_wire(tool).display_name == "a"
    tool["annotations"] = {"title": "hint"}
    assert types.Tool.from_wire(tool).display_name == "hint"
    tool["title"] = "title"
    assert types.Tool.from_wire(tool).display_name == "title"
    assert types.Prompt(name="p").display_name == "p"
    assert types.Prompt(name="p", title="P").display_name == "P"


@pytest.mark.requirement("SAMP-03")
@pytest.mark.parametrize(
    ("hints", "chosen"),
    [
        *((hints, "big-large-2") for hints in (["large"], ["large", "small"], ["big"])),
        *((hints, "big-small-1") for hints in (["tiny", "small"], ["small", "large"], ["SMALL"])),
        *((hints, "big-small-1") for hints in (["big-small-1"], [None, "", "small"])),
        *((hints, None) for hints in (["elsewhere"], [""], [])),
    ],
)
def test_the_first_hint_in_a_name_chooses(hints: list[str | None], chosen: str | None) -> None:
    request = types.CreateMessageRequestParams(messages=[], max_tokens=1)
    assert request.preferred_model(["a"]) is None
    request.model_preferences = types.ModelPreferences()
    assert request.preferred_model(["a"]) is None
    hinted = [types.ModelHint(name=name) for name in hints]
    request.model_preferences = types.ModelPreferences(hints=hinted)
    assert request.preferred_model(["big-large-2", "big-small-1", "other-large"]) == chosen
    assert request.preferred_model([]) is None


@pytest.mark.parametrize("count", [1_000, 200_000])
def test_hints_without_end_are_refused_before_they_take_memory(count: int) -> None:
    read = types.CreateMessageRequestParams.from_wire
    wire = {"messages": [], "maxTokens": 1}
    read(wire)  # builds the model
    hinted = {**wire, "modelPreferences": {"hints": [{}] * count}}

    def read_them() -> None:
        if count == 1_000:
            assert read(hinted).preferred_model(["a"]) is None
        else:
            with pytest.raises(pydantic.ValidationError, match="at most 1000 items"):
                read(hinted)

    assert peak(read_them) < 2 * 1024 * 1024


# -- lists behave like lists, and results print on one line
LISTS: list[tuple[Any, str, dict[str, Any]]] = [
    (types.ListToolsResult, "tools", {"name": "add", "inputSchema": {"type": "object"}}),
    (types.ListPromptsResult, "prompts", {"name": "greet"}),
    (types.ListResourcesResult, "resources", {"name": "readme", "uri": "file:///r"}),
    (types.ListResourceTemplatesResult, "resourceTemplates", {"name": "t", "uriTemplate": "x:{y}"}),
]


@pytest.mark.parametrize(("model", "field", "item"), LISTS)
def test_a_list_is_iterated_over_counted_and_indexed(model: Any, field: str, item: Any) -> None:
    items = [{**item, "name": f"{item['name']}{number}"} for number in range(12)]
    wire = {field: items, "nextCursor": "secret-cursor"}
    found = model.from_wire(wire)
    assert [each.name for each in found] == [each["name"] for each in items]
    assert len(found) == 12
    assert found[-1] == list(found)[11]
    shown = repr(found)
    assert "12 " in shown
    assert repr(items[7]["name"]) in shown
    assert repr(items[8]["name"]) not in shown
    assert "cursor" not in shown
    assert "\n" not in shown
    assert str(found) == shown
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.to_wire() == wire
    assert len(model.from_wire({field: []})) == 0


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (result("3"), "<CallToolResult '3'>"),
        (result("a\nb", is_error=True), r"<CallToolResult failed: 'a\nb'>"),
        (result(structured_content={"a": 1}), "<CallToolResult \"{'a': 1}\">"),
        (result("x" * 300), f"<CallToolResult '{'x' * 200}… (100 more characters)'>"),
        (result(), "<CallToolResult >"),
    ],
)
def test_a_result_of_a_tool_prints_on_one_line(found: CallToolResult, shown: str) -> None:
    assert str(found) == repr(found) == shown
    assert found.ok is not found.is_error


def test_json_is_the_data_or_the_text_decoded() -> None:
    assert result("no", structured_content={"a": 1}).json() == {"a": 1}
    assert result("no", structured_content=None).json() is None  # null, but present
    assert result('{"a": [1]}').json() == {"a": [1]}
    for text in ("", "no", "[" * 100_000):
        with pytest.raises(InvalidOutput, match="its text is not JSON"):
            result(text).json()


def test_json_of_a_resource_is_its_only_contents_decoded_and_no_other_result_has_it() -> None:
    def read(*texts: str) -> Any:
        contents = [{"uri": "demo://a", "text": text} for text in texts]
        return types.ReadResourceResult.from_wire({"contents": contents}).json()

    assert read('{"a": [1]}') == {"a": [1]}
    for texts, problem in (
        (["no"], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (["1", "2"], "2 c"),
    ):
        with pytest.raises(InvalidOutput, match=problem):
            read(*texts)
    for other in types.ListToolsResult(tools=[]), types.GetPromptResult(messages=[]):
        with pytest.raises(TypeError, match="has no data as JSON"):
            cast(Any, other).json()


def test_what_is_absent_is_not_in_the_repr() -> None:
    assert repr(types.Implementation(name="n", version="1")) == (
        "Implementation(name='n', version='1')"
    )


# Messages of the three oldest revisions, and of extensions that no package has


# Each line has the revision, the name of the model, and the sample as JSON.
LINES = Path(__file__).with_name("older_samples.jsonl").read_text("utf-8").splitlines()
SAMPLES = [
    pytest.param(model, sample, id=f"{revision}-{model}-{number}")
    for number, (revision, model, sample) in enumerate(map(json.loads, LINES))
]


@pytest.mark.parametrize(("model", "sample"), SAMPLES)
def test_a_sample_comes_back_as_it_was(model: str, sample: dict[str, Any]) -> None:
    parsed = getattr(types, model).from_wire(sample)
    assert parsed.to_wire() == sample
    assert not parsed.model_extra


# The errors for an invalid value take little memory


types.load()


def models(base: type[WireModel] = WireModel) -> Iterator[type[WireModel]]:
    for model in base.__subclasses__():
        if model.__module__.startswith("syncmcp.types."):
            yield model
            yield from models(model)


def lists_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "list":
            yield schema
        for part in schema.values():
            yield from lists_in(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from lists_in(part)


def test_a_list_of_a_model_is_read_to_its_first_invalid_item() -> None:
    seen = 0
    for model in dict.fromkeys(models()):
        model.model_rebuild()
        lists = list(lists_in(model.__pydantic_core_schema__))
        seen += len(lists)
        assert [one for one in lists if not one["fail_fast"]] == [], model
    assert seen > 20


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (types.CallToolResult, {"content": [1] * 1000}),
        (types.ListToolsResult, {"tools": [{}] * 1000}),
        (types.Task, {"inputRequests": dict.fromkeys(map(str, range(1000)), 1)}),
    ],
)
def test_many_invalid_parts_are_few_problems(model: type[WireModel], value: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.from_wire(value)

    assert caught.value.error_count() < 10
