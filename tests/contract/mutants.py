"""Runs the tests with one behaviour of the library switched off at a time: some test must fail.

``make switches`` (``python -m tests.contract.mutants [NAME ...]``) first runs the tests that it
needs on the unchanged library; all must pass. Then, for each mutant and each row that the mutant
names, it runs the tests of this row in a separate process, with the mutant applied. It prints the
first test that fails. If no test of a row fails, the mutant has survived: the exit code is 1. It is
also 1 if the target of a mutant does not exist, or if a row has no test. The mutants are about
processes, sockets and threads, which `tests/contract/mutation.py` cannot mutate well.

A mutant is an entry in a file of `tests/contract/mutant_switches/`::

    name-of-the-mutant [rows, whose tests, must fail]: what the changed library does wrong
    @ module.below.syncmcp:Class.function
    - a piece of its text, which occurs once
    + its replacement

The replacement may have several lines with ``+``; they get the indentation of the place. A ``-``
without ``+`` deletes the piece. There may be several pairs. If all lines have ``+``, they are
inserted at the beginning of the function. `tests/contract/mutant_limits.txt` has the limits of the
library, each below the test that fails if the limit is one second longer. To add a mutant:

* Choose the one place where the behaviour is decided, and change that one behaviour. A mutant that
  breaks everything proves nothing.
* Name only rows that are false without this behaviour.
* Run ``python -m tests.contract.mutants NAME``. If the mutant survives, the tests of the row are
  weak: improve them, not the mutant. The mutant is also applied in programs that inherit the
  environment of a test, but not in servers that the library starts.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.contract.mutant import SITE, VARIABLE, Mutant, all_mutants, find
from tests.contract.requirement_marks import TESTS, scan
from tests.contract.requirements import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


TEST_LIMIT: Final = 20.0
"""Seconds for one test: without the behaviour, a test may hang."""
RUN_LIMIT: Final = 300.0
"""Seconds for the tests of one row."""
BEFORE_LIMIT: Final = 900.0
"""Seconds for all tests, on the unchanged library."""
AT_ONCE: Final = 2
"""Concurrent runs of pytest; with more, tests would exceed their time limits."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run of pytest.

    Attributes:
        code: Its exit code; `None` if it did not end in time.
        red: The tests that failed, or the one that hung.
        output: Its output.
    """

    code: int | None
    red: tuple[str, ...]
    output: str

    @property
    def noticed(self) -> bool:
        """True if a test failed or hung; False if all passed, or if pytest itself failed."""
        return self.code is None or (self.code == 1 and bool(self.red))


def _red(output: str) -> tuple[str, ...]:
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", output, re.MULTILINE)
    if failed:
        return tuple(dict.fromkeys(failed))
    # There is no summary, so the process was killed during the test that it named last.
    begun = re.findall(r"^(tests/\S+::\S+)", output, re.MULTILINE)
    return (f"{begun[-1]} (hangs)",) if begun else ()


def run_tests(
    files: Iterable[str], rows: Iterable[str], mutant: Mutant | None, *, first: bool
) -> Outcome:
    """Run the tests of the rows in these files; `first` stops at the first failure."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.plugin_requirements"]
    command += ["-v", "-rfE", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    command += ["-m", "not peer and not stress", f"--timeout={TEST_LIMIT:g}"]
    command += ["-x"] if first else []
    command += [argument for row in rows if not _is_test(row) for argument in ("--shows", row)]
    command += sorted(set(files))
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment["COLUMNS"] = "400"  # pytest truncates its summary to the terminal's width
    if mutant is not None:
        environment[VARIABLE] = mutant.name
        environment["PYTHONPATH"] = os.pathsep.join((str(SITE), str(TESTS.parent)))
    # A file, not a pipe: processes that a killed run leaves behind could keep a pipe open.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            code: int | None = subprocess.run(
                command,
                cwd=TESTS.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=BEFORE_LIMIT if mutant is None else RUN_LIMIT,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        log.seek(0)
        output = log.read()
    return Outcome(code, _red(output) if code != 0 else (), output)


def _is_test(shown: str) -> bool:
    """Return True if `shown` names a test, and not a row."""
    return "::" in shown


def _exists(test: str) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    path = TESTS.parent / file
    return path.is_file() and f"def {function}(" in path.read_text(encoding="utf-8")


def wrong_entries(mutants: Sequence[Mutant]) -> list[str]:
    """Return the mistakes in the list of mutants: names, rows, targets."""
    shown = {row.id for row in ROWS if row.shown}
    names = [mutant.name for mutant in mutants]
    wrong = [
        f"two mutants are called {name}" for name in sorted(set(names)) if names.count(name) > 1
    ]
    for mutant in mutants:
        wrong += [
            f"mutant {mutant.name}: {row} is no row that is shown now"
            for row in mutant.shows
            if row not in shown and not _is_test(row)
        ]
        wrong += [
            f"mutant {mutant.name}: there is no {test}"
            for test in filter(_is_test, mutant.shows)
            if not _exists(test)
        ]
        try:
            mutant.source()
        except LookupError as error:
            wrong.append(str(error))
    return wrong


def _try(files: Mapping[str, set[str]], shown: tuple[Mutant, str]) -> Outcome:
    mutant, row = shown
    return run_tests(files[row], (row,), mutant, first=True)


def _told(outcome: Outcome) -> str:
    if outcome.noticed:
        return f"caught by {', '.join(outcome.red)}"
    if outcome.code == 0:
        return "SURVIVED: its tests stay green"
    return f"BROKEN: pytest ended with {outcome.code}\n{outcome.output}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants; the exit code is 1 if one survives."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.contract.mutants", description=main.__doc__
    )
    parser.add_argument("name", nargs="*", help="only these mutants")
    parser.add_argument("--list", action="store_true", help="print the mutants and their rows")
    options = parser.parse_args(arguments)
    try:
        mutants = tuple(find(name) for name in options.name) or all_mutants()
    except LookupError as error:
        parser.error(str(error))
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:32} {', '.join(mutant.shows):24} {mutant.effect}")
        return 0
    carriers = scan()[0]
    files: dict[str, set[str]] = defaultdict(set)
    for carrier in carriers:
        files[carrier.row_id].add(carrier.file)
    rows = list(dict.fromkeys(row for mutant in mutants for row in mutant.shows))
    tests = [row for row in rows if _is_test(row)]
    files.update({test: {test} for test in tests})
    wrong = wrong_entries(mutants)
    wrong += [f"no test carries {row}" for row in rows if not files[row]]
    if wrong:
        print(*wrong, sep="\n")
        return 1
    for some in filter(None, ([row for row in rows if row not in tests], tests)):
        before = run_tests({file for row in some for file in files[row]}, some, None, first=False)
        if before.code != 0:
            print(f"{before.output}\nThese tests have to be green before they can notice anything.")
            return 1
    shown = [(mutant, row) for mutant in mutants for row in mutant.shows]
    survivors: list[str] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(partial(_try, files), shown)
        for (mutant, row), outcome in zip(shown, outcomes, strict=True):
            print(f"{mutant.name}: {mutant.effect}\n    {row:8} {_told(outcome)}", flush=True)
            survivors += [] if outcome.noticed else [f"{mutant.name} ({row})"]
    caught = len(shown) - len(survivors)
    print(f"{len(mutants)} mutants for {len(rows)} rows, {caught} of {len(shown)} caught")
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
