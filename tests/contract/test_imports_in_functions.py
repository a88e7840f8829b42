"""No fork cuts an import in two that a function of the library makes on some thread.

A child would inherit the lock of the module, and wait for ever where it needs the module itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "syncmcp"

# What stands below `delaying_forks`, and what programs use that do nothing beside it.
EXEMPT = ("_base", "_protocol", "types", "templates.py", "cli", "llm", "testing", "ui")


def loaded() -> set[str]:
    """The modules that are there once a client was opened."""
    code = "import sys, syncmcp.types; syncmcp.types.load(); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    return set(told.stdout.decode().split())


def unguarded(node: ast.AST, *, inside: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports in functions that forks do not wait for."""
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
    there = loaded()
    found = []
    for path in sorted(LIBRARY.rglob("*.py")):
        if path.relative_to(LIBRARY).parts[0] in EXEMPT:
            continue
        for node in unguarded(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            found += [
                f"{path.relative_to(LIBRARY)}:{node.lineno} {name}"
                for name in names
                if name is not None and name.startswith("syncmcp.") and name not in there
            ]
    assert found == [], "\n".join(found)
