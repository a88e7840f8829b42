"""Finds the requirement marks in the source of the tests, without running any of them."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS: Final = Path(__file__).resolve().parents[1]
REQUIREMENT_MARK: Final = "requirement"
PITFALL_MARK: Final = "pitfall"
KINDS: Final = (REQUIREMENT_MARK, PITFALL_MARK)

_FOREIGN = {"node_modules", "__pycache__"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Carrier:
    """One id in one mark, and the test, class or file that has the mark."""

    kind: str
    row_id: str
    place: str

    @property
    def file(self) -> str:
        """The path of the file, relative to the checkout."""
        return self.place.partition("::")[0].partition(" (")[0]


class _Reader:
    """Finds the marks in the syntax tree of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.carriers: list[Carrier] = []
        self.problems: list[str] = []

    def visit(self, node: ast.AST, place: str, scope: ast.AST, *, carries: bool = False) -> None:
        """Collect the marks below `node`; `carries`: a mark there belongs to a test."""
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inner = f"{place}::{node.name}"
            tested = node.name.startswith("test_") or (
                isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or _tests(node))
            )
            for decorator in node.decorator_list:
                self.visit(decorator, inner, scope, carries=tested)
            for statement in node.body:
                self.visit(statement, inner, node)
            return
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(map(_kind, ast.walk(node))):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if "pytestmark" in names:
                carries = _tests(scope)
            else:
                # A variable with a mark or a list of cases: it counts if its scope uses it.
                place, carries = f"{place} ({', '.join(sorted(names))})", _loads(scope, names)
        if isinstance(node, ast.Call) and (kind := _kind(node.func)):
            self._take(kind, node, place, carries=carries)
        elif kind := _kind(node):
            self._complain(node, f"{kind} mark without ids")
        else:
            for child in ast.iter_child_nodes(node):
                self.visit(child, place, scope, carries=carries)

    def _take(self, kind: str, call: ast.Call, place: str, *, carries: bool) -> None:
        ids = [each.value for each in call.args if isinstance(each, ast.Constant)]
        if not carries:
            self._complain(call, f"{kind} mark on no test")
        elif not call.args or call.keywords:
            self._complain(call, f"{kind} mark takes ids, nothing else")
        elif len(ids) < len(call.args) or not all(isinstance(each, str) for each in ids):
            self._complain(call, f"{kind} mark needs its ids as plain strings")
        else:
            self.carriers += [Carrier(kind, str(each), place) for each in ids]

    def _complain(self, node: Any, problem: str) -> None:
        self.problems.append(f"{self.file}:{node.lineno}: {problem}")


def _tests(scope: ast.AST) -> bool:
    """Return True if the node contains a test function."""
    functions = (node for node in ast.walk(scope) if isinstance(node, _FUNCTIONS))
    return any(function.name.startswith("test_") for function in functions)


def _loads(scope: ast.AST, names: set[str]) -> bool:
    """Return True if one of these names is used in the node."""
    nodes = (node for node in ast.walk(scope) if isinstance(node, ast.Name))
    return any(node.id in names and isinstance(node.ctx, ast.Load) for node in nodes)


def _kind(node: ast.AST) -> str | None:
    """Return the kind of ``pytest.mark.<kind>`` or ``mark.<kind>``; `None` for all others."""
    if not isinstance(node, ast.Attribute) or node.attr not in KINDS:
        return None
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
    return node.attr if name == "mark" else None


def read(source: str, file: str) -> tuple[list[Carrier], list[str]]:
    """Return the carriers in the source of a file, and the mistakes in its marks."""
    reader = _Reader(file)
    if any(kind in source for kind in KINDS):
        tree = ast.parse(source, file)
        for statement in tree.body:
            reader.visit(statement, file, tree)
    return reader.carriers, reader.problems


def sources(root: Path) -> Iterator[Path]:
    """Yield the Python files below `root`, without those that `make peers` installs."""
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if name[0] != "." and name not in _FOREIGN]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


@cache
def scan(root: Path = TESTS) -> tuple[list[Carrier], list[str]]:
    """Return all carriers below a folder, and the mistakes in the marks there."""
    carriers: list[Carrier] = []
    problems: list[str] = []
    for path in sorted(sources(root)):
        file = path.relative_to(root.parent).as_posix()
        found, wrong = read(path.read_text(encoding="utf-8"), file)
        carriers += found
        problems += wrong
    return carriers, problems
