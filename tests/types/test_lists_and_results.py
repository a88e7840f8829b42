"""Lists behave like lists, and results print on one line."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from syncmcp import types
from syncmcp.errors import InvalidOutput
from syncmcp.types import CallToolResult, TextContent

LISTS: list[tuple[Any, str, dict[str, Any]]] = [
    (types.ListToolsResult, "tools", {"name": "add", "inputSchema": {"type": "object"}}),
    (types.ListPromptsResult, "prompts", {"name": "greet"}),
    (types.ListResourcesResult, "resources", {"name": "readme", "uri": "file:///r"}),
    (types.ListResourceTemplatesResult, "resourceTemplates", {"name": "t", "uriTemplate": "x:{y}"}),
]


@pytest.mark.parametrize(("model", "field", "item"), LISTS)
def test_a_list_is_iterated_over_counted_and_indexed(model: Any, field: str, item: Any) -> None:
    items = [{**item, "name": f"{item['name']}{number}"} for number in range(12)]
    found = model.from_wire({field: items, "nextCursor": "secret-cursor"})
    assert [each.name for each in found] == [each["name"] for each in items]
    assert len(found) == 12
    assert found[-1] == list(found)[11]
    assert "12 " in repr(found)
    assert repr(items[7]["name"]) in repr(found)
    assert repr(items[8]["name"]) not in repr(found)
    assert "cursor" not in repr(found)
    assert str(found) == repr(found)
    assert "\n" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.to_wire() == {field: items, "nextCursor": "secret-cursor"}
    assert len(model.from_wire({field: []})) == 0


def result(*texts: str, **fields: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text) for text in texts], **fields)


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
    assert result("no", structured_content=None).json() is None  # null, and present
    assert result('{"a": [1]}').json() == {"a": [1]}
    for text in ("", "no", "[" * 100_000):
        with pytest.raises(InvalidOutput, match="its text is no JSON"):
            result(text).json()


def test_what_is_absent_is_not_in_the_repr() -> None:
    assert repr(types.Implementation(name="n", version="1")) == (
        "Implementation(name='n', version='1')"
    )
