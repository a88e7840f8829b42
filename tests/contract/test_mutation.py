"""mutmut is told what to mutate and what to run, and its verdicts are counted."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.contract import mutation
from tests.contract.mutation import COLUMNS, PARTS, ROOT, Part, table, verdict, wanted_mutants

CODES = {"a": 0, "b": 1, "c": 37, "d": -24, "e": 33, "f": None, "g": 1}


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
    """A part whose first module has these verdicts."""
    monkeypatch.setattr(mutation, "FOLDER", tmp_path)
    part = Part("example", ("_protocol/steps.py", "_protocol/tasks.py"), ("protocol",))
    file = part.verdicts(Path("syncmcp/_protocol/steps.py"))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"exit_code_by_key": CODES}), encoding="utf-8")
    return part


def test_each_part_names_modules_and_tests_that_are_there() -> None:
    for part in PARTS:
        assert list(part.sources())
        for name in (*part.tests, *(each.partition("::")[0] for each in part.without)):
            assert (ROOT / "tests" / name).exists()
        for name in part.without:
            file, _, function = name.partition("::")
            if function:
                assert f"def {function}(" in (ROOT / "tests" / file).read_text("utf-8")
    sources = [source for part in PARTS for source in part.sources()]
    assert max(Counter(sources).values()) == 1


def test_a_verdict_is_one_of_the_columns() -> None:
    assert [verdict(code) for code in CODES.values()] == [
        *("survived", "killed", "types", "timed out", "no tests", "not run", "killed"),
    ]
    assert {verdict(code) for code in (0, 1, 37, -24, 33, None)} == set(COLUMNS)


def test_the_score_is_the_share_of_what_mypy_accepts_that_is_noticed(part: Part) -> None:
    steps, tasks = part.sources()
    _, _, first, second, whole = table([(part, steps), (part, tasks)])
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == ["_protocol.steps", "7", "1", "2", "1", "1", "1", "1", "60.0 %"]
    assert second.split("|")[-2].strip() == "-"
    assert whole.split("|")[2:] == first.split("|")[2:]


def test_what_has_a_verdict_is_not_tested_again(part: Part) -> None:
    steps, tasks = part.sources()
    assert wanted_mutants(part, [steps, tasks]) == []
    assert wanted_mutants(part, [steps]) == ["f"]
    assert wanted_mutants(part, [tasks]) == ["syncmcp._protocol.tasks.x*"]
    mutation.forget(part, steps, ("survived", "no tests"))
    assert wanted_mutants(part, [steps]) == ["a", "e", "f"]


def test_what_runs_at_import_is_tested_in_a_process_of_its_own(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"syncmcp._protocol.steps.x_{name}__mutmut_1" for name in ("a", "b", "c", "d")]
    steps, tasks = part.sources()
    file = part.verdicts(steps)
    file.write_text(json.dumps({"exit_code_by_key": dict(zip(names, (0, 0, 1, 33), strict=True))}))
    tested: list[str] = []

    def run(
        command: list[str], *, env: dict[str, str], **_: object
    ) -> subprocess.CompletedProcess[bytes]:
        mutant = env["MUTANT_UNDER_TEST"]
        early = "".join(f"syncmcp._protocol.steps.x_{name}\n" for name in "acd").encode()
        if mutant != "stats":
            tested.append(mutant)
        return subprocess.CompletedProcess(command, int(mutant == names[0]), early)

    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(2):
        mutation.try_afresh(part, [steps, tasks])
        assert tested == [names[0], names[3]]
    assert [verdict(code) for code in mutation.read_verdicts(part, steps).values()] == [
        *("killed", "survived", "killed", "survived"),
    ]


def test_a_changed_test_is_seen_once(part: Part) -> None:
    assert [mutation.tests_changed(part) for _ in range(2)] == [True, False]


def test_the_settings_are_those_of_the_part(part: Part) -> None:
    for _ in range(2):
        mutation.set_up(part)
    text = (part.folder / "setup.cfg").read_text("utf-8")
    assert "only_mutate =\n    syncmcp/_protocol/steps.py\n    syncmcp/_protocol/tasks.py\n" in text
    assert (part.folder / "tests" / "protocol" / "test_tasks.py").exists()
    assert (part.folder / "syncmcp" / "_protocol").is_dir()
