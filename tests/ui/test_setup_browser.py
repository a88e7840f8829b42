"""Where there is no browser, the set-up says what is left out; in CI it fails."""

from __future__ import annotations

import shutil

import pytest

from tests.ui import setup_browser


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_a_browser_and_the_means_to_install_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, code: int
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert setup_browser.main() == code
    assert capsys.readouterr().out == f"no Chromium: {setup_browser.TESTS} is left out\n"


def test_a_browser_that_is_there_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(shutil, "which", lambda program: f"/somewhere/{program}")
    assert setup_browser.main() == 0
    assert "/somewhere/chromium" in capsys.readouterr().out
