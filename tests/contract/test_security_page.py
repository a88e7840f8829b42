"""The security page names existing tests for each of its statements.

A comment follows each bullet, paragraph and table: `tests:` with the tests, `advice` for advice to
the reader, or `not tested:` with the reason. There may be one comment of each kind.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
BORDER = re.compile(r"\n\s*\n|\n(?=\* )")


@cache
def found_in(file: str) -> frozenset[str]:
    """Return the pytest ids of a file's tests, without parameters; empty if no test file."""
    path = ROOT / file
    if not (path.is_file() and path.name.startswith("test_")):
        return frozenset()
    scopes: list[tuple[str, list[ast.stmt]]] = [(file, ast.parse(path.read_text("utf-8")).body)]
    found = set()
    for place, body in scopes:
        for statement in body:
            inner = f"{place}::{getattr(statement, 'name', '')}"
            if isinstance(statement, ast.ClassDef):
                scopes.append((inner, statement.body))
            elif isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
                found.add(inner)
    return frozenset(found)


def problems_of_comment(comment: str) -> list[str]:
    """Return the mistakes in one comment."""
    kind, colon, rest = comment.strip().partition(":")
    said = rest.strip()
    if kind == "tests" and said:
        named = re.split(r",\s+", said)
        return [f"no such test: {each}" for each in named if each not in found_in(file_of(each))]
    if (kind, colon) == ("advice", "") or (kind == "not tested" and said):
        return []
    return [f"neither tests nor advice nor a reason: {comment.strip()!r}"]


def file_of(test: str) -> str:
    """Return the file of a test, relative to the checkout."""
    return test.partition("::")[0]


def problems(page: str) -> list[str]:
    """Return the statements without a comment, and the mistakes in the comments."""
    text = HEADING.sub("\n", FENCE.sub("\n", page))
    *before, last = COMMENT.split(text)
    found = []
    for part, comment in zip(before[::2], before[1::2], strict=True):
        *bare, _commented = BORDER.split(part.strip())
        found += [f"no comment: {statement.strip()}" for statement in bare if statement.strip()]
        found += problems_of_comment(comment)
    return found + [f"no comment: {each.strip()}" for each in BORDER.split(last) if each.strip()]


def test_each_statement_of_the_page_names_its_tests() -> None:
    assert problems(PAGE.read_text(encoding="utf-8")) == []


THIS = "tests/contract/test_security_page.py::test_what_is_wrong_with_a_page_is_told"


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (f"# A\n\n* one\n  more\n  <!-- tests: {THIS} -->\n* two\n  <!-- advice -->\n", []),
        (f"One:\n<!-- tests:\n{THIS},\n{THIS} -->\n<!-- not tested: no Mac -->\n", []),
        ("One:\n<!-- advice -->\n\n```\nx\n\n* y\n```\n", []),
        ("* one\n* two\n  <!-- advice -->\n", ["no comment: * one"]),
        ("One.\n\n| a |\n|---|\n\n<!-- advice -->\n", ["no comment: One."]),
        ("One.\n<!-- advice -->\n\n## B\n\nTwo.\n", ["no comment: Two."]),
        (f"One.\n<!-- tests: {THIS}x -->\n", [f"no such test: {THIS}x"]),
        ("One.\n<!-- tests: tests/no.py::test_x -->\n", ["no such test: tests/no.py::test_x"]),
        ("One.\n<!-- tests: README.md -->\n", ["no such test: README.md"]),
        ("One.\n<!-- tests: -->\n", ["neither tests nor advice nor a reason: 'tests:'"]),
        ("One.\n<!-- not tested: -->\n", ["neither tests nor advice nor a reason: 'not tested:'"]),
        ("One.\n<!-- fine -->\n", ["neither tests nor advice nor a reason: 'fine'"]),
    ],
)
def test_what_is_wrong_with_a_page_is_told(page: str, told: list[str]) -> None:
    assert problems(page) == told
