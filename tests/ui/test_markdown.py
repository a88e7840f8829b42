"""Markdown of servers and models on a page: it loads, hides and replaces nothing."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp.ui.browser.message import markdown

# Characters that Markdown may remove: marks, blanks, and list numbers (they become attributes).
_MARKS = frozenset("*_`#>-+.)~0123456789 \n\t")

# The only tags that the result may contain.
_TAG = re.compile(
    r"</?(?:p|br|strong|em|code|pre|ul|ol|li|blockquote)>"
    r'|<p class="heading">|<ol start="\d+">|<li value="\d+">'
)


def words(shown: str) -> str:
    """Return the text that a browser shows, in one string."""
    return html.unescape(_TAG.sub("", shown))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\ntwo\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>\n"),
        ("a **bold** and *thin*", "<p>a <strong>bold</strong> and <em>thin</em></p>\n"),
        ("a `x < y`", "<p>a <code>x &lt; y</code></p>\n"),
        ("## Title", '<p class="heading">Title</p>\n'),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
        ("> said\n> so", "<blockquote>\n<p>said<br>\nso</p>\n</blockquote>\n"),
        ("```python say it\nx = 1\n```", "<pre><code>```python say it\nx = 1\n</code></pre>\n"),
        ("3. a\n9. b", '<ol start="3">\n<li value="3">a</li>\n<li value="9">b</li>\n</ol>\n'),
    ],
)  # fmt: skip
def test_a_small_part_of_markdown_is_rendered(text: str, shown: str) -> None:
    assert markdown(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "<b>bold</b> <img src=x onerror=alert(1)> <!-- hidden -->",
        "<script>alert(1)</script>",
        "[here](https://evil.example)",
        "[here](javascript:alert(1) 'title')",
        "[here]: https://evil.example 'nobody reads this'",
        "![x](https://evil.example/x.png)",
        "<https://evil.example> www.evil.example https://evil.example",
        "a&#x202e;b &amp; &nbsp; &lt;",
        r"\# \[a\] \< \_b",
        "| a | b |",
        "Title\n===",
        "a\n\n***",
        "    indented",
    ],
)
def test_everything_else_is_shown_as_it_is_written(text: str) -> None:
    shown = markdown(text)
    assert set(re.findall("<[^>]*>", shown)) <= {"<p>", "</p>", "<br>"}
    assert words(shown).split() == text.split()


@given(st.text(alphabet="ab*_`#>-+.)~19 \n\t[](!<&;\\\"'\u202e"))
def test_nothing_is_hidden_and_no_other_tag_comes_about(text: str) -> None:
    shown = words(markdown(text))
    expected = text.replace("\u202e", "<U+202E>")
    assert [c for c in shown if c not in _MARKS] == [c for c in expected if c not in _MARKS]
    assert "\u202e" not in shown


@pytest.mark.parametrize("mark", ["> ", "- ", "> - ", "1. "])
def test_what_is_nested_too_deep_is_shown_as_it_is_written(mark: str) -> None:
    for depth in range(1, 40):
        assert "secret" in words(markdown(mark * depth + "secret"))
    assert markdown(mark * 40 + "secret") == f"<p>{html.escape(mark * 40)}secret</p>"


@pytest.mark.parametrize(
    "piece",
    [
        "*a", "_a", "**", "****_", "*a **b ", "b** c* ", "`", "`a``b```", "> ", "> - ", "- a\n",
        "1. a\n", "#\n", "a\n", "- - - - - - - - a\n", "> > > > > > > > a\nb\n", "```\n", "[", "![",
        "[a](", "&#8238;", "\\*", "<", "\u202e", "\u0301", "\n",
    ],
)  # fmt: skip
def test_a_large_hostile_text_takes_less_than_a_second(piece: str) -> None:
    text = (piece * 20_000)[:20_000]
    begun = time.thread_time()  # excludes the time of other programs
    shown = markdown(text)
    assert time.thread_time() - begun < 1.0
    assert shown


def test_a_long_text_is_shown_as_it_is_written() -> None:
    text = "**a** <b>\n" * 2_001
    assert words(markdown(text)) == text
    assert "<strong>" in markdown(text[:20_000])
