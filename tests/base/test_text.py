"""Text of servers that is made safe to show."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import syncmcp
from syncmcp import McpError
from syncmcp._base.text import make_visible, several_lines, visible


def test_all_loggers_of_the_library_are_guarded() -> None:
    root = Path(syncmcp.__file__).parent
    texts = [path.read_text("utf-8") for path in root.rglob("*.py")]
    trees = [ast.parse(text) for text in texts if 'getLogger("syncmcp' in text]  # or in a docstring
    calls = [
        ast.unparse(node)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger"
    ]
    assert [call for call in calls if "'syncmcp" in call] == []  # `logger` makes them
    assert sum("logger(" in text for text in texts) > 20
    assert make_visible in logging.getLogger("syncmcp.wire").filters


def test_lines_are_kept_apart_and_marked() -> None:
    assert several_lines("a\r\nb\tc\x1b\u2028d") == "a\n  | b\tc\u241b<U+2028>d"
    assert str(McpError("one\ntwo", server="s")) == "[s]: one\n  | two"
    assert McpError("one\ntwo").message == "one\ntwo"
    assert visible("plain text") == "plain text"
