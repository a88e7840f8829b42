"""Modules do not import each other in circles, by whatever kind of import.

Import-linter knows layers of packages; this counts single modules, imports within functions and
those that only type checkers see among them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "syncmcp"

Kind = Literal["at the top", "in a function", "for type checkers"]
KINDS: tuple[Kind, ...] = ("at the top", "in a function", "for type checkers")

# A handler is given the client that was asked; an error keeps the result that it is about.
IGNORED = {
    ("syncmcp.handlers.context", "syncmcp._client.client"),
    ("syncmcp.errors", "syncmcp.types"),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(node: ast.AST, kind: Kind) -> Iterator[tuple[str, Kind]]:
    """The modules of the library that the code below `node` imports, and how."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for each in child.body:
                yield from imported(ast.Module([each], []), "for type checkers")
            for each in child.orelse:
                yield from imported(ast.Module([each], []), kind)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                found = full if full in MODULES else child.module
                if found in MODULES:
                    yield found, kind
        elif isinstance(child, ast.Import):
            for alias in child.names:
                if alias.name in MODULES:
                    yield alias.name, kind
        elif isinstance(child, ast.FunctionDef) and kind == "at the top":
            yield from imported(child, "in a function")
        else:
            yield from imported(child, kind)


def graph(*kinds: Kind) -> dict[str, set[str]]:
    return {
        name: {
            other
            for other, kind in imported(ast.parse(path.read_text("utf-8")), "at the top")
            if kind in kinds and other != name and (name, other) not in IGNORED
        }
        for name, path in MODULES.items()
    }


def reached(edges: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    unseen = set(edges[start])
    while unseen:
        one = unseen.pop()
        seen.add(one)
        unseen |= edges[one] - seen
    return seen


def circles(*kinds: Kind) -> set[frozenset[str]]:
    edges = graph(*kinds)
    all_reached = {name: reached(edges, name) for name in edges}
    found: set[frozenset[str]] = set()
    for name, others in all_reached.items():
        if name in others:
            found.add(frozenset({name, *(one for one in others if name in all_reached[one])}))
    return found


@pytest.mark.parametrize("kinds", [("at the top",), KINDS], ids=["at the top", "any"])
def test_no_modules_import_each_other(kinds: tuple[Kind, ...]) -> None:
    assert circles(*kinds) == set()


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, {"b", "c"}),
        ({"a": {"b"}, "b": {"a"}}, {"a", "b"}),
    ],
)
def test_what_can_be_reached_is_found(edges: dict[str, set[str]], expected: set[str]) -> None:
    assert reached(edges, "a") == expected
