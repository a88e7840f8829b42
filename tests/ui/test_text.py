"""Text of servers and models cannot move, hide or turn round anything on a screen."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp.approval import ToolCall
from syncmcp.types import ToolAnnotations
from syncmcp.ui import shorten, visible
from syncmcp.ui.calls import server_words


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]8;;https://evil.example\x1b\\here\x07", "␛]8;;https://evil.example␛\\here␇"),
        ("a\x00b\x7f", "a␀b␡"),
        ("\x9b2J", "<U+009B>2J"),
        ("over\rwritten\n", "over␍written␊"),
        ("user\u202egnp.exe", "user<U+202E>gnp.exe"),
        ("\u2066isolated\u2069", "<U+2066>isolated<U+2069>"),
        ("zero\u200bwidth\u200d\ufeff", "zero<U+200B>width<U+200D><U+FEFF>"),
        ("two\u2028lines\u2029", "two<U+2028>lines<U+2029>"),
        ("\U000e0041tag", "<U+E0041>tag"),
        ("half \ud800", "half <U+D800>"),
        ("\ue000", "<U+E000>"),
        ("blank\u3164\u2800", "blank<U+3164><U+2800>"),
        ("x\ufe01", "x<U+FE01>"),
        ("soft\xadhyphen", "soft<U+00AD>hyphen"),
    ],
)
def test_what_a_screen_would_obey_or_hide_is_written_out(hostile: str, shown: str) -> None:
    assert visible(hostile) == shown


@pytest.mark.parametrize("text", ["Grüße", "日本語", "עברית", "e\u0301", "हिन्दी", "❤️", "a b"])
def test_ordinary_writing_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_lines_and_tabs_stay_where_they_are_wanted() -> None:
    assert visible("a\r\nb\tc\nd\re", lines=True) == "a\nb\tc\nd␍e"
    assert visible("a\nb\tc") == "a␊b␉c"


def test_marks_do_not_pile_up_into_other_lines() -> None:
    piled = visible("a" + "\u0301" * 50)
    assert piled.count("\u0301") == 4
    assert piled.count("<U+0301>") == 46


@given(st.text(), st.booleans())
def test_nothing_that_is_shown_moves_a_cursor(text: str, lines: bool) -> None:
    left = visible(text, lines=lines)
    hidden = {mark for mark in left if unicodedata.category(mark) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert hidden <= ({"\n", "\t"} if lines else set())


@given(st.text(alphabet=st.characters(exclude_categories=("Mn", "Me"))))
def test_what_is_visible_stays_so(text: str) -> None:
    assert visible(visible(text)) == visible(text)


def test_long_text_is_cut_and_says_so() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "abc… (1 more character)"
    assert shorten("x" * 12_003, 3) == "xxx… (12,000 more characters)"


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({}, ""),
        ({"destructiveHint": True}, "it may destroy"),
        ({"destructiveHint": True, "readOnlyHint": True}, "it only reads"),
        (
            {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": True},
            "it changes things, it only adds, it interacts with the outside world",
        ),
    ],
)
def test_only_hints_that_a_server_states_are_its_words(stated: dict[str, bool], words: str) -> None:
    call = ToolCall("move", {}, ToolAnnotations.from_wire(stated))
    assert server_words(call) == (words, "", "")
