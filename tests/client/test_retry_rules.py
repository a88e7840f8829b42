"""What is remembered of the tools of a trusted server, and how much."""

from __future__ import annotations

import pytest

from syncmcp import Retry
from syncmcp._client import retrying
from syncmcp._client.retrying import RetryRules
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.steps import Send
from syncmcp.types import Tool, ToolAnnotations


def listed(name: str) -> Tool:
    hints = ToolAnnotations(read_only_hint=True)
    return Tool(name=name, input_schema={"type": "object"}, annotations=hints)


def may_repeat(rules: RetryRules, name: str) -> bool:
    return rules.is_idempotent(Send("tools/call", {"name": name}), ResolvedOptions(None, None))


def test_ever_new_tools_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_MOST_TOOLS", 10)
    rules = RetryRules(Retry(), trusted=True, reopens=True)
    for number in range(100):
        rules.learn([listed(f"tool-{number}")])
        assert may_repeat(rules, f"tool-{number}")
        assert sum(may_repeat(rules, f"tool-{known}") for known in range(100)) <= 11


def test_long_names_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "_MOST_CHARACTERS", 1000)
    rules = RetryRules(Retry(), trusted=True, reopens=True)
    names = [f"{number:03}{'x' * 97}" for number in range(100)]
    for _ in range(5):  # those that are listed again count once
        rules.learn(map(listed, names[:10]))
    assert all(may_repeat(rules, name) for name in names[:10])
    for name in names:
        rules.learn([listed(name)])
        assert may_repeat(rules, name)
        assert sum(may_repeat(rules, each) for each in names) <= 11
