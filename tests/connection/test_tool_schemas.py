"""The cached schemas of tools: what a page adds to them, and how much they may be."""

from __future__ import annotations

import pytest

from syncmcp._connection import tool_schemas
from syncmcp._connection.tool_schemas import ToolSchemaCache
from syncmcp.types import Tool


def tool(name: str, size: int = 0) -> Tool:
    return Tool(name=name, input_schema={"type": "object", "description": "x" * size})


def test_pages_are_added_to_what_is_cached() -> None:
    cache = ToolSchemaCache()
    cache.learn([tool("a")], 0, whole=False)
    first = cache.by_name["a"]
    cache.learn([tool("a"), tool("b")], 0, whole=False)
    assert list(cache.by_name) == ["a", "b"]
    assert cache.by_name["a"] is first, "compiled schemas are kept"
    assert not cache.complete
    cache.learn([tool("b")], 0, whole=True)
    assert list(cache.by_name) == ["b"]
    assert cache.complete


def test_ever_new_tools_on_single_pages_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_schemas, "MAX_SINGLE_PAGES", 10_000)
    cache = ToolSchemaCache()
    cache.learn([tool("listed")], 0, whole=True)
    for _ in range(100):
        cache.learn([tool("page", 1000)], 0, whole=False)
    assert cache.complete, "the same page again adds nothing"
    assert list(cache.by_name) == ["listed", "page"]
    for number in range(100):
        cache.learn([tool(f"page-{number}", 1000)], 0, whole=False)
        assert f"page-{number}" in cache.by_name
        assert sum(known.size() for known in cache.by_name.values()) < 12_000
        assert cache.complete == ("listed" in cache.by_name)
    assert not cache.complete, "the cache was started again"


def test_schemas_of_single_pages_count_by_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty object has two bytes as JSON, and takes 64 and more."""
    monkeypatch.setattr(tool_schemas, "MAX_SINGLE_PAGES", 1_000_000)
    cache = ToolSchemaCache()
    for number in range(100):
        schema = {"type": "object", "examples": [{} for _ in range(5_000)]}
        cache.learn([Tool(name=f"page-{number}", input_schema=schema)], 0, whole=False)
        assert len(cache.by_name) <= 4
