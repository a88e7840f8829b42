"""Rules of the project that no linter checks."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import syncmcp
from tests.contract.requirement_marks import sources

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "syncmcp"
SOURCES = sorted(PACKAGE.rglob("*.py"))
REVISIONS = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

DIALECTS = {f"_protocol/{name}.py" for name in ("revisions", "stateful", "stateless")}

# The most lines of a file of the library: a longer file should be split.
LONGEST_FILE = 620

# Fewer test files than this may import private modules of parts that they do not mirror: such
# imports make it harder to restructure the library.
MOST_OUTSIDE = 30


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_said(word: str, text: str) -> bool:
    """Return True if a string in the code contains the word; docstrings do not count."""
    nodes = [*ast.walk(ast.parse(text))]
    prose = {node.value for node in nodes if isinstance(node, ast.Expr)}
    strings = (node for node in nodes if isinstance(node, ast.Constant) and node not in prose)
    return any(isinstance(node.value, str) and word in node.value for node in strings)


def may_name_a_revision(path: Path) -> bool:
    inside = path.relative_to(PACKAGE)
    return inside.as_posix() in DIALECTS or inside.parts[0] == "testing"


def problems(path: Path) -> Iterator[str]:
    """Yield the rules that a file of the library breaks."""
    text = path.read_text(encoding="utf-8")
    if text.count("\n") > LONGEST_FILE:
        yield "is longer than one idea"
    if not may_name_a_revision(path):
        for revision in (one for one in REVISIONS if one in text and is_said(one, text)):
            yield f"names revision {revision}; ask the dialect instead"


def test_each_file_keeps_the_rules() -> None:
    found = [f"{relative(path)} {problem}" for path in SOURCES for problem in problems(path)]
    assert found == []
    assert len(SOURCES) > 200


def test_a_file_that_breaks_the_rules_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "long.py"
    path.write_text("import os\nMODE = '2025-11-25'\n" + "\n" * LONGEST_FILE)
    assert len([*problems(path)]) == 2
    path.write_text('"""Speaks 2025-11-25."""\n' + "\n" * (LONGEST_FILE - 1))
    assert [*problems(path)] == []


IMPORT = re.compile(r"^ *from (syncmcp[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def private_parts(path: Path) -> set[str]:
    """Return the parts of the library from which a file imports private modules or names."""
    names = [
        f"{module}.{name}"
        for module, several in IMPORT.findall(path.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", several)
    ]
    private = [name for name in names if re.match(r"syncmcp\.(.*\.)?_[^_]", name)]
    return {name.split(".")[1] for name in private}


def test_few_tests_import_private_modules_outside_of_the_folders_that_mirror_them() -> None:
    """`tests/base` mirrors `syncmcp/_base`, and so on; files in `tests/auth` may import `auth`."""
    mirrors = {path.name[1:] for path in PACKAGE.glob("_[a-z]*") if path.is_dir()}
    outside = []
    for path in sources(ROOT / "tests"):
        part = path.relative_to(ROOT / "tests").parts[0]
        if part not in mirrors and private_parts(path) - {part}:
            outside.append(relative(path))
    assert len(outside) < MOST_OUTSIDE, "\n".join(outside)


def needed_by(distribution: str) -> set[str]:
    """Return the requirements of a distribution, without extras; empty if it is not installed."""
    try:
        required = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # a requirement only for other versions or systems
        return set()
    names = [re.match(r"[\w.-]+", line) for line in required if "extra ==" not in line]
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in names if name}


def test_the_distribution_and_the_package_tell_one_version() -> None:
    assert metadata.version("syncmcp-client") == syncmcp.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {syncmcp.__version__}" in changelog


def test_each_base_dependency_is_tested_at_its_floor() -> None:
    required = metadata.requires("syncmcp-client") or []
    floors = dict(line.split(">=") for line in required if "extra ==" not in line)
    tested = dict(
        line.split("==")
        for line in (ROOT / "tests/constraints/floors.txt").read_text().splitlines()
        if "==" in line
    )
    assert "urllib3" in floors
    for name, floor in floors.items():
        lowest = tested[name]
        assert lowest == floor or re.fullmatch(rf"{re.escape(floor)}(\.0)+", lowest), (
            f"{name}: pyproject.toml says {floor}, floors.txt tests {lowest}"
        )


def test_the_library_alone_needs_seven_packages_and_what_they_need() -> None:
    seven = {"jsonschema", "platformdirs", "pydantic", "requests"}
    seven |= {"sseclient-py", "uritemplate", "urllib3"}
    allowed, unseen = set(seven), list(seven)
    while unseen:
        needs = needed_by(unseen.pop()) - allowed
        allowed |= needs
        unseen += needs
    needed = needed_by("syncmcp-client")
    assert seven <= needed <= allowed


def test_each_supported_python_has_pins() -> None:
    classifiers = metadata.metadata("syncmcp-client").get_all("Classifier") or []
    supported = set(re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers)))
    pinned = {path.stem for path in (ROOT / "tests/constraints").glob("3.*.txt")}
    assert pinned == supported


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / "README.md").read_text("utf-8")))
    assert {"demo", "test"} <= commands
    assert re.search(r"^run .* make test$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
