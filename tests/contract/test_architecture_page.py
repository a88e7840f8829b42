"""The architecture page is correct: places of design patterns, files, the tree, the contract."""

from __future__ import annotations

import configparser
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "syncmcp"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))


def rows() -> list[tuple[str, str]]:
    """Return the rows of the table of patterns: a pattern, and its places."""
    section = PAGE.partition("## Patterns, and where they are\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| (.+) \|$", section, re.MULTILINE)
    return [row for row in found if row[0] not in ("Pattern", "---")]


def places(text: str) -> list[str]:
    """Return the texts in backticks."""
    return re.findall(r"`([^`]+)`", text)


def exists(place: str) -> bool:
    """Return True if the library has this file or member of a module, or contains this name."""
    if place.endswith((".py", "/")):
        return (PACKAGE / place).exists()
    module, _, name = place.rpartition(".")
    if module and (PACKAGE / f"{module}.py").exists():
        return hasattr(importlib.import_module(f"syncmcp.{module}"), name)
    return re.search(rf"\b{re.escape(place)}\b", SOURCE) is not None


@pytest.mark.requirement("M-36")
def test_the_page_has_the_patterns_a_reader_would_ask_for() -> None:
    patterns = {pattern for pattern, _ in rows()}
    assert {"Façade", "Adapter", "Strategy", "Callbacks", "Context manager"} <= patterns


@pytest.mark.parametrize(("pattern", "where"), rows())
@pytest.mark.requirement("M-36")
def test_each_pattern_is_where_the_page_says(pattern: str, where: str) -> None:
    named = [place for place in places(where) if place != "with"]
    assert named, f"{pattern} names no place"
    assert [place for place in named if not exists(place)] == []


def test_each_file_that_the_page_names_exists() -> None:
    code = re.findall(r"`([\w/]+\.py)`", PAGE)
    tests = {path.name for path in (ROOT / "tests" / "contract").glob("*.py")}
    root = {"pytest_syncmcp.py", "syncmcp_command.py"}
    # A table row may omit the folder, if an earlier name in it has the folder.
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    short = {file.rpartition("/")[2] for file in files}
    named = {path.removeprefix("tests/contract/") for path in code}
    assert len(named) > 40
    assert named - files - short - tests - root == set()


def test_the_tree_on_the_page_is_that_of_the_package() -> None:
    tree = PAGE.partition("```text\nsyncmcp/\n")[2].partition("```")[0]
    named = set(re.findall(r"^  ([\w.]+)/? ", tree, re.MULTILINE))
    # A removed folder may still exist because it has ignored files; it has no modules.
    modules = (path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py"))
    there = {name for name in modules if not name.startswith("__")}
    assert named == there


def test_the_contract_on_the_page_is_the_one_that_is_checked() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = config["importlinter:contract:layers"]["layers"].strip()
    assert f"```text\n{layers}\n```" in PAGE
