"""Where a program is missing, the set-up says what is left out; in CI it fails."""

from __future__ import annotations

import shutil

import pytest

from tests.support import setup_programs


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_the_programs_and_the_means_to_install_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, code: int
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert setup_programs.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"no {each.title}: {each.tests} is left out" for each in setup_programs.PROGRAMS
    ]


def test_programs_that_are_there_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(shutil, "which", lambda program: f"/somewhere/{program}")
    assert setup_programs.main() == 0
    assert capsys.readouterr().out.splitlines() == ["/somewhere/chromium", "/somewhere/bwrap"]
