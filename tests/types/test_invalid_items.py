"""An invalid value costs no more than its bytes, however many of its parts are invalid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

from syncmcp import types
from syncmcp.types.base import WireModel

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
def test_there_are_few_problems_however_many_parts_are_invalid(
    model: type[WireModel], value: dict[str, Any]
) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.from_wire(value)

    assert caught.value.error_count() < 10
