"""No package reads what another one keeps for itself: names that begin with an underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.contract.test_circles import MODULES

# Of named tuples, and of the standard library, which documents them under such names.
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace", "_current_frames"}

# Of libraries that have no other name for it: the socket below a response that is being read.
FOREIGN = {("transports", "_fp"), ("transports", "_sock")}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def defined(tree: ast.AST) -> Iterator[str]:
    """Every name that the code gives to something of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name
            case ast.Name(name, ast.Store()):
                yield name
            case ast.Assign([ast.Name("__slots__")], value):
                yield from ast.literal_eval(value)
            case ast.alias():
                yield node.asname or node.name
            case _:
                pass


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The private names of other objects, and those that are imported from other modules."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name("self" | "cls")):
                pass
            case ast.Attribute(_, name) if is_private(name):
                yield node.lineno, name
            case ast.ImportFrom(module) if module and module.startswith("syncmcp."):
                for alias in node.names:
                    if is_private(alias.name) and f"{module}.{alias.name}" not in MODULES:
                        yield node.lineno, f"{module}.{alias.name}"
            case _:
                pass


def foreign(sources: dict[str, str]) -> list[str]:
    """The private names that modules use and that nothing in their own package defines."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    own: dict[str, set[str]] = {}
    for module, tree in trees.items():
        own.setdefault(package(module), set()).update(defined(tree))
    return [
        f"{module}:{line}: {name}"
        for module, tree in trees.items()
        for line, name in used(tree)
        if name not in own[package(module)] and (package(module), name) not in FOREIGN
    ]


def test_nobody_reads_the_private_names_of_another_package() -> None:
    assert foreign({name: path.read_text("utf-8") for name, path in MODULES.items()}) == []


@pytest.mark.parametrize(
    "code",
    [
        "def read(client): return client._core",
        "client._core = None",
        "del client._core",
        "from syncmcp.a import _core",
        "class Here:\n    def f(self): return self.client._core",
    ],
)
def test_such_a_use_is_found(code: str) -> None:
    other = "class Client:\n    def __init__(self): self._core = 1\n_core = 2"
    [found] = foreign({"syncmcp.a": other, "syncmcp.b": code})
    assert found.startswith("syncmcp.b:")
    assert found.endswith("_core")
    assert foreign({"syncmcp.a": other + "\n" + code.replace("syncmcp.a", "x")}) == []
