"""Texts of servers: how they are shown, their URLs, and errors about invalid values."""

from __future__ import annotations

import ast
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pydantic
import pytest

import syncmcp
from syncmcp import McpError, types
from syncmcp._base.checks import validate
from syncmcp._base.origin import LONGEST_HOST, join_url, origin_of, split_url
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import MOST_PROBLEMS, MOST_QUOTED, make_visible, several_lines, visible
from syncmcp.errors import InvalidOutput


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
    assert [call for call in calls if "'syncmcp" in call] == []  # they must use `logger`
    assert sum("logger(" in text for text in texts) > 20
    assert make_visible in logging.getLogger("syncmcp.wire").filters


def test_lines_are_kept_apart_and_marked() -> None:
    assert several_lines("a\r\nb\tc\x1b\u2028d") == "a\n  | b\tc\u241b<U+2028>d"
    assert str(McpError("one\ntwo", server="s")) == "[s]: one\n  | two"
    assert McpError("one\ntwo").message == "one\ntwo"
    assert visible("plain text") == "plain text"


def test_a_long_message_is_cut_between_two_words() -> None:
    assert McpError("x" * MOST_QUOTED).message == "x" * MOST_QUOTED
    words = McpError("word " * 10_000).message
    assert words.endswith("word… (33,621 more characters)")
    assert McpError(f"a {'x' * 50_000}").message == "a… (50,001 more characters)"


# URLs are parsed in limited time


# Normalization sorts combining marks in quadratic time: for this many it takes seconds.
MARKS = "\u0301\u0316" * 30_000
LONGEST = "\u00e9" * LONGEST_HOST


@pytest.mark.parametrize(
    "url",
    [
        f"https://a{MARKS}/mcp",
        f"https://a{MARKS}",
        f"https://user:{MARKS}@a:8080/mcp",
        f"//a{MARKS}?query",
        f" \n\x00https:/\t/a{MARKS}#fragment",
    ],
    ids=["host", "host alone", "user", "without a scheme", "with white space"],
)
def test_a_long_host_beyond_ascii_is_refused_before_it_is_normalized(url: str) -> None:
    before = time.process_time()
    joining = [partial(join_url, base) for base in (url, "https://example.com/")]
    parsers: list[Callable[[str], object]] = [split_url, origin_of, *joining]
    for parse in parsers:
        with pytest.raises(ValueError, match="its host name is too long"):
            parse(url)
    assert time.process_time() - before < 0.5


@pytest.mark.parametrize(
    "url",
    [
        f"https://example.com/{MARKS}?{MARKS}#{MARKS}",
        f"https://user:{'p' * 1000}@example.com/caf\u00e9",
        f"https://{'a' * 1000}/caf\u00e9",
        f"https://{LONGEST}/",
        f"urn:{MARKS}",
        f"{MARKS}://a",
        "https://b\u00fccher.example:8080/",
        "caf\u00e9",
        "",
    ],
    ids=["path", "user", "long ASCII", "longest", "urn", "scheme", "short", "relative", "empty"],
)
def test_any_other_url_is_split_and_joined_as_ever(url: str) -> None:
    assert split_url(url) == urlsplit(url)
    assert join_url("https://example.com/a/b", url) == urljoin("https://example.com/a/b", url)


# Errors about invalid values


def test_no_error_looks_at_each_of_many_problems() -> None:
    class Theirs(pydantic.BaseModel):
        numbers: list[int]

    many: dict[str, Any] = {"numbers": ["x"] * (MOST_PROBLEMS + 1)}
    with pytest.raises(InvalidOutput, match=f"{MOST_PROBLEMS + 1} problems") as caught:
        validate(Theirs, many, "a/method")

    Secrets().clean(caught.value)
    assert caught.value.__cause__ is None

    result = types.CallToolResult(content=[], structured_content=many)
    with pytest.raises(InvalidOutput, match=f"{MOST_PROBLEMS + 1} problems"):
        result.parse(Theirs)


def test_a_few_problems_are_told_and_remain_the_cause() -> None:
    with pytest.raises(McpError, match=r"content\.0\.unknown") as caught:
        validate(types.CallToolResult, {"content": [1]}, "tools/call")

    Secrets().clean(caught.value)
    assert isinstance(caught.value.__cause__, pydantic.ValidationError)
