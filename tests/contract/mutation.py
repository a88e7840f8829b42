"""Mutates modules of the library, and counts the mutants that tests detect; ``docs/mutation.md``.

``make mutants`` (``python -m tests.contract.mutation [MODULE ...]``) runs `mutmut
<https://mutmut.readthedocs.io>`_ for each part. A part is some modules and their tests. Its folder
in ``build/mutation`` stores the verdicts, so an interrupted run can be continued. mutmut tests the
mutants of a function again if the function has changed. This module has surviving mutants tested
again if a test of the part has changed. mutmut imports the modules once, then forks. So this module
tests mutants of functions that run during the import, each in a separate process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "mutation"
RESULTS: Final = ROOT / "docs" / "mutation.txt"
"""The results, which ``docs/mutation.md`` includes."""


@dataclass(frozen=True)
class Part:
    """Modules that are mutated, and the tests that must detect the mutants.

    Attributes:
        modules: Paths below ``syncmcp``; a folder stands for all its modules.
        tests: Files and folders below ``tests``.
        without: Tests that are left out: mutmut's own frames, memory or time would disturb them.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of mutmut for this part."""
        return FOLDER / self.name

    def sources(self) -> Iterator[Path]:
        """Yield the files of the modules, relative to the root."""
        for module in self.modules:
            path = ROOT / "syncmcp" / module
            for file in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
                if file.stat().st_size > 100:
                    yield file.relative_to(ROOT)

    def verdicts(self, source: Path) -> Path:
        """Return the file in which mutmut stores the verdicts on a module."""
        return self.folder / "mutants" / f"{source}.meta"

    @property
    def selection(self) -> list[str]:
        """The arguments of pytest that select the tests."""
        return [f"tests/{name}" for name in self.tests]

    @property
    def arguments(self) -> list[str]:
        """The other arguments of pytest."""
        return [*_PYTEST, *(f"--deselect=tests/{name}" for name in self.without)]


def _files(folder: str, pattern: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{pattern.format(name)}" for name in names.split())


PARTS: Final = (
    Part(
        "protocol",
        _files(
            "_protocol",
            "{}.py",
            "caching capabilities conversation dialect exchange jsonrpc metadata negotiate "
            "revisions stateful stateless steps subscription tasks",
        ),
        ("protocol",),
        (
            "protocol/schema",
            "protocol/test_jsonrpc.py::test_a_frame_of_tiny_values_takes_no_more_memory_than_its_bytes",
            "protocol/test_jsonrpc.py::test_a_batch_of_many_wrecks_takes_no_more_memory_than_a_sound_one",
            "protocol/test_conversation.py::test_the_one_result_too_many_is_found_in_linear_time",
        ),
    ),
    Part(
        "schemas",
        ("_protocol/patterns.py", "_protocol/schema"),
        ("protocol/schema",),
        ("protocol/schema/test_bounds.py",),
    ),
    Part(
        "signing-in",
        _files("auth", "{}.py", "agreement bearer discovery flow registration steps tokens"),
        _files(
            "auth",
            "test_{}.py",
            "agreement challenge discovery flow registration step_up tokens",
        ),
    ),
    Part("guard", ("_http/url_guard.py",), ("http/test_url_guard.py",)),
    Part(
        "policies",
        ("approval/policies.py",),
        _files("approval", "test_{}.py", "approval server_identity"),
    ),
    Part(
        "requests",
        ("_connection/pending_request.py",),
        (
            "client/test_listening.py",
            *_files("connection", "test_{}.py", "call_limits cancellation correlation deadlines"),
            "connection/test_pending_request.py",
            "observe/test_diagnosis.py",
        ),
    ),
    Part(
        "calls",
        ("_client/driver.py", "_client/retrying.py"),
        (
            *_files(
                "client",
                "test_{}.py",
                "batches cache callables client_limits operations pagination retry sessions "
                "structured_output task_cancelling tasks undeclared",
            ),
            *_files("connection", "test_{}.py", "call_limits cancellation deadlines interceptors"),
        ),
        (
            "client/test_operations.py::test_an_error_that_is_settled_after_it_was_raised_keeps_no_frame",
            "client/test_operations.py::test_the_error_of_a_call_keeps_no_frame_of_its_caller",
        ),
    ),
)

_MUTMUT: Final = (str(Path(sys.executable).with_name("mutmut")),)
_SETTINGS: Final = (
    "timeout_constant = 2",
    "timeout_multiplier = 10",
    "track_dependencies = false",
    "use_git_change_detection = false",
)
_PYTEST: Final = (
    "--hypothesis-profile=mutants",
    "--timeout=0",
    "-pno:cacheprovider",
    "-pno:xdist",
    "-mnot stress and not peer and not slow",
)
# The disabled codes are no type errors, or are caused by mutants next to the original function.
_MYPY: Final = """[mypy]
strict = True
python_version = 3.10
plugins = pydantic.mypy
explicit_package_bases = True
namespace_packages = True
ignore_missing_imports = True
disable_error_code = comparison-overlap, has-type, no-any-return, no-redef, unused-ignore
"""

# Prints the functions that run while these modules are imported.
_IMPORTS: Final = """import importlib, sys
from mutmut.state import state
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*state()._stats, sep="\\n")
"""
_AFRESH: Final = 256  # the exit code stored for mutants that survive in a separate process, too
_LONGEST: Final = 900.0  # the time limit of such a process, in seconds

COLUMNS: Final = ("types", "killed", "timed out", "survived", "no tests", "not run")
"""The verdicts; "types": mypy rejects the mutant, so no test needs to detect it."""
_UNNOTICED: Final = ("survived", "no tests")


def verdict(code: int | None) -> str:
    """Return the verdict for an exit code that mutmut has stored, usually that of pytest."""
    if code is None or code == 2:
        return "not run"
    if code in {5, 33}:
        return "no tests"
    if code in {-24, -9, 24, 36, 152}:
        return "timed out"
    return {0: "survived", _AFRESH: "survived", 37: "types"}.get(code, "killed")


def module_name(source: Path) -> str:
    """Return the name of a module, without the name of the library."""
    return ".".join(source.with_suffix("").parts[1:]).removesuffix(".__init__")


def shared_modules(folders: Sequence[str]) -> Iterator[str]:
    """Yield the helper modules of all test folders that are not linked as a whole."""
    for file in sorted((ROOT / "tests").glob("*/*.py")):
        if file.parent.name not in folders and not file.name.startswith("test_"):
            yield f"{file.parent.name}/{file.name}"


def set_up(part: Part) -> None:
    """Make the folder of a part, with links to the code and the tests, and with the settings."""
    folder = part.folder
    tests = folder / "tests"
    for copied in (tests, folder / "mutants" / "tests"):
        shutil.rmtree(copied, ignore_errors=True)
    tests.mkdir(parents=True)
    folders = ("support", "contract", *part.tests)
    for name in ("conftest.py", *folders, *shared_modules(folders)):
        place = tests / name
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(ROOT / "tests" / name)
    for name in ("syncmcp", "pyproject.toml", "examples", "docs"):
        place = folder / name
        place.unlink(missing_ok=True)
        place.symlink_to(ROOT / name)
    lists: dict[str, Iterable[str]] = {
        "source_paths": ("syncmcp",),
        "only_mutate": map(str, part.sources()),
        "also_copy": ("docs", "examples"),
        "pytest_add_cli_args_test_selection": part.selection,
        "pytest_add_cli_args": part.arguments,
        # mutmut parses the report as one of mypy if the command contains that name.
        "type_check_command": (sys.executable, __file__, "--types", "mypy", part.name),
    }
    (folder / "mypy.ini").write_text(_MYPY, encoding="utf-8")
    lines = ["[mutmut]", *_SETTINGS]
    for key, values in lists.items():
        lines += [f"{key} =", *(f"    {value}" for value in values)]
    (folder / "setup.cfg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def report_types(part: Part) -> str:
    """Return mypy's report on the mutants; mypy runs only if they or its settings have changed."""
    mutants, settings = part.folder / "mutants", part.folder / "mypy.ini"
    sources = [*map(str, part.sources())]
    digest = _digest([settings, *(mutants / source for source in sources)])
    kept = part.folder / "mypy.json"
    before = kept.read_text("utf-8") if kept.exists() else ""
    if not before.startswith(digest):
        command = [sys.executable, "-m", "mypy", "--output=json", f"--config-file={settings}"]
        command += [f"--cache-dir={part.folder / 'mypy'}", *sources]
        done = subprocess.run(command, cwd=mutants, stdout=subprocess.PIPE, check=False)
        assert done.returncode in {0, 1}, "mypy could not check the mutants"
        before = f"{digest}\n{done.stdout.decode()}"
        kept.write_text(before, encoding="utf-8")
    return before.removeprefix(digest)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def tests_changed(part: Part) -> bool:
    """Return True if a test of a part has changed since the last call; store the current state."""
    paths = [ROOT / "tests" / name for name in ("conftest.py", "support", *part.tests)]
    digest = _digest(
        file
        for path in paths
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else (path,))
    )
    kept = part.folder / "tests.sha256"
    before = kept.read_text("utf-8") if kept.exists() else ""
    kept.write_text(digest, encoding="utf-8")
    return before != digest


def read_verdicts(part: Part, source: Path) -> dict[str, int | None]:
    """Return mutmut's exit codes by the name of the mutant; empty before the first run."""
    file = part.verdicts(source)
    codes: dict[str, int | None] = {}
    if file.exists():
        codes = json.loads(file.read_text("utf-8"))["exit_code_by_key"]
    return codes


def keep_verdicts(part: Part, source: Path, codes: Mapping[str, int | None]) -> None:
    """Store these exit codes for mutmut, which tests a mutant with `None` again."""
    file = part.verdicts(source)
    known = json.loads(file.read_text("utf-8"))
    known["exit_code_by_key"].update(codes)
    file.write_text(json.dumps(known, indent=4), encoding="utf-8")


def forget(part: Part, source: Path, verdicts: Sequence[str]) -> None:
    """Delete these verdicts of a module, so that mutmut tests the mutants again."""
    codes = read_verdicts(part, source)
    if codes:
        gone = (name for name, code in codes.items() if verdict(code) in verdicts)
        keep_verdicts(part, source, dict.fromkeys(gone))


def wanted_mutants(part: Part, sources: Sequence[Path]) -> list[str] | None:
    """Return the mutants to test. An empty list stands for all without a verdict; `None`: none."""
    if sources == list(part.sources()):
        return []
    wanted: list[str] = []
    for source in sources:
        file = part.verdicts(source)
        if file.exists() and file.stat().st_mtime > (ROOT / source).stat().st_mtime:
            codes = read_verdicts(part, source)
            wanted += [name for name, code in codes.items() if code is None]
        else:
            wanted.append(f"syncmcp.{module_name(source)}.x*")
    return wanted or None


def run(part: Part, sources: Sequence[Path], *, again: bool, processes: int) -> None:
    """Test the mutants of these modules that have no verdict yet."""
    set_up(part)
    if tests_changed(part):
        (part.folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
        for source in part.sources():
            forget(part, source, ("survived", "no tests", "timed out"))
    if again:
        for source in sources:
            forget(part, source, COLUMNS)
    wanted = wanted_mutants(part, sources)
    if wanted is not None:
        command = [*_MUTMUT, "run", f"--max-children={processes}", *wanted]
        subprocess.run(command, cwd=part.folder, check=True)
    try_afresh(part, sources)


def try_afresh(part: Part, sources: Sequence[Path]) -> None:
    """Test survivors of functions that run at import, before mutmut could activate a mutant."""
    folder = part.folder / "mutants"
    left = {
        source: [name for name, code in read_verdicts(part, source).items() if code in {0, 33}]
        for source in sources
    }
    if not any(left.values()):
        return
    modules = [f"syncmcp.{module_name(source)}" for source in sources]
    told = _in_mutants(folder, "stats", ["-c", _IMPORTS, *modules], stdout=subprocess.PIPE)
    early = set(told.stdout.decode().split())
    tests = ["-m", "pytest", "-x", "-q", *part.selection, *part.arguments]
    for source, names in left.items():
        for name in names:
            if name.rpartition("__mutmut_")[0] in early:
                try:
                    code = _in_mutants(folder, name, tests, stdout=subprocess.DEVNULL).returncode
                except subprocess.TimeoutExpired:
                    code = 36
                keep_verdicts(part, source, {name: code or _AFRESH})


def _in_mutants(
    folder: Path, mutant: str, command: Sequence[str], *, stdout: int
) -> subprocess.CompletedProcess[bytes]:
    """Run Python in the folder of mutants, with one mutant active from the start."""
    environment = {**os.environ, "MUTANT_UNDER_TEST": mutant, "PY_IGNORE_IMPORTMISMATCH": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdout=stdout,
        timeout=_LONGEST,
        check=False,
    )


def table(chosen: Iterable[tuple[Part, Path]]) -> Iterator[str]:
    """Yield the lines of the table; the score: detected mutants, of those that mypy accepts."""
    titles = ("mutants", *COLUMNS, "score")
    yield f"| {'module':28} | {' | '.join(f'{title:>9}' for title in titles)} |"
    yield f"|{'-' * 30}|{'|'.join('-' * 10 + ':' for _ in titles)}|"
    whole: Counter[str] = Counter()
    for part, source in chosen:
        counts = Counter(verdict(code) for code in read_verdicts(part, source).values())
        whole += counts
        yield _row(module_name(source), counts)
    yield _row("all", whole)


def _row(name: str, counts: Counter[str]) -> str:
    tested = counts.total() - counts["types"] - counts["not run"]
    noticed = counts["killed"] + counts["timed out"]
    score = f"{100 * noticed / tested:.1f} %" if tested else "-"
    cells = (counts.total(), *(counts[column] for column in COLUMNS), score)
    return f"| {name:28} | {' | '.join(f'{cell:>9}' for cell in cells)} |"


def survivors(chosen: Iterable[tuple[Part, Path]]) -> Iterator[str]:
    """Yield, for each module, the functions with undetected mutants, and their number."""
    for part, source in chosen:
        codes = read_verdicts(part, source)
        names = [name for name, code in codes.items() if verdict(code) in _UNNOTICED]
        counts = Counter(_function(name, module_name(source)) for name in names)
        if counts:
            listed = ", ".join(f"`{name}` {count}" for name, count in sorted(counts.items()))
            yield f"{module_name(source)}: {listed}"


def _function(mutant: str, module: str) -> str:
    # After the module follow "x_" and a function, or "xǁ", a class, "ǁ" and a method.
    name = mutant.rpartition("__mutmut_")[0].partition(f"{module}.x")[2]
    return name[1:].replace("ǁ", ".")


def write_results(chosen: Sequence[tuple[Part, Path]]) -> None:
    """Write the table and the survivors to the file that the page includes."""
    lines = [*table(chosen), "", "Mutants that survive, by function:", "", *survivors(chosen)]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate modules, and print how many of their mutants the tests detect."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.contract.mutation", description=main.__doc__
    )
    parser.add_argument("module", nargs="*", help="only these, as in the table; or parts")
    parser.add_argument("--again", action="store_true", help="forget the verdicts on them first")
    parser.add_argument("--processes", type=int, default=1, help="at one time (default: 1)")
    parser.add_argument("--report", action="store_true", help="run nothing, print what is known")
    parser.add_argument("--page", action="store_true", help="write the results for the page, too")
    parser.add_argument("--survivors", action="store_true", help="show what was not noticed")
    parser.add_argument("--types", choices=["mypy"], help=argparse.SUPPRESS)  # for mutmut
    options = parser.parse_args(arguments)
    known = {name for part in PARTS for name in (part.name, *map(module_name, part.sources()))}
    if unknown := set(options.module) - known:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    chosen = [
        (part, source)
        for part in PARTS
        for source in part.sources()
        if not options.module or {part.name, module_name(source)} & set(options.module)
    ]
    if options.types:
        print(*(report_types(part) for part in PARTS if part.name in options.module))
        return 0
    for part in PARTS:
        sources = [source for its, source in chosen if its is part]
        if sources and not options.report:
            run(part, sources, again=options.again, processes=options.processes)
    print(*table(chosen), sep="\n")
    if options.page:
        write_results(chosen)
    for part, source in chosen if options.survivors else ():
        for name, code in read_verdicts(part, source).items():
            if verdict(code) in _UNNOTICED:
                subprocess.run([*_MUTMUT, "show", name], cwd=part.folder, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
