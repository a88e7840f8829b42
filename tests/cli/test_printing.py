"""What commands print, and what is on the terminal meanwhile."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest
from rich.text import Text

from syncmcp.cli.output import Output, ProgressBar

PRINTS: dict[str, Callable[[Output], None]] = {
    "result": lambda out: out.result({}),
    "text": lambda out: out.text("x"),
    "table": lambda out: out.table(("A",), [("x",)]),
    "heading": lambda out: out.heading("x"),
    "styled": lambda out: out.styled(Text("x")),
    "note": lambda out: out.note("x"),
}


@pytest.mark.parametrize("way", PRINTS)
def test_a_progress_bar_goes_before_anything_is_printed(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    out = Output(json=False, before=lambda: seen.append("".join(capsys.readouterr())))
    out.terminal = True
    PRINTS[way](out)
    assert seen == [""]
    assert "".join(capsys.readouterr())


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_without_rows_has_no_heading(
    terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Output(json=False)
    out.terminal = terminal
    out.table(("A",), [])
    assert capsys.readouterr().out == ""


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("progress", "total"),
    [(1e308, 1e308), (1e308, 1e-308), (-1e308, 5e-324), (0, 0), (1, -1), (2, None)],
)
def test_no_numbers_of_a_server_are_too_much_for_the_bar(
    progress: float, total: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = ProgressBar()
    bar.report(progress, total, "at work")
    bar.hide()
    assert "at work" in screen.getvalue()
