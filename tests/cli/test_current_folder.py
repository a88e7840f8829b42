"""`python -m syncmcp` in a checked-out folder runs nothing of that folder."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.running import DEMO, ROOT, Command, Ran, run

LOADED = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
"""Code that prints the loaded modules and packages."""


# Python imports these itself before it runs the package.
LEFT = {"syncmcp", "__future__"}


def python(*words: str, cwd: Path, path: str = str(ROOT)) -> Ran:
    return run(sys.executable, *words, cwd=cwd, path=path)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hostile copy of each module that the command, not Python's start, loads."""
    start, folder = (tmp_path_factory.mktemp(name) for name in ("start", "checkout"))
    (start / "probe.py").write_text(LOADED)
    before = set(python("-m", "probe", cwd=start).out.split())
    program = f"import syncmcp.cli.app, syncmcp.ui.terminal.screen, syncmcp.testing; {LOADED}"
    loaded = set(python("-c", program, cwd=folder).out.split()) - before - LEFT
    assert {"typer", "rich", "logging", "pydantic"} <= loaded
    for name in loaded:
        (folder / f"{name}.py").write_text(f"raise SystemExit('ran {name} of this folder')")
    return folder


@pytest.mark.parametrize("words", ["-msyncmcp", "-X utf8 -Bm syncmcp"])
def test_no_module_of_the_current_folder_is_loaded(words: str, hostile: Path) -> None:
    ran = python(*words.split(), "--version", cwd=hostile)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("syncmcp ")


def test_the_demo_server_loads_none_either(
    command: Command, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    ran = command("ping", *DEMO)
    assert (ran.code, ran.err) == (0, "")


def test_the_demo_starts_no_package_of_the_folder(command: Command, elsewhere: Path) -> None:
    package = elsewhere / "syncmcp" / "__init__.py"
    package.parent.mkdir()
    package.write_text("raise SystemExit('ran the package of this folder')")
    ran = command("demo")
    assert "of this folder" not in ran.out + ran.err
    assert "Demo 1.0" in ran.out
    assert "lift-off" in ran.out


def test_a_checkout_runs_from_its_own_root(tmp_path: Path) -> None:
    (tmp_path / "syncmcp").symlink_to(ROOT / "syncmcp")
    program = (ROOT / "syncmcp_command.py").read_text("utf-8")
    (tmp_path / "syncmcp_command.py").write_text(f"{program}\nprint('of this checkout')\n")
    ran = python("-m", "syncmcp", "tools", "--help", cwd=tmp_path, path="")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("of this checkout\nUsage: syncmcp tools ")


def test_the_command_runs_from_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "syncmcp.zip"
    with zipfile.ZipFile(archive, "w") as whole:
        for file in [*ROOT.glob("syncmcp/**/*.py"), ROOT / "syncmcp_command.py"]:
            whole.write(file, file.relative_to(ROOT))
    ran = python("-m", "syncmcp", "--version", cwd=tmp_path, path=str(archive))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("syncmcp ")


def test_a_folder_that_the_person_names_stays(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('named by PYTHONPATH')")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    ran = python("-m", "syncmcp", "--version", cwd=tmp_path, path=paths)
    assert "named by PYTHONPATH" in ran.err


def test_a_program_that_imports_the_library_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import syncmcp, beside; print(True)")
    (tmp_path / "beside.py").write_text("")
    assert python("-c", "import syncmcp, beside; print(True)", cwd=tmp_path).out == "True\n"
    assert python("-m", "own", "syncmcp", cwd=tmp_path).out == "True\n"
