"""What commands print, and what is on the terminal meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.text import Text

from syncmcp.cli.output import Output

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
