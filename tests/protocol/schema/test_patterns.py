"""Patterns have the meaning of ECMA-262, and no pattern takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic_core import SchemaValidator, core_schema

from syncmcp._protocol.patterns import MAX_PATTERN, Pattern
from syncmcp._protocol.schema import compile_schema
from syncmcp.errors import UnsupportedSchema


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        *(("b", ["abc"], ["ac"]), ("^a$", ["a"], ["a\n", "b\na"])),
        *((r"^\d$", ["7"], ["\u0667", "d"]), (r"^\D$", ["\u0667"], ["7"])),
        *((r"^\w+$", ["a_7"], ["\u00e9", "a-"]), (r"^\W$", ["\u00e9", "-"], ["a"])),
        *((r"^\s$", [" ", "\u00a0", "\ufeff", "\u2028"], ["a"]), (r"^\S$", ["a"], ["\ufeff"])),
        *((r"\bcat\b", ["a cat", "\u00e9cat"], ["cats"]), (r"^[\b]$", ["\x08"], ["b", "X"])),
        *((r"^\cA$", ["\x01"], ["A"]), (r"^\0$", ["\x00"], ["0"]), (r"^\/\-$", ["/-"], ["-"])),
        *((r"^\<\>$", ["<>"], ["", "<"]), (r"^[+-\d]$", ["+", "-", "7"], [",", "/"])),
        *((r"^[A-\W-]$", ["A", "-", "["], ["B"]), ("^(?P<year>[0-9]{4})-x$", ["2026-x"], ["26-x"])),
        *((r"^\p{Letter}+$", ["\u00e9a"], ["1"]), (r"^[^\P{L}x]$", ["a"], ["x", "1"])),
        ("^.$", ["a", "\u0085", "\U0001f40d"], ["\n", "\r", "\u2028"]),
        *(("^[[a]$", ["[", "a"], ["b"]), ("^[a&&b]$", ["a", "b", "&"], ["c"])),
        *(("^[X]$", ["X"], ["x"]), ("^[a--]$", ["a", "-"], ["b"]), ("^[^a-c]$", ["d"], ["b"])),
        *((r"^[\d_]$", ["1", "_"], ["a"]), ("^[^]$", ["\n"], [""]), ("[]", [], ["", "a"])),
        *(("^a{2}$", ["aa"], ["a"]), ("^a{1,}b{0,1}c{0}$", ["aab", "a"], ["b", "abc"])),
        *(("^{a}$", ["{a}"], ["a", "{b}"]), ("^x{,3}$", ["x{,3}"], ["xx"])),
        *(("^(?:a|(b))c$", ["ac", "bc"], ["c"]), ("^(?<year>[0-9]{4})-x$", ["2026-x"], ["26-x"])),
        ("^(a?)*b+?$", ["aab"], ["c"]),
    ],
)
def test_a_pattern_means_what_ecma_262_says(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    compiled = compile_schema({"pattern": pattern})
    for text in matching:
        assert compiled.problem(text) is None, text
    for text in other:
        assert compiled.problem(text) is not None, text


_GOOD = ["(?=a)", "(?!a)b", "(?<=a)b", r"(a)\1"]
_BAD = ["(", ")", "a)", "[a", "[", "*", "a{9,1}", r"\k<x>", "[a--#]"]


@pytest.mark.parametrize("pattern", _GOOD + _BAD)
@pytest.mark.parametrize("word", ["pattern", "patternProperties"])
def test_what_needs_backtracking_or_is_no_pattern_is_refused(pattern: str, word: str) -> None:
    value = pattern if word == "pattern" else {pattern: {}}
    with pytest.raises(UnsupportedSchema, match="a pattern") as caught:
        compile_schema({word: value})
    assert caught.value.backtracking == (pattern in _GOOD)


LARGE = "(?:a?b?){3000}c"
# Python accepts these patterns: they are refused as valid, but impossible to check.
_PYTHONS = [
    *(f"(?x)#[\n{LARGE}#\n]", f"(?x:#[\n{LARGE}#\n])", f"(?#[){LARGE}"),
    *("(?i)a", "(?i:a)", "(?-i:a)", "(?s)a"),
]
_NOBODYS = [
    *("(?U:a*)", "(?P=a)", "(?"),
    *(r"\pL", r"\p{^L}", r"[\pL]", r"[\p{^L}]", r"\P", r"\Qa*\E"),
]


@pytest.mark.parametrize("pattern", _PYTHONS + _NOBODYS)
@pytest.mark.requirement("SCHM-08")
def test_flags_and_spellings_of_other_engines_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedSchema, match="a pattern") as caught:
        compile_schema({"pattern": pattern})
    assert caught.value.backtracking == (pattern in _PYTHONS)


@pytest.mark.parametrize("begin", ["(?i)", "(?=a)"])
@pytest.mark.requirement("SCHM-08")
def test_a_refused_pattern_takes_no_time_for_the_characters_of_its_ranges(begin: str) -> None:
    ranges = "".join(f"{chr(0x100 + at)}-\uffff" for at in range(300))
    escaped = "".join(rf"\u{0x100 + at:04x}-\uffff" for at in range(80))
    before = time.process_time()
    for several in (ranges, escaped):
        with pytest.raises(UnsupportedSchema, match="a pattern") as caught:
            compile_schema({"pattern": f"{begin}[{several}]"})
        assert caught.value.backtracking
    assert time.process_time() - before < 0.5  # it once took seconds


@pytest.mark.parametrize("begin", [r"[A-\d", r"[A-\W", "[[:alpha:", "[a&&[b", "[a--[b", "[-"])
@pytest.mark.requirement("SCHM-08")
def test_a_class_ends_for_the_engine_where_it_ends_in_ecma_262(begin: str) -> None:
    compiled = Pattern(f"^{begin}{LARGE}]$")
    assert compiled.size < 50
    assert all(map(compiled.compiled(), "(?{}"))


PIECES = [
    *("a", "b?", "c*", "\u00e9", "\U0001f40d", "#", "\n", " ", ",", "-", "--", "&&", "^", "$", "|"),
    *("(", ")", "(?:", "(?<n>", "(?P<m>", "(?x)", "(?i)", "(?x:", "(?#", "(?=", "[", "[^", "]"),
    *("[a-z]", "[:alpha:]", "{,2}", "{2}", "{ 3 }", "{0,3}", "{30}", "?", "+", "??", "(?:a?){900}"),
    *(r"\d", r"\W", r"\s", r"\S", r"\b", r"\B", r"\<", r"\cA", r"\]", r"\[", "\\", r"\Q", r"\E"),
    *(r"\pL", r"\p{L}", r"\P{Letter}", r"\p{^L}", r"\x41", r"\x{41}", r"\u00e9", r"\u{41}"),
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join))
@settings(deadline=None, max_examples=300)
def test_the_engine_compiles_no_more_than_what_is_counted(pattern: str) -> None:
    try:
        compiled = Pattern(pattern)
    except UnsupportedSchema:
        assume(False)
        raise
    # If the size counts the whole pattern, the engine accepts this many copies. Otherwise they
    # exceed the limit of its size, which is an error.
    copies = MAX_PATTERN // max(compiled.size, 1)
    written = f"(?:{compiled.text}){{{copies}}}"
    SchemaValidator(core_schema.str_schema(pattern=written, regex_engine="rust-regex"))


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|aa)+$", "(.*)*x$", "(a?){300}a{300}$"])
@pytest.mark.requirement("SCHM-08")
def test_a_pattern_that_makes_others_backtrack_is_done_at_once(pattern: str) -> None:
    # An engine with backtracking would take longer than anybody can wait.
    assert compile_schema({"pattern": pattern}).problem("a" * 5_000 + "!") is not None


def test_the_same_pattern_counts_once_and_half_a_character_matches_nothing() -> None:
    schema = {"properties": {str(n): {"pattern": "a{1000}"} for n in range(11)}}
    assert compile_schema(schema).problem({"1": "a"}) is not None
    assert compile_schema({"pattern": "."}).problem("\ud800") is not None
