"""The mutants can be applied, and the runner tells a catch from a miss."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from tests.contract import mutants
from tests.contract.mutant import VARIABLE, Mutant, apply, check, reach_programs
from tests.contract.mutant_switches import MUTANTS
from tests.contract.mutants import Outcome, wrong_entries
from tests.contract.requirement_marks import Carrier


def test_every_mutant_has_a_name_rows_and_a_target_of_its_own() -> None:
    assert wrong_entries(MUTANTS) == []


def test_a_mutant_without_a_target_or_with_unknown_rows_is_reported() -> None:
    lost = Mutant(
        "lost", "", "syncmcp._concurrency.pool:SerialExecutor.nowhere", lambda o: o, ("RPC-99",)
    )
    assert len(wrong_entries([lost, lost])) == 5
    with pytest.raises(LookupError, match=r"no syncmcp\.\S+\.pool:SerialExecutor\.nowhere"):
        check(lost)


class _Counter:
    limit = 3

    @property
    def next(self) -> int:
        return self.limit + 1


def test_a_mutant_replaces_a_function_wherever_it_was_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ready() -> str:
        return "ready"

    home, user = ModuleType("madeup"), ModuleType("madeup.user")
    vars(home)["ready"] = vars(user)["imported"] = ready
    vars(home)["Counter"] = _Counter
    monkeypatch.setitem(sys.modules, "madeup", home)
    monkeypatch.setitem(sys.modules, "madeup.user", user)
    apply(Mutant("m", "", "madeup:ready", lambda original: lambda: original()[::-1], ()))
    assert home.ready() == user.imported() == "ydaer"

    apply(
        Mutant("p", "", "madeup:Counter.next", lambda o: property(lambda c: o.fget(c) - 1), ()),
        monkeypatch.setattr,
    )
    assert _Counter().next == 3


def test_a_mutant_reaches_programs_that_a_test_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv(VARIABLE, "secrets-in-the-open")
    reach_programs()
    program = "from syncmcp._base.secrets import Secrets; print(Secrets().redact('token=abcdef'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"token=abcdef"


def test_the_page_names_what_noticed_and_what_carries_the_rest() -> None:
    mutant = MUTANTS[0]
    row = mutant.shows[0]
    carriers = [Carrier("requirement", "RPC-23", "tests/t.py::test_b")]
    text = mutants.page({(mutant.name, row): "tests/t.py::test_a"}, carriers)
    assert f"* Without it, {mutant.effect}: `tests/t.py::test_a`" in text
    assert "**RPC-23** (SHOULD" in text
    assert "* `tests/t.py::test_b`" in text


@pytest.mark.parametrize(
    ("code", "output", "red", "noticed"),
    [
        (0, "tests/t.py::test_a PASSED", (), False),
        (1, "FAILED tests/t.py::test_a[x y] - assert 1\n", ("tests/t.py::test_a[x y]",), True),
        (1, "ERROR tests/t.py::test_a\n", ("tests/t.py::test_a",), True),
        (1, "tests/t.py::test_a \n++ Timeout ++", ("tests/t.py::test_a (hangs)",), True),
        (None, "tests/t.py::test_a ", ("tests/t.py::test_a (hangs)",), True),
        (2, "ERROR tests/t.py - SyntaxError", (), False),
        (
            1,
            "/mutant_switches/a.py:7: AttributeError: no b\nFAILED tests/t.py::test_a",
            ("tests/t.py::test_a",),
            False,
        ),
        (
            1,
            "/syncmcp/_http.py:7: TypeError: _put.<locals>.f() got\nERROR tests/t.py::test_a",
            ("tests/t.py::test_a",),
            False,
        ),
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
    mutant = MUTANTS[0]

    def run(files: object, rows: object, applied: Mutant | None, *, first: bool) -> Outcome:
        return Outcome(0, (), "") if applied is None else outcome

    carriers = [Carrier("requirement", row, "tests/t.py::test_a") for row in mutant.shows]
    monkeypatch.setattr(mutants, "run_tests", run)
    monkeypatch.setattr(mutants, "scan", lambda: (carriers, []))
    assert mutants.main([mutant.name]) == exit_code
    assert said in capsys.readouterr().out
