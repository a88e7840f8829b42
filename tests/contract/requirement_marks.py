"""Finds the requirement marks in the source of the tests, without running any of them."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TESTS: Final = Path(__file__).resolve().parents[1]
REQUIREMENT_MARK: Final = "requirement"
PITFALL_MARK: Final = "pitfall"
KINDS: Final = (REQUIREMENT_MARK, PITFALL_MARK)

_FOREIGN = {"node_modules", "__pycache__"}
_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


@dataclass(frozen=True)
class Carrier:
    """One id in one mark, and the test, class or file that carries it."""

    kind: str
    row_id: str
    place: str

    @property
    def file(self) -> str:
        """The path of the file, relative to the checkout."""
        return self.place.partition("::")[0].partition(" (")[0]


@dataclass
class _Reader:
    """Reads one file."""

    file: str
    carriers: list[Carrier] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def read(self, tree: ast.Module) -> None:
        self._body(tree.body, self.file, tree)

    def _body(self, body: Sequence[ast.stmt], place: str, scope: ast.Module | ast.ClassDef) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(statement, f"{place}::{statement.name}")
            elif isinstance(statement, ast.ClassDef):
                inner = f"{place}::{statement.name}"
                tested = statement.name.startswith("Test") or _has_tests(statement)
                self._take(statement.decorator_list, inner, carries=tested)
                self._body(statement.body, inner, statement)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                self._assignment(statement, place, scope)
            elif isinstance(statement, ast.If | ast.Try | ast.With):
                for part in ast.iter_child_nodes(statement):
                    if isinstance(part, ast.stmt):
                        self._body([part], place, scope)
                    elif isinstance(part, ast.ExceptHandler):
                        self._body(part.body, place, scope)
                    else:
                        self._take([part], place, carries=False)
            else:
                self._take([statement], place, carries=False)

    def _function(self, function: _Function, place: str) -> None:
        self._take(function.decorator_list, place, carries=function.name.startswith("test_"))
        self._take(function.body, place, carries=False)

    def _assignment(
        self, statement: ast.Assign | ast.AnnAssign, place: str, scope: ast.Module | ast.ClassDef
    ) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if "pytestmark" in names:
            self._take([statement], place, carries=_has_tests(scope))
            return
        if not any(_marks(statement)):
            return
        # A list of cases or a mark under a name: it counts if something in the file uses it.
        loaded = {
            node.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        label = f"{place} ({', '.join(names)})"
        self._take([statement], label, carries=bool(loaded.intersection(names)))

    def _take(self, nodes: Sequence[ast.AST], place: str, *, carries: bool) -> None:
        for node in nodes:
            for kind, call, line in _marks(node):
                if call is None:
                    self.problems.append(f"{self.file}:{line}: {kind} mark without ids")
                elif not carries:
                    self.problems.append(f"{self.file}:{line}: {kind} mark on no test")
                else:
                    self._ids(kind, call, place)

    def _ids(self, kind: str, call: ast.Call, place: str) -> None:
        if not call.args or call.keywords:
            self.problems.append(f"{self.file}:{call.lineno}: {kind} mark takes ids, nothing else")
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self.carriers.append(Carrier(kind, argument.value, place))
            else:
                self.problems.append(
                    f"{self.file}:{call.lineno}: {kind} mark needs its ids as plain strings"
                )


def _has_tests(scope: ast.Module | ast.ClassDef) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in ast.walk(scope)
    )


def _marks(node: ast.AST) -> Iterator[tuple[str, ast.Call | None, int]]:
    """Yield kind, call and line of every ``pytest.mark.<kind>``; a bare one has no call."""
    called: set[ast.AST] = set()
    for inner in ast.walk(node):  # outer nodes come first, so a call precedes what it calls
        if isinstance(inner, ast.Call) and (kind := _kind(inner.func)):
            called.add(inner.func)
            yield kind, inner, inner.lineno
        elif inner not in called and (kind := _kind(inner)):
            yield kind, None, getattr(inner, "lineno", 0)


def _kind(node: ast.AST) -> str | None:
    """The mark that ``pytest.mark.<kind>`` or ``mark.<kind>`` names, if it is one of ours."""
    if not isinstance(node, ast.Attribute) or node.attr not in KINDS:
        return None
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
    return node.attr if name == "mark" else None


def read(source: str, file: str) -> tuple[list[Carrier], list[str]]:
    """The carriers in one file's source, and what is wrong with its marks."""
    reader = _Reader(file)
    if any(kind in source for kind in KINDS):
        reader.read(ast.parse(source, file))
    return reader.carriers, reader.problems


def _sources(root: Path) -> Iterator[Path]:
    """The files that may hold tests; what `make peers` installs is not even walked through."""
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if name[0] != "." and name not in _FOREIGN]
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


@cache
def scan(root: Path = TESTS) -> tuple[list[Carrier], list[str]]:
    """All carriers below a folder, and what is wrong with the marks there; it is read once."""
    carriers: list[Carrier] = []
    problems: list[str] = []
    for path in sorted(_sources(root)):
        file = path.relative_to(root.parent).as_posix()
        found, wrong = read(path.read_text(encoding="utf-8"), file)
        carriers += found
        problems += wrong
    return carriers, problems
