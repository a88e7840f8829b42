"""Mutants: their class, the parsers of `mutant_switches/` and `mutant_limits.txt`, the loader."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, ModuleType

VARIABLE: Final = "SYNCMCP_MUTANT"
"""The environment variable that names the mutant to apply."""

SITE: Final = Path(__file__).parent / "mutant_site"
"""A folder for `PYTHONPATH`: its `sitecustomize` applies the mutant that the variable names."""

_SWITCHES: Final = Path(__file__).parent / "mutant_switches"
_LIMITS: Final = Path(__file__).parent / "mutant_limits.txt"
_ROOT: Final = Path(__file__).parents[2]
_HEAD: Final = re.compile(r"([\w-]+) \[(.+)\]: (.+)\n@ ([\w.]+):([\w.]+)\n(.+)", re.DOTALL)
_LIMIT: Final = re.compile(r"  ([\w.]+):([\w.]+): (.*)<<(.+)>>(.*)")


@dataclass(frozen=True)
class Mutant:
    """A change of the library that switches off one behaviour, or makes a limit one second longer.

    Attributes:
        name: The name for the command line.
        shows: The rows of `requirements.py`: for each, one of its tests must fail. For a limit:
            the test that must fail.
        effect: What the changed library does wrong.
        module: The name of the changed module.
        path: The function, method or variable in it.
        change: The change of its text: lines that begin with ``-`` or ``+``.
    """

    name: str
    shows: tuple[str, ...]
    effect: str
    module: str
    path: str
    change: tuple[str, ...]

    @property
    def file(self) -> Path:
        """The path of the module."""
        base = _ROOT.joinpath(*self.module.split("."))
        module = base.with_suffix(".py")
        return module if module.is_file() else base / "__init__.py"

    def source(self) -> str:
        """Return the changed source of the module.

        Raises:
            LookupError: The place does not exist, or does not contain the text to replace once.
        """
        try:
            text, module = _parsed(self.file)
            node = _find(module.body, self.path.split("."))
        except (OSError, LookupError) as error:
            raise LookupError(f"mutant {self.name}: no {self.module}:{self.path}") from error
        lines = text.splitlines()
        first, last = _first_line(node), node.end_lineno
        place = "\n".join(lines[first:last])
        if self.change[0].startswith("+"):
            assert isinstance(node, ast.FunctionDef)
            body = node.body[ast.get_docstring(node) is not None :]
            at, indent = _first_line(body[0]), " " * body[0].col_offset
            lines[at:at] = [indent + line[2:] for line in self.change]
        else:
            for old, new in _exchanges(self.change):
                if place.count(old) != 1:
                    raise LookupError(f"mutant {self.name}: {place.count(old)} times {old!r}")
                indent = re.findall(r"^ *", place[: place.index(old)], re.MULTILINE)[-1]
                place = place.replace(old, f"\n{indent}".join(new))
            lines[first:last] = [place]
        return "\n".join(lines) + "\n"


@cache
def _parsed(file: Path) -> tuple[str, ast.Module]:
    text = file.read_text(encoding="utf-8")
    return text, ast.parse(text)


def _find(body: Sequence[ast.stmt], path: Sequence[str]) -> ast.stmt:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names = [statement.name]
        else:
            stated = getattr(statement, "targets", [getattr(statement, "target", None)])
            names = [target.id for target in stated if isinstance(target, ast.Name)]
        if path[0] in names:
            rest = path[1:]
            return _find(getattr(statement, "body", ()), rest) if rest else statement
    raise LookupError(path)


def _first_line(node: ast.stmt) -> int:
    """Return the index of the first line of a statement, including its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)]) - 1


def _exchanges(change: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each old text, and the lines that replace it."""
    starts = [index for index, line in enumerate(change) if line.startswith("-")]
    for start, end in zip(starts, [*starts[1:], len(change)], strict=True):
        yield change[start][2:], [line[2:] for line in change[start + 1 : end]]


def read(text: str) -> Iterator[Mutant]:
    """Parse a file of `mutant_switches/`; `tests/contract/mutants.py` describes the format.

    Raises:
        ValueError: An entry is malformed.
    """
    for entry in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        found = _HEAD.fullmatch(entry.strip())
        if found is None:
            raise ValueError(f"this is no entry:\n{entry}")
        name, rows, effect, module, path, change = found.groups()
        lines = tuple(change.splitlines())
        yield Mutant(name, tuple(rows.split(", ")), effect, f"syncmcp.{module}", path, lines)


def read_limits(text: str) -> Iterator[Mutant]:
    """Parse `mutant_limits.txt`; each limit becomes a mutant that makes it one second longer.

    The name of the test that must fail precedes a line for each limit: its place, and a piece of
    the text there, with the limit between ``<<`` and ``>>``.

    Raises:
        ValueError: A line is malformed.
    """
    test, places = "", Counter[str]()
    for line in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).splitlines():
        found = _LIMIT.fullmatch(line)
        if found is None and line.startswith(" "):
            raise ValueError(f"this is no limit: {line}")
        if found is None:
            test = line or test
            continue
        module, path, before, limit, after = found.groups()
        places[path] += 1
        late = f"(None if (_late := {limit}) is None else _late + 1)"
        change = (f"- {before}{limit}{after}", f"+ {before}{late}{after}")
        name = f"late-{path}-{places[path]}"
        yield Mutant(name, (test,), f"{limit} is late", f"syncmcp.{module}", path, change)


@cache
def all_mutants() -> tuple[Mutant, ...]:
    """Return the mutants of all files."""
    texts = [file.read_text(encoding="utf-8") for file in sorted(_SWITCHES.glob("*.txt"))]
    limits = read_limits(_LIMITS.read_text(encoding="utf-8"))
    return (*(mutant for text in texts for mutant in read(text)), *limits)


def find(name: str) -> Mutant:
    """Return the mutant of this name.

    Raises:
        LookupError: No mutant has this name.
    """
    for mutant in all_mutants():
        if mutant.name == name:
            return mutant
    raise LookupError(f"there is no mutant {name}")


class _Loader(SourceFileLoader):
    """Loads the changed source, and never reads or writes its bytecode cache."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.file))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutant.source(), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _Loader(self._mutant)
        return spec


def install(mutant: Mutant) -> None:
    """Let this process import the changed module; it must not have imported the module before."""
    assert mutant.module not in sys.modules
    sys.meta_path.insert(0, _Finder(mutant))
