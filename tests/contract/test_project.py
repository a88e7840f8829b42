"""The project keeps its own rules: what no linter knows."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import syncmcp

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "syncmcp"
SOURCES = sorted(PACKAGE.rglob("*.py"))
REVISIONS = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

DIALECTS = {f"_protocol/{name}.py" for name in ("revisions", "stateful", "stateless")}

# The longest a file of the library may be, in lines: beyond that it is two ideas.
LONGEST_FILE = 620

# Fewer files of tests than this may import private modules that are not of their own part: each
# other one leaves the library free to move.
MOST_OUTSIDE = 30


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(tree: ast.Module) -> set[ast.expr]:
    """Strings that stand alone: docstrings of modules, classes, functions and attributes."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def strings(tree: ast.Module) -> Iterator[str]:
    """Every string the code works with; docstrings and comments may say what they like."""
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
            yield node.value


def may_name_a_revision(path: Path) -> bool:
    inside = path.relative_to(PACKAGE)
    return inside.as_posix() in DIALECTS or inside.parts[0] == "testing"


def problems(path: Path) -> Iterator[str]:
    """What a file of the library does that none may do."""
    text = path.read_text(encoding="utf-8")
    if text.count("\n") > LONGEST_FILE:
        yield "is longer than one idea"
    tree = ast.parse(text)
    has_code = any(not isinstance(node, (ast.Expr, ast.Assign)) for node in tree.body)
    if has_code and "from __future__ import annotations" not in text:
        yield "evaluates its annotations"
    if not may_name_a_revision(path):
        named = {revision for words in strings(tree) for revision in REVISIONS if revision in words}
        for revision in named:
            yield f"names revision {revision}; ask the dialect instead"


def test_each_file_keeps_the_rules() -> None:
    found = [f"{relative(path)} {problem}" for path in SOURCES for problem in problems(path)]
    assert found == []
    assert len(SOURCES) > 200


def test_a_file_that_breaks_the_rules_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "long.py"
    path.write_text("import os\nMODE = '2025-11-25'\n" + "\n" * LONGEST_FILE)
    assert len([*problems(path)]) == 3
    path.write_text('"""Speaks 2025-11-25."""\n' + "\n" * (LONGEST_FILE - 1))
    assert [*problems(path)] == []


def files_of_tests(folder: Path = ROOT / "tests") -> Iterator[Path]:
    """The modules of the tests, without what is installed among them."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith((".", "node_modules")):
            yield from files_of_tests(path)
        elif path.suffix == ".py":
            yield path


def private_parts(path: Path) -> set[str]:
    """From which parts of the library a file imports modules or names that are private."""
    names: list[str] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    private = [name for name in names if re.match(r"syncmcp\.(.*\.)?_[^_]", name)]
    return {name.split(".")[1] for name in private}


def test_urls_are_split_in_one_place_as_their_hosts_may_take_long_to_normalize() -> None:
    parsers = {"urlsplit", "urlparse", "urljoin", "urldefrag"}
    users = {
        relative(path)
        for path in SOURCES
        for node in ast.walk(parse(path))
        if (isinstance(node, ast.ImportFrom) and parsers.intersection(a.name for a in node.names))
        or (isinstance(node, ast.Attribute) and node.attr in parsers)
    }
    assert users == {"syncmcp/_base/origin.py"}


def test_few_tests_import_private_modules_outside_of_the_folders_that_mirror_them() -> None:
    """`tests/base` is about `syncmcp/_base`, and so on; files in `tests/auth` may know `auth`."""
    mirrors = {path.name[1:] for path in PACKAGE.glob("_[a-z]*") if path.is_dir()}
    outside = []
    for path in files_of_tests():
        part = path.relative_to(ROOT / "tests").parts[0]
        if part not in mirrors and private_parts(path) - {part}:
            outside.append(relative(path))
    assert len(outside) < MOST_OUTSIDE, "\n".join(outside)


def needed_by(distribution: str) -> set[str]:
    """What is installed with it, extras left out."""
    try:
        required = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # for another Python, or another system
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
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = set(re.findall(r"\bmake ([a-z]+)\b", readme))
    assert {"demo", "test"} <= commands
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), f"make {command} does not exist"
    assert re.search(r"^run .* make test$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
