"""The guide shows the programs that are tested, and no others."""

from __future__ import annotations

import re

from tests.support.programs import ROOT
from tests.system.embedding.frameworks import EXAMPLES

PROGRAMS = {path.name for path in EXAMPLES.glob("*.py")}


def test_each_program_of_the_guide_is_a_file_that_a_test_runs() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text("utf-8")
    shown = re.findall(r"literalinclude\} \.\./examples/embedding/(\S+)", page)
    assert len(shown) == len(PROGRAMS)
    assert set(shown) == PROGRAMS
    folder = ROOT / "tests" / "system" / "embedding"
    tests = [path.read_text("utf-8") for path in folder.glob("test_*.py")]
    untested = {
        name
        for name in PROGRAMS
        if not any(
            name in test or f"embedding.{name.removesuffix('.py')}" in test for test in tests
        )
    }
    assert untested == set()
