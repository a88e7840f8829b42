"""The pages stay short, in short sentences, and in the words of the field."""

from __future__ import annotations

import pytest

from tests.contract import page_words

# Ceilings for all pages together. Who makes pages shorter lowers them.
WORDS = 45_000
LONG = 5
PRIVATE = 30


@pytest.fixture(scope="module")
def pages() -> list[page_words.Page]:
    return page_words.pages()


def test_all_pages_together_have_no_more_words_than_these(pages: list[page_words.Page]) -> None:
    assert sum(page.words for page in pages) <= WORDS


def test_few_sentences_are_long(pages: list[page_words.Page]) -> None:
    # To see them: python -m tests.contract.page_words --long
    assert sum(len(page.long) for page in pages) <= LONG


def test_few_words_are_private(pages: list[page_words.Page]) -> None:
    # To see them: python -m tests.contract.page_words --private
    assert sum(len(page.private) for page in pages) <= PRIVATE


def test_each_part_of_a_page_counts_once() -> None:
    page = page_words.read(
        "docs/beyond-one-machine.md",
        "# A title\n\n<!-- no reader sees this -->\n"
        "One [link text](far/away.md) and `a b c`. Two!\n"
        "\n| Left | `x y` |\n|---|---|\n\n* An item\n  of a list\n* Another\n\n"
        "```python\nprint(1)  # three words\n```\n```{toctree}\nnot/seen\n```\n"
        "<!-- results: begin -->\nmade of four words\n<!-- results: end -->\n",
    )
    assert (page.prose, page.tables, page.code, page.made) == (14, 2, 4, 4)
    said = ["# A title", "One link text and `code`.", "Two!", "* An item of a list", "* Another"]
    assert page.sentences == [*said, "Left", "`code`"]
    assert page.words == 24


def test_long_sentences_and_private_words_are_found() -> None:
    long = " ".join(["Word"] * (page_words.LONG + 1))
    page = page_words.read("a.md", f"{long}. {long[5:]}. It is told what is `what is`.\n")
    assert page.long == [f"{long}."]
    assert [word for word, _ in page.private] == ["what is", "told"]
