"""Imports and private names between modules of the library, and the cost of `import syncmcp`.

Import-linter checks the layers of packages. These tests check single modules, including imports
within functions and imports for type checkers.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "syncmcp"

# The context of a handler has its client; an error has the result that caused it.
IGNORED = {
    ("syncmcp.handlers.context", "syncmcp._client.client"),
    ("syncmcp.errors", "syncmcp.types"),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield all modules that the code imports, at any level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_modules_import_each_other() -> None:
    edges = {
        name: {
            other
            for other in imported(tree)
            if other in MODULES and other != name and (name, other) not in IGNORED
        }
        for name, tree in TREES.items()
    }
    assert edges["syncmcp._client.client"]
    TopologicalSorter(edges).prepare()  # raises if there is a cycle


# Documented names that begin with an underscore: of named tuples and the standard library.
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace", "_current_frames"}

# Private names of other libraries, which have no public name for the socket of a response.
FOREIGN = {("transports", "_fp"), ("transports", "_sock")}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield every name that the code defines or imports."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Name(name, ast.Store()):
                yield name
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name
            case ast.Assign([ast.Name("__slots__")], value):
                yield from ast.literal_eval(value)
            case ast.alias():
                yield node.asname or node.name
            case _:
                pass


def used(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the private names of other objects and modules that the code uses, with their lines."""
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


def foreign(trees: dict[str, ast.Module]) -> list[str]:
    """Return the uses of private names that the module's own package does not define."""
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
    assert foreign(TREES) == []


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
    [found] = foreign({"syncmcp.a": ast.parse(other), "syncmcp.b": ast.parse(code)})
    assert found.startswith("syncmcp.b:")
    assert found.endswith("_core")
    assert foreign({"syncmcp.a": ast.parse(f"{other}\n{code.replace('syncmcp.a', 'x')}")}) == []


def loaded_by(code: str) -> set[str]:
    """Run `code` in a new interpreter; return the modules that are loaded afterwards."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(ended.stdout.split())


# Modules that are slow to load, or that a program may never use.
HEAVY = """
    anthropic asyncio google.genai httpx httpx2 idna jsonschema openai platformdirs referencing
    requests sseclient tkinter uritemplate urllib3 yaml syncmcp.transports.http
    syncmcp.transports.memory syncmcp.transports.stdio pydantic syncmcp.types.base
"""


def test_the_import_is_light_starts_no_thread_and_touches_no_logging_of_the_program() -> None:
    loaded = loaded_by("""
import threading, logging
import syncmcp
assert threading.active_count() == 1
assert logging.getLogger().handlers == []
assert logging.getLogger("syncmcp").handlers == []  # without any, Python prints warnings to stderr
""")
    assert "syncmcp._client.client" in loaded
    assert loaded.isdisjoint(HEAVY.split())
    assert not {name for name in loaded if name.startswith(("syncmcp.testing", "syncmcp.ui"))}


def test_a_program_never_loads_what_it_does_not_use() -> None:
    code = """
import syncmcp, syncmcp.testing
syncmcp.connect(syncmcp.testing.Server()).close()
syncmcp.Stdio("x"), syncmcp.Http("http://x")
"""
    unused = {"requests", "urllib3", "sseclient", "jsonschema", "opentelemetry"}
    assert loaded_by(code).isdisjoint(unused)


# Packages in layers below `delaying_forks`, and packages for programs that do no other work.
EXEMPT = ("_base", "_protocol", "types", "templates", "cli", "llm", "testing", "ui")


def unguarded(node: ast.AST, *, inside: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports in functions that do not delay forks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            if inside:
                yield child
        elif isinstance(child, ast.FunctionDef):
            if not any(map(_delays, child.decorator_list)):
                yield from unguarded(child, inside=True)
        elif not isinstance(child, ast.With) or not any(
            _delays(item.context_expr) for item in child.items
        ):
            yield from unguarded(child, inside=inside)


def _delays(node: ast.AST) -> bool:
    return "delaying_forks" in ast.dump(node)


def test_forks_wait_for_the_imports_that_functions_make() -> None:
    """Without the delay, a child could inherit the lock of a module, and block forever on it."""
    there = loaded_by("import syncmcp.types; syncmcp.types.load()")
    found = [
        f"{module}:{node.lineno} {name}"
        for module, tree in TREES.items()
        if package(module) not in EXEMPT
        for node in unguarded(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
        if name.startswith("syncmcp.") and name not in there
    ]
    assert found == []
