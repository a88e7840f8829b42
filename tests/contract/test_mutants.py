"""Tests of `mutant`, `mutants` and `mutation`: applying mutants, and judging the outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract import mutant as mutant_module
from tests.contract import mutants, mutation
from tests.contract.mutant import SITE, VARIABLE, Mutant, all_mutants, read, read_limits
from tests.contract.mutants import Outcome, wrong_entries
from tests.contract.mutation import COLUMNS, PARTS, ROOT, Part, table, verdict, wanted_mutants
from tests.contract.requirement_marks import TESTS, Carrier


def entry(target: str, change: str) -> Mutant:
    (mutant,) = read(
        f"# A chapter.\n\na-name [RPC-01, RPC-99]: an effect: text\n@ {target}\n{change}\n"
    )
    return mutant


def test_every_mutant_has_a_name_rows_and_a_place_of_its_own() -> None:
    assert len(all_mutants()) > 50
    assert wrong_entries(all_mutants()) == []


def test_every_mutant_can_be_compiled_and_names_nothing_that_is_not_there(tmp_path: Path) -> None:
    sources = {mutant.name: mutant.source() for mutant in all_mutants()}
    for name, change in (("lost", "nowhere"), ("open", "(")):
        sources[name] = entry("_client.lifetime:_MISSES", f"- 2\n+ {change}").source()
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--quiet"]
    ruff += ["--select", "F821,F823,TC004", "--output-format", "concise", str(tmp_path)]
    found = subprocess.run(ruff, capture_output=True, text=True, check=False).stdout.splitlines()
    assert {Path(fault.partition(":")[0]).stem for fault in found} == {"lost", "open"}


def test_wrong_entries_are_reported() -> None:
    limit = "_client.lifetime:_MISSES"
    wrong = [
        entry("_client.lifetime:NOWHERE", "- 2\n+ 3"),
        entry("_client.nowhere:_MISSES", "- 2\n+ 3"),
        entry(limit, "- 7\n+ 3"),
    ]
    faults = wrong_entries(wrong)
    assert faults[0] == "two mutants are called a-name"
    assert faults[1::2] == ["mutant a-name: RPC-99 is no row that is shown now"] * 3
    assert faults[2::2] == [
        "mutant a-name: no syncmcp._client.lifetime:NOWHERE",
        "mutant a-name: no syncmcp._client.nowhere:_MISSES",
        "mutant a-name: 0 times '7'",
    ]
    with pytest.raises(ValueError, match="this is no entry:\na-name: an effect"):
        list(read("a-name: an effect\n@ _client.lifetime:_MISSES\n- 2\n+ 3"))
    (late,) = read_limits("tests/nowhere.py::test_a\n  _client.lifetime:_MISSES: <<2>>\n")
    assert wrong_entries([late]) == ["mutant late-_MISSES-1: there is no tests/nowhere.py::test_a"]
    with pytest.raises(ValueError, match="this is no limit:   _client"):
        list(read_limits("  _client.lifetime:_MISSES: 2"))


SAMPLE = '''
LIMIT = 3


class Counter:
    """Counts."""

    @property
    def next(self) -> int:
        """What comes next."""
        if LIMIT > 2:
            return LIMIT + 1
        return 0
'''


@pytest.fixture
def mutated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mutant], dict[str, Any]]:
    """Return a function that applies a mutant to a module, runs it, and returns its names."""
    (tmp_path / "syncmcp").mkdir()
    (tmp_path / "syncmcp" / "sample.py").write_text(SAMPLE, encoding="utf-8")
    monkeypatch.setattr(mutant_module, "_ROOT", tmp_path)

    def run(mutant: Mutant) -> dict[str, Any]:
        found: dict[str, Any] = {}
        exec(mutant.source(), found)
        return found

    return run


def test_a_limit_is_a_second_more(mutated: Callable[[Mutant], dict[str, Any]]) -> None:
    (limit,) = read_limits("# A chapter.\n\ntests/t.py::test_a\n  sample:LIMIT: <<3>>\n")
    assert (limit.name, limit.shows) == ("late-LIMIT-1", ("tests/t.py::test_a",))
    assert mutated(limit)["LIMIT"] == 4


@pytest.mark.parametrize(
    ("target", "change", "value"),
    [
        ("LIMIT", "- 3\n+ 7", 8),
        ("Counter.next", "+ if LIMIT:\n+     return 9", 9),
        ("Counter.next", "- return LIMIT + 1\n+ found = LIMIT + 1\n+ return found * 2", 8),
        ("Counter.next", "- > 2\n- LIMIT + 1\n+ 30", 30),
    ],
)
def test_a_mutant_changes_one_place(
    target: str, change: str, value: int, mutated: Callable[[Mutant], dict[str, Any]]
) -> None:
    assert mutated(entry(f"sample:{target}", change))["Counter"]().next == value


def test_a_mutant_reaches_the_programs_that_tests_run() -> None:
    path = os.pathsep.join((str(SITE), str(TESTS.parent)))
    mutated = {**os.environ, "PYTHONPATH": path, VARIABLE: "secrets-in-the-open"}
    program = "from syncmcp._base.secrets import Secrets; print(Secrets().redact('token=abcdef'))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=mutated, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"token=abcdef"


@pytest.mark.parametrize(
    ("code", "output", "red", "noticed"),
    [
        (0, "tests/t.py::test_a PASSED", (), False),
        (1, "FAILED tests/t.py::test_a[x y] - assert 1\n", ("tests/t.py::test_a[x y]",), True),
        (1, "ERROR tests/t.py::test_a\n", ("tests/t.py::test_a",), True),
        (1, "tests/t.py::test_a \n++ Timeout ++", ("tests/t.py::test_a (hangs)",), True),
        (None, "tests/t.py::test_a ", ("tests/t.py::test_a (hangs)",), True),
        (2, "ERROR tests/t.py - SyntaxError", (), False),
        (5, "no tests ran", (), False),
    ],
)
def test_only_a_failed_or_hanging_test_counts_as_a_catch(
    code: int | None, output: str, red: tuple[str, ...], noticed: bool
) -> None:
    found = mutants._red(output) if code != 0 else ()
    assert found == red
    assert Outcome(code, found, output).noticed is noticed


@pytest.mark.parametrize(
    ("outcome", "exit_code", "said"),
    [
        (Outcome(1, ("tests/t.py::test_a",), ""), 0, "caught by tests/t.py::test_a"),
        (Outcome(0, (), ""), 1, "SURVIVED"),
        (Outcome(5, (), "no tests ran"), 1, "BROKEN: pytest ended with 5"),
    ],
)
def test_a_mutant_that_survives_fails_the_run(
    outcome: Outcome,
    exit_code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mutant = all_mutants()[0]

    def run(files: object, rows: object, applied: Mutant | None, *, first: bool) -> Outcome:
        return Outcome(0, (), "") if applied is None else outcome

    carriers = [Carrier("requirement", row, "tests/t.py::test_a") for row in mutant.shows]
    monkeypatch.setattr(mutants, "run_tests", run)
    monkeypatch.setattr(mutants, "scan", lambda: (carriers, []))
    assert mutants.main([mutant.name]) == exit_code
    assert said in capsys.readouterr().out


CODES = {"a": 0, "b": 1, "c": 37, "d": -24, "e": 33, "f": None, "g": 1}


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
    """Make a part whose first module has the verdicts in `CODES`."""
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
